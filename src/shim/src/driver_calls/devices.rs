//! Devices of CUDA, with their names, sizes and attributes.

use super::capture_mode::with_relaxed_capture_mode;
use core::ffi::{c_int, c_uint};
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::device_attribute::OF_HOST_MEMORY;
use gpuslice_driver::types::{CUdevice, status};

/// Returns the version of the driver API.
pub(crate) fn version() -> Option<c_int> {
    ask!(cuDriverGetVersion, c_int)
}

/// Returns the number of devices that CUDA shows; `None` before a successful `cuInit`.
pub(crate) fn device_count() -> Option<c_int> {
    ask!(cuDeviceGetCount, c_int)
}

/// Returns the handle of a device.
pub(crate) fn device(ordinal: c_int) -> Option<CUdevice> {
    ask!(cuDeviceGet, CUdevice, ordinal)
}

/// Returns the UUID of a device. If the device is an instance of a divided GPU, it is the UUID of the instance.
pub(crate) fn device_uuid(device: CUdevice) -> Option<[u8; 16]> {
    newest_uuid(device).or_else(|| ask!(cuDeviceGetUuid, [u8; 16], device))
}

/// Calls the form that returns UUIDs of instances. CUDA has it since 11.4.
fn newest_uuid(device: CUdevice) -> Option<[u8; 16]> {
    ask!(cuDeviceGetUuid_v2, [u8; 16], device)
}

/// Returns the bytes of memory of a device.
pub(crate) fn device_total(device: CUdevice) -> Option<u64> {
    ask!(cuDeviceTotalMem_v2, usize, device).map(|bytes| bytes as u64)
}

/// Returns the free bytes of the device of the current context.
pub(crate) fn device_free() -> Option<u64> {
    let function = slot::real::<real::cuMemGetInfo_v2>(Symbol::cuMemGetInfo_v2)?;
    let (mut free, mut total) = (0_usize, 0_usize);
    // SAFETY: the function needs outputs that are valid for writes: `free` and `total` are on this stack.
    let code = with_relaxed_capture_mode(|| unsafe { function(&raw mut free, &raw mut total) });
    (code == status::SUCCESS).then_some(free as u64)
}

/// Returns an attribute of a device, by the attribute's number.
pub(crate) fn device_attribute(device: CUdevice, attribute: c_uint) -> Option<u64> {
    ask!(cuDeviceGetAttribute, c_int, attribute, device).and_then(|value| u64::try_from(value).ok())
}

/// Returns true if a device can use managed memory at the same time as the host. Otherwise all managed memory is on the device.
pub(crate) fn shares_managed_memory(device: CUdevice) -> bool {
    /// `CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS`.
    const CONCURRENT_ACCESS: c_uint = 89;
    device_attribute(device, CONCURRENT_ACCESS) == Some(1)
}

/// Returns the number of a device's multiprocessors.
pub(crate) fn multiprocessors(device: CUdevice) -> Option<u64> {
    /// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
    const MULTIPROCESSOR_COUNT: c_uint = 16;
    device_attribute(device, MULTIPROCESSOR_COUNT)
}

/// Returns true if a device uses the host's memory, so that every program of the machine changes its free memory.
///
/// Such a device is an integrated GPU, or a GPU whose memory is a NUMA node of the system or in the host's page tables.
pub(crate) fn shares_host_memory(device: CUdevice) -> bool {
    OF_HOST_MEMORY
        .into_iter()
        .any(|attribute| device_attribute(device, attribute).is_some_and(|value| value != 0))
}
