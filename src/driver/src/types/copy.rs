//! What do the structures say that describe a copy? Their enumerations as integers.

use super::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUdeviceptr, c_uint, c_void};

/// `CUmemorytype`: where one end of a copy is.
pub mod memory_type {
    use super::c_uint;

    /// Memory of the host.
    pub const HOST: c_uint = 1;
    /// Memory of a device.
    pub const DEVICE: c_uint = 2;
    /// An array.
    pub const ARRAY: c_uint = 3;
    /// Either; the address tells the driver which.
    pub const UNIFIED: c_uint = 4;
}

/// One end of a [`PlaneCopy`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PlaneEnd {
    /// Offset in bytes within a row.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// A [`memory_type`].
    pub kind: c_uint,
    /// Its address in memory of the host.
    pub host: *mut c_void,
    /// Its address in memory of a device.
    pub device: CUdeviceptr,
    /// The array.
    pub array: CUarray,
    /// Distance of rows in bytes.
    pub pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PlaneCopy {
    /// Where from.
    pub from: PlaneEnd,
    /// Where to.
    pub to: PlaneEnd,
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// One end of a [`VolumeCopy`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct VolumeEnd {
    /// Offset in bytes within a row.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// First slice.
    pub z: usize,
    /// Level of detail; 0.
    pub level: usize,
    /// A [`memory_type`].
    pub kind: c_uint,
    /// Its address in memory of the host.
    pub host: *mut c_void,
    /// Its address in memory of a device.
    pub device: CUdeviceptr,
    /// The array.
    pub array: CUarray,
    /// The context in `CUDA_MEMCPY3D_PEER`, otherwise reserved.
    pub context: *mut c_void,
    /// Distance of rows in bytes.
    pub pitch: usize,
    /// Rows of a slice.
    pub height: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct VolumeCopy {
    /// Where from.
    pub from: VolumeEnd,
    /// Where to.
    pub to: VolumeEnd,
    /// Bytes of a row.
    pub width: usize,
    /// Rows of a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

const _: () = assert!(size_of::<PlaneCopy>() == size_of::<CUDA_MEMCPY2D>());
const _: () = assert!(size_of::<VolumeCopy>() == size_of::<CUDA_MEMCPY3D>());
const _: () = assert!(size_of::<VolumeCopy>() == size_of::<CUDA_MEMCPY3D_PEER>());
