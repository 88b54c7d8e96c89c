//! Who is calling, the program or we ourselves? And what stops a mistake of ours from reaching the program?
//!
//! What we do before and after a call of the driver runs in a [`phase`]: it keeps `errno`, catches a panic, and
//! is entered once per thread. A call that comes in while a phase runs on the same thread (the program's
//! allocator calls the driver, say) is not looked at: it goes to the driver as it is.

use core::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

std::thread_local! {
    /// Whether a phase runs on this thread. Without destructor, so usable at any time of a thread's life.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// How a phase ended.
#[derive(Debug)]
pub(crate) enum Phase<T> {
    /// It ran.
    Done(T),
    /// It was entered from within another; nothing was done.
    Nested,
    /// It panicked: a mistake of ours.
    Broken,
}

/// Runs one of our steps around a call of the driver.
#[inline]
pub(crate) fn phase<T>(step: impl FnOnce() -> T) -> Phase<T> {
    if INSIDE.replace(true) {
        return Phase::Nested;
    }
    let outcome = shielded(step);
    INSIDE.set(false);
    outcome.map_or(Phase::Broken, Phase::Done)
}

/// Whether a phase runs on this thread.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Runs a wait within a phase as if it were outside: who never comes back from it (`longjmp` out of a signal handler)
/// must not take all later calls of the thread for ours.
pub(crate) fn outside<T>(wait: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(false);
    let done = wait();
    INSIDE.set(before);
    done
}

/// Runs a step that keeps `errno` and whose panic ends here. For what is done once in a process's life.
#[inline]
pub(crate) fn shielded<T>(step: impl FnOnce() -> T) -> Option<T> {
    // SAFETY: the C library's location of this thread's `errno` is always valid.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    // The outcome goes straight to where it is used: handed through the boundary it would be copied twice.
    let mut outcome = None;
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| outcome = Some(step()))) {
        // Dropping it could panic again.
        core::mem::forget(payload);
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
    outcome
}

/// A phase whose answer is `otherwise` when it does not run through.
#[inline]
pub(crate) fn quietly<T>(step: impl FnOnce() -> T, otherwise: T) -> T {
    match phase(step) {
        Phase::Done(value) => value,
        Phase::Nested | Phase::Broken => otherwise,
    }
}
