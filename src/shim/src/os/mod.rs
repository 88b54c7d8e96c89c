//! The process, its threads and the kernel. This folder knows neither CUDA nor slices.

pub(crate) mod allocator;
pub(crate) mod asymmetric_fence;
pub(crate) mod clock;
pub(crate) mod copies;
pub(crate) mod futex;
pub(crate) mod host_memory;
pub(crate) mod messages;
pub(crate) mod parking;
pub(crate) mod reentrancy;
pub(crate) mod signals;
pub(crate) mod spin_lock;
pub(crate) mod thread;
pub(crate) mod time_word;
mod version_note;
