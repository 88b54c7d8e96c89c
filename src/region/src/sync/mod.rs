//! Atomic words, clocks, and ways to wait. This folder has no knowledge of slices.

pub(crate) mod atomics;
#[cfg(not(loom))]
pub(crate) mod backoff;
#[cfg(not(loom))]
pub(crate) mod clock;
#[cfg(not(loom))]
pub(crate) mod futex;
#[cfg(loom)]
#[path = "../models/futex.rs"]
pub(crate) mod futex;
#[cfg(not(loom))]
pub(crate) mod pause;
