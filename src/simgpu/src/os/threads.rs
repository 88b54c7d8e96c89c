//! Threads that the simulation starts.

use core::mem::MaybeUninit;
use std::sync::mpsc;

use super::robust_mutex::{RobustMutex, Taken};

/// Starts a thread in which all signals are blocked. So the kernel never gives it a signal that is meant for the program.
pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Option<()> {
    let mut all = MaybeUninit::uninit();
    // SAFETY: `sigfillset` needs room for a set: `all` has it.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::uninit();
    // SAFETY: `pthread_sigmask` needs a set to read and room for a set: `sigfillset` has filled `all`, and `before` has the room.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let started = std::thread::Builder::new().name(name.to_owned()).stack_size(256 << 10).spawn(body);
    // SAFETY: `pthread_sigmask` needs a set to read: the call above has written `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut()) };
    started.ok().map(drop)
}

/// A thread that lives as long as the process. It holds the life lock by which others see that the process lives.
pub(crate) struct LifeThread {
    give: mpsc::Sender<&'static RobustMutex>,
    told: mpsc::Receiver<bool>,
}

impl LifeThread {
    /// Starts the thread. The caller must not hold the lock of the shared file. The reason is that the start of a thread may run
    /// code of the loader, which may block if a library is preloaded.
    pub(crate) fn start() -> Option<Self> {
        let (give, given) = mpsc::channel::<&'static RobustMutex>();
        let (tell, told) = mpsc::channel();
        start("simgpu-life", move || {
            let Ok(alive) = given.recv() else { return };
            let _ = tell.send(alive.try_lock() != Taken::Busy);
            loop {
                // SAFETY: `pause` takes no pointer. All signals are blocked, so it waits for the end of the process.
                unsafe { libc::pause() };
            }
        })?;
        Some(Self { give, told })
    }

    /// Makes the thread take `alive`, and hold it until the process ends.
    pub(crate) fn hold(self, alive: &'static RobustMutex) -> Option<()> {
        self.give.send(alive).ok()?;
        self.told.recv().ok().filter(|ours| *ours).map(|_| ())
    }
}

/// Returns the number that the kernel gives to this thread.
pub(crate) fn number() -> i32 {
    // SAFETY: `gettid` takes no pointer and has no requirement.
    unsafe { libc::gettid() }
}
