//! Hooks: code that the library runs around a function of the driver. Each reads as three steps: decide, call the driver, settle.
//!
//! Modules, in this order: `hooked_call` is the call that a hook handles. `protocol` has the three steps. `gpu_time` has the
//! calls to the part that paces, and `start` the first calls of a program. `memory`, `code` and `work` take memory, load code and
//! submit work. `reports` answers questions about devices and processes.

pub(crate) mod code;
mod gpu_time;
pub(crate) mod hooked_call;
pub(crate) mod memory;
mod protocol;
pub(crate) mod reports;
pub(crate) mod start;
pub(crate) mod work;
