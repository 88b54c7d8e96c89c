//! Hooks: what the library does around a function of the driver. Each reads as three steps: decide, call the driver, settle.
//!
//! Folders, in this order: `protocol` has the three steps, `gpu_time` the calls to the part that paces, `memory`, `code` and `work` take memory, load code and submit work, and
//! `reports` answers questions about devices and processes.

pub(crate) mod code;
mod gpu_time;
pub(crate) mod memory;
mod protocol;
pub(crate) mod reports;
pub(crate) mod start;
pub(crate) mod work;
