//! Total and free memory of a device: the slice's figures.

use crate::driver_calls::{contexts, devices};
use crate::hooks::hooked_call::HookedCall;
use crate::memory::{leaving, measurement};
use crate::os::reentrancy::enter_or;
use crate::process::{self, Enforcement, Process};
use crate::slice::device::SliceDevice;
use crate::slice::handle::DeviceQuota;
use crate::slice::settings;
use core::ffi::{c_int, c_uint};
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{Status, status};

/// `cuMemGetInfo_v2`.
pub(crate) fn mem_info(call: &HookedCall<real::cuMemGetInfo_v2>) -> Status {
    let (free, total) = call.arguments();
    let code = call.forward();
    if let Some(quota) = enter_or(|| current(code), None) {
        // SAFETY: `lower` requires that `free` is null or valid, and so does the driver.
        unsafe { lower(free, quota.left) };
        if !settings::reports_device_total() {
            // SAFETY: `lower` requires that `total` is null or valid, and so does the driver.
            unsafe { lower(total, quota.total) };
        }
    }
    code
}

/// `cuMemGetInfo`, whose outputs have 32 bits.
pub(crate) fn mem_info_v1(call: &HookedCall<real::cuMemGetInfo>) -> Status {
    let (free, total) = call.arguments();
    let code = call.forward();
    if let Some(quota) = enter_or(|| current(code), None) {
        let really_free = enter_or(devices::device_free, None).unwrap_or(quota.left);
        // SAFETY: `put_short` requires that `free` is null or valid, and so does the driver.
        unsafe { put_short(free, quota.left.min(really_free)) };
        if !settings::reports_device_total() {
            // SAFETY: `put_short` requires that `total` is null or valid, and so does the driver.
            unsafe { put_short(total, quota.total) };
        }
    }
    code
}

/// `cuDeviceTotalMem_v2`.
pub(crate) fn total(call: &HookedCall<real::cuDeviceTotalMem_v2>) -> Status {
    let (bytes, device) = call.arguments();
    let code = call.forward();
    if let Some(total) = enter_or(|| total_of(code, device), None) {
        // SAFETY: `lower` requires that `bytes` is null or valid, and so does the driver.
        unsafe { lower(bytes, total) };
    }
    code
}

/// `cuDeviceTotalMem`, whose output has 32 bits.
pub(crate) fn total_v1(call: &HookedCall<real::cuDeviceTotalMem>) -> Status {
    let (bytes, device) = call.arguments();
    let code = call.forward();
    if let Some(total) = enter_or(|| total_of(code, device), None) {
        // SAFETY: `put_short` requires that `bytes` is null or valid, and so does the driver.
        unsafe { put_short(bytes, total) };
    }
    code
}

/// Returns the size that programs are told instead of the device's own; `None` if they are told its own.
fn total_of(code: Status, device: c_int) -> Option<u64> {
    if settings::reports_device_total() { None } else { Some(of(code, device)?.total) }
}

/// Returns the quota of the current context's device, if the call succeeded.
fn current(code: Status) -> Option<DeviceQuota> {
    of(code, contexts::current_device()?)
}

fn of(code: Status, device: c_int) -> Option<DeviceQuota> {
    let Enforcement::Active(process) = process::enforcement() else { return None };
    if code != status::SUCCESS {
        return None;
    }
    quota_of(process, process.place(device)?)
}

/// Returns the quota of a device, and how much of it is left after everything is reconciled that can be now.
pub(crate) fn quota_of(process: &'static Process, place: SliceDevice) -> Option<DeviceQuota> {
    measurement::complete_figures(process, 0);
    process.pools.reconcile_all(process);
    // A dead member holds nothing as soon as the library can tell that it is dead.
    let _reaped = process.region().reap();
    leaving::look(process, place);
    process.quota(place)
}

/// Lowers an output to `bound`. Never raises the driver's value.
///
/// # Safety
/// `output` is null or valid for reads and writes.
unsafe fn lower(output: *mut usize, bound: u64) {
    // SAFETY: by this function's contract `output` is null or valid.
    let Some(value) = (unsafe { read_in(output) }) else { return };
    if let Ok(bound) = usize::try_from(bound)
        && bound < value
    {
        // SAFETY: by this function's contract `output` is null or valid.
        unsafe { write_out(output, bound) };
    }
}

/// Writes `bytes` to an output of 32 bits, or the largest number that fits. Does not look at the driver's value, which may be the
/// lower bits of a size that does not fit.
///
/// # Safety
/// `output` is null or valid for writes.
unsafe fn put_short(output: *mut c_uint, bytes: u64) {
    // SAFETY: by this function's contract `output` is null or valid.
    unsafe { write_out(output, c_uint::try_from(bytes).unwrap_or(c_uint::MAX)) };
}
