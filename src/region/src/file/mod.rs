//! The region file: where it is, how it is opened, mapped and locked, and how a process survives its truncation.

pub(crate) mod detached;
pub(crate) mod error;
pub(crate) mod folders;
pub(crate) mod locks;
pub(crate) mod map;
pub mod names;
pub mod operator;
pub(crate) mod probe;
pub mod sigbus_forwarding;
pub(crate) mod sigbus_guard;
pub(crate) mod space;
