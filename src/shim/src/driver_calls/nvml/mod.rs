//! Calls of NVML, the library of `nvidia-smi`.

mod agent;
pub(crate) mod answers;
pub(crate) mod devices;
pub(crate) mod initialization;
pub(crate) mod memory;
pub(crate) mod utilization;
