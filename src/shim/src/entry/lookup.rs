//! Hook of `cuGetProcAddress`: the driver chooses the symbol, and the library replaces its address by the entry.
//!
//! The hook passes the caller's own arguments to the driver. So names, versions, flags and statuses have the driver's
//! meaning. The library looks the result up by address, never by the requested name.

use crate::bypass;
use crate::driver_calls::directory::symbol_at;
use crate::hooks::hooked_call::HookedCall;
use crate::os::reentrancy;
use core::ffi::{CStr, c_char, c_void};
use gpuslice_driver::Symbol;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{Status, status};

/// Returns the entry of a symbol.
type EntryOf = fn(Symbol) -> *const c_void;

/// Hooks the form with four arguments.
pub(crate) fn proc_address(call: &HookedCall<real::cuGetProcAddress>, entry: EntryOf) -> Status {
    let (symbol, output, ..) = call.arguments();
    let code = call.forward();
    // SAFETY: `translate` requires a valid name and output after a success, and the driver has accepted the program's.
    unsafe { translate(code, symbol, output, entry) };
    code
}

/// Hooks the form with five arguments.
pub(crate) fn proc_address_v2(call: &HookedCall<real::cuGetProcAddress_v2>, entry: EntryOf) -> Status {
    let (symbol, output, ..) = call.arguments();
    let code = call.forward();
    // SAFETY: `translate` requires a valid name and output after a success, and the driver has accepted the program's.
    unsafe { translate(code, symbol, output, entry) };
    code
}

/// Hooks `cuGetExportTable`.
pub(crate) fn export_table(call: &HookedCall<real::cuGetExportTable>) -> Status {
    let (_, id) = call.arguments();
    let code = call.forward();
    if code != status::SUCCESS {
        return code;
    }
    // SAFETY: `read_in` requires an address that is null or valid: the driver has accepted the caller's identifier.
    if let Some(id) = unsafe { read_in(id.cast::<[u8; 16]>()) } {
        reentrancy::enter_or(|| bypass::table_handed_out(id), ());
    }
    code
}

/// Replaces the driver's address in `output` by the library's entry.
///
/// # Safety
/// If the status is a success, `name` is a string that ends in zero, and `output` is null or valid for reads and writes.
unsafe fn translate(code: Status, name: *const c_char, output: *mut *mut c_void, entry: EntryOf) {
    if code != status::SUCCESS {
        return;
    }
    // SAFETY: `read_in` requires an address that is null or valid: `output`, by this function's contract.
    let Some(address) = unsafe { read_in(output) }.filter(|address| !address.is_null()) else { return };
    match reentrancy::enter_or(|| symbol_at(address), None) {
        // SAFETY: `write_out` requires an address that is null or valid: `output`, by this function's contract.
        Some(Some(symbol)) => unsafe { write_out(output, entry(symbol).cast_mut()) },
        Some(None) => {
            // SAFETY: `CStr::from_ptr` requires a zero-terminated text: `name`, by this function's contract.
            let name = unsafe { CStr::from_ptr(name) };
            reentrancy::enter_or(|| bypass::handed_out(name, address), ());
        }
        None => {}
    }
}
