//! Puts a thread to sleep until another process wakes it, with a futex.
//!
//! The kernel compares the word with the value that the sleeper has read before. If the word has changed, the thread
//! does not sleep, so no wake-up is lost.

use core::ptr;

use crate::sync::{atomics::WakeSeq, clock};
use gpuslice_policy::time::{Monotonic, WallTime};

/// The longest sleep. No process wakes a thread that sleeps on a lost region.
const LONGEST_SLEEP: WallTime = WallTime::from_millis(1_000);

/// Sleeps until another process calls [`wake_all`], the monotonic clock reaches `until`, or the thread handles a
/// signal.
///
/// The thread does not sleep if `word` no longer has the value `seen`. It sleeps for one second at most, and the caller
/// looks at its condition again in any case.
pub(crate) fn sleep(word: &WakeSeq, seen: u32, until: Monotonic) {
    let now = clock::now();
    if until <= now {
        return;
    }
    let until = time_of(until.min(now.saturating_add(LONGEST_SLEEP)));
    let (none, operation) = (ptr::null_mut::<u32>(), libc::FUTEX_WAIT_BITSET);
    // SAFETY: `FUTEX_WAIT_BITSET` reads the word and the time. The borrow of `word` keeps it mapped, and `until` lives
    // until after the call. If the file was truncated, the call fails.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.address(),
            operation,
            seen,
            ptr::from_ref(&until),
            none,
            libc::FUTEX_BITSET_MATCH_ANY,
        );
    }
}

/// Wakes all threads that sleep on `word`, in all processes.
pub(crate) fn wake_all(word: &WakeSeq) {
    word.count();
    // SAFETY: `FUTEX_WAKE` uses the address only as a key. The borrow of `word` keeps it mapped.
    unsafe { libc::syscall(libc::SYS_futex, word.address(), libc::FUTEX_WAKE, i32::MAX) };
}

fn time_of(instant: Monotonic) -> libc::timespec {
    let part = |number: u64| libc::c_long::try_from(number).unwrap_or(libc::c_long::MAX);
    libc::timespec {
        tv_sec: part(instant.nanos() / 1_000_000_000),
        tv_nsec: part(instant.nanos().checked_rem(1_000_000_000).unwrap_or(0)),
    }
}
