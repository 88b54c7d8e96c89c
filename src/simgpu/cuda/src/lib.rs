//! The simulated `libcuda.so.1`: every declared function of the driver API, exported under its name.
#![allow(
    non_snake_case,
    clippy::wildcard_imports,
    clippy::too_many_arguments,
    reason = "names and parameters are the driver's, and the rows use nearly every type"
)]

use gpuslice_driver::Symbol;
use gpuslice_driver::types::*;
use simgpu::rows::*;

gpuslice_driver::for_each_cuda! { [simgpu::export_cuda] }

/// Stands for the functions of a newer driver that no header declares yet.
#[unsafe(no_mangle)]
extern "C" fn cuLaunchUnheardOf() -> Status {
    simgpu::undocumented::unheard_of()
}
