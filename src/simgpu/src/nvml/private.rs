//! What does `nvmlInternalGetExportTable` answer?
//!
//! `nvidia-smi` asks for a private table and believes in a mismatch of versions when there is none. It gets
//! one that resembles no real table: every entry is the same function, which supports nothing.

use core::ffi::c_void;

use gpuslice_driver::types::Status;

use super::entry::{NvmlCall, Outcome};
use super::statuses;

/// Enough for every caller known: they call entries up to the six hundreds.
const WORDS: usize = 640;

#[repr(C)]
struct PrivateTable {
    /// Bytes of the whole.
    size: usize,
    functions: [extern "C" fn() -> Status; WORDS - 1],
}

extern "C" fn unsupported() -> Status {
    statuses::NOT_SUPPORTED
}

static TABLE: PrivateTable =
    PrivateTable { size: size_of::<PrivateTable>(), functions: [unsupported; WORDS - 1] };

/// Writes where the table is, whichever is asked for.
///
/// # Errors
/// `NVML_ERROR_INVALID_ARGUMENT` for a null pointer.
pub fn private_table(nvml: &NvmlCall, table: *mut *const c_void, id: *const c_void) -> Outcome {
    if id.is_null() {
        return Err(statuses::INVALID_ARGUMENT);
    }
    nvml.write(table, (&raw const TABLE).cast())
}
