//! Hooks of a program's first calls, which are refused where the limits cannot be enforced.

use crate::driver_calls::nvml::initialization;
use crate::os::reentrancy;
use crate::process::{self, Enforcement};
use crate::slice::settings;
use core::ffi::c_uint;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::config::LogLevel;
use gpuslice_region::Monitor;

/// `cuInit`.
pub(crate) unsafe fn init(real: real::cuInit, flags: c_uint) -> Status {
    if settings::is_refused() {
        return status::NOT_PERMITTED;
    }
    // SAFETY: `real` requires a valid argument; this one is the caller's, for the same driver function.
    let code = unsafe { real(flags) };
    if code != status::SUCCESS {
        return code;
    }
    match process::enforcement() {
        Enforcement::Failed => status::NOT_PERMITTED,
        Enforcement::Off | Enforcement::Active(_) => code,
    }
}

/// `nvmlInit` in its forms without arguments.
pub(crate) unsafe fn nvml_init(real: real::nvmlInit) -> Status {
    if reentrancy::enter_or(is_unenforceable, false) {
        return status::NVML_NO_PERMISSION;
    }
    // SAFETY: `real` takes no arguments.
    let code = unsafe { real() };
    initialization::count(code);
    code
}

/// `nvmlInitWithFlags`.
pub(crate) unsafe fn nvml_init_with_flags(real: real::nvmlInitWithFlags, flags: c_uint) -> Status {
    if reentrancy::enter_or(is_unenforceable, false) {
        return status::NVML_NO_PERMISSION;
    }
    // SAFETY: `real` requires a valid argument; this one is the caller's, for the same driver function.
    let code = unsafe { real(flags) };
    initialization::count(code);
    code
}

/// `nvmlShutdown`.
pub(crate) unsafe fn nvml_shutdown(real: real::nvmlShutdown) -> Status {
    // SAFETY: `real` takes no arguments.
    initialization::shut_down(|| unsafe { real() })
}

/// Returns true if the limits cannot be enforced, as far as the library can tell without CUDA. A program that only watches takes
/// no slot in the slice. But the library reports a region that cannot be read at this call already.
fn is_unenforceable() -> bool {
    if settings::is_refused() {
        return true;
    }
    let Some(settings) = settings::settings() else { return false };
    match Monitor::open_program(&settings.region) {
        Ok(_) => false,
        Err(error) => {
            crate::os::messages::say(LogLevel::Error, &format_args!("gpuslice: {error}. NVML is refused."));
            true
        }
    }
}
