//! A simulated NVIDIA GPU: the model behind a `libcuda.so.1` and a `libnvidia-ml.so.1` for machines without one.
//!
//! Programs that use the CUDA driver API run on it unmodified. Memory is accounted for to the byte and really
//! runs out; streams and kernels take simulated time; several processes see the same devices through one mapped
//! file ([`state`]), and what really happened there can be read by anybody who wants to check a limiter.
//!
//! The model knows nothing of the programs that use it, of no limiter, and has none of NVIDIA's private tables.
//! Kernels compute nothing: they take time.
#![allow(
    clippy::disallowed_types,
    reason = "the one door to atomics is the region's, of which this product knows nothing; its own shared words lie \
              under a lock, but for the table of faults"
)]

mod api;
mod call;
mod config;
mod engine;
mod exports;
pub mod faults;
mod hardware;
mod model;
#[doc(hidden)]
pub mod nvml;
#[doc(hidden)]
pub mod odd;
mod os;
mod process;
pub mod state;
mod status;

#[doc(hidden)]
pub use call::{Driver, enter};

/// What the exporting libraries need to expand the table.
#[doc(hidden)]
pub mod rows {
    pub use crate::api::{
        Arrays, Contexts, Copies, External, Graphs, Init, Launches, Memory, Pools, Streams, Vmm,
    };
}
