//! Structures that describe a copy, with enumerations as integers.

use core::ffi::{c_uint, c_void};

use super::cuda::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_PEER, CUarray, CUdeviceptr,
};

/// `CUmemorytype`: the kind of memory at one end of a copy.
pub mod memory_type {
    use super::c_uint;

    /// Memory of the host.
    pub const HOST: c_uint = 1;
    /// Memory of a device.
    pub const DEVICE: c_uint = 2;
    /// An array.
    pub const ARRAY: c_uint = 3;
    /// Memory of the host or of a device. The driver distinguishes them by the address.
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
    /// The end's address in memory of the host.
    pub host: *mut c_void,
    /// The end's address in memory of a device.
    pub device: CUdeviceptr,
    /// The array.
    pub array: CUarray,
    /// Distance between the starts of two rows, in bytes.
    pub pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PlaneCopy {
    /// The source.
    pub from: PlaneEnd,
    /// The destination.
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
    /// The end's address in memory of the host.
    pub host: *mut c_void,
    /// The end's address in memory of a device.
    pub device: CUdeviceptr,
    /// The array.
    pub array: CUarray,
    /// The context in `CUDA_MEMCPY3D_PEER`, otherwise reserved.
    pub context: *mut c_void,
    /// Distance between the starts of two rows, in bytes.
    pub pitch: usize,
    /// Rows of a slice.
    pub height: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct VolumeCopy {
    /// The source.
    pub from: VolumeEnd,
    /// The destination.
    pub to: VolumeEnd,
    /// Bytes of a row.
    pub width: usize,
    /// Rows of a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

/// One end of a [`BoxCopy`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct BoxEnd {
    /// [`POINTER`](Self::POINTER) or [`ARRAY`](Self::ARRAY).
    pub kind: c_uint,
    /// The end's address, or the array.
    pub place: u64,
    /// For an address: bytes of a row and rows of a slice (0 if they are packed), and the location. For an array: the
    /// first element in each direction.
    pub rest: [u64; 3],
}

impl BoxEnd {
    /// `CU_MEMCPY_OPERAND_TYPE_POINTER`.
    pub const POINTER: c_uint = 1;
    /// `CU_MEMCPY_OPERAND_TYPE_ARRAY`.
    pub const ARRAY: c_uint = 2;
}

/// `CUDA_MEMCPY3D_BATCH_OP`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct BoxCopy {
    /// The source.
    pub from: BoxEnd,
    /// The destination.
    pub to: BoxEnd,
    /// Bytes of a row, or elements if an end is an array.
    pub width: usize,
    /// Rows of a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
    /// The time at which the driver reads the source.
    pub order: c_uint,
    /// Options of the copy.
    pub flags: c_uint,
}

const _: () = assert!(size_of::<BoxCopy>() == size_of::<CUDA_MEMCPY3D_BATCH_OP>());
const _: () = assert!(size_of::<PlaneCopy>() == size_of::<CUDA_MEMCPY2D>());
const _: () = assert!(size_of::<VolumeCopy>() == size_of::<CUDA_MEMCPY3D>());
const _: () = assert!(size_of::<VolumeCopy>() == size_of::<CUDA_MEMCPY3D_PEER>());
