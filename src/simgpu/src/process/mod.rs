//! The objects of this process, and the operations on them.

pub(crate) mod thread_state;
