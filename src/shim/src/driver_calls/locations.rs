//! Locations of memory, as the driver names them.

use core::ffi::c_int;
use gpuslice_driver::types::CUmemLocation;

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN`: a part of a device. The low byte is the number of the device.
const ON_PART_OF_DEVICE: u32 = 6;

/// Returns CUDA's handle of the device at a location; `None` for the host.
pub(crate) fn device_of(location: CUmemLocation) -> Option<c_int> {
    match location.kind {
        ON_DEVICE => Some(location.id),
        ON_PART_OF_DEVICE => Some(location.id & 0xff),
        _ => None,
    }
}
