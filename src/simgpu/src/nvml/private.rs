//! The private table of `nvmlInternalGetExportTable`.
//!
//! `nvidia-smi` requests a private table, and reports a version mismatch if there is none. This table resembles no
//! real one: each entry is the same function, which supports nothing.

use core::ffi::c_void;

use gpuslice_driver::types::Status;

use super::entry::NvmlCall;
use super::statuses;
use crate::status::Outcome;

/// Number of words. Known callers use entries up to the six hundreds.
const NVML_PRIVATE_WORDS: usize = 640;

#[repr(C)]
struct NvmlTable {
    /// Bytes of the whole table.
    size: usize,
    functions: [extern "C" fn() -> Status; NVML_PRIVATE_WORDS - 1],
}

extern "C" fn unsupported() -> Status {
    statuses::NOT_SUPPORTED
}

static TABLE: NvmlTable =
    NvmlTable { size: size_of::<NvmlTable>(), functions: [unsupported; NVML_PRIVATE_WORDS - 1] };

/// Writes the address of the table, whatever table is requested.
///
/// # Errors
/// `NVML_ERROR_INVALID_ARGUMENT` for a null pointer.
pub fn private_table(nvml: &NvmlCall, table: *mut *const c_void, id: *const c_void) -> Outcome {
    if id.is_null() {
        return Err(statuses::INVALID_ARGUMENT);
    }
    nvml.write(table, (&raw const TABLE).cast())
}
