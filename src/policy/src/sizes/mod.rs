//! Sizes of device memory, for drivers that do not report them.

pub mod array;
pub mod blocks;
pub mod code;
pub mod context;
pub mod graph;
