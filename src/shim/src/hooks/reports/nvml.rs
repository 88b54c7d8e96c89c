//! NVML's figures of a device's memory: the slice's answer, consistent with CUDA's.
//!
//! A program that only watches takes no slot in the slice: the hook reads the region.

use super::report::quota_of;
use crate::driver_calls::nvml::devices::{self, ComputeDevice};
use crate::hooks::hooked_call::HookedCall;
use crate::os::reentrancy::enter_or;
use crate::process::{self, Enforcement};
use crate::slice::handle::DeviceQuota;
use crate::slice::settings::{self, Settings};
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{Status, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, status};
use gpuslice_region::{Monitor, Region, Uuid};

/// `nvmlDeviceGetMemoryInfo`, and `nvmlDeviceGetConfComputeProtectedMemoryUsage`, which has the same form.
pub(crate) fn memory_info(call: &HookedCall<real::nvmlDeviceGetMemoryInfo>) -> Status {
    let (device, memory) = call.arguments();
    let code = call.forward();
    // SAFETY: `show` requires after a success that `memory` is null or valid, and so does the driver.
    unsafe { show(code, device, memory) };
    code
}

/// `nvmlDeviceGetMemoryInfo_v2`.
pub(crate) fn memory_info_v2(call: &HookedCall<real::nvmlDeviceGetMemoryInfo_v2>) -> Status {
    let (device, memory) = call.arguments();
    let code = call.forward();
    // SAFETY: `show` requires after a success that `memory` is null or valid, and so does the driver.
    unsafe { show(code, device, memory) };
    code
}

/// Memory of a device as NVML describes it.
trait MemoryFigures: Copy {
    /// Returns the device's size.
    fn total(&self) -> u64;
    /// Returns the figures of a slice that has `size` bytes, of which at most `left` are free, on a device of `total` bytes.
    fn of_slice(self, total: u64, size: u64, left: u64) -> Self;
}

impl MemoryFigures for nvmlMemory_t {
    fn total(&self) -> u64 {
        self.total
    }

    /// Counts memory that is neither free nor the slice's as used, because this form has no field for it.
    fn of_slice(self, total: u64, _size: u64, left: u64) -> Self {
        let free = left.min(self.free);
        Self { total, free, used: total.saturating_sub(free) }
    }
}

impl MemoryFigures for nvmlMemory_v2_t {
    fn total(&self) -> u64 {
        self.total
    }

    /// Shows the memory beyond the quota as reserved. The driver's own reserve is outside the quota and is not shown.
    fn of_slice(self, total: u64, size: u64, left: u64) -> Self {
        let free = left.min(self.free);
        Self { total, free, used: size.saturating_sub(free), reserved: total.saturating_sub(size), ..self }
    }
}

/// Puts the slice's figures in the place of the device's, if the device has a quota.
///
/// # Safety
/// `memory` is null or valid for reads and writes if the status is a success.
unsafe fn show<T: MemoryFigures>(code: Status, device: nvmlDevice_t, memory: *mut T) {
    if code != status::SUCCESS {
        return;
    }
    // SAFETY: by this function's contract `memory` is null or valid.
    let Some(figures) = (unsafe { read_in(memory) }) else { return };
    if let Some(quota) = enter_or(|| quota(device), None) {
        let size = quota.total.min(figures.total());
        let total = if settings::reports_device_total() { figures.total() } else { size };
        let shown = figures.of_slice(total, size, quota.left);
        // SAFETY: by this function's contract `memory` is null or valid.
        unsafe { write_out(memory, shown) };
    }
}

/// Returns the slice's quota of a device, and how much of it is left; `None` without a quota. For a GPU that is divided, it
/// returns the sum over all instances.
pub(crate) fn quota(device: nvmlDevice_t) -> Option<DeviceQuota> {
    let settings = settings::settings()?;
    let parts = devices::parts(device);
    let quotas = parts.iter().filter_map(|part| of_part(settings, *part));
    quotas.reduce(|sum, quota| DeviceQuota {
        total: sum.total.saturating_add(quota.total),
        left: sum.left.saturating_add(quota.left),
    })
}

fn of_part(settings: &Settings, part: ComputeDevice) -> Option<DeviceQuota> {
    let enforcement = process::enforcement();
    if let Enforcement::Active(process) = enforcement
        && let Some(place) = process.place_of(&part.uuid)
    {
        return quota_of(process, place);
    }
    let number = || match enforcement {
        // CUDA has shown its devices, and this part is not among them.
        Enforcement::Active(_) => None,
        Enforcement::Off | Enforcement::Failed => devices::ordinal(&part.uuid, &settings.config),
    };
    watched(settings, &part.uuid).unwrap_or_else(|| configured(settings, part, number()))
}

/// Returns the quota by the region, if the slice lives and has used the device. `Some(None)`: the slice has no quota of it.
fn watched(settings: &Settings, uuid: &[u8; 16]) -> Option<Option<DeviceQuota>> {
    let monitor = Monitor::open_program(&settings.region).ok()??;
    let region = monitor.region();
    // Memory of dead members is free. An error means that they cannot be told now, and the figure stays low.
    let _reaped = region.reap();
    if region.processes().is_empty() {
        // The next process initialises the region anew.
        return None;
    }
    let known = region.device(&Uuid(*uuid))?;
    let quota = |limit: u64| DeviceQuota { total: limit, left: limit.saturating_sub(region.held(known)) };
    Some(region.memory_limit(known).map(quota))
}

/// Returns the quota by the settings, if no process of the slice has used the device yet.
fn configured(settings: &Settings, part: ComputeDevice, ordinal: Option<u32>) -> Option<DeviceQuota> {
    let device = devices::identity(part, &settings.config, ordinal)?;
    let limit = settings.config.limits_for(device).memory?.get();
    Some(DeviceQuota { total: limit, left: limit })
}

/// Returns true if the time of one of `parts` is limited for the slice, or divided among slices.
pub(crate) fn has_share(parts: &[ComputeDevice]) -> bool {
    let Some(settings) = settings::settings() else { return false };
    parts.iter().any(|part| is_paced(settings, *part).unwrap_or(false))
}

/// Tells whether the time of `part` is limited or divided: by the region, or else by the settings. The rate that the slice may
/// use at this instant does not count, because other slices change it all the time.
fn is_paced(settings: &Settings, part: ComputeDevice) -> Option<bool> {
    let in_region = |region: &Region| {
        let device = region.device(&Uuid(part.uuid))?;
        Some(region.is_paced(device))
    };
    let ordinal = match process::enforcement() {
        Enforcement::Active(process) => return in_region(process.region()),
        Enforcement::Off | Enforcement::Failed => devices::ordinal(&part.uuid, &settings.config),
    };
    let monitor = Monitor::open_program(&settings.region).ok().flatten();
    let region = monitor.as_ref().map(Monitor::region).filter(|region| !region.processes().is_empty());
    region.and_then(in_region).or_else(|| {
        let device = devices::identity(part, &settings.config, ordinal)?;
        let limits = settings.config.limits_for(device);
        Some(limits.cores.is_partial() || settings.config.divides())
    })
}
