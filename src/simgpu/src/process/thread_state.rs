//! The state that the driver API keeps for each thread: its stack of current contexts, and its capture mode.

use core::cell::Cell;

/// Largest number of contexts on the stack of a thread.
const STACK: usize = 64;

thread_local! {
    // The values have no destructors, so that calls from exit handlers can still use them.
    /// The contexts that this thread has made current. The newest is last.
    static CONTEXTS: [Cell<u64>; STACK] = const { [const { Cell::new(0) }; STACK] };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
    /// True while a host function of the program runs on this thread.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Calls a host function of the program, and marks the thread while the function runs.
pub(crate) fn call_back(function: impl FnOnce()) {
    let _ = IN_CALLBACK.try_with(|flag| flag.set(true));
    function();
    let _ = IN_CALLBACK.try_with(|flag| flag.set(false));
}

/// Returns true if a host function of the program runs on this thread.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.try_with(Cell::get).unwrap_or(false)
}

fn depth() -> usize {
    DEPTH.try_with(Cell::get).unwrap_or(0)
}

/// Returns the current context of this thread; 0 if there is none.
pub(crate) fn current() -> u64 {
    let Some(top) = depth().checked_sub(1) else { return 0 };
    CONTEXTS.try_with(|contexts| contexts.get(top).map_or(0, Cell::get)).unwrap_or(0)
}

/// Puts a context on the stack of this thread. Returns false if the stack is full.
pub(crate) fn push(context: u64) -> bool {
    let top = depth();
    let placed = CONTEXTS.try_with(|contexts| contexts.get(top).map(|place| place.set(context)));
    let pushed = placed.ok().flatten().is_some();
    if pushed {
        let _ = DEPTH.try_with(|depth| depth.set(top + 1));
    }
    pushed
}

/// Takes the current context off the stack, and returns it; 0 if there was none.
pub(crate) fn pop() -> u64 {
    let context = current();
    let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_sub(1)));
    context
}

/// Replaces the current context of this thread. A new context of 0 means none. Returns false if the stack is full.
pub(crate) fn replace(context: u64) -> bool {
    pop();
    context == 0 || push(context)
}

/// Sets the mode that decides which calls of this thread captures forbid, and returns the mode before.
pub(crate) fn exchange_capture_mode(mode: u32) -> u32 {
    CAPTURE_MODE.try_with(|cell| cell.replace(mode)).unwrap_or(0)
}

/// Returns the mode that decides which calls of this thread captures forbid.
pub(crate) fn capture_mode() -> u32 {
    CAPTURE_MODE.try_with(Cell::get).unwrap_or(0)
}
