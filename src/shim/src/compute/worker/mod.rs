//! The library's own thread, and how launches wait for it.

pub(super) mod thread;
pub(super) mod tick;
pub(super) mod waiting;
