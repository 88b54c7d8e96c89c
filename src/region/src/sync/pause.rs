//! How does a thread rest without a panic?
//!
//! The standard library's sleep panics where a sandbox forbids `clock_nanosleep`. A guest in somebody else's process
//! rests by whatever the kernel allows.

use core::{ptr, time::Duration};

/// Rests for so long, or a little longer. Where the kernel forbids to sleep it waits for no descriptor instead, and where
/// it forbids that as well it gives up the processor once.
pub fn pause(time: Duration) {
    let mut left = libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(time.subsec_nanos()),
    };
    loop {
        // SAFETY: one time is read and the same one written, which the call allows; both outlive it.
        let failed =
            unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const left, &raw mut left) };
        match failed {
            0 => return,
            // A signal was handled: what is left is rested as well.
            libc::EINTR => {}
            _ => break,
        }
    }
    let milliseconds = libc::c_int::try_from(time.as_millis().max(1)).unwrap_or(libc::c_int::MAX);
    // SAFETY: no descriptors are named, so none is read.
    if unsafe { libc::poll(ptr::null_mut(), 0, milliseconds) } != 0 {
        std::thread::yield_now();
    }
}
