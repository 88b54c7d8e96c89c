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
    // SAFETY: `sigfillset` needs a set that is valid for writes: `all` is on this stack.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    for other in others {
        // SAFETY: `sigdelset` needs an initialised set: `sigfillset` has initialised `all` above.
        unsafe { libc::sigdelset(all.as_mut_ptr(), *other) };
    }
    // SAFETY: `pthread_sigmask` needs an initialised set, and an output that is valid for writes: `sigfillset` has initialised
    // `all`, and `before` is on this stack.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
    let done = work();
    // SAFETY: `pthread_sigmask` needs an initialised set, and accepts no output: the call above has written `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    done
}

/// Runs `work` without the two signals that a write may raise. `SIGPIPE` is for a pipe without a reader, and `SIGXFSZ` for a file
/// that may not grow.
pub(crate) fn without_signals_of_writes(work: impl FnOnce()) {
    without_signal(libc::SIGPIPE, || without_signal(libc::SIGXFSZ, work));
}

/// Runs `work` with a signal blocked on this thread. If `work` has raised the signal, removes it before the mask is restored. A
/// signal that was pending before stays pending.
fn without_signal(signal: libc::c_int, work: impl FnOnce()) {
    // SAFETY: `zeroed` needs a type for which zeroes are valid: a signal set is an array of integers.
    let mut caused: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `zeroed` needs a type for which zeroes are valid, as for `caused`.
    let mut before: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `zeroed` needs a type for which zeroes are valid, as for `caused`.
    let mut pending: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `sigaddset` needs an initialised set: `caused` was zeroed above, which is the empty set.
    unsafe { libc::sigaddset(&raw mut caused, signal) };
    // SAFETY: `sigpending` needs a set that is valid for writes: `pending` is on this stack.
    unsafe { libc::sigpending(&raw mut pending) };
    // SAFETY: `sigismember` needs an initialised set: `pending` was zeroed above.
    let was_pending = unsafe { libc::sigismember(&raw const pending, signal) } == 1;
    // SAFETY: `pthread_sigmask` needs an initialised set, and an output that is valid for writes: `caused` was filled by
    // `sigaddset`, and `before` is on this stack.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const caused, &raw mut before) };
    work();
    if !was_pending {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `sigtimedwait` needs an initialised set and a time that can be read, and accepts no output. `sigaddset` has
        // filled `caused`, and `now` is on this stack. With a time of zero it returns at once.
        unsafe { libc::sigtimedwait(&raw const caused, ptr::null_mut(), &raw const now) };
    }
    // SAFETY: `pthread_sigmask` needs an initialised set, and accepts no output: the call above has written `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
}
