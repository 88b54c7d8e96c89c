//! How does a thread wait for a word of this process to change?
//!
//! By the kernel alone, and in no list of ours: a signal handler may leave such a wait by `longjmp`, and who is queued in
//! a lock's own list must not.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

/// Waits until the word is another one than `before`, or for so long, a second at most.
pub(super) fn wait(word: &AtomicU32, before: u32, most: Duration) {
    let nanoseconds = libc::c_long::try_from(most.as_nanos()).unwrap_or(libc::c_long::MAX);
    let most = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds.clamp(0, 999_999_999) };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel reads the word and the time, and both outlive the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, before, ptr::from_ref(&most)) };
}

/// Wakes so many of those who wait.
pub(super) fn wake(word: &AtomicU32, threads: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel takes the word's address for a name.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, threads) };
}
