//! Symbols that initialise the driver, look up entries, and describe devices.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_init {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    init: "First CUDA use: the settings are read, and a limit that cannot be enforced makes the call return 800" {
        answer cuInit @2000(flags: c_uint) by start::init;
    }
    lookup: "Hands out entry points. The library asks the driver, and replaces the symbol that it chose by its own entry. The driver's private tables stay its own. The library warns of one that can launch" {
        watch cuGetExportTable @3000(pp_export_table: *mut *const c_void, p_export_table_id: *const CUuuid) by lookup::export_table;
        answer cuGetProcAddress @11030(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: u64) by lookup::proc_address;
        answer cuGetProcAddress_v2 @12000(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: u64, symbol_status: *mut CUdriverProcAddressQueryResult) by lookup::proc_address_v2;
    }
    error_text: "Static texts" {
        pass cuGetErrorName @6000(error: c_uint, p_str: *mut *const c_char);
        pass cuGetErrorString @6000(error: c_uint, p_str: *mut *const c_char);
    }
    device_identity: "The CUDA runtime verifies these answers: they are never altered" {
        pass cuDeviceGetAttribute @2000(pi: *mut c_int, attrib: c_uint, dev: CUdevice);
        pass cuDeviceGetByPCIBusId @4010(dev: *mut CUdevice, pci_bus_id: *const c_char);
        pass cuDeviceGetCount @2000(count: *mut c_int);
        pass cuDeviceGetLuid @10000(luid: *mut c_char, device_node_mask: *mut c_uint, dev: CUdevice);
        pass cuDeviceGetPCIBusId @4010(pci_bus_id: *mut c_char, len: c_int, dev: CUdevice);
        pass cuDeviceGetUuid @9020(uuid: *mut CUuuid, dev: CUdevice);
        pass cuDeviceGetUuid_v2 @11040(uuid: *mut CUuuid, dev: CUdevice);
        pass cuDriverGetVersion @2020(driver_version: *mut c_int);
    }
    device_query: "Properties that carry neither memory in use nor a size a quota would change" {
        pass cuDeviceCanAccessPeer @4000(can_access_peer: *mut c_int, dev: CUdevice, peer_dev: CUdevice);
        pass cuDeviceComputeCapability @2000(major: *mut c_int, minor: *mut c_int, dev: CUdevice);
        pass cuDeviceGet @2000(device: *mut CUdevice, ordinal: c_int);
        pass cuDeviceGetCliqueCount @13040(count: *mut usize, dev: CUdevice);
        pass cuDeviceGetCliqueInfo @13040(clique_info: *mut CUcliqueInfo, count: *mut usize, dev: CUdevice);
        pass cuDeviceGetExecAffinitySupport @11040(pi: *mut c_int, kind: c_uint, dev: CUdevice);
        pass cuDeviceGetFabricClusterUuid @13040(uuid: *mut CUuuid, dev: CUdevice);
        pass cuDeviceGetHostAtomicCapabilities @13000(capabilities: *mut c_uint, operations: *const CUatomicOperation, count: c_uint, dev: CUdevice);
        pass cuDeviceGetName @2000(name: *mut c_char, len: c_int, dev: CUdevice);
        pass cuDeviceGetNvSciSyncAttributes @10020(nv_sci_sync_attr_list: *mut c_void, dev: CUdevice, flags: c_int);
        pass cuDeviceGetP2PAtomicCapabilities @13000(capabilities: *mut c_uint, operations: *const CUatomicOperation, count: c_uint, src_device: CUdevice, dst_device: CUdevice);
        pass cuDeviceGetP2PAttribute @8000(value: *mut c_int, attrib: c_uint, src_device: CUdevice, dst_device: CUdevice);
        pass cuDeviceGetProperties @2000(prop: *mut CUdevprop, dev: CUdevice);
        pass cuDeviceGetTexture1DLinearMaxWidth @11010(max_width_in_elements: *mut usize, format: c_uint, num_channels: c_uint, dev: CUdevice);
        pass cuDeviceRegisterAsyncNotification @12040(device: CUdevice, callback_func: CUasyncCallback, user_data: *mut c_void, callback: *mut CUasyncCallbackHandle);
        pass cuDeviceUnregisterAsyncNotification @12040(device: CUdevice, callback: CUasyncCallbackHandle);
    }
    tools: "Profiler switches, core dumps and logs" {
        pass cuCoredumpDeregisterCompleteCallback @13020(callback: CUcoredumpCallbackHandle);
        pass cuCoredumpDeregisterStartCallback @13020(callback: CUcoredumpCallbackHandle);
        pass cuCoredumpGetAttribute @12010(attrib: c_uint, value: *mut c_void, size: *mut usize);
        pass cuCoredumpGetAttributeGlobal @12010(attrib: c_uint, value: *mut c_void, size: *mut usize);
        pass cuCoredumpRegisterCompleteCallback @13020(callback: CUcoredumpStatusCallback, user_data: *mut c_void, callback_out: *mut CUcoredumpCallbackHandle);
        pass cuCoredumpRegisterStartCallback @13020(callback: CUcoredumpStatusCallback, user_data: *mut c_void, callback_out: *mut CUcoredumpCallbackHandle);
        pass cuCoredumpSetAttribute @12010(attrib: c_uint, value: *mut c_void, size: *mut usize);
        pass cuCoredumpSetAttributeGlobal @12010(attrib: c_uint, value: *mut c_void, size: *mut usize);
        pass cuLogsCurrent @12090(iterator_out: *mut CUlogIterator, flags: c_uint);
        pass cuLogsDumpToFile @12090(iterator: *mut CUlogIterator, path_to_file: *const c_char, flags: c_uint);
        pass cuLogsDumpToMemory @12090(iterator: *mut CUlogIterator, buffer: *mut c_char, size: *mut usize, flags: c_uint);
        pass cuLogsRegisterCallback @12090(callback_func: CUlogsCallback, user_data: *mut c_void, callback_out: *mut CUlogsCallbackHandle);
        pass cuLogsUnregisterCallback @12090(callback: CUlogsCallbackHandle);
        pass cuProfilerInitialize @4000(config_file: *const c_char, output_file: *const c_char, output_mode: c_uint);
        pass cuProfilerStart @4000();
        pass cuProfilerStop @4000();
    }
    } };
}
