//! The private table that `nvmlInternalGetExportTable` returns.
//!
//! `nvidia-smi` asks for a private table, and reports a mismatch of versions if it gets none. This table is like no real one:
//! every entry is the same function, which answers "not supported".

use core::ffi::c_void;

use gpuslice_driver::types::Status;

use super::entry::NvmlCall;
use super::statuses;
use crate::status::Outcome;

/// Number of words of the table. Known callers use entries up to the six hundreds.
const NVML_PRIVATE_WORDS: usize = 640;

#[repr(C)]
struct NvmlTable {
    /// Size of the whole table, in bytes.
    size: usize,
    functions: [extern "C" fn() -> Status; NVML_PRIVATE_WORDS - 1],
}

extern "C" fn unsupported() -> Status {
    statuses::NOT_SUPPORTED
}

static TABLE: NvmlTable =
    NvmlTable { size: size_of::<NvmlTable>(), functions: [unsupported; NVML_PRIVATE_WORDS - 1] };

/// Writes the address of the table, whichever table the caller asks for.
///
/// # Errors
/// `NVML_ERROR_INVALID_ARGUMENT` for a null pointer.
pub fn private_table(nvml: &NvmlCall, table: *mut *const c_void, id: *const c_void) -> Outcome {
    if id.is_null() {
        return Err(statuses::INVALID_ARGUMENT);
    }
    nvml.write(table, (&raw const TABLE).cast())
}
