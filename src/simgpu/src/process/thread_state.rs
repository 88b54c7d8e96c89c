//! State of the driver API for each thread: its stack of current contexts, and its capture mode.

use core::cell::Cell;

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
