//! The processes of a slice, and the proof that each is alive.

pub(crate) mod identity;
#[cfg(not(loom))]
pub(crate) mod pid_liveness;
pub(crate) mod roster;
