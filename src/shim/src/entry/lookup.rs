//! Hook of `cuGetProcAddress`: the driver chooses the symbol, and the library replaces its address by the entry.
//!
//! The hook passes the caller's own arguments to the driver. So names, versions, flags and statuses have the driver's
//! meaning. The library looks the result up by address, never by the requested name.

use crate::bypass;
use crate::driver_calls::directory::symbol_at;
use crate::os::reentrancy;
use core::ffi::{CStr, c_char, c_int, c_void};
use gpuslice_driver::Symbol;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUdriverProcAddressQueryResult, CUuuid, Status, status};

/// Returns the entry of a symbol.
type EntryOf = fn(Symbol) -> *const c_void;

/// Hooks the form with four arguments.
pub(crate) unsafe fn proc_address(
    (real, entry): (real::cuGetProcAddress, EntryOf),
    symbol: *const c_char,
    output: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Status {
    // SAFETY: `real` requires arguments that keep the driver's contract: the calling program passes these to the same function.
    let code = unsafe { real(symbol, output, version, flags) };
    // SAFETY: `translate` requires a valid name and output after a success: the driver has accepted the caller's.
    unsafe { translate(code, symbol, output, entry) };
    code
}

/// Hooks the form with five arguments.
pub(crate) unsafe fn proc_address_v2(
    (real, entry): (real::cuGetProcAddress_v2, EntryOf),
    symbol: *const c_char,
    output: *mut *mut c_void,
    version: c_int,
    flags: u64,
    found: *mut CUdriverProcAddressQueryResult,
) -> Status {
    // SAFETY: `real` requires arguments that keep the driver's contract: the calling program passes these to the same function.
    let code = unsafe { real(symbol, output, version, flags, found) };
    // SAFETY: `translate` requires a valid name and output after a success: the driver has accepted the caller's.
    unsafe { translate(code, symbol, output, entry) };
    code
}

/// Hooks `cuGetExportTable`.
pub(crate) unsafe fn export_table(
    real: real::cuGetExportTable,
    table: *mut *const c_void,
    id: *const CUuuid,
) -> Status {
    // SAFETY: `real` requires arguments that keep the driver's contract: the calling program passes these to the same function.
    let code = unsafe { real(table, id) };
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
