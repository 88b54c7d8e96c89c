//! Symbols that copy and fill memory.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_copy {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    copy_host: "Between host and device: copy engines, no multiprocessor time. Their time is kept out of that of kernels" {
        watch cuMemcpyAtoH @2000(dst_host: *mut c_void, src_array: CUarray, src_offset: c_uint, byte_count: c_uint) by host_copies::array;
        watch cuMemcpyAtoHAsync @2000(dst_host: *mut c_void, src_array: CUarray, src_offset: c_uint, byte_count: c_uint, h_stream: CUstream) by host_copies::array_async;
        watch cuMemcpyAtoHAsync_v2 @3020(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize, h_stream: CUstream) by host_copies::array_async;
        watch cuMemcpyAtoHAsync_v2_ptsz @7000(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize, h_stream: CUstream) by host_copies::array_async_per_thread;
        watch cuMemcpyAtoH_v2 @3020(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize) by host_copies::array;
        watch cuMemcpyAtoH_v2_ptds @7000(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize) by host_copies::array_per_thread;
        watch cuMemcpyDtoH @2000(dst_host: *mut c_void, src_device: CUdeviceptr_v1, byte_count: c_uint) by host_copies::copy;
        watch cuMemcpyDtoHAsync @2000(dst_host: *mut c_void, src_device: CUdeviceptr_v1, byte_count: c_uint, h_stream: CUstream) by host_copies::copy_async;
        watch cuMemcpyDtoHAsync_v2 @3020(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream) by host_copies::copy_async;
        watch cuMemcpyDtoHAsync_v2_ptsz @7000(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream) by host_copies::copy_async_per_thread;
        watch cuMemcpyDtoH_v2 @3020(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize) by host_copies::copy;
        watch cuMemcpyDtoH_v2_ptds @7000(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize) by host_copies::copy_per_thread;
        watch cuMemcpyHtoA @2000(dst_array: CUarray, dst_offset: c_uint, src_host: *const c_void, byte_count: c_uint) by host_copies::array;
        watch cuMemcpyHtoAAsync @2000(dst_array: CUarray, dst_offset: c_uint, src_host: *const c_void, byte_count: c_uint, h_stream: CUstream) by host_copies::array_async;
        watch cuMemcpyHtoAAsync_v2 @3020(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize, h_stream: CUstream) by host_copies::array_async;
        watch cuMemcpyHtoAAsync_v2_ptsz @7000(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize, h_stream: CUstream) by host_copies::array_async_per_thread;
        watch cuMemcpyHtoA_v2 @3020(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize) by host_copies::array;
        watch cuMemcpyHtoA_v2_ptds @7000(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize) by host_copies::array_per_thread;
        watch cuMemcpyHtoD @2000(dst_device: CUdeviceptr_v1, src_host: *const c_void, byte_count: c_uint) by host_copies::copy;
        watch cuMemcpyHtoDAsync @2000(dst_device: CUdeviceptr_v1, src_host: *const c_void, byte_count: c_uint, h_stream: CUstream) by host_copies::copy_async;
        watch cuMemcpyHtoDAsync_v2 @3020(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, h_stream: CUstream) by host_copies::copy_async;
        watch cuMemcpyHtoDAsync_v2_ptsz @7000(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, h_stream: CUstream) by host_copies::copy_async_per_thread;
        watch cuMemcpyHtoD_v2 @3020(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize) by host_copies::copy;
        watch cuMemcpyHtoD_v2_ptds @7000(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize) by host_copies::copy_per_thread;
    }
    copy_device: "Within the device: uses its bandwidth and perhaps its multiprocessors" {
        gate cuMemcpyAtoA @2000(dst_array: CUarray, dst_offset: c_uint, src_array: CUarray, src_offset: c_uint, byte_count: c_uint) by copies::between_arrays;
        gate cuMemcpyAtoA_v2 @3020(dst_array: CUarray, dst_offset: usize, src_array: CUarray, src_offset: usize, byte_count: usize) by copies::between_arrays;
        gate cuMemcpyAtoA_v2_ptds @7000(dst_array: CUarray, dst_offset: usize, src_array: CUarray, src_offset: usize, byte_count: usize) by copies::between_arrays_per_thread;
        gate cuMemcpyAtoD @2000(dst_device: CUdeviceptr_v1, src_array: CUarray, src_offset: c_uint, byte_count: c_uint) by copies::from_array;
        gate cuMemcpyAtoD_v2 @3020(dst_device: CUdeviceptr, src_array: CUarray, src_offset: usize, byte_count: usize) by copies::from_array;
        gate cuMemcpyAtoD_v2_ptds @7000(dst_device: CUdeviceptr, src_array: CUarray, src_offset: usize, byte_count: usize) by copies::from_array_per_thread;
        gate cuMemcpyDtoA @2000(dst_array: CUarray, dst_offset: c_uint, src_device: CUdeviceptr_v1, byte_count: c_uint) by copies::to_array;
        gate cuMemcpyDtoA_v2 @3020(dst_array: CUarray, dst_offset: usize, src_device: CUdeviceptr, byte_count: usize) by copies::to_array;
        gate cuMemcpyDtoA_v2_ptds @7000(dst_array: CUarray, dst_offset: usize, src_device: CUdeviceptr, byte_count: usize) by copies::to_array_per_thread;
        gate cuMemcpyDtoD @2000(dst_device: CUdeviceptr_v1, src_device: CUdeviceptr_v1, byte_count: c_uint) by copies::copy;
        gate cuMemcpyDtoDAsync @3000(dst_device: CUdeviceptr_v1, src_device: CUdeviceptr_v1, byte_count: c_uint, h_stream: CUstream) by copies::copy_async;
        gate cuMemcpyDtoDAsync_v2 @3020(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream) by copies::copy_async;
        gate cuMemcpyDtoDAsync_v2_ptsz @7000(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream) by copies::copy_async_per_thread;
        gate cuMemcpyDtoD_v2 @3020(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize) by copies::copy;
        gate cuMemcpyDtoD_v2_ptds @7000(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize) by copies::copy_per_thread;
    }
    copy_described: "Within the device if its description names memory of a device or an array on both ends; otherwise forwarded as it is" {
        gate cuMemcpy2DAsync_v2 @3020(p_copy: *const CUDA_MEMCPY2D, h_stream: CUstream) by copies::described_async;
        gate cuMemcpy2DAsync_v2_ptsz @7000(p_copy: *const CUDA_MEMCPY2D, h_stream: CUstream) by copies::described_async_per_thread;
        gate cuMemcpy2DUnaligned_v2 @3020(p_copy: *const CUDA_MEMCPY2D) by copies::described;
        gate cuMemcpy2DUnaligned_v2_ptds @7000(p_copy: *const CUDA_MEMCPY2D) by copies::described_per_thread;
        gate cuMemcpy2D_v2 @3020(p_copy: *const CUDA_MEMCPY2D) by copies::described;
        gate cuMemcpy2D_v2_ptds @7000(p_copy: *const CUDA_MEMCPY2D) by copies::described_per_thread;
        gate cuMemcpy3DAsync_v2 @3020(p_copy: *const CUDA_MEMCPY3D, h_stream: CUstream) by copies::described_async;
        gate cuMemcpy3DAsync_v2_ptsz @7000(p_copy: *const CUDA_MEMCPY3D, h_stream: CUstream) by copies::described_async_per_thread;
        gate cuMemcpy3D_v2 @3020(p_copy: *const CUDA_MEMCPY3D) by copies::described;
        gate cuMemcpy3D_v2_ptds @7000(p_copy: *const CUDA_MEMCPY3D) by copies::described_per_thread;
    }
    copy_narrow: "Descriptions with addresses of 32 bits, which no device of today has: not measured" {
        pass cuMemcpy2D @2000(p_copy: *const CUDA_MEMCPY2D_v1);
        pass cuMemcpy2DAsync @2000(p_copy: *const CUDA_MEMCPY2D_v1, h_stream: CUstream);
        pass cuMemcpy2DUnaligned @2000(p_copy: *const CUDA_MEMCPY2D_v1);
        pass cuMemcpy3D @2000(p_copy: *const CUDA_MEMCPY3D_v1);
        pass cuMemcpy3DAsync @2000(p_copy: *const CUDA_MEMCPY3D_v1, h_stream: CUstream);
    }
    copy_any: "A copy whose direction only the driver knows: it is asked while time is paced, and of a batch for some of its copies" {
        watch cuMemcpy @4000(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize) by host_copies::anywhere;
        watch cuMemcpy3DBatchAsync @12080(num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, fail_idx: *mut usize, flags: c_ulonglong, h_stream: CUstream) by batches::boxes;
        watch cuMemcpy3DBatchAsync_ptsz @12080(num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, fail_idx: *mut usize, flags: c_ulonglong, h_stream: CUstream) by batches::boxes_per_thread;
        watch cuMemcpy3DBatchAsync_v2 @13000(num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong, h_stream: CUstream) by batches::boxes_v2;
        watch cuMemcpy3DBatchAsync_v2_ptsz @13000(num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong, h_stream: CUstream) by batches::boxes_v2_per_thread;
        watch cuMemcpy3DWithAttributesAsync @13020(op: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong, h_stream: CUstream) by batches::one_box;
        watch cuMemcpy3DWithAttributesAsync_ptsz @13020(op: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong, h_stream: CUstream) by batches::one_box_per_thread;
        watch cuMemcpyAsync @4000(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize, h_stream: CUstream) by host_copies::anywhere_async;
        watch cuMemcpyAsync_ptsz @7000(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize, h_stream: CUstream) by host_copies::anywhere_async_per_thread;
        watch cuMemcpyBatchAsync @12080(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize, h_stream: CUstream) by batches::runs;
        watch cuMemcpyBatchAsync_ptsz @12080(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize, h_stream: CUstream) by batches::runs_per_thread;
        watch cuMemcpyBatchAsync_v2 @13000(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, h_stream: CUstream) by batches::runs_v2;
        watch cuMemcpyBatchAsync_v2_ptsz @13000(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, h_stream: CUstream) by batches::runs_v2_per_thread;
        watch cuMemcpyWithAttributesAsync @13020(dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut CUmemcpyAttributes, h_stream: CUstream) by host_copies::anywhere_with;
        watch cuMemcpyWithAttributesAsync_ptsz @13020(dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut CUmemcpyAttributes, h_stream: CUstream) by host_copies::anywhere_with_per_thread;
        watch cuMemcpy_ptds @7000(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize) by host_copies::anywhere_per_thread;
    }
    copy_peer: "Between devices: links and copy engines. Not measured, and kept out of the time of kernels" {
        watch cuFabricCpyBatchAsync @13050(num_ops: usize, op_list: *mut CUDA_FABRIC_COPY_BATCH_OP, flags: c_ulonglong, h_stream: CUstream) by stream_waits::last_of_four;
        watch cuFabricCpyBatchAsync_ptsz @13050(num_ops: usize, op_list: *mut CUDA_FABRIC_COPY_BATCH_OP, flags: c_ulonglong, h_stream: CUstream) by stream_waits::last_of_four_per_thread;
        watch cuMemcpy3DPeer @4000(p_copy: *const CUDA_MEMCPY3D_PEER) by stream_waits::none_of_one;
        watch cuMemcpy3DPeerAsync @4000(p_copy: *const CUDA_MEMCPY3D_PEER, h_stream: CUstream) by stream_waits::last_of_two;
        watch cuMemcpy3DPeerAsync_ptsz @7000(p_copy: *const CUDA_MEMCPY3D_PEER, h_stream: CUstream) by stream_waits::last_of_two_per_thread;
        watch cuMemcpy3DPeer_ptds @7000(p_copy: *const CUDA_MEMCPY3D_PEER) by stream_waits::none_of_one_per_thread;
        watch cuMemcpyPeer @4000(dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext, byte_count: usize) by stream_waits::none_of_five;
        watch cuMemcpyPeerAsync @4000(dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext, byte_count: usize, h_stream: CUstream) by stream_waits::last_of_six;
        watch cuMemcpyPeerAsync_ptsz @7000(dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext, byte_count: usize, h_stream: CUstream) by stream_waits::last_of_six_per_thread;
        watch cuMemcpyPeer_ptds @7000(dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext, byte_count: usize) by stream_waits::none_of_five_per_thread;
    }
    copy_set: "Fills: device work" {
        gate cuMemsetD16 @2000(dst_device: CUdeviceptr_v1, us: c_ushort, n: c_uint) by copies::fill;
        gate cuMemsetD16Async @3020(dst_device: CUdeviceptr, us: c_ushort, n: usize, h_stream: CUstream) by copies::fill_async;
        gate cuMemsetD16Async_ptsz @7000(dst_device: CUdeviceptr, us: c_ushort, n: usize, h_stream: CUstream) by copies::fill_async_per_thread;
        gate cuMemsetD16_v2 @3020(dst_device: CUdeviceptr, us: c_ushort, n: usize) by copies::fill;
        gate cuMemsetD16_v2_ptds @7000(dst_device: CUdeviceptr, us: c_ushort, n: usize) by copies::fill_per_thread;
        gate cuMemsetD2D16 @2000(dst_device: CUdeviceptr_v1, dst_pitch: c_uint, us: c_ushort, width: c_uint, height: c_uint) by copies::fill_rows;
        gate cuMemsetD2D16Async @3020(dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize, h_stream: CUstream) by copies::fill_rows_async;
        gate cuMemsetD2D16Async_ptsz @7000(dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize, h_stream: CUstream) by copies::fill_rows_async_per_thread;
        gate cuMemsetD2D16_v2 @3020(dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize) by copies::fill_rows;
        gate cuMemsetD2D16_v2_ptds @7000(dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize) by copies::fill_rows_per_thread;
        gate cuMemsetD2D32 @2000(dst_device: CUdeviceptr_v1, dst_pitch: c_uint, ui: c_uint, width: c_uint, height: c_uint) by copies::fill_rows;
        gate cuMemsetD2D32Async @3020(dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize, h_stream: CUstream) by copies::fill_rows_async;
        gate cuMemsetD2D32Async_ptsz @7000(dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize, h_stream: CUstream) by copies::fill_rows_async_per_thread;
        gate cuMemsetD2D32_v2 @3020(dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize) by copies::fill_rows;
        gate cuMemsetD2D32_v2_ptds @7000(dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize) by copies::fill_rows_per_thread;
        gate cuMemsetD2D8 @2000(dst_device: CUdeviceptr_v1, dst_pitch: c_uint, uc: c_uchar, width: c_uint, height: c_uint) by copies::fill_rows;
        gate cuMemsetD2D8Async @3020(dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize, h_stream: CUstream) by copies::fill_rows_async;
        gate cuMemsetD2D8Async_ptsz @7000(dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize, h_stream: CUstream) by copies::fill_rows_async_per_thread;
        gate cuMemsetD2D8_v2 @3020(dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize) by copies::fill_rows;
        gate cuMemsetD2D8_v2_ptds @7000(dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize) by copies::fill_rows_per_thread;
        gate cuMemsetD32 @2000(dst_device: CUdeviceptr_v1, ui: c_uint, n: c_uint) by copies::fill;
        gate cuMemsetD32Async @3020(dst_device: CUdeviceptr, ui: c_uint, n: usize, h_stream: CUstream) by copies::fill_async;
        gate cuMemsetD32Async_ptsz @7000(dst_device: CUdeviceptr, ui: c_uint, n: usize, h_stream: CUstream) by copies::fill_async_per_thread;
        gate cuMemsetD32_v2 @3020(dst_device: CUdeviceptr, ui: c_uint, n: usize) by copies::fill;
        gate cuMemsetD32_v2_ptds @7000(dst_device: CUdeviceptr, ui: c_uint, n: usize) by copies::fill_per_thread;
        gate cuMemsetD8 @2000(dst_device: CUdeviceptr_v1, uc: c_uchar, n: c_uint) by copies::fill;
        gate cuMemsetD8Async @3020(dst_device: CUdeviceptr, uc: c_uchar, n: usize, h_stream: CUstream) by copies::fill_async;
        gate cuMemsetD8Async_ptsz @7000(dst_device: CUdeviceptr, uc: c_uchar, n: usize, h_stream: CUstream) by copies::fill_async_per_thread;
        gate cuMemsetD8_v2 @3020(dst_device: CUdeviceptr, uc: c_uchar, n: usize) by copies::fill;
        gate cuMemsetD8_v2_ptds @7000(dst_device: CUdeviceptr, uc: c_uchar, n: usize) by copies::fill_per_thread;
    }
    copy_decompress: "A decompression engine: only memory that it can work on is accepted. Not measured" {
        pass cuMemBatchDecompressAsync @12060(params_array: *mut CUmemDecompressParams, count: usize, flags: c_uint, error_index: *mut usize, stream: CUstream);
        pass cuMemBatchDecompressAsync_ptsz @12060(params_array: *mut CUmemDecompressParams, count: usize, flags: c_uint, error_index: *mut usize, stream: CUstream);
    }
    } };
}
