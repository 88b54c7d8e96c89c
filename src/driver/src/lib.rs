//! The interfaces of CUDA's driver and of NVML.
//!
//! This crate has the table of all driver symbols, their types, and the slots that keep the addresses of the real
//! functions. It has no knowledge of limits.

pub mod arguments;
pub mod elf;
pub mod families;
pub mod functions;
pub mod notes;
pub mod resolve;
mod signature;
pub mod slot;
pub mod symbols;
pub mod table;
pub mod types;

pub use table::{Api, Symbol, Treatment};
