//! The processes of a slice, and which of them are alive.

pub(crate) mod identity;
#[cfg(not(loom))]
pub(crate) mod pid_liveness;
pub(crate) mod roster;
