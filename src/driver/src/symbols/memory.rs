//! Symbols that allocate, free and report ordinary device memory.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_memory {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    alloc_linear: "Device memory of a size the caller names; the first generation has 32-bit sizes and pointers" {
        charge cuMemAlloc @2000(dptr: *mut CUdeviceptr_v1, bytesize: c_uint) by linear::alloc_v1;
        charge cuMemAllocPitch @2000(dptr: *mut CUdeviceptr_v1, p_pitch: *mut c_uint, width_in_bytes: c_uint, height: c_uint, element_size_bytes: c_uint) by linear::pitch_v1;
        charge cuMemAllocPitch_v2 @3020(dptr: *mut CUdeviceptr, p_pitch: *mut usize, width_in_bytes: usize, height: usize, element_size_bytes: c_uint) by linear::pitch;
        charge cuMemAlloc_v2 @3020(dptr: *mut CUdeviceptr, bytesize: usize) by linear::alloc;
    }
    alloc_managed: "All its pages can live on the device at once, so the full size counts" {
        charge cuMemAllocManaged @6000(dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint) by linear::managed;
    }
    free: "Gives back the memory of an allocation call; an address without a charge goes to the driver untouched" {
        release cuArrayDestroy @2000(h_array: CUarray) by array::destroy;
        release cuMemFree @2000(dptr: CUdeviceptr_v1) by linear::free_v1;
        release cuMemFreeAsync @11020(dptr: CUdeviceptr, h_stream: CUstream) by pool::free;
        release cuMemFreeAsync_ptsz @11020(dptr: CUdeviceptr, h_stream: CUstream) by pool::free_ptsz;
        release cuMemFree_v2 @3020(dptr: CUdeviceptr) by linear::free;
        release cuMipmappedArrayDestroy @5000(h_mipmapped_array: CUmipmappedArray) by array::destroy_mipmapped;
    }
    memory_report: "Shows the quota as the size, and its rest as free; the first generation writes 32-bit words" {
        answer cuDeviceTotalMem @2000(bytes: *mut c_uint, dev: CUdevice) by report::total_v1;
        answer cuDeviceTotalMem_v2 @3020(bytes: *mut usize, dev: CUdevice) by report::total;
        answer cuMemGetInfo @2000(free: *mut c_uint, total: *mut c_uint) by report::mem_info_v1;
        answer cuMemGetInfo_v2 @3020(free: *mut usize, total: *mut usize) by report::mem_info;
    }
    managed_hint: "Placement hints for memory that is counted already" {
        pass cuMemDiscardBatchAsync @13000(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: c_ulonglong, h_stream: CUstream);
        pass cuMemDiscardBatchAsync_ptsz @13000(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: c_ulonglong, h_stream: CUstream);
        pass cuMemGetLocationInfo @13040(ptr: CUdeviceptr, size: usize, summary_granularity: usize, sampling_granularity: usize, location_out: *mut CUmemLocation);
        pass cuMemRangeGetAttribute @8000(data: *mut c_void, data_size: usize, attribute: c_uint, dev_ptr: CUdeviceptr, count: usize);
        pass cuMemRangeGetAttributes @8000(data: *mut *mut c_void, data_sizes: *mut usize, attributes: *mut CUmem_range_attribute, num_attributes: usize, dev_ptr: CUdeviceptr, count: usize);
        pass cuStreamAttachMemAsync @6000(h_stream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint);
        pass cuStreamAttachMemAsync_ptsz @7000(h_stream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint);
    }
    managed_advice: "Where managed memory should be; what stands beyond the quota stays with the host" {
        answer cuMemAdvise @8000(dev_ptr: CUdeviceptr, count: usize, advice: c_uint, device: CUdevice) by managed::advise;
        answer cuMemAdvise_v2 @12020(dev_ptr: CUdeviceptr, count: usize, advice: c_uint, location: CUmemLocation) by managed::advise_v2;
    }
    managed_move: "Moves managed memory; what stands beyond the quota is moved to the host, wherever the program wants it" {
        answer cuMemDiscardAndPrefetchBatchAsync @13000(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, h_stream: CUstream) by managed::prefetch_batch;
        answer cuMemDiscardAndPrefetchBatchAsync_ptsz @13000(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, h_stream: CUstream) by managed::prefetch_batch;
        answer cuMemPrefetchAsync @8000(dev_ptr: CUdeviceptr, count: usize, dst_device: CUdevice, h_stream: CUstream) by managed::prefetch;
        answer cuMemPrefetchAsync_ptsz @8000(dev_ptr: CUdeviceptr, count: usize, dst_device: CUdevice, h_stream: CUstream) by managed::prefetch;
        answer cuMemPrefetchAsync_v2 @12020(dev_ptr: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, h_stream: CUstream) by managed::prefetch_v2;
        answer cuMemPrefetchAsync_v2_ptsz @12020(dev_ptr: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, h_stream: CUstream) by managed::prefetch_v2;
        answer cuMemPrefetchBatchAsync @13000(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, h_stream: CUstream) by managed::prefetch_batch;
        answer cuMemPrefetchBatchAsync_ptsz @13000(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, h_stream: CUstream) by managed::prefetch_batch;
    }
    host_memory: "Memory of the host, outside the quota" {
        pass cuMemAllocHost @2000(pp: *mut *mut c_void, bytesize: c_uint);
        pass cuMemAllocHost_v2 @3020(pp: *mut *mut c_void, bytesize: usize);
        pass cuMemFreeHost @2000(p: *mut c_void);
        pass cuMemHostAlloc @2020(pp: *mut *mut c_void, bytesize: usize, flags: c_uint);
        pass cuMemHostGetDevicePointer @2020(pdptr: *mut CUdeviceptr_v1, p: *mut c_void, flags: c_uint);
        pass cuMemHostGetDevicePointer_v2 @3020(pdptr: *mut CUdeviceptr, p: *mut c_void, flags: c_uint);
        pass cuMemHostGetFlags @2030(p_flags: *mut c_uint, p: *mut c_void);
        pass cuMemHostRegister @4000(p: *mut c_void, bytesize: usize, flags: c_uint);
        pass cuMemHostRegister_v2 @6050(p: *mut c_void, bytesize: usize, flags: c_uint);
        pass cuMemHostUnregister @4000(p: *mut c_void);
    }
    pointer_query: "Reads facts about an address" {
        pass cuMemGetAddressRange @2000(pbase: *mut CUdeviceptr_v1, psize: *mut c_uint, dptr: CUdeviceptr_v1);
        pass cuMemGetAddressRange_v2 @3020(pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr);
        pass cuPointerGetAttribute @4000(data: *mut c_void, attribute: c_uint, ptr: CUdeviceptr);
        pass cuPointerGetAttributes @7000(num_attributes: c_uint, attributes: *mut CUpointer_attribute, data: *mut *mut c_void, ptr: CUdeviceptr);
        pass cuPointerSetAttribute @6000(value: *const c_void, attribute: c_uint, ptr: CUdeviceptr);
    }
    } };
}
