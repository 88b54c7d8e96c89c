//! Types of the driver's functions.
//!
//! Handles, structures behind pointers and addresses have the driver's own types. An enumeration of C that is passed
//! *by value* is an unsigned integer here. A newer driver has newer values, and a Rust enumeration with an unknown
//! value is undefined behaviour.

mod copy;
mod cuda;
mod nvml;

pub use copy::{BoxCopy, BoxEnd, PlaneCopy, PlaneEnd, VolumeCopy, VolumeEnd, memory_type};
pub use core::ffi::{
    c_char, c_int, c_longlong, c_short, c_uchar, c_uint, c_ulong, c_ulonglong, c_ushort, c_void,
};
pub use cuda::*;
pub use nvml::*;

/// A status as the driver returns it: `CUresult` or `nvmlReturn_t`, by value.
pub type Status = c_uint;

/// Statuses that the library returns or tests by name.
pub mod status {
    use super::Status;

    /// The call succeeded. The same in both APIs.
    pub const SUCCESS: Status = 0;
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub const INVALID_VALUE: Status = 1;
    /// `CUDA_ERROR_OUT_OF_MEMORY`: the status of an allocation beyond the quota.
    pub const OUT_OF_MEMORY: Status = 2;
    /// `CUDA_ERROR_NOT_INITIALIZED`: the status of most calls before a successful `cuInit`.
    pub const NOT_INITIALIZED: Status = 3;
    /// `CUDA_ERROR_NO_DEVICE`: the status of `cuInit` on a machine without a GPU.
    pub const NO_DEVICE: Status = 100;
    /// `CUDA_ERROR_INVALID_CONTEXT`: no context is current.
    pub const INVALID_CONTEXT: Status = 201;
    /// `CUDA_ERROR_NOT_READY`: the GPU has not reached this point.
    pub const NOT_READY: Status = 600;
    /// `CUDA_ERROR_NOT_PERMITTED`: the user has set a limit that cannot be enforced.
    pub const NOT_PERMITTED: Status = 800;
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    pub const NOT_SUPPORTED: Status = 801;
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`: a capture has ended without a graph, because an earlier call was not
    /// allowed in it.
    pub const CAPTURE_INVALIDATED: Status = 901;
    /// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`: a capture has ended without a graph, because one of its branches was not
    /// joined.
    pub const CAPTURE_UNJOINED: Status = 904;

    /// `CUDA_ERROR_UNKNOWN`.
    pub const UNKNOWN: Status = 999;
    /// `NVML_ERROR_UNINITIALIZED`: the program has not called `nvmlInit`.
    pub const NVML_UNINITIALIZED: Status = 1;
    /// `NVML_ERROR_INVALID_ARGUMENT`.
    pub const NVML_INVALID_ARGUMENT: Status = 2;
    /// `NVML_ERROR_NOT_SUPPORTED`.
    pub const NVML_NOT_SUPPORTED: Status = 3;
    /// `NVML_ERROR_NO_PERMISSION`: the user has set a limit that cannot be enforced.
    pub const NVML_NO_PERMISSION: Status = 4;
    /// `NVML_ERROR_NOT_FOUND`: there is no such object.
    pub const NVML_NOT_FOUND: Status = 6;
    /// `NVML_ERROR_INSUFFICIENT_SIZE`: the answer has more entries than the caller has room for.
    pub const NVML_INSUFFICIENT_SIZE: Status = 7;
    /// `NVML_ERROR_LIBRARY_NOT_FOUND`: no NVML is loaded after gpuslice.
    pub const NVML_LIBRARY_NOT_FOUND: Status = 12;
    /// `NVML_ERROR_FUNCTION_NOT_FOUND`: the NVML after gpuslice lacks the function.
    pub const NVML_FUNCTION_NOT_FOUND: Status = 13;
    /// `NVML_ERROR_ARGUMENT_VERSION_MISMATCH`: a structure of an unknown version.
    pub const NVML_ARGUMENT_VERSION_MISMATCH: Status = 25;
}

/// Attributes of a device by number: `CUdevice_attribute`.
pub mod device_attribute {
    use super::c_uint;

    /// `CU_DEVICE_ATTRIBUTE_INTEGRATED`: the GPU has no memory of its own.
    pub const INTEGRATED: c_uint = 18;
    /// `CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES`: the GPU uses the page tables of the host.
    pub const USES_HOST_PAGE_TABLES: c_uint = 100;
    /// `CU_DEVICE_ATTRIBUTE_NUMA_CONFIG`: the memory of the GPU is a NUMA node of the host.
    pub const NUMA_CONFIG: c_uint = 130;
    /// Attributes with the same meaning: if one of them is not 0, the memory of the device is the host's.
    pub const OF_HOST_MEMORY: [c_uint; 3] = [INTEGRATED, USES_HOST_PAGE_TABLES, NUMA_CONFIG];
}
