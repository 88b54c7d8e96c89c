//! Waits of a launching thread for batches to end: it sleeps, and polls in place of a late worker.
//!
//! Example: the worker gets no processor for 50 ms. A thread waits for a batch that ends after 1 ms. It sleeps for 2 ms, sees
//! that the worker has not ended a tick meanwhile, and polls the timing events itself.

use super::tick::tick;
use crate::compute::state::Compute;
use crate::driver_calls::capture_mode::relaxed_if_capturing;
use crate::os::signals::without_signals_but;
use core::time::Duration;
use gpuslice_policy::arbiter;
use gpuslice_policy::time::WallTime;

/// Time without an ended tick of the worker after which a waiting thread polls itself.
const WORKER_LATE: Duration = Duration::from_millis(2);
/// Longest sleep of a waiting thread while another thread is the poller. If many threads woke more often, they would occupy a
/// processor.
const OTHERS_SLEEP: Duration = Duration::from_millis(10);
/// Time for which a poller sleeps before its first poll.
const FIRST_POLL: Duration = Duration::from_micros(50);

/// Waits until there are more completions than `before`, or for `most`. It may return earlier, so the caller checks again.
///
/// The caller has read `before` before it found that it has to wait. So an end in between changes the word, and the wait returns
/// at once. The caller has closed its batches: otherwise it could wait for a batch that is still open.
pub(crate) fn wait_for_completion(compute: &'static Compute, before: u32, most: Duration) {
    let worker = &compute.worker;
    if !worker.status.is_running() {
        // Only waiting threads poll, as often as the worker would. They do whole ticks, because no other thread does the rest.
        gpuslice_region::pause(arbiter::ARBITER_STEP.duration().min(most));
        let _is_busy = undisturbed(|| tick(compute));
        return;
    }
    worker.wake();
    if most < WORKER_LATE || !worker.try_become_poller(WallTime::of(WORKER_LATE)) {
        // Either the wait is so short that it ends before the worker counts as late, or another thread is the poller. The poller
        // may stop meanwhile, and then no thread announces the end of the batch. So the sleep is bounded.
        worker.wait_for_completion(before, most.min(OTHERS_SLEEP));
        return;
    }
    // The worker is late only if it has ended no tick meanwhile. If it has ended one, it has found that no batch has ended.
    let ticks = worker.ticks();
    worker.wait_for_completion(before, WORKER_LATE);
    worker.stop_polling();
    if worker.ticks() == ticks && worker.completions() == before {
        poll_once(compute);
    }
}

/// Waits like [`wait_for_completion`], for a batch that may end at any moment while the GPU has no other work. The thread polls
/// itself, first after [`FIRST_POLL`], and then after pauses that double.
///
/// Example: kernels of 10 µs whose cost is not known yet. The worker would see their end a millisecond later, and the GPU would
/// be idle meanwhile. One thread at a time polls like this, and for a few milliseconds only, because each poll calls the driver.
pub(crate) fn poll_for_completion(compute: &'static Compute, before: u32, most: Duration) {
    let worker = &compute.worker;
    if !worker.status.is_running() || !worker.try_become_poller(WallTime::of(WORKER_LATE)) {
        return wait_for_completion(compute, before, most);
    }
    let (mut waited, mut pause) = (Duration::ZERO, FIRST_POLL);
    while waited < WORKER_LATE.min(most) && worker.completions() == before && !worker.is_ending() {
        worker.wait_for_completion(before, pause);
        waited = waited.saturating_add(pause);
        pause = pause.saturating_mul(2);
        if worker.completions() == before {
            poll_once(compute);
        }
    }
    worker.stop_polling();
}

/// Polls the events of launches of unknown cost, because the program has waited for the GPU. The program may end before the next
/// tick. Without the poll such a launch would then be charged as if it still ran.
pub(crate) fn poll_unknown(compute: &'static Compute) {
    if compute.limiters.iter().any(|limiter| limiter.has_unknown()) {
        poll_once(compute);
        compute.report();
    }
}

/// Polls once on a thread of the program, unless another thread polls or the process ends. It does not wait for another poll,
/// because the driver may block that poll. The thread of that poll announces the end itself.
fn poll_once(compute: &'static Compute) {
    if !compute.worker.is_ending() && undisturbed(|| compute.meter.try_poll_events(compute)) > 0 {
        compute.worker.announce_completion();
    }
}

/// Runs a poll on a thread of the program. Signals are blocked: if a signal handler left the poll by a jump, the meter's lock
/// would stay locked. In a program with captures the poll runs in relaxed mode, so that it does not invalidate them.
fn undisturbed<T>(poll: impl FnOnce() -> T) -> T {
    /// Signals that the thread's own instructions raise. If these were blocked, they would end the process.
    const OWN: [libc::c_int; 6] =
        [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    without_signals_but(&OWN, || relaxed_if_capturing(poll))
}
