//! The worker: a background thread that ticks once a millisecond while work is under way, and sleeps otherwise.
//!
//! It starts with the first batch. All signals except `SIGBUS` are blocked in it, because signals are for the program's threads.
//! It stops before the driver is torn down at the process's exit.

use super::tick::tick;
use crate::compute::attribution::nvml_schedule::LINGER;
use crate::compute::cotenants::state::{needs_arbiter, tick_interval};
use crate::compute::measuring::usage::UsageState;
use crate::compute::state::Compute;
use crate::driver_calls::capture_mode;
use crate::os::clock::{self, ClockPair};
use crate::os::reentrancy::catch_panic;
use crate::os::signals::without_signals;
use crate::os::{asymmetric_fence, messages, thread};
use core::ffi::c_void;
use core::ptr;
use core::time::Duration;
use gpuslice_policy::config::LogLevel;
use gpuslice_region::sigbus_forwarding::{self, LibraryThread};
use std::time::Instant;

/// Time for which the exit of the process waits for a tick and a question to NVML to end, both together.
const AT_EXIT: Duration = Duration::from_millis(100);
/// Number of ticks without work under way after which the worker sleeps.
const IDLE_TICKS: u32 = 20;

/// Starts the worker if it does not run, and wakes it if it sleeps. A caller that opens a batch has counted the batch before. So
/// a worker that is about to sleep sees the count, or this call sees that the worker sleeps.
#[inline]
pub(crate) fn ensure(compute: &'static Compute) {
    if compute.worker.status.is_unstarted() {
        start(compute);
    }
    compute.worker.wake();
}

#[cold]
fn start(compute: &'static Compute) {
    clock::compare_first();
    let status = &compute.worker.status;
    if !status.try_start() {
        return;
    }
    let started = without_signals(|| thread::spawn(compute, 256 << 10, main));
    if let Err(error) = started {
        status.set_failed();
        let text = format_args!(
            "gpuslice: no thread can be started ({error}); GPU time is measured only while launches wait."
        );
        messages::say(LogLevel::Warn, &text);
    }
    // The function for the process's end is registered even if no worker runs. Threads that wait for a batch then do its ticks,
    // and must stop at the end of the process.
    end_with_process(compute);
}

extern "C" fn main(argument: *mut c_void) -> *mut c_void {
    thread::set_name(c"gpuslice");
    // SAFETY: `argument_of` requires a pointer to a living `Compute`: `start` passes a `&'static Compute`.
    if let Some(compute) = unsafe { thread::argument_of::<Compute>(argument) } {
        compute.worker.status.run(|| run(compute));
    }
    ptr::null_mut()
}

/// Body of a thread that only prepares the asymmetric fence.
extern "C" fn prepare_fence(_: *mut c_void) -> *mut c_void {
    thread::set_name(c"gpuslice-once");
    let _prepared = catch_panic(asymmetric_fence::prepare);
    ptr::null_mut()
}

/// Ticks until the process ends. After [`IDLE_TICKS`] ticks without work it gives its arbiter leases back, and sleeps until a
/// thread wakes it.
fn run(compute: &'static Compute) {
    let worker = &compute.worker;
    // The worker always keeps the relaxed mode. In another mode its calls would invalidate a capture that a thread of the program
    // makes in global mode.
    capture_mode::exchange_capture_mode(capture_mode::RELAXED);
    // The preparation has a thread of its own. It takes tens of milliseconds, and the worker has to measure the first launches in
    // that time. If no thread can be started, launches keep their own fences.
    let _done = thread::spawn(compute, 64 << 10, prepare_fence);
    // The registration comes after the spawn above, because the spawned thread needs no signal.
    sigbus_forwarding::register_thread(LibraryThread::Worker);
    let begun = ClockPair::read();
    let mut idle = 0_u32;
    while !worker.is_ending() {
        sigbus_forwarding::unblock(LibraryThread::Worker);
        let is_busy = {
            // The worker reads the word again under the lock: the exit sets the word and then takes the lock, so no tick begins
            // after that.
            let _tick = worker.tick_lock.lock();
            !worker.is_ending() && tick(compute)
        };
        worker.count_tick();
        idle = if is_busy { 0 } else { idle.saturating_add(1) };
        if idle < IDLE_TICKS {
            gpuslice_region::pause(tick_interval(compute));
            continue;
        }
        clock::compare(begun);
        // The idle process gives its arbiter leases back, so that other processes can divide the GPUs. Otherwise these would wait
        // for a tenth of a second, until the leases expire.
        compute.cotenants.release_arbiter(compute);
        let is_open = compute.cotenants.close_idle();
        // The worker calls `is_needed` after it has marked itself as asleep. So it sees work that was counted before that, and
        // later work wakes it. While regions of co-tenants are open, it wakes after `LINGER` to close them.
        let is_needed = || compute.is_anything_under_way() || needs_arbiter(compute);
        worker.sleep(is_needed, is_open.then_some(LINGER.duration()));
        idle = 0;
    }
    compute.cotenants.release_arbiter(compute);
}

/// Registers a function that stops the worker before the driver is torn down. The C library calls such functions in reverse
/// order, and the driver was initialised before this call.
///
/// Otherwise a tick could call the driver while the driver is torn down. The function does not join the threads: one of them may
/// be inside the driver or NVML for long, and the exit would hang. It takes the locks under which they call, and waits for
/// [`AT_EXIT`] at most. A call that takes longer may still run during the teardown.
fn end_with_process(usage: &'static UsageState) {
    unsafe extern "C" {
        fn __cxa_atexit(
            function: unsafe extern "C" fn(*mut c_void),
            argument: *mut c_void,
            library: *mut c_void,
        ) -> libc::c_int;
    }
    unsafe extern "C" fn end(argument: *mut c_void) {
        let _ended = catch_panic(|| {
            // SAFETY: `argument_of` requires a pointer to a living `UsageState`: the call of `__cxa_atexit` below passes `usage`.
            let registered = unsafe { thread::argument_of::<UsageState>(argument) };
            // A forked child that is in no slice has no state, and does not join at its exit. In a chain of forks each process
            // registers the function once more. Only the first call has to stop the worker.
            let own = registered.and_then(|usage| (usage.of_this_process)());
            if let Some(usage) = own.filter(|usage| usage.worker.end()) {
                usage.worker.wake();
                // The locks are never released, so no tick and no question begins after this.
                let until = Instant::now() + AT_EXIT;
                core::mem::forget(usage.worker.tick_lock.try_lock_until(until));
                core::mem::forget(usage.nvml.question_lock.try_lock_until(until));
                usage.by_nvml().for_each(|(nvml_only, gpu)| nvml_only.end(usage, gpu));
            }
        });
    }
    // SAFETY: `__cxa_atexit` requires that function and argument exist until the exit: the library is never unloaded, and `usage`
    // is `'static`.
    unsafe { __cxa_atexit(end, ptr::from_ref(usage).cast_mut().cast(), ptr::null_mut()) };
}
