//! Signal masks of threads. No handler of the program runs within the library's own work.

use core::mem::{self, MaybeUninit};
use core::ptr;

/// Runs `work` with all signals blocked on this thread, and restores the thread's mask.
pub(crate) fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    without_signals_but(&[], work)
}

/// Runs `work` with all signals but `others` blocked on this thread, and restores the thread's mask.
pub(crate) fn without_signals_but<T>(others: &[libc::c_int], work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is valid for writes.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    for other in others {
        // SAFETY: `all` was filled above.
        unsafe { libc::sigdelset(all.as_mut_ptr(), *other) };
    }
    // SAFETY: `all` was filled, and `before` is valid for writes.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
    let done = work();
    // SAFETY: `before` is the mask that the call above wrote.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    done
}

/// Runs `work` with `SIGPIPE` blocked on this thread, and takes back a `SIGPIPE` that `work` caused.
pub(crate) fn without_sigpipe(work: impl FnOnce()) {
    // SAFETY: a signal set is plain memory, and all zeroes is a valid one.
    let mut pipe: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: all zeroes is a valid signal set.
    let mut before: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: all zeroes is a valid signal set.
    let mut pending: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: a valid set and a valid signal.
    unsafe { libc::sigaddset(&raw mut pipe, libc::SIGPIPE) };
    // SAFETY: writes to a valid set.
    unsafe { libc::sigpending(&raw mut pending) };
    // SAFETY: a valid set and a valid signal.
    let was_pending = unsafe { libc::sigismember(&raw const pending, libc::SIGPIPE) } == 1;
    // SAFETY: valid sets; the mask of this thread is put back below.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before) };
    work();
    if !was_pending {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: valid set and time; returns at once.
        unsafe { libc::sigtimedwait(&raw const pipe, ptr::null_mut(), &raw const now) };
    }
    // SAFETY: `before` is the mask that `pthread_sigmask` wrote above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
}
