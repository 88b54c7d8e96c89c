//! Attributes measured time: the slice's own part, beside the other users of the GPU.

pub mod correction;
pub mod nvml_only;
pub mod nvml_windows;
pub mod prepayments;
mod replay;
pub mod slicing;
pub mod source;
pub mod unknown_processes;
