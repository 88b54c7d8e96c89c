//! The order of writes to a state that another process may have to repair.

/// Keeps the writes before this call before the writes after it. A process may be killed between any two writes.
pub(super) fn written() {
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
}
