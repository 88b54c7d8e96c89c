//! Calls that give handles of a library: variables, functions, modules and kernels.
//!
//! Most are a first use of the library in the current context. The look-up of a kernel is not, but from then on a launch may be.

use super::library_first_use::{load_for_launches, used};
use super::limits::look_again;
use crate::driver_calls::{code, contexts};
use crate::hooks::hooked_call::HookedCall;
use crate::hooks::protocol::noted;
use crate::memory::loaded_symbols::LookUpKey;
use crate::process::Process;
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUkernel, CUlibrary, CUmodule, Status, status};

/// `cuLibraryGetGlobal`, `cuLibraryGetManaged`.
pub(crate) fn variable(call: &HookedCall<real::cuLibraryGetGlobal>) -> Status {
    let (_, _, library, name) = call.arguments();
    // SAFETY: `of_name` requires null or a text that ends in zero, and so does the driver.
    let key = || unsafe { LookUpKey::new(library.addr(), context()).of_name(name) };
    used(|_| Some(library.addr()), key, || call.forward())
}

/// `cuLibraryGetUnifiedFunction`.
pub(crate) fn unified_function(call: &HookedCall<real::cuLibraryGetUnifiedFunction>) -> Status {
    let (_, library, name) = call.arguments();
    // SAFETY: `of_name` requires null or a text that ends in zero, and so does the driver.
    let key = || unsafe { LookUpKey::new(library.addr(), context()).of_name(name) };
    used(|_| Some(library.addr()), key, || call.forward())
}

/// `cuLibraryGetModule`.
pub(crate) fn get_module(call: &HookedCall<real::cuLibraryGetModule>) -> Status {
    let (output, library) = call.arguments();
    let key = || LookUpKey::new(library.addr(), context());
    let code = used(|_| Some(library.addr()), key, || call.forward());
    // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
    came_out(code, library, || unsafe { read_in(output) }.map(|module: CUmodule| module.addr()))
}

/// `cuKernelGetFunction`.
pub(crate) fn kernel_function(call: &HookedCall<real::cuKernelGetFunction>) -> Status {
    let (_, kernel) = call.arguments();
    let library =
        |process: &Process| code::library_of_kernel(kernel).or_else(|| process.libraries.of(kernel.addr()));
    used(library, || LookUpKey::new(kernel.addr(), context()), || call.forward())
}

/// `cuLibraryGetKernel`: the driver loads at the first launch.
pub(crate) fn kernel(call: &HookedCall<real::cuLibraryGetKernel>) -> Status {
    let (output, library, _) = call.arguments();
    if !load_for_launches(library) {
        return status::OUT_OF_MEMORY;
    }
    let code = call.forward();
    // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
    came_out(code, library, || unsafe { read_in(output) }.map(|kernel: CUkernel| kernel.addr()))
}

/// `cuLibraryEnumerateKernels`: the driver loads at the first launch of one of the kernels.
pub(crate) fn kernels(call: &HookedCall<real::cuLibraryEnumerateKernels>) -> Status {
    let (output, count, library) = call.arguments();
    if !load_for_launches(library) {
        return status::OUT_OF_MEMORY;
    }
    let code = call.forward();
    // The driver writes nothing for a count of 0, and `output` may then be any number.
    let output = if count == 0 { core::ptr::null_mut() } else { output };
    // SAFETY: `read_in` requires null or a readable place. The program's `output` has `count` of them.
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
