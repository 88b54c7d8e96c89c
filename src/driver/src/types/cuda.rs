//! Types of the driver API.
#![allow(
    non_camel_case_types,
    reason = "the names are those of the driver API, so that a row reads like its declaration"
)]

use core::ffi::{c_int, c_uint, c_void};

pub use cudarc::driver::sys::{
    CU_DEV_SM_RESOURCE_GROUP_PARAMS, CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS,
    CUDA_ARRAY_SPARSE_PROPERTIES, CUDA_ARRAY3D_DESCRIPTOR, CUDA_BATCH_MEM_OP_NODE_PARAMS,
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, CUDA_EXT_SEM_WAIT_NODE_PARAMS, CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_LAUNCH_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS,
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_PEER, CUDA_MEMSET_NODE_PARAMS,
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUaddress_mode, CUarray, CUarray_format,
    CUarrayMapInfo, CUasyncCallback, CUasyncCallbackHandle, CUatomicOperation, CUcheckpointCheckpointArgs,
    CUcheckpointLockArgs, CUcheckpointOperationHandle, CUcheckpointRestoreArgs, CUcheckpointUnlockArgs,
    CUcliqueInfo, CUcontext, CUcoredumpCallbackHandle, CUcoredumpStatusCallback, CUctxCreateParams,
    CUdevResource, CUdevResourceDesc, CUdevice, CUdeviceptr, CUdevprop, CUdriverProcAddressQueryResult,
    CUevent, CUexecAffinityParam, CUexternalMemory, CUexternalSemaphore, CUfilter_mode, CUfunc_cache,
    CUfunction, CUfunctionLoadingState, CUgraph, CUgraphConditionalHandle, CUgraphEdgeData, CUgraphExec,
    CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUgraphRecaptureCallback, CUgraphicsResource, CUgreenCtx, CUhostFn, CUipcEventHandle, CUipcMemHandle,
    CUjit_option, CUkernel, CUkernelNodeAttrValue, CUlaunchConfig, CUlibrary, CUlibraryOption, CUlinkState,
    CUlogIterator, CUlogicalEndpointId, CUlogicalEndpointProp, CUlogsCallback, CUlogsCallbackHandle,
    CUmem_range_attribute, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationProp, CUmemDecompressParams,
    CUmemGenericAllocationHandle, CUmemPoolProps, CUmemPoolPtrExportData, CUmemcpyAttributes, CUmemoryPool,
    CUmipmappedArray, CUmodule, CUmoduleLoadingMode, CUmulticastObjectProp, CUoccupancyB2DSize,
    CUpointer_attribute, CUprocessState, CUsharedconfig, CUstream, CUstreamAttrValue,
    CUstreamBatchMemOpParams, CUstreamCallback, CUstreamCaptureMode, CUstreamCaptureStatus,
    CUstreamCigCaptureParams, CUsurfObject, CUsurfref, CUtensorMap, CUtexObject, CUtexref, CUuserObject,
    CUuuid,
};

/// Device address of the first generation: 32 bits.
pub type CUdeviceptr_v1 = c_uint;

/// The place of memory. It is passed by value, so its kind is an integer (`CUmemLocationType`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CUmemLocation {
    /// 0 none, 1 device, 2 host, 3 host NUMA node, 4 nearest host NUMA node, 6 a part of a device.
    pub kind: c_uint,
    /// Number of the device or node, by kind.
    pub id: c_int,
}

/// The request of `cuMemCreate`: `CUmemAllocationProp`, with enumerations as integers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AllocationProperties {
    /// `CUmemAllocationType`; 1 is pinned.
    pub kind: c_uint,
    /// Mask of `CUmemAllocationHandleType`.
    pub handle_types: c_uint,
    /// The device or host node that is to hold the memory.
    pub location: CUmemLocation,
    /// Windows security attributes; unused here.
    pub security: *mut c_void,
    /// Compression, RDMA and usage flags.
    pub flags: [u8; 8],
}

const _: () = assert!(size_of::<AllocationProperties>() == size_of::<CUmemAllocationProp>());

/// The request of `cuMemPoolCreate`: the leading fields of `CUmemPoolProps`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PoolProperties {
    /// `CUmemAllocationType`; 1 is pinned, 2 managed.
    pub kind: c_uint,
    /// Mask of `CUmemAllocationHandleType`.
    pub handle_types: c_uint,
    /// The device or host node of the pool's memory.
    pub location: CUmemLocation,
    /// Windows security attributes; unused here.
    pub security: *mut c_void,
    /// Upper bound of the pool's size in bytes; 0 is the driver's default.
    pub max_size: usize,
    /// Usage flags and reserved bytes.
    pub rest: [u8; 56],
}

const _: () = assert!(size_of::<PoolProperties>() == size_of::<CUmemPoolProps>());

/// An allocation of a graph: `CUDA_MEM_ALLOC_NODE_PARAMS`, its enumerations as integers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AllocationNode {
    /// Kind and location of the memory.
    pub properties: PoolProperties,
    /// Other devices that can access the memory.
    pub access: *const c_void,
    /// Number of these devices.
    pub access_count: usize,
    /// The allocation's size in bytes.
    pub bytes: usize,
    /// The allocation's address, which the driver chooses.
    pub address: CUdeviceptr,
}

const _: () = assert!(size_of::<AllocationNode>() == size_of::<CUDA_MEM_ALLOC_NODE_PARAMS>());

/// A frame of an EGL stream. It is passed by value, and gpuslice never reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUeglFrame([u64; 8]);

/// A connection to an EGL stream.
pub type CUeglStreamConnection = *mut c_void;
/// An EGL image.
pub type EGLImageKHR = *mut c_void;
/// An EGL stream.
pub type EGLStreamKHR = *mut c_void;
/// An EGL synchronisation object.
pub type EGLSyncKHR = *mut c_void;
/// An EGL integer.
pub type EGLint = c_int;
/// An OpenGL enumeration value.
pub type GLenum = c_uint;
/// An OpenGL object name.
pub type GLuint = c_uint;
/// A VDPAU device.
pub type VdpDevice = c_uint;
/// A VDPAU output surface.
pub type VdpOutputSurface = c_uint;
/// A VDPAU video surface.
pub type VdpVideoSurface = c_uint;
/// The kind of allocation of a tensor map's memory.
pub type CUtensorMapAllocClass = c_uint;
/// The VDPAU look-up function, behind a pointer.
pub type VdpGetProcAddress = c_void;

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            opaque: [u8; 0],
        }
    )* };
}
pub(super) use opaque;

opaque! {
    /// Array descriptor of the first generation.
    CUDA_ARRAY_DESCRIPTOR_v1,
    /// Three-dimensional array descriptor of the first generation.
    CUDA_ARRAY3D_DESCRIPTOR_v1,
    /// Two-dimensional copy of the first generation.
    CUDA_MEMCPY2D_v1,
    /// Three-dimensional copy of the first generation.
    CUDA_MEMCPY3D_v1,
    /// A copy between nodes of a fabric.
    CUDA_FABRIC_COPY_BATCH_OP,
}
