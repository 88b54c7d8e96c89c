//! Figures of slices and of the GPUs that they share, for the command line and for the agent of a node.
//!
//! No module is part of a slice. They read regions and `/proc`, and ask NVML in a child process.

#![deny(unsafe_code)]

pub mod cdi;
pub mod discovery;
pub mod figures;
pub mod installed;
mod mounts;
mod numbers;
pub mod nvml;
pub mod nvml_retry;
pub mod overcommit;
pub mod process;
pub mod report;
pub mod slot;
mod system;
pub mod time;
pub mod unaccounted;
pub mod unlimited;

pub use system::{allow_more_open_files, user_name};
