//! Calls that give handles of a library: variables, functions, modules and kernels.
//!
//! Most are a first use of the library in the current context. The look-up of a kernel is not, but from then on a launch may be.

use super::library_first_use::{load_for_launches, used};
use super::limits::look_again;
use crate::driver_calls::{code, contexts};
use crate::hooks::protocol::noted;
use crate::memory::loaded_symbols::LookUpKey;
use crate::process::Process;
use core::ffi::{c_char, c_uint, c_void};
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUmodule, Status, status};

/// `cuLibraryGetGlobal`, `cuLibraryGetManaged`.
pub(crate) unsafe fn variable(
    real: real::cuLibraryGetGlobal,
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> Status {
    // SAFETY: `of_name` requires null or a text that ends in zero, and so does the driver.
    let key = || unsafe { LookUpKey::new(library.addr(), context()).of_name(name) };
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    used(|_| Some(library.addr()), key, || unsafe { real(address, bytes, library, name) })
}

/// `cuLibraryGetUnifiedFunction`.
pub(crate) unsafe fn unified_function(
    real: real::cuLibraryGetUnifiedFunction,
    output: *mut *mut c_void,
    library: CUlibrary,
    name: *const c_char,
) -> Status {
    // SAFETY: `of_name` requires null or a text that ends in zero, and so does the driver.
    let key = || unsafe { LookUpKey::new(library.addr(), context()).of_name(name) };
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    used(|_| Some(library.addr()), key, || unsafe { real(output, library, name) })
}

/// `cuLibraryGetModule`.
pub(crate) unsafe fn get_module(
    real: real::cuLibraryGetModule,
    output: *mut CUmodule,
    library: CUlibrary,
) -> Status {
    let key = || LookUpKey::new(library.addr(), context());
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let code = used(|_| Some(library.addr()), key, || unsafe { real(output, library) });
    // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
    came_out(code, library, || unsafe { read_in(output) }.map(|module: CUmodule| module.addr()))
}

/// `cuKernelGetFunction`.
pub(crate) unsafe fn kernel_function(
    real: real::cuKernelGetFunction,
    output: *mut CUfunction,
    kernel: CUkernel,
) -> Status {
    let library =
        |process: &Process| code::library_of_kernel(kernel).or_else(|| process.libraries.of(kernel.addr()));
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    used(library, || LookUpKey::new(kernel.addr(), context()), || unsafe { real(output, kernel) })
}

/// `cuLibraryGetKernel`: the driver loads at the first launch.
pub(crate) unsafe fn kernel(
    real: real::cuLibraryGetKernel,
    output: *mut CUkernel,
    library: CUlibrary,
    name: *const c_char,
) -> Status {
    if !load_for_launches(library) {
        return status::OUT_OF_MEMORY;
    }
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let code = unsafe { real(output, library, name) };
    // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
    came_out(code, library, || unsafe { read_in(output) }.map(|kernel: CUkernel| kernel.addr()))
}

/// `cuLibraryEnumerateKernels`: the driver loads at the first launch of one of the kernels.
pub(crate) unsafe fn kernels(
    real: real::cuLibraryEnumerateKernels,
    output: *mut CUkernel,
    count: c_uint,
    library: CUlibrary,
) -> Status {
    if !load_for_launches(library) {
        return status::OUT_OF_MEMORY;
    }
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let code = unsafe { real(output, count, library) };
    // The driver writes nothing for a count of 0, and `output` may then be any number.
    let output = if count == 0 { core::ptr::null_mut() } else { output };
    // SAFETY: `read_in` requires null or a readable place. The caller's `output` has `count` of them.
    came_out(code, library, || unsafe { read_in(output) }.map(|kernel: CUkernel| kernel.addr()))
}

/// Notes that a handle came out of `library`. From now on a launch may load the code behind the handle.
fn came_out(code: Status, library: CUlibrary, handle: impl FnOnce() -> Option<usize>) -> Status {
    noted(code, |process| {
        let Some(handle) = handle() else { return };
        process.libraries.note_origin(handle, library.addr());
        look_again(process);
    })
}

/// Returns the context into which the driver would load a library or kernel now.
fn context() -> usize {
    contexts::current_context().unwrap_or(0)
}
