//! A device of this process, by the names that CUDA, NVML and the region have for it.

use gpuslice_driver::types::CUdevice;
use gpuslice_region::Device;

/// A device of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SliceDevice {
    /// The handle that CUDA has for the device.
    pub(crate) handle: CUdevice,
    /// The number of the device in the region.
    pub(crate) device: Device,
    /// The size of its memory that the driver tells, in bytes.
    pub(crate) total: u64,
    /// The UUID, by which NVML finds the device.
    pub(crate) uuid: [u8; 16],
    /// True if its free memory moves with programs that use no GPU: see `driver::shares_host_memory`.
    pub(crate) shares_host_memory: bool,
}
