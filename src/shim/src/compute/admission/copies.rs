//! Copies that are not paced, and other work that ends a batch.
//!
//! The library counts the time of copies apart from the time of kernels. It measures one in 16 copies and fills on the
//! device, and assumes the same duration for the others. A copy inside a batch of kernels counts as a gap of the batch.
//! Large copies from and to the host end a batch, because accesses to the host's memory may take any time. Waits in the
//! stream also end a batch.

use super::synchronisation::{Waits, waits};
use crate::compute::launch::Launch;
use crate::compute::state::Compute;
use crate::compute::threads::stream_lookup::stream_for;
use crate::compute::threads::stream_state::StreamState;
use crate::compute::worker::thread::ensure;
use crate::driver_calls::streams::Stream;
use crate::os::clock::CycleInstant;
use crate::os::reentrancy::enter_or;
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::compute::cost::estimate::Estimate;

/// One copy in 16 of each kind is measured, because two events for each copy would cost as much as a small copy.
const MEASURED: u32 = 16;
/// Size of the smallest copy from or to the host that ends a batch. Such a copy takes at least 3 us on any bus, about
/// as long as the two events of a batch.
const LARGE_COPY: u64 = 64 << 10;

/// Makes a copy on the device or a fill, which is not paced.
///
/// A copy of known duration does not close the open batch, and counts in it as a gap. A copy that the library measures gets a
/// batch of its own. If each copy closed the batch, a program that copies between small kernels would get two events per kernel.
///
/// The library's work before and after the call is in two phases, because a phase must not contain the driver's call. During that
/// call the driver may call a function of the program that launches. The library must not take that launch for its own.
pub(super) fn unpaced(compute: &'static Compute, launch: &Launch, call: impl FnOnce() -> Status) -> Status {
    let Some(mut held) = compute.acquire_own() else { return call() };
    let at = stream_for(&mut held, compute, launch.stream);
    let before = || {
        let at = at?;
        let StreamState { device, joins_legacy, .. } = *held.streams.get(at)?;
        let device = device?;
        if joins_legacy {
            held.close_legacy(compute);
        }
        held.copies = held.copies.wrapping_add(1);
        let known = compute.estimates.look_up(&mut held.cache, &launch.key);
        let known = known.filter(|known| known.is_certain());
        // `None`: this copy is measured, because its duration is not certain or because it is the sixteenth.
        let taken_for = known.filter(|_| !held.copies.is_multiple_of(MEASURED));
        if taken_for.is_none() {
            held.begin_copy(compute, at, &launch.key, known.unwrap_or(Estimate::NONE));
        }
        Some((at, device, taken_for))
    };
    let Some((at, device, taken_for)) = enter_or(before, None) else {
        drop(held);
        return call();
    };
    let code = call();
    let after = || {
        if taken_for.is_none() {
            held.end_copy(compute, at, code == status::SUCCESS);
            return ensure(compute);
        }
        let (Some(estimate), true) = (taken_for, code == status::SUCCESS) else { return };
        if let Some(limiter) = compute.limiters.get(device) {
            compute.member().count_copied(limiter.gpu.device, estimate.duration.gpu_if_alone());
        }
        if let Some(open) = held.streams.get_mut(at).and_then(|stream| stream.open.as_mut()) {
            open.batch.add_idle_between(estimate.duration);
        }
    };
    enter_or(after, ());
    code
}

/// Makes a copy from or to the host. `is_sync`: the program waits for it, and so for the work before it in the stream.
///
/// A small copy stays between the kernels of a batch, because two events would take about as long. A large copy may wait for the
/// host's memory, and the kernels would be charged for that wait.
pub(crate) fn host_copy(
    compute: &'static Compute,
    (stream, bytes, is_sync): (Stream, u64, bool),
    call: impl FnOnce() -> Status,
) -> Status {
    if !compute.is_pacing() {
        return call();
    }
    if bytes >= LARGE_COPY {
        end_batch(compute, stream);
    }
    if is_sync { waits(compute, Waits::Stream(stream), call) } else { call() }
}

/// Closes the batches on a stream. The next work on it is not work of the GPU, and may take any time.
pub(crate) fn ends_run(compute: &'static Compute, stream: Stream) {
    if compute.is_pacing() {
        end_batch(compute, stream);
    }
}

/// Closes the calling thread's batches on a stream, and on streams that wait for it.
///
/// Batches of other threads on the stream stay open, because this thread would have to wait for their launches. Such a batch
/// contains the copy or the wait, so its measured time is too long.
fn end_batch(compute: &'static Compute, stream: Stream) {
    let close = || {
        if let Some(mut held) = compute.acquire_own() {
            held.enter_driver(CycleInstant::now());
            if !stream.is_legacy() {
                held.close_legacy(compute);
            }
            // A default stream has the same handle in each context.
            held.close_where(compute, |state| {
                (state.stream == stream || (stream.is_legacy() && state.joins_legacy))
                    && state.can_close_at_once(compute)
            });
        }
    };
    enter_or(close, ());
}
