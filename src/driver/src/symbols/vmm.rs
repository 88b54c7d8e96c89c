//! Symbols that allocate physical memory apart from addresses.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_vmm {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    alloc_vmm: "Physical memory at a named location: charged where the location is a device" {
        charge cuMemCreate @10020(handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp, flags: c_ulonglong) by physical::create;
    }
    vmm_reference: "A mapping or a further handle keeps the memory alive" {
        watch cuMemMap @10020(ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong) by physical::map;
        watch cuMemMapArrayAsync @11010(map_info_list: *mut CUarrayMapInfo, count: c_uint, h_stream: CUstream) by array::map;
        watch cuMemMapArrayAsync_ptsz @11010(map_info_list: *mut CUarrayMapInfo, count: c_uint, h_stream: CUstream) by array::map;
        watch cuMemRetainAllocationHandle @11000(handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void) by physical::retain;
    }
    vmm_release: "The memory goes back with its last handle and its last mapping, whichever comes later" {
        release cuMemRelease @10020(handle: CUmemGenericAllocationHandle) by physical::release;
        release cuMemUnmap @10020(ptr: CUdeviceptr, size: usize) by physical::unmap;
    }
    vmm_share: "Passes memory between processes: the exporter holds the charge" {
        watch cuMemExportToShareableHandle @10020(shareable_handle: *mut c_void, handle: CUmemGenericAllocationHandle, handle_type: c_uint, flags: c_ulonglong) by sharing::export;
        watch cuMemGetHandleForAddressRange @11070(handle: *mut c_void, dptr: CUdeviceptr, size: usize, handle_type: c_uint, flags: c_ulonglong);
        watch cuMemImportFromShareableHandle @10020(handle: *mut CUmemGenericAllocationHandle, os_handle: *mut c_void, sh_handle_type: c_uint) by sharing::import;
    }
    vmm_address: "Address space and access rights; no physical memory" {
        pass cuMemAddressFree @10020(ptr: CUdeviceptr, size: usize);
        pass cuMemAddressReserve @10020(ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr, flags: c_ulonglong);
        pass cuMemGetAccess @10020(flags: *mut c_ulonglong, location: *const CUmemLocation, ptr: CUdeviceptr);
        pass cuMemGetAllocationGranularity @10020(granularity: *mut usize, prop: *const CUmemAllocationProp, option: c_uint);
        pass cuMemGetAllocationPropertiesFromHandle @10020(prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle);
        pass cuMemSetAccess @10020(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize);
    }
    multicast: "Groups memory of several devices; binding takes no memory but may keep it alive" {
        pass cuMulticastAddDevice @12010(mc_handle: CUmemGenericAllocationHandle, dev: CUdevice);
        watch cuMulticastBindAddr @12010(mc_handle: CUmemGenericAllocationHandle, mc_offset: usize, memptr: CUdeviceptr, size: usize, flags: c_ulonglong) by multicast::bind_address;
        watch cuMulticastBindAddr_v2 @13010(mc_handle: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, memptr: CUdeviceptr, size: usize, flags: c_ulonglong) by multicast::bind_address_on;
        watch cuMulticastBindMem @12010(mc_handle: CUmemGenericAllocationHandle, mc_offset: usize, mem_handle: CUmemGenericAllocationHandle, mem_offset: usize, size: usize, flags: c_ulonglong) by multicast::bind_memory;
        watch cuMulticastBindMem_v2 @13010(mc_handle: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, mem_handle: CUmemGenericAllocationHandle, mem_offset: usize, size: usize, flags: c_ulonglong) by multicast::bind_memory_on;
        watch cuMulticastCreate @12010(mc_handle: *mut CUmemGenericAllocationHandle, prop: *const CUmulticastObjectProp) by multicast::create;
        pass cuMulticastGetGranularity @12010(granularity: *mut usize, prop: *const CUmulticastObjectProp, option: c_uint);
        release cuMulticastUnbind @12010(mc_handle: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, size: usize) by multicast::unbind;
    }
    logical_endpoint: "Names memory for other nodes; binding takes no memory but may keep it alive" {
        pass cuLogicalEndpointAddDevice @13030(le_id: CUlogicalEndpointId, dev: CUdevice);
        watch cuLogicalEndpointBindAddr @13030(le_id: CUlogicalEndpointId, dev: CUdevice, offset: u64, ptr: *mut c_void, size: u64, flags: c_ulonglong);
        watch cuLogicalEndpointBindMem @13030(le_id: CUlogicalEndpointId, dev: CUdevice, offset: u64, mem_handle: CUmemGenericAllocationHandle, mem_offset: u64, size: u64, flags: c_ulonglong);
        pass cuLogicalEndpointCreate @13030(le_id: CUlogicalEndpointId, prop: *const CUlogicalEndpointProp);
        watch cuLogicalEndpointDestroy @13030(le_id: CUlogicalEndpointId);
        pass cuLogicalEndpointExport @13030(handle: *mut c_void, le_id: CUlogicalEndpointId, handle_type: c_uint);
        pass cuLogicalEndpointGetLimits @13030(bind_alignment: *mut u64, max_size: *mut u64, prop: *const CUlogicalEndpointProp);
        pass cuLogicalEndpointIdRelease @13030(base_le_id: CUlogicalEndpointId, count: c_uint);
        pass cuLogicalEndpointIdReserve @13030(base_le_id: *mut CUlogicalEndpointId, count: c_uint);
        pass cuLogicalEndpointImport @13030(le_id: CUlogicalEndpointId, handle: *const c_void, handle_type: c_uint);
        pass cuLogicalEndpointQuery @13030(le_id: CUlogicalEndpointId, count: c_uint, query_status: *mut c_int);
        watch cuLogicalEndpointUnbind @13030(le_id: CUlogicalEndpointId, dev: CUdevice, offset: u64, size: u64);
    }
    } };
}
