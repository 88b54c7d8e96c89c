//! Hooks of a program's first calls, which are refused where the limits cannot be enforced.

use crate::driver_calls::nvml::initialization;
use crate::hooks::hooked_call::HookedCall;
use crate::os::reentrancy;
use crate::process::{self, Enforcement};
use crate::slice::settings;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::config::LogLevel;
use gpuslice_region::Monitor;

/// `cuInit`.
pub(crate) fn init(call: &HookedCall<real::cuInit>) -> Status {
    if settings::is_refused() {
        return status::NOT_PERMITTED;
    }
    let code = call.forward();
    if code != status::SUCCESS {
        return code;
    }
    match process::enforcement() {
        Enforcement::Failed => status::NOT_PERMITTED,
        Enforcement::Off | Enforcement::Active(_) => code,
    }
}

/// `nvmlInit` in its forms without arguments.
pub(crate) fn nvml_init(call: &HookedCall<real::nvmlInit>) -> Status {
    if reentrancy::enter_or(is_unenforceable, false) {
        return status::NVML_NO_PERMISSION;
    }
    let code = call.forward();
    initialization::count(code);
    code
}

/// `nvmlInitWithFlags`.
pub(crate) fn nvml_init_with_flags(call: &HookedCall<real::nvmlInitWithFlags>) -> Status {
    if reentrancy::enter_or(is_unenforceable, false) {
        return status::NVML_NO_PERMISSION;
    }
    let code = call.forward();
    initialization::count(code);
    code
}

/// `nvmlShutdown`.
pub(crate) fn nvml_shutdown(call: &HookedCall<real::nvmlShutdown>) -> Status {
    initialization::shut_down(|| call.forward())
}

/// Returns true if the limits cannot be enforced, as far as the library can tell without CUDA. A program that only watches takes
/// no slot in the slice. But the library already reports at this call that it cannot read a region.
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
