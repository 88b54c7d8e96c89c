//! Futex wait and wake on a word of this process.
//!
//! Only the kernel knows a waiting thread, and no list of the library contains it. So a signal handler may leave the wait by
//! `longjmp`; a thread that is queued in a lock's own list must not.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

/// Waits until the word differs from `before`, or until `most` has passed. Waits for at most one second.
pub(crate) fn wait(word: &AtomicU32, before: u32, most: Duration) {
    let nanoseconds = libc::c_long::try_from(most.as_nanos()).unwrap_or(libc::c_long::MAX);
    let most = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds.clamp(0, 999_999_999) };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the system call needs a word and a time that can be read: both outlive the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, before, ptr::from_ref(&most)) };
}

/// Wakes at most `threads` threads that wait for the word.
pub(crate) fn wake(word: &AtomicU32, threads: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel uses the word's address as a name and does not access it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, threads) };
}
