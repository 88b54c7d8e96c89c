//! Settings that each process reads from its environment.

mod nvml_view;
mod process;

pub(crate) use nvml_view::NvmlView;
pub(crate) use process::{Managing, ProcessConfig, gpu_instance_id, version};
