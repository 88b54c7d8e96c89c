//! `cuGetProcAddress`: the driver chooses the symbol, we put our entry in its place.
//!
//! The driver is asked with the caller's own arguments, so names, versions, flags and statuses are its own. What
//! it returns is looked up by address, never by the name that was asked.

use crate::os::reentrancy;
use crate::{bypass, exports};
use core::ffi::{CStr, c_char, c_int, c_void};
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::elf::Image;
use gpuslice_driver::functions as real;
use gpuslice_driver::table::ALL;
use gpuslice_driver::types::{CUdriverProcAddressQueryResult, CUuuid, Status, status};
use gpuslice_driver::{Api, Symbol};
use once_cell::race::OnceBox;

/// The form with four arguments.
pub(crate) unsafe fn proc_address(
    real: real::cuGetProcAddress,
    symbol: *const c_char,
    output: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Status {
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(symbol, output, version, flags) };
    // SAFETY: the caller's name and output, which the driver accepted.
    unsafe { translate(code, symbol, output) };
    code
}

/// The form with five arguments.
pub(crate) unsafe fn proc_address_v2(
    real: real::cuGetProcAddress_v2,
    symbol: *const c_char,
    output: *mut *mut c_void,
    version: c_int,
    flags: u64,
    found: *mut CUdriverProcAddressQueryResult,
) -> Status {
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(symbol, output, version, flags, found) };
    // SAFETY: the caller's name and output, which the driver accepted.
    unsafe { translate(code, symbol, output) };
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
unsafe fn translate(code: Status, name: *const c_char, output: *mut *mut c_void) {
    if code != status::SUCCESS {
        return;
    }
    // SAFETY: by the contract above.
    let Some(address) = unsafe { read_in(output) }.filter(|address| !address.is_null()) else { return };
    match reentrancy::quietly(|| entry_of(address), None) {
        // SAFETY: by the contract above.
        Some(Some(entry)) => unsafe { write_out(output, entry.cast_mut()) },
        Some(None) => {
            // SAFETY: by the contract above.
            let name = unsafe { CStr::from_ptr(name) };
            reentrancy::quietly(|| bypass::handed_out(name, address), ());
        }
        None => {}
    }
}

/// Our entry for an address of the driver's, or that there is none; nothing for an address elsewhere.
pub(crate) fn entry_of(address: *const c_void) -> Option<Option<*const c_void>> {
    Some(Directory::of(address)?.symbol(address).map(exports::entry))
}

/// The driver's functions by address.
#[derive(Debug)]
struct Directory {
    image: Image,
    entries: Vec<(usize, Symbol)>,
}

impl Directory {
    /// The directory of the driver that an address lies in; made when the first one is asked for. A second driver
    /// in a namespace of its own gives none: its functions pass untouched.
    fn of(address: *const c_void) -> Option<&'static Self> {
        static DIRECTORY: OnceBox<Directory> = OnceBox::new();
        let directory = match DIRECTORY.get() {
            Some(directory) => directory,
            None => {
                let image = Image::containing(address)?;
                DIRECTORY.get_or_init(|| Box::new(Self::new(image)))
            }
        };
        directory.image.contains(address).then_some(directory)
    }

    fn new(image: Image) -> Self {
        let mut entries: Vec<_> = ALL
            .iter()
            .filter(|symbol| symbol.api() == Api::Cuda)
            .filter_map(|symbol| Some((find(&image, *symbol)?.addr(), *symbol)))
            .collect();
        entries.sort_unstable();
        Self { image, entries }
    }

    fn symbol(&self, address: *const c_void) -> Option<Symbol> {
        let place = self.entries.partition_point(|(entry, _)| *entry < address.addr());
        self.entries.get(place).filter(|(entry, _)| *entry == address.addr()).map(|(_, symbol)| *symbol)
    }
}

fn find(image: &Image, symbol: Symbol) -> Option<*const c_void> {
    let mut name = [0; 128];
    name.get_mut(..symbol.name().len())?.copy_from_slice(symbol.name().as_bytes());
    image.symbol(CStr::from_bytes_until_nul(&name).ok()?)
}
