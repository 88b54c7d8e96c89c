//! How much device memory things take, where the driver cannot be asked.

pub mod array;
pub mod blocks;
pub mod code;
pub mod context;
pub mod graph;
