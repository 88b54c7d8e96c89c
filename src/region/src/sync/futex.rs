//! How does a process sleep until it may use GPU time, and how is it woken by another one?
//!
//! With a futex: the kernel compares the word with what the sleeper saw of it, so no ring is lost in between.

use core::ptr;

use crate::sync::{atomics::Bell, clock};

/// The longest sleep, in nanoseconds. Who sleeps on a region that is lost is woken by nobody.
const LONGEST: u64 = 1_000_000_000;

/// Sleeps until the bell rings, `until` has come on the monotonic clock, or a signal was handled; not at all if it
/// has rung since it was `heard`. A second at most: the caller looks again anyway.
pub(crate) fn sleep(bell: &Bell, heard: u32, until: u64) {
    let now = clock::now();
    if until <= now {
        return;
    }
    let until = time_of(until.min(now.saturating_add(LONGEST)));
    let (none, operation) = (ptr::null_mut::<u32>(), libc::FUTEX_WAIT_BITSET);
    // SAFETY: the word is mapped for as long as it is borrowed, and the time outlives the call; the kernel reads both.
    // A word whose file was shortened makes the call fail.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            bell.address(),
            operation,
            heard,
            ptr::from_ref(&until),
            none,
            libc::FUTEX_BITSET_MATCH_ANY,
        );
    }
}

/// Wakes all who sleep.
pub(crate) fn ring(bell: &Bell) {
    bell.count();
    // SAFETY: the word is mapped for as long as it is borrowed; the kernel takes its address for a name.
    unsafe { libc::syscall(libc::SYS_futex, bell.address(), libc::FUTEX_WAKE, i32::MAX) };
}

fn time_of(nanoseconds: u64) -> libc::timespec {
    let part = |number: u64| libc::c_long::try_from(number).unwrap_or(libc::c_long::MAX);
    libc::timespec {
        tv_sec: part(nanoseconds / 1_000_000_000),
        tv_nsec: part(nanoseconds.checked_rem(1_000_000_000).unwrap_or(0)),
    }
}
