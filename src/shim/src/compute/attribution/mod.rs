//! Attribution of GPU time: sources of the measurement, and NVML as the only source.

pub(super) mod nvml_only;
pub(super) mod nvml_schedule;
pub(super) mod source;
pub(super) mod utilization_windows;
