//! What has been asked for, and in which quantities? The decisions of gpuslice as pure functions.
//!
//! Nothing here reads the environment, a file, a clock or a device: the caller passes in what it has read
//! and gets values back. Nothing here panics, whatever it is given.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod addresses;
pub mod arbiter;
pub mod array;
pub mod blocks;
pub mod code;
pub mod compute;
pub mod config;
pub mod context;
pub mod graph;
pub mod host_memory;
pub mod pool;
pub mod units;
pub mod visible;
