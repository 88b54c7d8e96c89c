//! The region file: its path, its opening, mapping and locks, and the guard of a process against its truncation.

pub(crate) mod choice;
pub(crate) mod detached;
pub(crate) mod error;
pub(crate) mod folders;
pub(crate) mod locks;
pub(crate) mod map;
pub mod names;
pub mod operator;
pub(crate) mod probe;
pub(crate) mod regular;
pub mod sigbus_forwarding;
pub(crate) mod sigbus_guard;
pub(crate) mod space;
pub(crate) mod stale;
