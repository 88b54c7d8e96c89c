//! Statuses of NVML, and their texts.

use core::ffi::CStr;

use gpuslice_driver::types::Status;

pub(super) const UNINITIALIZED: Status = 1;
pub(super) const INVALID_ARGUMENT: Status = 2;
pub(super) const NOT_SUPPORTED: Status = 3;
pub(super) const NOT_FOUND: Status = 6;
pub(super) const INSUFFICIENT_SIZE: Status = 7;
pub(super) const TIMEOUT: Status = 10;
pub(super) const GPU_IS_LOST: Status = 15;
pub(super) const ARGUMENT_VERSION_MISMATCH: Status = 25;
pub(super) const UNKNOWN: Status = 999;

/// The text of each status. The index is the status.
const TEXTS: [&CStr; 31] = [
    c"Success",
    c"Uninitialized",
    c"Invalid Argument",
    c"Not Supported",
    c"Insufficient Permissions",
    c"Already Initialized",
    c"Not Found",
    c"Insufficient Size",
    c"Insufficient External Power",
    c"Driver Not Loaded",
    c"Timeout",
    c"Interrupt Request Issue",
    c"NVML Shared Library Not Found",
    c"Function Not Found",
    c"Corrupted infoROM",
    c"GPU is lost",
    c"GPU requires reset",
    c"GPU access blocked by the operating system",
    c"Driver/library version mismatch",
    c"In use by another client",
    c"Insufficient Memory",
    c"No data",
    c"vGPU ECC not supported",
    c"Insufficient Resources",
    c"Invalid Frequency",
    c"Argument version mismatch",
    c"Requested functionality has been deprecated",
    c"System is not in ready state",
    c"No supported GPUs were found",
    c"Resource not in correct state to perform requested operation",
    c"Reset type not supported",
];

/// Returns the text that `nvmlErrorString` returns for a status.
#[must_use]
pub fn text(status: Status) -> &'static CStr {
    let known = usize::try_from(status).ok().and_then(|number| TEXTS.get(number).copied());
    known.unwrap_or(c"Unknown Error")
}
