//! Addresses of the driver's functions, the libraries and modules of kernels, and the time at which the driver loads code.

use super::capture_mode::with_relaxed_capture_mode;
use core::ffi::{CStr, c_int, c_uint, c_void};
use core::ptr;
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUfunction, CUkernel, CUlibrary, CUmodule, status};

/// Returns the address that `cuGetProcAddress` finds, if there is one. Uses the oldest form, which every driver has.
pub(crate) fn proc_address(name: &CStr, version: c_int, flags: u64) -> Option<*const c_void> {
    let function = slot::real::<real::cuGetProcAddress>(Symbol::cuGetProcAddress)?;
    let mut found = ptr::null_mut();
    // SAFETY: the function needs a zero-terminated text, `name`, and an output that is valid for writes, `found`.
    let code = unsafe { function(name.as_ptr(), &raw mut found, version, flags) };
    (code == status::SUCCESS && !found.is_null()).then_some(found.cast_const())
}

/// Returns the library of a kernel.
pub(crate) fn library_of_kernel(kernel: CUkernel) -> Option<usize> {
    let library = with_relaxed_capture_mode(|| ask!(cuKernelGetLibrary, CUlibrary, kernel))?;
    Some(library.addr())
}

/// Returns the module of a function.
pub(crate) fn module_of_function(function: CUfunction) -> Option<usize> {
    let module = with_relaxed_capture_mode(|| ask!(cuFuncGetModule, CUmodule, function))?;
    Some(module.addr())
}

/// Returns true if the driver loads libraries into all contexts at once.
pub(crate) fn loads_eagerly() -> bool {
    /// `CU_MODULE_EAGER_LOADING`.
    const EAGER: c_uint = 1;
    loading_mode() == Some(EAGER)
}

/// Returns true if the driver reports that it loads code at the first use. Drivers that do not report a mode load code at once.
pub(crate) fn loads_lazily() -> bool {
    /// `CU_MODULE_LAZY_LOADING`.
    const LAZY: c_uint = 2;
    loading_mode() == Some(LAZY)
}

fn loading_mode() -> Option<c_uint> {
    with_relaxed_capture_mode(|| ask!(cuModuleGetLoadingMode, c_uint))
}
