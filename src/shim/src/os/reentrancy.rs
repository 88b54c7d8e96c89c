//! Re-entrancy guard, and the boundary that no panic crosses.
//!
//! The library's work before and after a call of the driver runs in a phase ([`enter`]). A phase keeps `errno` and catches a
//! panic, and a thread is in one phase at a time. Example: the library allocates in a phase, and the program's allocator calls
//! the driver meanwhile. A phase already runs on that thread, so the call goes to the driver unchanged.
//!
//! No thread is cancelled within a phase. Example: a thread asks for the free memory, and another thread calls `pthread_cancel`
//! for it. The library opens a file for the answer, which is a cancellation point. If the C library cancelled the thread there,
//! it would unwind the stack through `catch_unwind`, and the process would end. So the thread is cancelled at its next
//! cancellation point after the phase.

use core::cell::Cell;
use core::ffi::c_int;
use std::panic::{self, AssertUnwindSafe};

std::thread_local! {
    /// The cancellation state that the thread had before its phase; `None` while no phase runs on this thread. It has no
    /// destructor, so it is usable at any time of the thread's life.
    static PHASE: Cell<Option<c_int>> = const { Cell::new(None) };
}

/// Argument of `pthread_setcancelstate` that prevents cancellation, in glibc and musl.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    /// POSIX. The `libc` crate does not declare it for Linux.
    safe fn pthread_setcancelstate(state: c_int, old: Option<&mut c_int>) -> c_int;
}

/// Sets whether the thread can be cancelled. Returns the state before.
#[inline]
fn set_cancel_state(state: c_int) -> c_int {
    let mut old = PTHREAD_CANCEL_DISABLE;
    // It fails only for a state that is neither of the two defined ones. All callers pass a defined state.
    let _code = pthread_setcancelstate(state, Some(&mut old));
    old
}

/// Outcome of a phase.
#[derive(Debug)]
pub(crate) enum PhaseOutcome<T> {
    /// The phase ran.
    Done(T),
    /// A phase already runs on this thread, so the step was not run.
    Nested,
    /// The step panicked, which is a defect of the library.
    Broken,
}

/// Runs a step of the library in a phase. The step must not contain the program's call of the driver.
#[inline]
pub(crate) fn enter<T>(step: impl FnOnce() -> T) -> PhaseOutcome<T> {
    PHASE.with(|phase| {
        if phase.get().is_some() {
            return PhaseOutcome::Nested;
        }
        let state = set_cancel_state(PTHREAD_CANCEL_DISABLE);
        phase.set(Some(state));
        let outcome = catch_panic(step);
        phase.set(None);
        set_cancel_state(state);
        outcome.map_or(PhaseOutcome::Broken, PhaseOutcome::Done)
    })
}

/// Returns true if a phase runs on this thread.
pub(crate) fn is_inside() -> bool {
    PHASE.get().is_some()
}

/// Leaves the phase during a wait and enters it again afterwards. A signal handler may leave the wait by `longjmp`, so that this
/// function never returns. Then the thread's later calls must not count as the library's own, and the program must be able to
/// cancel the thread. `wait` must have no cancellation point.
pub(crate) fn leave_during<T>(wait: impl FnOnce() -> T) -> T {
    let before = PHASE.take();
    let disabled = before.map(set_cancel_state);
    let done = wait();
    disabled.map(set_cancel_state);
    PHASE.set(before);
    done
}

/// Runs a step while the thread cannot be cancelled.
pub(crate) fn without_cancellation<T>(step: impl FnOnce() -> T) -> T {
    let state = set_cancel_state(PTHREAD_CANCEL_DISABLE);
    let done = step();
    set_cancel_state(state);
    done
}

/// Runs a step, keeps `errno`, and catches a panic. Steps that run once in a process's life use it without a phase.
#[inline]
pub(crate) fn catch_panic<T>(step: impl FnOnce() -> T) -> Option<T> {
    // SAFETY: `__errno_location` requires nothing. It returns a location that is valid for the life of the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the read requires a valid location: the call above returned this thread's own.
    let saved = unsafe { *errno };
    // The step writes its outcome here, because a value that `catch_unwind` returns is copied twice.
    let mut outcome = None;
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| outcome = Some(step()))) {
        // The payload is not dropped, because its destructor could panic.
        core::mem::forget(payload);
    }
    // SAFETY: the write requires a valid location: the first call returned this thread's own.
    unsafe { *errno = saved };
    outcome
}

/// Runs a step in a phase. Returns `otherwise` if a phase already runs on this thread, or if the step panics.
#[inline]
pub(crate) fn enter_or<T>(step: impl FnOnce() -> T, otherwise: T) -> T {
    match enter(step) {
        PhaseOutcome::Done(value) => value,
        PhaseOutcome::Nested | PhaseOutcome::Broken => otherwise,
    }
}
