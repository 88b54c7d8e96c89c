//! The worker, and the waits of launches for it.

pub(super) mod thread;
pub(super) mod tick;
pub(super) mod waiting;
