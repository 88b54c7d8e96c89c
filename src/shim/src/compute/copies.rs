//! What becomes of copies that are not paced?
//!
//! They are shown and kept apart. Copies and fills on the device are measured one in so many, and the others are taken
//! to last as long. Where one lies inside a run of kernels, its time is none of theirs: it counts as a gap. Large copies
//! from and to the host end a run, since nobody knows how long the host's memory takes, and so do waits in the stream.

use super::gate::lane_for;
use super::seat::Lane;
use super::waits::{Waits, waits};
use super::{Launch, threads};
use crate::driver_calls::streams::Stream;
use crate::os::clock;
use crate::os::reentrancy::quietly;
use crate::process::{self, Process, Standing};
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::compute::cost::estimate::Estimate;

/// One copy of a kind in so many is measured: two events each would be as dear as a small copy.
const MEASURED: u32 = 16;
/// From so many bytes on a copy from or to the host ends a run: it takes 3 us and more on any bus, and a run's two events
/// take two.
const LARGE: u64 = 64 << 10;

/// A copy on the device or a fill.
pub(super) fn unpaced(process: &'static Process, launch: &Launch, call: impl FnOnce() -> Status) -> Status {
    let Some(mut held) = threads::hold(process) else { return call() };
    let lane = lane_for(&mut held, process, launch.stream);
    let before = || {
        let lane = lane?;
        let Lane { device, joins_legacy, .. } = *held.lanes.get(lane)?;
        let device = device?;
        if joins_legacy {
            held.leave_legacy(process);
        }
        held.copies = held.copies.wrapping_add(1);
        let known = process.compute.look_up(&mut held, &launch.key).filter(|known| known.is_certain());
        let taken_for = known.filter(|_| !held.copies.is_multiple_of(MEASURED));
        if taken_for.is_none() {
            held.begin_copy(process, lane, &launch.key, known.unwrap_or(Estimate::NONE));
        }
        Some((lane, device, taken_for))
    };
    let Some((lane, device, taken_for)) = quietly(before, None) else {
        drop(held);
        return call();
    };
    let code = call();
    let after = || {
        if taken_for.is_none() {
            return held.end_copy(process, lane, code == status::SUCCESS);
        }
        let (Some(estimate), true) = (taken_for, code == status::SUCCESS) else { return };
        if let Some(pacer) = process.compute.pacers.get(device) {
            process.member().count_copied(pacer.place.device, estimate.plain);
        }
        if let Some(open) = held.lanes.get_mut(lane).and_then(|lane| lane.open.as_mut()) {
            open.run.idle(estimate.plain);
        }
    };
    quietly(after, ());
    code
}

/// Whether this process's launches are paced now.
pub(crate) fn is_paced() -> bool {
    matches!(process::standing(), Standing::Member(process) if process.compute.is_pacing(process))
}

/// A copy from or to the host. `is_sync`: the program waits for it, and so for what the stream did before.
pub(crate) fn host_copy(stream: Stream, bytes: u64, is_sync: bool, call: impl FnOnce() -> Status) -> Status {
    let Standing::Member(process) = process::standing() else { return call() };
    if !process.compute.is_pacing(process) {
        return call();
    }
    if bytes >= LARGE {
        end_run(process, stream);
    }
    if is_sync { waits(process, Waits::Stream(stream), call) } else { call() }
}

/// What a stream is to do next is no work of the GPU's, and takes nobody knows how long.
pub(crate) fn ends_run(stream: Stream, call: impl FnOnce() -> Status) -> Status {
    if let Standing::Member(process) = process::standing()
        && process.compute.is_pacing(process)
    {
        end_run(process, stream);
    }
    call()
}

/// What the calling thread has launched on a stream, and on those that wait for it, is measured up to here.
fn end_run(process: &'static Process, stream: Stream) {
    let close = || {
        if let Some(mut held) = threads::hold(process) {
            held.enters(clock::cycles());
            if !stream.is_legacy() {
                held.leave_legacy(process);
            }
            held.close_where(process, |lane| {
                lane.stream == stream || (stream.is_legacy() && lane.joins_legacy)
            });
        }
    };
    quietly(close, ());
}
