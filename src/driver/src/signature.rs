//! Compares the signature of each row with the one that `cudarc` has generated from the driver's header.
//!
//! The comparison happens at compile time. A row with a missing parameter, a 32-bit size for a 64-bit one, or another
//! type behind a pointer does not compile. Enumerations by value are integers in a row. [`Same`] lists the enumerations
//! that an integer may stand for.

use crate::functions;
use crate::types::{CUmemLocation, c_int, c_uint};
use cudarc::driver::sys;

/// `Self` in a row has the same ABI as `T` in the driver's header.
trait Same<T> {}

impl<T> Same<T> for T {}

macro_rules! enumerations {
    ($($name:ident),* $(,)?) => { $( impl Same<sys::$name> for c_uint {} )* };
}

enumerations! {
    CUaddress_mode, CUarray_format, CUcoredumpSettings, CUdevResourceType, CUdevice_P2PAttribute,
    CUdevice_attribute, CUexecAffinityType, CUfilter_mode, CUflushGPUDirectRDMAWritesScope,
    CUflushGPUDirectRDMAWritesTarget, CUfunc_cache, CUfunction_attribute, CUgraphMem_attribute,
    CUjitInputType, CUkernelNodeAttrID, CUlimit, CUlogicalEndpointIpcHandleType,
    CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationType, CUmemPool_attribute,
    CUmemRangeHandleType, CUmem_advise, CUmem_range_attribute, CUmulticastGranularity_flags,
    CUpointer_attribute, CUresult, CUsharedconfig, CUstreamCaptureMode,
    CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapIm2ColWideMode, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle, CUoutput_mode,
}

impl Same<sys::CUmemLocation> for CUmemLocation {}
impl Same<*mut sys::CUmemLocation> for *mut CUmemLocation {}
impl Same<*const sys::CUmemLocation> for *const CUmemLocation {}

const _: () = assert!(size_of::<CUmemLocation>() == size_of::<sys::CUmemLocation>());
const _: () = assert!(size_of::<sys::CUresult>() == size_of::<c_int>());

/// The function type of a row has the same ABI as `F`, parameter by parameter.
trait RowSignature<F> {}

macro_rules! functions {
    ($($row:ident $theirs:ident),*) => {
        impl<R, S, $($row, $theirs),*> RowSignature<unsafe fn($($theirs),*) -> S> for unsafe extern "C-unwind" fn($($row),*) -> R
        where R: Same<S>, $($row: Same<$theirs>),* {}
    };
}

macro_rules! arities {
    ($first_row:ident $first_theirs:ident $($row:ident $theirs:ident)*) => {
        functions!($first_row $first_theirs $(, $row $theirs)*);
        arities!($($row $theirs)*);
    };
    () => { functions!(); };
}

arities!(A1 B1 A2 B2 A3 B3 A4 B4 A5 B5 A6 B6 A7 B7 A8 B8 A9 B9 A10 B10 A11 B11 A12 B12
    A13 B13 A14 B14 A15 B15 A16 B16);

const fn check<Ours: RowSignature<Theirs>, Theirs: Copy>(_: Theirs) {}

macro_rules! checked {
    ($( $holes:tt: $($name:ident)*; )*) => {
        const _: () = { $( checked!(each $holes $($name)*); )* };

        #[cfg(test)]
        const CHECKED: &[&str] = &[ $( $( stringify!($name), )* )* ];
    };
    (each $holes:tt $($name:ident)*) => { $( checked!(one $holes $name); )* };
    (one $holes:tt $name:ident) => { check::<functions::$name, _>(sys::$name as unsafe fn $holes -> _) };
}

// Grouped by the number of parameters, which a cast to a function pointer has to spell out.
checked! {
    ():
        cuCtxResetPersistingL2Cache cuCtxSynchronize cuProfilerStart cuProfilerStop;
    (_):
        cuArrayDestroy cuCoredumpDeregisterCompleteCallback cuCoredumpDeregisterStartCallback
        cuCtxDestroy_v2 cuCtxDetach cuCtxDisablePeerAccess cuCtxGetCacheConfig cuCtxGetCurrent
        cuCtxGetDevice cuCtxGetFlags cuCtxGetSharedMemConfig cuCtxPopCurrent_v2 cuCtxPushCurrent_v2
        cuCtxSetCacheConfig cuCtxSetCurrent cuCtxSetFlags cuCtxSetSharedMemConfig cuCtxSynchronize_v2
        cuDestroyExternalMemory cuDestroyExternalSemaphore cuDeviceGetCount cuDeviceGraphMemTrim
        cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDriverGetVersion cuEventDestroy_v2
        cuEventQuery cuEventSynchronize cuFuncLoad cuGraphDestroy cuGraphDestroyNode cuGraphExecDestroy
        cuGraphicsUnregisterResource cuGreenCtxDestroy cuInit cuIpcCloseMemHandle cuLaunch cuLibraryUnload
        cuLinkDestroy cuLogicalEndpointDestroy cuLogsUnregisterCallback cuMemFreeHost cuMemFree_v2
        cuMemHostUnregister cuMemPoolDestroy cuMemRelease cuMemcpy2DUnaligned_v2 cuMemcpy2D_v2
        cuMemcpy3DPeer cuMemcpy3D_v2 cuMipmappedArrayDestroy cuModuleGetLoadingMode cuModuleUnload
        cuStreamDestroy_v2 cuStreamEndCaptureToCig cuStreamQuery cuStreamSynchronize cuSurfObjectDestroy
        cuTexObjectDestroy cuTexRefCreate cuTexRefDestroy cuThreadExchangeStreamCaptureMode;
    (_, _):
        cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuArrayCreate_v2 cuArrayGetDescriptor_v2
        cuArrayGetSparseProperties cuCtxAttach cuCtxEnablePeerAccess cuCtxFromGreenCtx cuCtxGetApiVersion
        cuCtxGetDevice_v2 cuCtxGetExecAffinity cuCtxGetId cuCtxGetLimit cuCtxGetStreamPriorityRange
        cuCtxRecordEvent cuCtxSetLimit cuCtxWaitEvent cuDeviceGet cuDeviceGetByPCIBusId
        cuDeviceGetCliqueCount cuDeviceGetDefaultMemPool cuDeviceGetFabricClusterUuid cuDeviceGetMemPool
        cuDeviceGetProperties cuDeviceGetUuid_v2 cuDevicePrimaryCtxRetain
        cuDevicePrimaryCtxSetFlags_v2 cuDeviceSetMemPool cuDeviceTotalMem_v2
        cuDeviceUnregisterAsyncNotification cuEventCreate cuEventRecord cuFlushGPUDirectRDMAWrites
        cuFuncGetModule cuFuncGetName cuFuncGetParamCount cuFuncIsLoaded cuFuncSetCacheConfig
        cuFuncSetSharedMemConfig cuFuncSetSharedSize cuGetErrorName cuGetErrorString cuGetExportTable
        cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams cuGraphChildGraphNodeGetGraph
        cuGraphClone cuGraphCreate cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent
        cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent cuGraphExecGetFlags cuGraphExecGetId
        cuGraphExternalSemaphoresSignalNodeGetParams cuGraphExternalSemaphoresSignalNodeSetParams
        cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeSetParams cuGraphGetId
        cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphKernelNodeCopyAttributes
        cuGraphKernelNodeGetParams_v2
        cuGraphKernelNodeSetParams_v2 cuGraphLaunch cuGraphMemAllocNodeGetParams
        cuGraphMemFreeNodeGetParams cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams
        cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams cuGraphNodeGetContainingGraph
        cuGraphNodeGetLocalId cuGraphNodeGetParams cuGraphNodeGetToolsId cuGraphNodeGetType
        cuGraphNodeSetParams cuGraphNodeSetParams_v2 cuGraphUpload
        cuGraphicsResourceGetMappedMipmappedArray cuGraphicsResourceSetMapFlags_v2 cuGreenCtxGetId
        cuGreenCtxRecordEvent cuGreenCtxWaitEvent cuImportExternalMemory cuImportExternalSemaphore
        cuIpcGetEventHandle cuIpcGetMemHandle cuIpcOpenEventHandle cuKernelGetFunction cuKernelGetLibrary
        cuKernelGetName cuKernelGetParamCount cuLibraryGetKernelCount cuLibraryGetModule
        cuLogicalEndpointAddDevice cuLogicalEndpointCreate cuLogicalEndpointIdRelease
        cuLogicalEndpointIdReserve cuLogsCurrent cuMemAddressFree cuMemAllocHost_v2 cuMemAlloc_v2
        cuMemFreeAsync cuMemGetAllocationPropertiesFromHandle cuMemGetInfo_v2 cuMemHostGetFlags
        cuMemPoolCreate cuMemPoolExportPointer cuMemPoolTrimTo cuMemRetainAllocationHandle cuMemUnmap
        cuMemcpy2DAsync_v2 cuMemcpy3DAsync_v2 cuMemcpy3DPeerAsync cuMipmappedArrayGetSparseProperties
        cuModuleGetFunctionCount cuModuleLoad cuModuleLoadData cuModuleLoadFatBinary cuMulticastAddDevice
        cuMulticastCreate cuParamSetSize cuStreamBeginCaptureToCig cuStreamBeginCapture_v2
        cuStreamCopyAttributes cuStreamCreate cuStreamEndCapture cuStreamGetCtx cuStreamGetDevice
        cuStreamGetFlags cuStreamGetGreenCtx cuStreamGetId cuStreamGetPriority cuStreamIsCapturing
        cuSurfObjectCreate cuSurfObjectGetResourceDesc cuSurfRefGetArray cuTensorMapReplaceAddress
        cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc cuTexObjectGetTextureDesc
        cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetBorderColor cuTexRefGetFilterMode
        cuTexRefGetFlags cuTexRefGetMaxAnisotropy cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias
        cuTexRefGetMipmappedArray cuTexRefSetBorderColor cuTexRefSetFilterMode cuTexRefSetFlags
        cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias
        cuUserObjectRelease cuUserObjectRetain;
    (_, _, _):
        cuArrayGetMemoryRequirements cuArrayGetPlane cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal
        cuCoredumpRegisterCompleteCallback cuCoredumpRegisterStartCallback cuCoredumpSetAttribute
        cuCoredumpSetAttributeGlobal cuCtxGetDevResource cuDevResourceGenerateDesc
        cuDeviceCanAccessPeer cuDeviceComputeCapability cuDeviceGetAttribute cuDeviceGetCliqueInfo
        cuDeviceGetDevResource cuDeviceGetExecAffinitySupport cuDeviceGetGraphMemAttribute cuDeviceGetLuid
        cuDeviceGetName cuDeviceGetPCIBusId cuDevicePrimaryCtxGetState cuDeviceSetGraphMemAttribute
        cuEventElapsedTime_v2 cuEventRecordWithFlags cuExternalMemoryGetMappedBuffer
        cuExternalMemoryGetMappedMipmappedArray cuFuncGetAttribute cuFuncSetAttribute cuGraphDebugDotPrint
        cuGraphExecBatchMemOpNodeSetParams cuGraphExecChildGraphNodeSetParams
        cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent
        cuGraphExecExternalSemaphoresSignalNodeSetParams cuGraphExecExternalSemaphoresWaitNodeSetParams
        cuGraphExecHostNodeSetParams cuGraphExecKernelNodeSetParams_v2
        cuGraphExecNodeSetParams cuGraphExecUpdate_v2 cuGraphGetNodes cuGraphGetRootNodes
        cuGraphInstantiateWithFlags cuGraphInstantiateWithParams cuGraphKernelNodeGetAttribute
        cuGraphKernelNodeSetAttribute cuGraphNodeFindInClone
        cuGraphNodeGetEnabled cuGraphNodeSetEnabled cuGraphReleaseUserObject
        cuGraphicsMapResources cuGraphicsResourceGetMappedPointer_v2 cuGraphicsUnmapResources
        cuGreenCtxGetDevResource cuIpcOpenMemHandle_v2 cuKernelSetCacheConfig
        cuLaunchCooperativeKernelMultiDevice cuLaunchGrid cuLaunchHostFunc cuLibraryEnumerateKernels
        cuLibraryGetKernel cuLibraryGetUnifiedFunction cuLinkComplete cuLogicalEndpointExport
        cuLogicalEndpointGetLimits cuLogicalEndpointImport cuLogicalEndpointQuery cuLogsDumpToFile
        cuLogsRegisterCallback cuMemAllocAsync cuMemAllocManaged cuMemGetAccess cuMemGetAddressRange_v2
        cuMemGetAllocationGranularity cuMemGetDefaultMemPool cuMemGetMemPool cuMemHostAlloc
        cuMemHostGetDevicePointer_v2 cuMemHostRegister_v2 cuMemImportFromShareableHandle
        cuMemMapArrayAsync cuMemPoolGetAccess cuMemPoolGetAttribute cuMemPoolImportPointer
        cuMemPoolSetAccess cuMemPoolSetAttribute cuMemSetMemPool cuMemcpy cuMemcpy3DWithAttributesAsync
        cuMemcpyDtoD_v2 cuMemcpyDtoH_v2 cuMemcpyHtoD_v2 cuMemsetD16_v2 cuMemsetD32_v2 cuMemsetD8_v2
        cuMipmappedArrayCreate cuMipmappedArrayGetLevel cuMipmappedArrayGetMemoryRequirements
        cuModuleEnumerateFunctions cuModuleGetFunction cuModuleGetSurfRef cuModuleGetTexRef
        cuMulticastGetGranularity cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialClusterSize
        cuParamSetTexRef cuParamSetf cuParamSeti cuPointerGetAttribute cuPointerSetAttribute
        cuProfilerInitialize cuStreamCreateWithPriority cuStreamGetAttribute
        cuStreamGetCtx_v2 cuStreamGetDevResource cuStreamSetAttribute cuStreamWaitEvent cuSurfRefSetArray
        cuTexRefGetAddressMode cuTexRefGetFormat cuTexRefGetMipmapLevelClamp cuTexRefSetAddressMode
        cuTexRefSetArray cuTexRefSetFormat cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray;
    (_, _, _, _):
        cuCtxCreate_v4 cuDeviceGetHostAtomicCapabilities cuDeviceGetP2PAttribute
        cuDeviceGetTexture1DLinearMaxWidth cuDeviceRegisterAsyncNotification cuFuncGetParamInfo
        cuFuncSetBlockShape cuGraphAddEmptyNode
        cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams
        cuGraphNodeGetDependencies_v2 cuGraphNodeGetDependentNodes_v2
        cuGraphRetainUserObject cuGraphicsSubResourceGetMappedArray cuGreenCtxCreate
        cuGreenCtxStreamCreate cuKernelGetAttribute cuKernelGetParamInfo cuKernelSetAttribute
        cuLaunchGridAsync cuLaunchHostFunc_v2 cuLaunchKernelEx cuLibraryGetGlobal cuLibraryGetManaged
        cuLinkCreate_v2 cuLogicalEndpointUnbind cuLogsDumpToMemory cuMemAdvise_v2
        cuMemAllocFromPoolAsync cuMemCreate cuMemExportToShareableHandle cuMemPoolExportToShareableHandle
        cuMemPoolImportFromShareableHandle cuMemSetAccess cuMemcpy3DBatchAsync_v2
        cuMemcpyAsync cuMemcpyAtoD_v2 cuMemcpyAtoH_v2 cuMemcpyDtoA_v2 cuMemcpyDtoDAsync_v2
        cuMemcpyDtoHAsync_v2 cuMemcpyHtoA_v2 cuMemcpyHtoDAsync_v2 cuMemsetD16Async cuMemsetD32Async
        cuMemsetD8Async cuModuleGetGlobal_v2 cuMulticastUnbind cuOccupancyAvailableDynamicSMemPerBlock
        cuOccupancyMaxActiveBlocksPerMultiprocessor cuParamSetv cuPointerGetAttributes
        cuSignalExternalSemaphoresAsync cuStreamAddCallback cuStreamAttachMemAsync
        cuStreamBatchMemOp_v2 cuStreamWaitValue32_v2
        cuStreamWaitValue64_v2 cuStreamWriteValue32_v2
        cuStreamWriteValue64_v2 cuTexObjectCreate cuTexRefSetAddress2D_v3
        cuTexRefSetAddress_v2 cuWaitExternalSemaphoresAsync;
    (_, _, _, _, _):
        cuDeviceGetP2PAtomicCapabilities cuGetProcAddress_v2 cuGraphAddBatchMemOpNode
        cuGraphAddChildGraphNode cuGraphAddDependencies_v2 cuGraphAddEventRecordNode
        cuGraphAddEventWaitNode cuGraphAddExternalSemaphoresSignalNode
        cuGraphAddExternalSemaphoresWaitNode cuGraphAddHostNode
        cuGraphAddKernelNode_v2 cuGraphAddMemAllocNode cuGraphAddMemFreeNode
        cuGraphConditionalHandleCreate cuGraphGetEdges_v2
        cuGraphRemoveDependencies_v2 cuMemAddressReserve cuMemAllocPitch_v2 cuMemBatchDecompressAsync
        cuMemDiscardBatchAsync cuMemGetHandleForAddressRange cuMemGetLocationInfo cuMemMap
        cuMemPrefetchAsync_v2 cuMemRangeGetAttribute cuMemcpyAtoA_v2
        cuMemcpyAtoHAsync_v2 cuMemcpyHtoAAsync_v2 cuMemcpyPeer cuMemcpyWithAttributesAsync
        cuMemsetD2D16_v2 cuMemsetD2D32_v2 cuMemsetD2D8_v2 cuModuleLoadDataEx cuMulticastBindAddr
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuStreamBeginRecaptureToGraph
        cuStreamUpdateCaptureDependencies_v2 cuUserObjectCreate;
    (_, _, _, _, _, _):
        cuDevSmResourceSplit cuDevSmResourceSplitByCount cuGraphAddMemcpyNode cuGraphAddMemsetNode
        cuGraphAddNode_v2 cuGraphAddNode_v3 cuLinkAddFile_v2 cuLogicalEndpointBindAddr
        cuMemRangeGetAttributes cuMemcpyPeerAsync cuMemsetD2D16Async cuMemsetD2D32Async cuMemsetD2D8Async
        cuMulticastBindAddr_v2 cuMulticastBindMem cuOccupancyMaxPotentialBlockSize
        cuStreamBeginCaptureToGraph ;
    (_, _, _, _, _, _, _):
        cuLogicalEndpointBindMem cuMulticastBindMem_v2 cuOccupancyMaxPotentialBlockSizeWithFlags
        cuStreamGetCaptureInfo_v3;
    (_, _, _, _, _, _, _, _):
        cuLibraryLoadData cuLibraryLoadFromFile cuLinkAddData_v2 cuMemDiscardAndPrefetchBatchAsync
        cuMemPrefetchBatchAsync cuMemcpyBatchAsync_v2;
    (_, _, _, _, _, _, _, _, _):
        ;
    (_, _, _, _, _, _, _, _, _, _):
        cuLaunchCooperativeKernel;
    (_, _, _, _, _, _, _, _, _, _, _):
        cuLaunchKernel;
    (_, _, _, _, _, _, _, _, _, _, _, _):
        cuTensorMapEncodeTiled;
    (_, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
        cuTensorMapEncodeIm2col;
    (_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
        cuTensorMapEncodeIm2colWide;
}

#[cfg(test)]
mod tests {
    use super::CHECKED;
    use std::{fs, path::PathBuf, process::Command};

    /// Returns the folder in which Cargo keeps the sources of the `cudarc` that this crate was built with.
    fn cudarc() -> PathBuf {
        // For this platform only. The lock file also has packages of other platforms, which may not be on this machine.
        let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &platform])
            .arg("--manifest-path")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
            .output()
            .expect("cargo metadata runs");
        let text = String::from_utf8(output.stdout).expect("metadata is text");
        let end = text.find("/Cargo.toml\",\"metadata\":null").and_then(|_| {
            text.match_indices("/Cargo.toml\"")
                .map(|(at, _)| at)
                .find(|at| text[..*at].rsplit('"').next().is_some_and(|path| path.contains("/cudarc-")))
        });
        let end = end.expect("cudarc is among the packages");
        PathBuf::from(text[..end].rsplit('"').next().expect("a path stands in quotes"))
    }

    #[test]
    fn every_function_that_cudarc_declares_for_its_newest_version_is_checked() {
        let source = fs::read_to_string(cudarc().join("src/driver/sys/mod.rs")).expect("cudarc has a source");
        let mut condition = String::new();
        let mut declared = Vec::new();
        for line in source.lines() {
            if let Some(rest) = line.strip_prefix("pub unsafe fn cu") {
                let name = format!("cu{}", rest.split('(').next().expect("a name ends at its parameters"));
                if (condition.is_empty() || condition.contains("cuda-13040")) && name != "culib" {
                    declared.push(name);
                }
            }
            condition = if line.starts_with("#[cfg(") { line.to_owned() } else { String::new() };
        }
        assert!(declared.len() > 450, "{} functions found", declared.len());
        let missing: Vec<_> = declared.iter().filter(|name| !CHECKED.contains(&name.as_str())).collect();
        assert!(missing.is_empty(), "not checked: {missing:?}");
    }
}
