//! Forwards to the program a `SIGBUS` that the kernel delivers to one of the library's own threads.
//!
//! Signals belong to the program, so the library's threads block all of them. The exception is `SIGBUS`, which must be
//! open for the case that a region is truncated.
//!
//! A program may block `SIGBUS` in all its threads, to wait for it or to handle it later. The kernel then delivers a
//! `SIGBUS` that is sent to the process to a thread of the library. That thread blocks the signal too, and sends it to the
//! process again. When all of them block it, it stays pending for the program, as it would without the library. When the
//! program has taken it, the library's threads unblock the signal again.
//!
//! Two differences from a program without the library remain. A signal that `kill` sent appears to come from the process
//! itself. While a signal is pending, a truncated region ends the process.

#![allow(clippy::disallowed_types, reason = "words of this process alone")]

use core::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

use libc::{SIGBUS, siginfo_t, sigset_t};

/// A thread of the library. A process has one of each at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibraryThread {
    /// The thread that polls timing events.
    Worker,
    /// The thread that asks NVML.
    Nvml,
}

/// State of a thread of the library, for the signal handler.
struct Registered {
    /// Number of the thread; 0: there is none.
    number: AtomicI64,
    /// Whether the thread blocks the signal.
    blocks: AtomicBool,
}

/// The threads, by [`LibraryThread`].
static THREADS: [Registered; 2] =
    [const { Registered { number: AtomicI64::new(0), blocks: AtomicBool::new(false) } }; 2];

impl LibraryThread {
    const fn registered(self) -> &'static Registered {
        let [worker, nvml] = &THREADS;
        match self {
            Self::Worker => worker,
            Self::Nvml => nvml,
        }
    }
}

/// Registers the calling thread as one of the library's own, and unblocks the signal in it.
pub fn register_thread(thread: LibraryThread) {
    let registered = thread.registered();
    registered.number.store(own(), Ordering::Relaxed);
    // The call below unblocks the signal, unless a signal is already pending for the program.
    registered.blocks.store(true, Ordering::Relaxed);
    unblock(thread);
}

/// Unblocks the signal in the calling thread, unless one is pending for the program. Each thread of the library calls this
/// function from time to time.
pub fn unblock(thread: LibraryThread) {
    let blocks = &thread.registered().blocks;
    if !blocks.load(Ordering::Relaxed) {
        return;
    }
    let mut pending = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: `sigpending` needs room for a set, which `pending` is.
    unsafe { libc::sigpending(pending.as_mut_ptr()) };
    // SAFETY: `sigismember` needs a valid set. `pending` was filled by `sigpending`, or is all zeroes, which is the
    // empty set.
    if unsafe { libc::sigismember(pending.as_ptr(), SIGBUS) } != 1 {
        blocks.store(false, Ordering::Relaxed);
        change_mask(libc::SIG_UNBLOCK);
    }
}

/// Forwards a signal that a process sent and that the kernel delivered to a thread of the library. The signal handler calls
/// this function. Returns false for every other signal.
///
/// # Safety
/// `info` and `context` are the arguments that the kernel passed to the handler.
pub(crate) unsafe fn forward(info: *mut siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: `as_ref` needs null or a valid pointer. The caller passes the kernel's `info`, which is valid until the
    // handler returns.
    let Some(said) = (unsafe { info.as_ref() }) else { return false };
    if said.si_code > 0 {
        return false;
    }
    let own = own();
    let ours = THREADS.iter().find(|thread| thread.number.load(Ordering::Relaxed) == own);
    let Some(ours) = ours else { return false };
    ours.blocks.store(true, Ordering::Relaxed);
    // The thread blocks the signal before it sends the signal again. The change in `context` below keeps it blocked after
    // the handler returns.
    change_mask(libc::SIG_BLOCK);
    let context: *mut libc::ucontext_t = context.cast();
    // SAFETY: `as_mut` needs null or a valid pointer without other references. The caller passes the kernel's
    // `context`, to which no other reference exists here.
    if let Some(context) = unsafe { context.as_mut() } {
        // SAFETY: `sigaddset` needs a valid set. The kernel has written `uc_sigmask`.
        unsafe { libc::sigaddset(&raw mut context.uc_sigmask, SIGBUS) };
    }
    // SAFETY: `getpid` has no arguments and cannot fail.
    let process = unsafe { libc::getpid() };
    // The kernel lets a thread send again a signal that says it was queued, but not one that says `kill` sent it.
    let is_queued = said.si_code < 0
        // SAFETY: `rt_sigqueueinfo` needs a valid `siginfo_t`, which `info` is.
        && unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, process, SIGBUS, info) } == 0;
    if !is_queued {
        // SAFETY: `kill` takes numbers only.
        unsafe { libc::kill(process, SIGBUS) };
    }
    true
}

/// Returns the number of the calling thread.
fn own() -> i64 {
    // SAFETY: `gettid` has no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

/// Blocks or unblocks the signal in the calling thread.
fn change_mask(how: libc::c_int) {
    let mut set = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: `sigemptyset` needs room for a set, which `set` is.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: `sigaddset` needs a valid set; `sigemptyset` has just made `set` one.
    unsafe { libc::sigaddset(set.as_mut_ptr(), SIGBUS) };
    // SAFETY: `pthread_sigmask` needs a valid set, and null or room for the old mask. `set` was filled above, and the
    // last argument is null.
    unsafe { libc::pthread_sigmask(how, set.as_ptr(), ptr::null_mut()) };
}
