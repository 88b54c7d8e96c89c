//! Sleeps without the risk of a panic, and without a cancellation point.
//!
//! The sleep of the standard library panics in a sandbox that forbids `clock_nanosleep`. A library in a foreign process
//! must not panic, so [`pause`] falls back to other calls.
//!
//! If another thread has cancelled a thread, the C library ends that thread within its sleep. That would unwind the stack
//! of the library that calls [`pause`]. So [`pause`] calls the kernel directly.

use core::{ptr, time::Duration};

/// Sleeps for `time` or a little longer.
///
/// If the kernel forbids `clock_nanosleep`, the thread calls `poll` without descriptors instead. If the kernel forbids
/// `poll` too, the thread yields the processor once and returns early.
pub fn pause(time: Duration) {
    let mut left = libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(time.subsec_nanos()),
    };
    loop {
        // SAFETY: the kernel's `clock_nanosleep` needs a valid request and room for the remainder. Both are `left`, which
        // the call may alias and which outlives it.
        let failed = unsafe {
            libc::syscall(libc::SYS_clock_nanosleep, libc::CLOCK_MONOTONIC, 0, &raw const left, &raw mut left)
        };
        if failed == 0 {
            return;
        }
        // A signal was handled: the loop sleeps for the remainder.
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            break;
        }
    }
    let milliseconds = libc::c_int::try_from(time.as_millis().max(1)).unwrap_or(libc::c_int::MAX);
    let none = ptr::null_mut::<libc::pollfd>();
    // SAFETY: the kernel's `poll` needs an array of the given length: with length 0 it reads none.
    if unsafe { libc::syscall(libc::SYS_poll, none, 0, milliseconds) } != 0 {
        std::thread::yield_now();
    }
}
