//! How GPU time is measured, and what NVML says where nothing else measures it.

pub(super) mod nvml_only;
pub(super) mod nvml_schedule;
pub(super) mod source;
pub(super) mod utilization_windows;
