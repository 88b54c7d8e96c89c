//! The simulated `libnvidia-ml.so.1`: every declared function of NVML, exported under its name.
#![allow(
    non_snake_case,
    clippy::wildcard_imports,
    reason = "the names are NVML's, and the rows use nearly every type"
)]

use gpuslice_driver::Symbol;
use gpuslice_driver::types::*;
use simgpu::nvml::*;

gpuslice_driver::for_each_nvml! { [simgpu::export_nvml] }

/// Returns the text of a status. Unlike all other functions, it returns no status, and works before any initialisation.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: Status) -> *const c_char {
    error_text(result).as_ptr()
}

/// Returns a private table for `nvidia-smi`. No header declares this function. Its callers pass these two arguments.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlInternalGetExportTable(table: *mut *const c_void, id: *const c_void) -> Status {
    // SAFETY: `enter` needs valid pointers: the caller promises them by this function's contract.
    unsafe { enter(Symbol::nvmlInternalGetExportTable, |nvml| private_table(nvml, table, id)) }
}
