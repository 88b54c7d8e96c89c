//! State of the driver API for each thread: its stack of current contexts, and its capture mode.

use core::cell::Cell;

/// Largest number of contexts on the stack of a thread.
const STACK: usize = 64;

thread_local! {
    // The values have no destructors, so calls from exit handlers can still use them.
    /// The contexts that this thread has made current, the newest last.
    static CONTEXTS: [Cell<u64>; STACK] = const { [const { Cell::new(0) }; STACK] };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
    /// Set while a host function of the program runs on this thread.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Runs a host function of the program.
pub(crate) fn call_back(function: impl FnOnce()) {
    let _ = IN_CALLBACK.try_with(|flag| flag.set(true));
    function();
    let _ = IN_CALLBACK.try_with(|flag| flag.set(false));
}

/// Returns true if this thread runs a host function.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.try_with(Cell::get).unwrap_or(false)
}

fn depth() -> usize {
    DEPTH.try_with(Cell::get).unwrap_or(0)
}

/// Returns the current context of this thread; 0 for none.
pub(crate) fn current() -> u64 {
    let Some(top) = depth().checked_sub(1) else { return 0 };
    CONTEXTS.try_with(|contexts| contexts.get(top).map_or(0, Cell::get)).unwrap_or(0)
}

/// Pushes a context. Returns false if there is no room.
pub(crate) fn push(context: u64) -> bool {
    let top = depth();
    let placed = CONTEXTS.try_with(|contexts| contexts.get(top).map(|place| place.set(context)));
    let pushed = placed.ok().flatten().is_some();
    if pushed {
        let _ = DEPTH.try_with(|depth| depth.set(top + 1));
    }
    pushed
}

/// Pops the current context, and returns it; 0 for none.
pub(crate) fn pop() -> u64 {
    let context = current();
    let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_sub(1)));
    context
}

/// Replaces the current context; 0 removes it.
pub(crate) fn replace(context: u64) -> bool {
    pop();
    context == 0 || push(context)
}

/// Sets the capture mode of this thread's unsafe calls. Returns the mode before.
pub(crate) fn exchange_capture_mode(mode: u32) -> u32 {
    CAPTURE_MODE.try_with(|cell| cell.replace(mode)).unwrap_or(0)
}

/// Returns the capture mode of this thread's unsafe calls.
pub(crate) fn capture_mode() -> u32 {
    CAPTURE_MODE.try_with(Cell::get).unwrap_or(0)
}
