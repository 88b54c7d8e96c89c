//! NVML's figures of a device's memory: the slice's answer, consistent with CUDA's.
//!
//! A program that only watches takes no place in the slice: it reads the region.

use crate::driver;
use crate::guard::quietly;
use crate::lifecycle::{self, Settings, Standing};
use crate::slice::Quota;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{Status, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, status};
use gpuslice_policy::config::{DeviceIdentity, parse_uuid_text};
use gpuslice_policy::units::Bytes;
use gpuslice_region::{Monitor, Uuid};

/// `nvmlDeviceGetMemoryInfo`, and `nvmlDeviceGetConfComputeProtectedMemoryUsage`, which has the same form.
pub(crate) unsafe fn memory_info(
    real: real::nvmlDeviceGetMemoryInfo,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(device, memory) };
    // SAFETY: the caller's output, which the driver wrote if the call succeeded.
    unsafe { show(code, device, memory) };
    code
}

/// `nvmlDeviceGetMemoryInfo_v2`.
pub(crate) unsafe fn memory_info_v2(
    real: real::nvmlDeviceGetMemoryInfo_v2,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> Status {
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(device, memory) };
    // SAFETY: the caller's output, which the driver wrote if the call succeeded.
    unsafe { show(code, device, memory) };
    code
}

/// A device's memory as NVML describes it.
trait Figures: Copy {
    /// The device's size.
    fn total(&self) -> u64;
    /// The figures of a slice that has `total` bytes, of which at most `left` are free.
    fn of_slice(self, total: u64, left: u64) -> Self;
}

impl Figures for nvmlMemory_t {
    fn total(&self) -> u64 {
        self.total
    }

    fn of_slice(self, total: u64, left: u64) -> Self {
        let free = left.min(self.free);
        Self { total, free, used: total.saturating_sub(free) }
    }
}

impl Figures for nvmlMemory_v2_t {
    fn total(&self) -> u64 {
        self.total
    }

    /// The driver's own reserve is outside the quota, so none is shown.
    fn of_slice(self, total: u64, left: u64) -> Self {
        let free = left.min(self.free);
        Self { total, free, used: total.saturating_sub(free), reserved: 0, ..self }
    }
}

/// Puts the slice's figures in the place of the device's, where it has a quota.
///
/// # Safety
/// `memory` is null or valid for reads and writes if the status is a success.
unsafe fn show<T: Figures>(code: Status, device: nvmlDevice_t, memory: *mut T) {
    if code != status::SUCCESS {
        return;
    }
    // SAFETY: by the contract above.
    let Some(figures) = (unsafe { read_in(memory) }) else { return };
    if let Some(quota) = quietly(|| quota(device, figures.total()), None) {
        let shown = figures.of_slice(quota.total.min(figures.total()), quota.left);
        // SAFETY: by the contract above.
        unsafe { write_out(memory, shown) };
    }
}

/// What the slice has and holds of a device; none where it has no quota.
pub(super) fn quota(device: nvmlDevice_t, total: u64) -> Option<Quota> {
    let settings = lifecycle::settings()?;
    let uuid = parse_uuid_text(&driver::nvml_uuid(device)?)?;
    if let Standing::Member(slice) = lifecycle::standing()
        && let Some(place) = slice.place_of(&uuid)
    {
        slice.pools.reconcile_all(slice);
        return slice.quota(place);
    }
    watched(settings, &uuid).or_else(|| configured(settings, device, uuid, total))
}

/// From the region, where the slice lives and has the device.
fn watched(settings: &Settings, uuid: &[u8; 16]) -> Option<Quota> {
    let monitor = Monitor::open(&settings.region, settings.trust).ok()??;
    let region = monitor.region();
    let known = region.device(&Uuid(*uuid))?;
    let limit = region.limits(known).memory?;
    // What the dead held is free; an error means that they cannot be told now, and the figure stays low.
    let _reaped = region.reap();
    Some(Quota { total: limit, left: limit.saturating_sub(region.held(known)) })
}

/// From the settings, where nobody of the slice has used the device yet.
fn configured(settings: &Settings, device: nvmlDevice_t, uuid: [u8; 16], total: u64) -> Option<Quota> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let ordinal = driver::nvml_index(device).and_then(|index| ordinal(index, visible.as_deref()));
    let identity = DeviceIdentity { ordinal, uuid, total: Bytes::new(total) };
    let limit = settings.config.limits_for(identity).memory?.get();
    Some(Quota { total: limit, left: limit })
}

/// CUDA's number of a device from NVML's, as far as it can be told without CUDA: both count in the order of the
/// bus where `CUDA_DEVICE_ORDER` says so, and on machines with equal devices.
fn ordinal(index: u32, visible: Option<&str>) -> Option<u32> {
    let Some(list) = visible else { return Some(index) };
    let place = list.split(',').position(|entry| entry.trim().parse() == Ok(index))?;
    u32::try_from(place).ok()
}
