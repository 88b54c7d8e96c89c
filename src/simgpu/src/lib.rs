//! A simulated NVIDIA GPU: the model behind a `libcuda.so.1` and a `libnvidia-ml.so.1` for machines without a GPU.
//!
//! Programs that use the CUDA driver API run on it unmodified:
//!
//! - Memory is counted to the byte, and can run out.
//! - Streams and kernels take simulated time. Kernels compute nothing.
//! - Several processes see the same devices through one mapped file ([`state`]).
//! - The file contains the ground truth: the use by each process. A test reads it to check a limiter.
//!
//! The model does not depend on any program that uses it, or on any limiter. It has none of NVIDIA's private tables.
//!
//! Folders, lowest first. A module imports from its own folder and from folders earlier in this list. No files import each other
//! in a circle. `tests/repository/dependencies` checks both.
//!
//! 1. `status`: results of driver calls.
//! 2. `os`: clock, threads, messages, and a lock between processes.
//! 3. `hardware`: the simulated GPU model, with its attributes, names and allocation sizes.
//! 4. `engine`: the time of one device, with streams, queues, time slices and samples.
//! 5. `faults`: calls that go wrong on request.
//! 6. `state`: the file that all processes share.
//! 7. `config`: settings that each process reads from its environment.
//! 8. `model`: the objects of the driver API as plain data.
//! 9. `process`: the objects of this process, and the operations on them.
//! 10. `call`: the frame of every call of the driver API.
//! 11. `api`, `undocumented`: the functions of the driver API.
//! 12. `nvml`: the functions of NVML.
//! 13. `exports`, `bin`: macros that export the functions, and the program `simgpu-truth`.
#![allow(
    clippy::disallowed_types,
    reason = "`region::sync` is not a part of this product; its shared words lie under a lock, except for the table of faults"
)]

mod api;
#[doc(hidden)]
pub mod call;
mod config;
mod engine;
mod exports;
pub mod faults;
mod hardware;
mod model;
#[doc(hidden)]
pub mod nvml;
mod os;
mod process;
pub mod state;
mod status;
#[doc(hidden)]
pub mod undocumented;

/// The traits with which the exporting libraries expand the table of functions.
#[doc(hidden)]
pub mod rows {
    pub use crate::api::{
        Arrays, Contexts, Copies, External, Graphs, Init, Launches, Memory, Pools, Streams, Vmm,
    };
}
