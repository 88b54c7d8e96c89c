//! Which threads does the simulation start, and what does it keep per thread of the program?

use core::cell::Cell;
use core::mem::MaybeUninit;
use std::sync::mpsc;

use crate::state::lock::{RobustMutex, Taken};

/// Starts a thread of our own: no signal of the program's is delivered to it.
pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Option<()> {
    let mut all = MaybeUninit::uninit();
    // SAFETY: writes the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::uninit();
    // SAFETY: the first set was made above, the second is written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let started = std::thread::Builder::new().name(name.to_owned()).stack_size(256 << 10).spawn(body);
    // SAFETY: the set was written by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut()) };
    started.ok().map(drop)
}

/// A thread whose life will be the process's.
pub(crate) struct Life {
    give: mpsc::Sender<&'static RobustMutex>,
    told: mpsc::Receiver<bool>,
}

impl Life {
    /// Starts it. Not under a lock of the shared file: starting a thread goes through the loader, where a preloaded
    /// library may stand still.
    pub(crate) fn start() -> Option<Self> {
        let (give, given) = mpsc::channel::<&'static RobustMutex>();
        let (tell, told) = mpsc::channel();
        start("simgpu-life", move || {
            let Ok(alive) = given.recv() else { return };
            let _ = tell.send(alive.try_lock() != Taken::Busy);
            loop {
                // SAFETY: waits for a signal; all are blocked, so for the end of the process.
                unsafe { libc::pause() };
            }
        })?;
        Some(Self { give, told })
    }

    /// Makes it hold `alive` until the process ends.
    pub(crate) fn hold(self, alive: &'static RobustMutex) -> Option<()> {
        self.give.send(alive).ok()?;
        self.told.recv().ok().filter(|ours| *ours).map(|_| ())
    }
}

/// Contexts that one thread can stack.
const STACK: usize = 64;

thread_local! {
    // Without destructors, so that calls from exit handlers still find them.
    /// The contexts that this thread has made current, the newest last.
    static CONTEXTS: [Cell<u64>; STACK] = const { [const { Cell::new(0) }; STACK] };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
    /// Set while a host function of the program's runs on this thread.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Runs a host function of the program's.
pub(crate) fn call_back(function: impl FnOnce()) {
    let _ = IN_CALLBACK.try_with(|flag| flag.set(true));
    function();
    let _ = IN_CALLBACK.try_with(|flag| flag.set(false));
}

/// Whether this thread runs a host function.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.try_with(Cell::get).unwrap_or(false)
}

fn depth() -> usize {
    DEPTH.try_with(Cell::get).unwrap_or(0)
}

/// The current context of this thread; 0 for none.
pub(crate) fn current() -> u64 {
    let Some(top) = depth().checked_sub(1) else { return 0 };
    CONTEXTS.try_with(|contexts| contexts.get(top).map_or(0, Cell::get)).unwrap_or(0)
}

/// Makes a context current on top of the others. False when there is no room.
pub(crate) fn push(context: u64) -> bool {
    let top = depth();
    let placed = CONTEXTS.try_with(|contexts| contexts.get(top).map(|place| place.set(context)));
    let pushed = placed.ok().flatten().is_some();
    if pushed {
        let _ = DEPTH.try_with(|depth| depth.set(top + 1));
    }
    pushed
}

/// Takes the current context away; 0 for none.
pub(crate) fn pop() -> u64 {
    let context = current();
    let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_sub(1)));
    context
}

/// Puts a context in the place of the current one; 0 takes it away.
pub(crate) fn replace(context: u64) -> bool {
    pop();
    context == 0 || push(context)
}

/// How this thread's unsafe calls stand to captures; gives the mode before.
pub(crate) fn exchange_capture_mode(mode: u32) -> u32 {
    CAPTURE_MODE.try_with(|cell| cell.replace(mode)).unwrap_or(0)
}

/// How this thread's unsafe calls stand to captures.
pub(crate) fn capture_mode() -> u32 {
    CAPTURE_MODE.try_with(Cell::get).unwrap_or(0)
}

/// The kernel's number of this thread.
pub(crate) fn number() -> i32 {
    // SAFETY: asks for a number; cannot fail.
    unsafe { libc::gettid() }
}
