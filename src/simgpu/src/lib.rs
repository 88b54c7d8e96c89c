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
mod arena;
mod arrays;
mod blocks;
mod borrowed;
mod call;
mod capture;
mod checkpoint;
mod clusters;
mod code;
mod config;
mod contexts;
mod engine;
mod exports;
mod external;
mod fat;
pub mod faults;
mod graph_memory;
mod graphs;
mod greens;
mod hardware;
mod host;
mod image;
mod late_code;
mod loading;
mod local;
mod lookup;
mod managed;
mod meetings;
mod memory;
mod movement;
mod multicast;
#[doc(hidden)]
pub mod nvml;
mod objects;
#[doc(hidden)]
pub mod odd;
mod os;
mod pool;
mod pools;
mod process;
mod regions;
mod sharing;
mod simulation;
pub mod state;
mod status;
mod streams;
mod submit;
mod userobjects;
mod vmm;

#[doc(hidden)]
pub use call::{Driver, enter};

/// What the exporting libraries need to expand the table.
#[doc(hidden)]
pub mod rows {
    pub use crate::api::{
        Arrays, Contexts, Copies, External, Graphs, Init, Launches, Memory, Pools, Streams, Vmm,
    };
}
