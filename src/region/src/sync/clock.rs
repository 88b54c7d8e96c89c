//! Reads the monotonic clock, and that of a thread.

use gpuslice_policy::time::Monotonic;

/// Returns the present instant of the monotonic clock, the clock of all instants of a region.
#[must_use]
pub fn now() -> Monotonic {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the processor time that this thread has used.
pub(crate) fn of_thread() -> Monotonic {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Monotonic {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` needs a valid pointer to a `timespec`; `time` is one, and lives until after the call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let [seconds, rest] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    Monotonic::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}
