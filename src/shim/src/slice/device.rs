//! A device of this process, by the names that CUDA, NVML and the region give it.

use gpuslice_driver::types::CUdevice;
use gpuslice_region::Device;

/// A device of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SliceDevice {
    /// CUDA's handle of the device.
    pub(crate) handle: CUdevice,
    /// Number of the device in the region.
    pub(crate) device: Device,
    /// Bytes of memory that the driver reports for the device.
    pub(crate) total: u64,
    /// UUID, by which NVML finds the device.
    pub(crate) uuid: [u8; 16],
    /// True if programs that use no GPU change the device's free memory: see `driver::shares_host_memory`.
    pub(crate) shares_host_memory: bool,
}
