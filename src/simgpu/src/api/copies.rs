//! Functions that copy memory.

use gpuslice_driver::types::*;

use super::Copies;
use super::methods::methods;
use super::shapes::{array, device, host};
use super::submit::{StreamArgument, Wait};
use crate::call::DriverCall;

impl Copies for DriverCall {
    methods! { self;
        cuMemcpyAtoH(dst_host: *mut c_void, src_array: CUarray, src_offset: c_uint, byte_count: c_uint) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), host(dst_host), array(src_array, u64::from(src_offset)), u64::from(byte_count), Wait::Yes);
        cuMemcpyAtoHAsync(dst_host: *mut c_void, src_array: CUarray, src_offset: c_uint, byte_count: c_uint, h_stream: CUstream) =>
            self.copy(StreamArgument::legacy(h_stream), host(dst_host), array(src_array, u64::from(src_offset)), u64::from(byte_count), Wait::No);
        cuMemcpyAtoHAsync_v2(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize, h_stream: CUstream) =>
            self.copy(StreamArgument::legacy(h_stream), host(dst_host), array(src_array, src_offset as u64), byte_count as u64, Wait::No);
        cuMemcpyAtoHAsync_v2_ptsz(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize, h_stream: CUstream) =>
            self.copy(StreamArgument::per_thread(h_stream), host(dst_host), array(src_array, src_offset as u64), byte_count as u64, Wait::No);
        cuMemcpyAtoH_v2(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), host(dst_host), array(src_array, src_offset as u64), byte_count as u64, Wait::Yes);
        cuMemcpyAtoH_v2_ptds(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize) =>
            self.copy(StreamArgument::per_thread(core::ptr::null_mut()), host(dst_host), array(src_array, src_offset as u64), byte_count as u64, Wait::Yes);
        cuMemcpyDtoH(dst_host: *mut c_void, src_device: CUdeviceptr_v1, byte_count: c_uint) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), host(dst_host), device(u64::from(src_device)), u64::from(byte_count), Wait::Yes);
        cuMemcpyDtoHAsync(dst_host: *mut c_void, src_device: CUdeviceptr_v1, byte_count: c_uint, h_stream: CUstream) =>
            self.copy(StreamArgument::legacy(h_stream), host(dst_host), device(u64::from(src_device)), u64::from(byte_count), Wait::No);
        cuMemcpyDtoHAsync_v2(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream) =>
            self.copy(StreamArgument::legacy(h_stream), host(dst_host), device(src_device), byte_count as u64, Wait::No);
        cuMemcpyDtoHAsync_v2_ptsz(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream) =>
            self.copy(StreamArgument::per_thread(h_stream), host(dst_host), device(src_device), byte_count as u64, Wait::No);
        cuMemcpyDtoH_v2(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), host(dst_host), device(src_device), byte_count as u64, Wait::Yes);
        cuMemcpyDtoH_v2_ptds(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize) =>
            self.copy(StreamArgument::per_thread(core::ptr::null_mut()), host(dst_host), device(src_device), byte_count as u64, Wait::Yes);
        cuMemcpyHtoA(dst_array: CUarray, dst_offset: c_uint, src_host: *const c_void, byte_count: c_uint) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), array(dst_array, u64::from(dst_offset)), host(src_host), u64::from(byte_count), Wait::Yes);
        cuMemcpyHtoAAsync(dst_array: CUarray, dst_offset: c_uint, src_host: *const c_void, byte_count: c_uint, h_stream: CUstream) =>
            self.copy(StreamArgument::legacy(h_stream), array(dst_array, u64::from(dst_offset)), host(src_host), u64::from(byte_count), Wait::No);
        cuMemcpyHtoAAsync_v2(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize, h_stream: CUstream) =>
            self.copy(StreamArgument::legacy(h_stream), array(dst_array, dst_offset as u64), host(src_host), byte_count as u64, Wait::No);
        cuMemcpyHtoAAsync_v2_ptsz(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize, h_stream: CUstream) =>
            self.copy(StreamArgument::per_thread(h_stream), array(dst_array, dst_offset as u64), host(src_host), byte_count as u64, Wait::No);
        cuMemcpyHtoA_v2(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), array(dst_array, dst_offset as u64), host(src_host), byte_count as u64, Wait::Yes);
        cuMemcpyHtoA_v2_ptds(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize) =>
            self.copy(StreamArgument::per_thread(core::ptr::null_mut()), array(dst_array, dst_offset as u64), host(src_host), byte_count as u64, Wait::Yes);
        cuMemcpyHtoD(dst_device: CUdeviceptr_v1, src_host: *const c_void, byte_count: c_uint) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), device(u64::from(dst_device)), host(src_host), u64::from(byte_count), Wait::Yes);
        cuMemcpyHtoDAsync(dst_device: CUdeviceptr_v1, src_host: *const c_void, byte_count: c_uint, h_stream: CUstream) =>
            self.copy(StreamArgument::legacy(h_stream), device(u64::from(dst_device)), host(src_host), u64::from(byte_count), Wait::No);
        cuMemcpyHtoDAsync_v2(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, h_stream: CUstream) =>
            self.copy(StreamArgument::legacy(h_stream), device(dst_device), host(src_host), byte_count as u64, Wait::No);
        cuMemcpyHtoDAsync_v2_ptsz(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, h_stream: CUstream) =>
            self.copy(StreamArgument::per_thread(h_stream), device(dst_device), host(src_host), byte_count as u64, Wait::No);
        cuMemcpyHtoD_v2(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), device(dst_device), host(src_host), byte_count as u64, Wait::Yes);
        cuMemcpyHtoD_v2_ptds(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize) =>
            self.copy(StreamArgument::per_thread(core::ptr::null_mut()), device(dst_device), host(src_host), byte_count as u64, Wait::Yes);
        cuMemcpyAtoA(dst_array: CUarray, dst_offset: c_uint, src_array: CUarray, src_offset: c_uint, byte_count: c_uint) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), array(dst_array, u64::from(dst_offset)), array(src_array, u64::from(src_offset)), u64::from(byte_count), Wait::Yes);
        cuMemcpyAtoA_v2(dst_array: CUarray, dst_offset: usize, src_array: CUarray, src_offset: usize, byte_count: usize) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), array(dst_array, dst_offset as u64), array(src_array, src_offset as u64), byte_count as u64, Wait::Yes);
        cuMemcpyAtoA_v2_ptds(dst_array: CUarray, dst_offset: usize, src_array: CUarray, src_offset: usize, byte_count: usize) =>
            self.copy(StreamArgument::per_thread(core::ptr::null_mut()), array(dst_array, dst_offset as u64), array(src_array, src_offset as u64), byte_count as u64, Wait::Yes);
        cuMemcpyAtoD(dst_device: CUdeviceptr_v1, src_array: CUarray, src_offset: c_uint, byte_count: c_uint) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), device(u64::from(dst_device)), array(src_array, u64::from(src_offset)), u64::from(byte_count), Wait::Yes);
        cuMemcpyAtoD_v2(dst_device: CUdeviceptr, src_array: CUarray, src_offset: usize, byte_count: usize) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), device(dst_device), array(src_array, src_offset as u64), byte_count as u64, Wait::Yes);
        cuMemcpyAtoD_v2_ptds(dst_device: CUdeviceptr, src_array: CUarray, src_offset: usize, byte_count: usize) =>
            self.copy(StreamArgument::per_thread(core::ptr::null_mut()), device(dst_device), array(src_array, src_offset as u64), byte_count as u64, Wait::Yes);
        cuMemcpyDtoA(dst_array: CUarray, dst_offset: c_uint, src_device: CUdeviceptr_v1, byte_count: c_uint) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), array(dst_array, u64::from(dst_offset)), device(u64::from(src_device)), u64::from(byte_count), Wait::Yes);
        cuMemcpyDtoA_v2(dst_array: CUarray, dst_offset: usize, src_device: CUdeviceptr, byte_count: usize) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), array(dst_array, dst_offset as u64), device(src_device), byte_count as u64, Wait::Yes);
        cuMemcpyDtoA_v2_ptds(dst_array: CUarray, dst_offset: usize, src_device: CUdeviceptr, byte_count: usize) =>
            self.copy(StreamArgument::per_thread(core::ptr::null_mut()), array(dst_array, dst_offset as u64), device(src_device), byte_count as u64, Wait::Yes);
        cuMemcpyDtoD(dst_device: CUdeviceptr_v1, src_device: CUdeviceptr_v1, byte_count: c_uint) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), device(u64::from(dst_device)), device(u64::from(src_device)), u64::from(byte_count), Wait::Yes);
        cuMemcpyDtoDAsync(dst_device: CUdeviceptr_v1, src_device: CUdeviceptr_v1, byte_count: c_uint, h_stream: CUstream) =>
            self.copy(StreamArgument::legacy(h_stream), device(u64::from(dst_device)), device(u64::from(src_device)), u64::from(byte_count), Wait::No);
        cuMemcpyDtoDAsync_v2(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream) =>
            self.copy(StreamArgument::legacy(h_stream), device(dst_device), device(src_device), byte_count as u64, Wait::No);
        cuMemcpyDtoDAsync_v2_ptsz(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream) =>
            self.copy(StreamArgument::per_thread(h_stream), device(dst_device), device(src_device), byte_count as u64, Wait::No);
        cuMemcpyDtoD_v2(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), device(dst_device), device(src_device), byte_count as u64, Wait::Yes);
        cuMemcpyDtoD_v2_ptds(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize) =>
            self.copy(StreamArgument::per_thread(core::ptr::null_mut()), device(dst_device), device(src_device), byte_count as u64, Wait::Yes);
        cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize) => self.copy_any(StreamArgument::legacy(core::ptr::null_mut()), dst, src, byte_count as u64, Wait::Yes);
        cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize, h_stream: CUstream) => self.copy_any(StreamArgument::legacy(h_stream), dst, src, byte_count as u64, Wait::No);
        cuMemcpyAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize, h_stream: CUstream) => self.copy_any(StreamArgument::per_thread(h_stream), dst, src, byte_count as u64, Wait::No);
        cuMemcpyBatchAsync(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, _attrs: *mut CUmemcpyAttributes, _attrs_idxs: *mut usize, _num_attrs: usize, _fail_idx: *mut usize, h_stream: CUstream) =>
            self.copy_batch(StreamArgument::legacy(h_stream), dsts, srcs, sizes, count);
        cuMemcpyBatchAsync_ptsz(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, _attrs: *mut CUmemcpyAttributes, _attrs_idxs: *mut usize, _num_attrs: usize, _fail_idx: *mut usize, h_stream: CUstream) =>
            self.copy_batch(StreamArgument::per_thread(h_stream), dsts, srcs, sizes, count);
        cuMemcpyBatchAsync_v2(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, _attrs: *mut CUmemcpyAttributes, _attrs_idxs: *mut usize, _num_attrs: usize, h_stream: CUstream) =>
            self.copy_batch(StreamArgument::legacy(h_stream), dsts, srcs, sizes, count);
        cuMemcpyBatchAsync_v2_ptsz(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, _attrs: *mut CUmemcpyAttributes, _attrs_idxs: *mut usize, _num_attrs: usize, h_stream: CUstream) =>
            self.copy_batch(StreamArgument::per_thread(h_stream), dsts, srcs, sizes, count);
        cuMemcpy3DBatchAsync(num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, _fail_idx: *mut usize, _flags: c_ulonglong, h_stream: CUstream) =>
            self.copy_boxes(StreamArgument::legacy(h_stream), op_list, num_ops);
        cuMemcpy3DBatchAsync_ptsz(num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, _fail_idx: *mut usize, _flags: c_ulonglong, h_stream: CUstream) =>
            self.copy_boxes(StreamArgument::per_thread(h_stream), op_list, num_ops);
        cuMemcpy3DBatchAsync_v2(num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, _flags: c_ulonglong, h_stream: CUstream) =>
            self.copy_boxes(StreamArgument::legacy(h_stream), op_list, num_ops);
        cuMemcpy3DBatchAsync_v2_ptsz(num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, _flags: c_ulonglong, h_stream: CUstream) =>
            self.copy_boxes(StreamArgument::per_thread(h_stream), op_list, num_ops);
        cuMemcpy3DWithAttributesAsync(op: *mut CUDA_MEMCPY3D_BATCH_OP, _flags: c_ulonglong, h_stream: CUstream) =>
            self.copy_boxes(StreamArgument::legacy(h_stream), op, 1);
        cuMemcpy3DWithAttributesAsync_ptsz(op: *mut CUDA_MEMCPY3D_BATCH_OP, _flags: c_ulonglong, h_stream: CUstream) =>
            self.copy_boxes(StreamArgument::per_thread(h_stream), op, 1);
        cuMemcpyWithAttributesAsync(dst: CUdeviceptr, src: CUdeviceptr, size: usize, _attr: *mut CUmemcpyAttributes, h_stream: CUstream) =>
            self.copy_any(StreamArgument::legacy(h_stream), dst, src, size as u64, Wait::No);
        cuMemcpyWithAttributesAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, size: usize, _attr: *mut CUmemcpyAttributes, h_stream: CUstream) =>
            self.copy_any(StreamArgument::per_thread(h_stream), dst, src, size as u64, Wait::No);
        cuMemcpy_ptds(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize) => self.copy_any(StreamArgument::per_thread(core::ptr::null_mut()), dst, src, byte_count as u64, Wait::Yes);
        cuMemcpyPeer(dst_device: CUdeviceptr, _dst_context: CUcontext, src_device: CUdeviceptr, _src_context: CUcontext, byte_count: usize) =>
            self.copy(StreamArgument::legacy(core::ptr::null_mut()), device(dst_device), device(src_device), byte_count as u64, Wait::Yes);
        cuMemcpyPeerAsync(dst_device: CUdeviceptr, _dst_context: CUcontext, src_device: CUdeviceptr, _src_context: CUcontext, byte_count: usize, h_stream: CUstream) =>
            self.copy(StreamArgument::legacy(h_stream), device(dst_device), device(src_device), byte_count as u64, Wait::No);
        cuMemcpyPeerAsync_ptsz(dst_device: CUdeviceptr, _dst_context: CUcontext, src_device: CUdeviceptr, _src_context: CUcontext, byte_count: usize, h_stream: CUstream) =>
            self.copy(StreamArgument::per_thread(h_stream), device(dst_device), device(src_device), byte_count as u64, Wait::No);
        cuMemcpyPeer_ptds(dst_device: CUdeviceptr, _dst_context: CUcontext, src_device: CUdeviceptr, _src_context: CUcontext, byte_count: usize) =>
            self.copy(StreamArgument::per_thread(core::ptr::null_mut()), device(dst_device), device(src_device), byte_count as u64, Wait::Yes);
        cuMemcpy2DAsync_v2(p_copy: *const CUDA_MEMCPY2D, h_stream: CUstream) => self.copy_2d(StreamArgument::legacy(h_stream), p_copy, Wait::No);
        cuMemcpy2DAsync_v2_ptsz(p_copy: *const CUDA_MEMCPY2D, h_stream: CUstream) => self.copy_2d(StreamArgument::per_thread(h_stream), p_copy, Wait::No);
        cuMemcpy2DUnaligned_v2(p_copy: *const CUDA_MEMCPY2D) => self.copy_2d(StreamArgument::legacy(core::ptr::null_mut()), p_copy, Wait::Yes);
        cuMemcpy2DUnaligned_v2_ptds(p_copy: *const CUDA_MEMCPY2D) => self.copy_2d(StreamArgument::per_thread(core::ptr::null_mut()), p_copy, Wait::Yes);
        cuMemcpy2D_v2(p_copy: *const CUDA_MEMCPY2D) => self.copy_2d(StreamArgument::legacy(core::ptr::null_mut()), p_copy, Wait::Yes);
        cuMemcpy2D_v2_ptds(p_copy: *const CUDA_MEMCPY2D) => self.copy_2d(StreamArgument::per_thread(core::ptr::null_mut()), p_copy, Wait::Yes);
        cuMemcpy3DAsync_v2(p_copy: *const CUDA_MEMCPY3D, h_stream: CUstream) => self.copy_3d(StreamArgument::legacy(h_stream), p_copy, Wait::No);
        cuMemcpy3DAsync_v2_ptsz(p_copy: *const CUDA_MEMCPY3D, h_stream: CUstream) => self.copy_3d(StreamArgument::per_thread(h_stream), p_copy, Wait::No);
        cuMemcpy3D_v2(p_copy: *const CUDA_MEMCPY3D) => self.copy_3d(StreamArgument::legacy(core::ptr::null_mut()), p_copy, Wait::Yes);
        cuMemcpy3D_v2_ptds(p_copy: *const CUDA_MEMCPY3D) => self.copy_3d(StreamArgument::per_thread(core::ptr::null_mut()), p_copy, Wait::Yes);
        cuMemcpy3DPeer(p_copy: *const CUDA_MEMCPY3D_PEER) => self.copy_3d_peer(StreamArgument::legacy(core::ptr::null_mut()), p_copy, Wait::Yes);
        cuMemcpy3DPeerAsync(p_copy: *const CUDA_MEMCPY3D_PEER, h_stream: CUstream) => self.copy_3d_peer(StreamArgument::legacy(h_stream), p_copy, Wait::No);
        cuMemcpy3DPeerAsync_ptsz(p_copy: *const CUDA_MEMCPY3D_PEER, h_stream: CUstream) => self.copy_3d_peer(StreamArgument::per_thread(h_stream), p_copy, Wait::No);
        cuMemcpy3DPeer_ptds(p_copy: *const CUDA_MEMCPY3D_PEER) => self.copy_3d_peer(StreamArgument::per_thread(core::ptr::null_mut()), p_copy, Wait::Yes);
        cuMemsetD16(dst_device: CUdeviceptr_v1, us: c_ushort, n: c_uint) => self.fill(StreamArgument::legacy(core::ptr::null_mut()), u64::from(dst_device), 0, (u32::from(us), 2), (u64::from(n), 1));
        cuMemsetD16Async(dst_device: CUdeviceptr, us: c_ushort, n: usize, h_stream: CUstream) => self.fill(StreamArgument::legacy(h_stream), dst_device, 0, (u32::from(us), 2), (n as u64, 1));
        cuMemsetD16Async_ptsz(dst_device: CUdeviceptr, us: c_ushort, n: usize, h_stream: CUstream) => self.fill(StreamArgument::per_thread(h_stream), dst_device, 0, (u32::from(us), 2), (n as u64, 1));
        cuMemsetD16_v2(dst_device: CUdeviceptr, us: c_ushort, n: usize) => self.fill(StreamArgument::legacy(core::ptr::null_mut()), dst_device, 0, (u32::from(us), 2), (n as u64, 1));
        cuMemsetD16_v2_ptds(dst_device: CUdeviceptr, us: c_ushort, n: usize) => self.fill(StreamArgument::per_thread(core::ptr::null_mut()), dst_device, 0, (u32::from(us), 2), (n as u64, 1));
        cuMemsetD2D16(dst_device: CUdeviceptr_v1, dst_pitch: c_uint, us: c_ushort, width: c_uint, height: c_uint) =>
            self.fill(StreamArgument::legacy(core::ptr::null_mut()), u64::from(dst_device), u64::from(dst_pitch), (u32::from(us), 2), (u64::from(width), u64::from(height)));
        cuMemsetD2D16Async(dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize, h_stream: CUstream) =>
            self.fill(StreamArgument::legacy(h_stream), dst_device, dst_pitch as u64, (u32::from(us), 2), (width as u64, height as u64));
        cuMemsetD2D16Async_ptsz(dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize, h_stream: CUstream) =>
            self.fill(StreamArgument::per_thread(h_stream), dst_device, dst_pitch as u64, (u32::from(us), 2), (width as u64, height as u64));
        cuMemsetD2D16_v2(dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize) =>
            self.fill(StreamArgument::legacy(core::ptr::null_mut()), dst_device, dst_pitch as u64, (u32::from(us), 2), (width as u64, height as u64));
        cuMemsetD2D16_v2_ptds(dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize) =>
            self.fill(StreamArgument::per_thread(core::ptr::null_mut()), dst_device, dst_pitch as u64, (u32::from(us), 2), (width as u64, height as u64));
        cuMemsetD2D32(dst_device: CUdeviceptr_v1, dst_pitch: c_uint, ui: c_uint, width: c_uint, height: c_uint) =>
            self.fill(StreamArgument::legacy(core::ptr::null_mut()), u64::from(dst_device), u64::from(dst_pitch), (ui, 4), (u64::from(width), u64::from(height)));
        cuMemsetD2D32Async(dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize, h_stream: CUstream) =>
            self.fill(StreamArgument::legacy(h_stream), dst_device, dst_pitch as u64, (ui, 4), (width as u64, height as u64));
        cuMemsetD2D32Async_ptsz(dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize, h_stream: CUstream) =>
            self.fill(StreamArgument::per_thread(h_stream), dst_device, dst_pitch as u64, (ui, 4), (width as u64, height as u64));
        cuMemsetD2D32_v2(dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize) =>
            self.fill(StreamArgument::legacy(core::ptr::null_mut()), dst_device, dst_pitch as u64, (ui, 4), (width as u64, height as u64));
        cuMemsetD2D32_v2_ptds(dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize) =>
            self.fill(StreamArgument::per_thread(core::ptr::null_mut()), dst_device, dst_pitch as u64, (ui, 4), (width as u64, height as u64));
        cuMemsetD2D8(dst_device: CUdeviceptr_v1, dst_pitch: c_uint, uc: c_uchar, width: c_uint, height: c_uint) =>
            self.fill(StreamArgument::legacy(core::ptr::null_mut()), u64::from(dst_device), u64::from(dst_pitch), (u32::from(uc), 1), (u64::from(width), u64::from(height)));
        cuMemsetD2D8Async(dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize, h_stream: CUstream) =>
            self.fill(StreamArgument::legacy(h_stream), dst_device, dst_pitch as u64, (u32::from(uc), 1), (width as u64, height as u64));
        cuMemsetD2D8Async_ptsz(dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize, h_stream: CUstream) =>
            self.fill(StreamArgument::per_thread(h_stream), dst_device, dst_pitch as u64, (u32::from(uc), 1), (width as u64, height as u64));
        cuMemsetD2D8_v2(dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize) =>
            self.fill(StreamArgument::legacy(core::ptr::null_mut()), dst_device, dst_pitch as u64, (u32::from(uc), 1), (width as u64, height as u64));
        cuMemsetD2D8_v2_ptds(dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize) =>
            self.fill(StreamArgument::per_thread(core::ptr::null_mut()), dst_device, dst_pitch as u64, (u32::from(uc), 1), (width as u64, height as u64));
        cuMemsetD32(dst_device: CUdeviceptr_v1, ui: c_uint, n: c_uint) => self.fill(StreamArgument::legacy(core::ptr::null_mut()), u64::from(dst_device), 0, (ui, 4), (u64::from(n), 1));
        cuMemsetD32Async(dst_device: CUdeviceptr, ui: c_uint, n: usize, h_stream: CUstream) => self.fill(StreamArgument::legacy(h_stream), dst_device, 0, (ui, 4), (n as u64, 1));
        cuMemsetD32Async_ptsz(dst_device: CUdeviceptr, ui: c_uint, n: usize, h_stream: CUstream) => self.fill(StreamArgument::per_thread(h_stream), dst_device, 0, (ui, 4), (n as u64, 1));
        cuMemsetD32_v2(dst_device: CUdeviceptr, ui: c_uint, n: usize) => self.fill(StreamArgument::legacy(core::ptr::null_mut()), dst_device, 0, (ui, 4), (n as u64, 1));
        cuMemsetD32_v2_ptds(dst_device: CUdeviceptr, ui: c_uint, n: usize) => self.fill(StreamArgument::per_thread(core::ptr::null_mut()), dst_device, 0, (ui, 4), (n as u64, 1));
        cuMemsetD8(dst_device: CUdeviceptr_v1, uc: c_uchar, n: c_uint) => self.fill(StreamArgument::legacy(core::ptr::null_mut()), u64::from(dst_device), 0, (u32::from(uc), 1), (u64::from(n), 1));
        cuMemsetD8Async(dst_device: CUdeviceptr, uc: c_uchar, n: usize, h_stream: CUstream) => self.fill(StreamArgument::legacy(h_stream), dst_device, 0, (u32::from(uc), 1), (n as u64, 1));
        cuMemsetD8Async_ptsz(dst_device: CUdeviceptr, uc: c_uchar, n: usize, h_stream: CUstream) => self.fill(StreamArgument::per_thread(h_stream), dst_device, 0, (u32::from(uc), 1), (n as u64, 1));
        cuMemsetD8_v2(dst_device: CUdeviceptr, uc: c_uchar, n: usize) => self.fill(StreamArgument::legacy(core::ptr::null_mut()), dst_device, 0, (u32::from(uc), 1), (n as u64, 1));
        cuMemsetD8_v2_ptds(dst_device: CUdeviceptr, uc: c_uchar, n: usize) => self.fill(StreamArgument::per_thread(core::ptr::null_mut()), dst_device, 0, (u32::from(uc), 1), (n as u64, 1));
    }
}
