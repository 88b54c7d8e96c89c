//! Symbols of stream-ordered allocation.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_pool {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    alloc_stream: "Stream-ordered allocation: the library charges the growth of the pool that it comes from" {
        charge cuMemAllocAsync @11020(dptr: *mut CUdeviceptr, bytesize: usize, h_stream: CUstream) by pool::alloc;
        charge cuMemAllocAsync_ptsz @11020(dptr: *mut CUdeviceptr, bytesize: usize, h_stream: CUstream) by pool::alloc_ptsz;
        charge cuMemAllocFromPoolAsync @11020(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, h_stream: CUstream) by pool::alloc_from;
        charge cuMemAllocFromPoolAsync_ptsz @11020(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, h_stream: CUstream) by pool::alloc_from_ptsz;
    }
    pool: "Makes, chooses, tunes or ends pools: the bytes of the pool's own counter of reserved memory are charged" {
        watch cuDeviceGetDefaultMemPool @11020(pool_out: *mut CUmemoryPool, dev: CUdevice);
        watch cuDeviceGetMemPool @11020(pool: *mut CUmemoryPool, dev: CUdevice);
        watch cuDeviceSetMemPool @11020(dev: CUdevice, pool: CUmemoryPool);
        watch cuMemGetDefaultMemPool @13000(pool_out: *mut CUmemoryPool, location: *mut CUmemLocation, kind: c_uint) by pool::of_place;
        watch cuMemGetMemPool @13000(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: c_uint) by pool::of_place;
        watch cuMemPoolCreate @11020(pool: *mut CUmemoryPool, pool_props: *const CUmemPoolProps) by pool::create;
        release cuMemPoolDestroy @11020(pool: CUmemoryPool) by pool::destroy;
        pass cuMemPoolGetAccess @11020(flags: *mut CUmemAccess_flags, mem_pool: CUmemoryPool, location: *mut CUmemLocation);
        pass cuMemPoolGetAttribute @11020(pool: CUmemoryPool, attr: c_uint, value: *mut c_void);
        pass cuMemPoolSetAccess @11020(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize);
        watch cuMemPoolSetAttribute @11020(pool: CUmemoryPool, attr: c_uint, value: *mut c_void);
        release cuMemPoolTrimTo @11020(pool: CUmemoryPool, min_bytes_to_keep: usize) by pool::trim;
        watch cuMemSetMemPool @13000(location: *mut CUmemLocation, kind: c_uint, pool: CUmemoryPool);
    }
    pool_share: "Shares pool memory between processes: the exporter holds the charge" {
        watch cuMemPoolExportPointer @11020(share_data_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr) by sharing::pool_export_pointer;
        watch cuMemPoolExportToShareableHandle @11020(handle_out: *mut c_void, pool: CUmemoryPool, handle_type: c_uint, flags: c_ulonglong);
        watch cuMemPoolImportFromShareableHandle @11020(pool_out: *mut CUmemoryPool, handle: *mut c_void, handle_type: c_uint, flags: c_ulonglong) by sharing::pool_import;
        watch cuMemPoolImportPointer @11020(ptr_out: *mut CUdeviceptr, pool: CUmemoryPool, share_data: *mut CUmemPoolPtrExportData) by sharing::pool_import_pointer;
    }
    } };
}
