//! What becomes of a `SIGBUS` that a program is sent, and that a thread of the library's own is given?
//!
//! Signals are the program's, and so that thread blocks them all but this one, which must be open for a region that is
//! shortened. Where all threads of the program block it, to wait for it or to have it later, the kernel
//! gives one that is sent to the process to ours. Then ours blocks it too, and sends it to the process once more: there it
//! waits for the program, as it would without us. Once it has been taken, ours opens it again.
//!
//! What cannot be kept: one that `kill` sent comes as from the process itself. And as long as the program leaves one
//! waiting, a region that is shortened ends the process.

#![allow(clippy::disallowed_types, reason = "words of this process alone")]

use core::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

use libc::{SIGBUS, siginfo_t, sigset_t};

/// The thread; 0 where there is none.
static OURS: AtomicI64 = AtomicI64::new(0);
/// Whether it blocks the signal.
static BLOCKS: AtomicBool = AtomicBool::new(false);

/// The calling thread is the library's own, and from now on the signal is open in it. One of a process at a time.
pub fn register_thread() {
    OURS.store(own(), Ordering::Relaxed);
    // It is opened by the first [`unblock`], if none waits for the program already.
    BLOCKS.store(true, Ordering::Relaxed);
    unblock();
}

/// Opens the signal in that thread, which calls this now and then, unless one that was sent waits for the program to take
/// it.
pub fn unblock() {
    if !BLOCKS.load(Ordering::Relaxed) {
        return;
    }
    let mut pending = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: the set is valid for writes.
    unsafe { libc::sigpending(pending.as_mut_ptr()) };
    // SAFETY: filled by the call above, or empty.
    if unsafe { libc::sigismember(pending.as_ptr(), SIGBUS) } != 1 {
        BLOCKS.store(false, Ordering::Relaxed);
        change_mask(libc::SIG_UNBLOCK);
    }
}

/// Within the handler: whether the signal was sent and has come to the thread that is ours. Then it has been sent on.
///
/// # Safety
/// `info` and `context` are what the kernel gave the handler.
pub(crate) unsafe fn forward(info: *mut siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: by the contract above.
    let Some(said) = (unsafe { info.as_ref() }) else { return false };
    if said.si_code > 0 || OURS.load(Ordering::Relaxed) != own() {
        return false;
    }
    BLOCKS.store(true, Ordering::Relaxed);
    // Before it is sent, and for good when the handler returns.
    change_mask(libc::SIG_BLOCK);
    let context: *mut libc::ucontext_t = context.cast();
    // SAFETY: by the contract above; nobody else refers to it.
    if let Some(context) = unsafe { context.as_mut() } {
        // SAFETY: a set of the kernel's.
        unsafe { libc::sigaddset(&raw mut context.uc_sigmask, SIGBUS) };
    }
    // SAFETY: asks for a number.
    let process = unsafe { libc::getpid() };
    // The kernel lets a thread send what it says was queued, and nothing that it says `kill` sent.
    let is_queued = said.si_code < 0
        // SAFETY: numbers, and what the kernel said of the signal.
        && unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, process, SIGBUS, info) } == 0;
    if !is_queued {
        // SAFETY: numbers only.
        unsafe { libc::kill(process, SIGBUS) };
    }
    true
}

fn own() -> i64 {
    // SAFETY: asks for a number.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

fn change_mask(how: libc::c_int) {
    let mut set = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: the set is valid for writes.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: emptied above.
    unsafe { libc::sigaddset(set.as_mut_ptr(), SIGBUS) };
    // SAFETY: a set as above, and nothing to be written.
    unsafe { libc::pthread_sigmask(how, set.as_ptr(), ptr::null_mut()) };
}
