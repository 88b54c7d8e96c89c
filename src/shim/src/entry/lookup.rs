//! `cuGetProcAddress`: the driver chooses the symbol, and the library puts its entry in its place.
//!
//! The driver is asked with the caller's own arguments, so names, versions, flags and statuses are its own. Its result is looked
//! up by address, never by the name that was asked.

use crate::bypass;
use crate::driver_calls::directory::symbol_at;
use crate::os::reentrancy;
use core::ffi::{CStr, c_char, c_int, c_void};
use gpuslice_driver::Symbol;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUdriverProcAddressQueryResult, CUuuid, Status, status};

/// The entry of a symbol.
type EntryOf = fn(Symbol) -> *const c_void;

/// The form with four arguments.
pub(crate) unsafe fn proc_address(
    (real, entry): (real::cuGetProcAddress, EntryOf),
    symbol: *const c_char,
    output: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Status {
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(symbol, output, version, flags) };
    // SAFETY: the caller's name and output, which the driver accepted.
    unsafe { translate(code, symbol, output, entry) };
    code
}

/// The form with five arguments.
pub(crate) unsafe fn proc_address_v2(
    (real, entry): (real::cuGetProcAddress_v2, EntryOf),
    symbol: *const c_char,
    output: *mut *mut c_void,
    version: c_int,
    flags: u64,
    found: *mut CUdriverProcAddressQueryResult,
) -> Status {
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(symbol, output, version, flags, found) };
    // SAFETY: the caller's name and output, which the driver accepted.
    unsafe { translate(code, symbol, output, entry) };
    code
}

/// `cuGetExportTable`.
pub(crate) unsafe fn export_table(
    real: real::cuGetExportTable,
    table: *mut *const c_void,
    id: *const CUuuid,
) -> Status {
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(table, id) };
    if code != status::SUCCESS {
        return code;
    }
    // SAFETY: the caller's own identifier, which the driver accepted.
    if let Some(id) = unsafe { read_in(id.cast::<[u8; 16]>()) } {
        reentrancy::quietly(|| bypass::table_handed_out(id), ());
    }
    code
}

/// Puts our entry in the place of the driver's.
///
/// # Safety
/// If the status is a success, `name` is a string that ends in zero, and `output` is null or valid for reads and writes.
unsafe fn translate(code: Status, name: *const c_char, output: *mut *mut c_void, entry: EntryOf) {
    if code != status::SUCCESS {
        return;
    }
    // SAFETY: by the contract above.
    let Some(address) = unsafe { read_in(output) }.filter(|address| !address.is_null()) else { return };
    match reentrancy::quietly(|| symbol_at(address), None) {
        // SAFETY: by the contract above.
        Some(Some(symbol)) => unsafe { write_out(output, entry(symbol).cast_mut()) },
        Some(None) => {
            // SAFETY: by the contract above.
            let name = unsafe { CStr::from_ptr(name) };
            reentrancy::quietly(|| bypass::handed_out(name, address), ());
        }
        None => {}
    }
}
