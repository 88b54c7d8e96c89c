//! Calls that take device memory, share it or give it back.

pub(crate) mod array;
pub(crate) mod linear;
pub(crate) mod managed;
pub(crate) mod multicast;
pub(crate) mod physical;
pub(crate) mod pool;
pub(crate) mod sharing;
