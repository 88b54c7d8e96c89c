//! What becomes of copies that are not paced?
//!
//! They are shown and kept apart. Copies and fills on the device are measured one in so many, and the others are taken
//! to last as long. Where one lies inside a run of kernels, its time is none of theirs: it counts as a gap. Large copies
//! from and to the host end a run, since nobody knows how long the host's memory takes, and so do waits in the stream.

use crate::compute::admission::synchronisation::{Waits, waits};
use crate::compute::launch::Launch;
use crate::compute::state::Compute;
use crate::compute::threads::registry;
use crate::compute::threads::stream_lookup::lane_for;
use crate::compute::threads::thread_state::StreamState;
use crate::driver_calls::streams::Stream;
use crate::os::clock;
use crate::os::reentrancy::quietly;
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::compute::cost::estimate::Estimate;

/// One copy of a kind in so many is measured: two events each would be as dear as a small copy.
const MEASURED: u32 = 16;
/// From so many bytes on a copy from or to the host ends a run: it takes 3 us and more on any bus, and a run's two events
/// take two.
const LARGE: u64 = 64 << 10;

/// A copy on the device or a fill.
pub(crate) fn unpaced(compute: &'static Compute, launch: &Launch, call: impl FnOnce() -> Status) -> Status {
    let Some(mut held) = registry::hold(compute) else { return call() };
    let lane = lane_for(&mut held, compute, launch.stream);
    let before = || {
        let lane = lane?;
        let StreamState { device, joins_legacy, .. } = *held.lanes.get(lane)?;
        let device = device?;
        if joins_legacy {
            held.leave_legacy(compute);
        }
        held.copies = held.copies.wrapping_add(1);
        let known = compute.look_up(&mut held, &launch.key).filter(|known| known.is_certain());
        let taken_for = known.filter(|_| !held.copies.is_multiple_of(MEASURED));
        if taken_for.is_none() {
            held.begin_copy(compute, lane, &launch.key, known.unwrap_or(Estimate::NONE));
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
            return held.end_copy(compute, lane, code == status::SUCCESS);
        }
        let (Some(estimate), true) = (taken_for, code == status::SUCCESS) else { return };
        if let Some(pacer) = compute.pacers.get(device) {
            compute.member().count_copied(pacer.place.device, estimate.plain);
        }
        if let Some(open) = held.lanes.get_mut(lane).and_then(|lane| lane.open.as_mut()) {
            open.run.idle(estimate.plain);
        }
    };
    quietly(after, ());
    code
}

/// A copy from or to the host. `is_sync`: the program waits for it, and so for what the stream did before.
pub(crate) fn host_copy(
    compute: &'static Compute,
    (stream, bytes, is_sync): (Stream, u64, bool),
    call: impl FnOnce() -> Status,
) -> Status {
    if !compute.is_pacing() {
        return call();
    }
    if bytes >= LARGE {
        end_run(compute, stream);
    }
    if is_sync { waits(compute, Waits::Stream(stream), call) } else { call() }
}

/// What a stream is to do next is no work of the GPU's, and takes nobody knows how long.
pub(crate) fn ends_run(compute: &'static Compute, stream: Stream) {
    if compute.is_pacing() {
        end_run(compute, stream);
    }
}

/// What the calling thread has launched on a stream, and on those that wait for it, is measured up to here.
fn end_run(compute: &'static Compute, stream: Stream) {
    let close = || {
        if let Some(mut held) = registry::hold(compute) {
            held.enters(clock::cycles());
            if !stream.is_legacy() {
                held.leave_legacy(compute);
            }
            held.close_where(compute, |lane| {
                lane.stream == stream || (stream.is_legacy() && lane.joins_legacy)
            });
        }
    };
    quietly(close, ());
}
