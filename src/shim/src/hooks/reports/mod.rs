//! Calls that ask for devices, memory, processes and utilization: the answers are those of the slice.

pub(crate) mod entries;
pub(crate) mod members;
pub(crate) mod nvml;
pub(crate) mod own_use;
pub(crate) mod process_use;
pub(crate) mod processes;
pub(crate) mod report;
pub(crate) mod use_rates;
pub(crate) mod versioned;
