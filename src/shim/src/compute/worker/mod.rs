//! The library's own thread, and how launches wait for it.

pub(super) mod thread;
