//! What do CUDA's driver and NVML look like from outside?
//!
//! This crate holds the table of all driver symbols, the types they use, and the place where the address of
//! each real function is kept. It knows nothing of limits.

pub mod arguments;
pub mod elf;
pub mod families;
pub mod functions;
pub mod resolve;
mod signature;
pub mod slot;
pub mod symbols;
pub mod table;
pub mod types;

pub use table::{Api, Symbol, Treatment};
