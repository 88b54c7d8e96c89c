//! The library's own threads, and the waits of launching threads for them.

mod nvml_thread;
pub(super) mod thread;
pub(super) mod tick;
pub(super) mod waiting;
