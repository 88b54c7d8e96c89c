//! Futex wait and wake on a word of this process.
//!
//! Only the kernel knows a waiting thread: no list of the library contains it. So a signal handler may leave the wait by
//! `longjmp`. If a lock had the thread in a list of its own, such a jump would leave the list damaged.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

/// Waits until a thread wakes this one, or until `most` has passed, for one second at most. Returns at once if the word differs
/// from `before`.
pub(crate) fn wait(word: &AtomicU32, before: u32, most: Duration) {
    let nanoseconds = libc::c_long::try_from(most.as_nanos()).unwrap_or(libc::c_long::MAX);
    let most = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds.clamp(0, 999_999_999) };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the system call requires a word and a time that are valid for reads: both are references that outlive the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, before, ptr::from_ref(&most)) };
}

/// Wakes at most `threads` threads that wait for the word.
pub(crate) fn wake(word: &AtomicU32, threads: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the system call requires no valid memory: the kernel uses the word's address only as a name.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, threads) };
}
