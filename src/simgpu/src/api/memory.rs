//! Functions that allocate, free and describe ordinary memory.

use gpuslice_driver::types::*;

use super::Memory;
use super::blocks::ordinal_of;
use super::methods::methods;
use crate::call::DriverCall;
use crate::model::objects::handle;
use crate::model::regions::Origin;
use crate::status::{Outcome, statuses};

impl Memory for DriverCall {
    fn cuMemAlloc(&self, dptr: *mut CUdeviceptr_v1, bytesize: c_uint) -> Outcome {
        if dptr.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let address = self.allocate(u64::from(bytesize), Origin::Low)?;
        self.write(dptr, address as CUdeviceptr_v1)
    }

    fn cuMemAlloc_v2(&self, dptr: *mut CUdeviceptr, bytesize: usize) -> Outcome {
        if dptr.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let address = self.allocate(bytesize as u64, Origin::Linear)?;
        self.write(dptr, address)
    }

    fn cuMemAllocPitch(
        &self,
        dptr: *mut CUdeviceptr_v1,
        p_pitch: *mut c_uint,
        width_in_bytes: c_uint,
        height: c_uint,
        element_size_bytes: c_uint,
    ) -> Outcome {
        if dptr.is_null() || p_pitch.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let (pitch, size) = Self::pitch(u64::from(width_in_bytes), u64::from(height), element_size_bytes)?;
        let address = self.allocate(size, Origin::Low)?;
        self.write(p_pitch, pitch as c_uint)?;
        self.write(dptr, address as CUdeviceptr_v1)
    }

    fn cuMemAllocPitch_v2(
        &self,
        dptr: *mut CUdeviceptr,
        p_pitch: *mut usize,
        width_in_bytes: usize,
        height: usize,
        element_size_bytes: c_uint,
    ) -> Outcome {
        if dptr.is_null() || p_pitch.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let (pitch, size) = Self::pitch(width_in_bytes as u64, height as u64, element_size_bytes)?;
        let address = self.allocate(size, Origin::Linear)?;
        self.write(p_pitch, pitch as usize)?;
        self.write(dptr, address)
    }

    fn cuMemAllocManaged(&self, dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint) -> Outcome {
        if dptr.is_null() || !matches!(flags, 1 | 2) {
            return Err(status::INVALID_VALUE);
        }
        let address = self.allocate(bytesize as u64, Origin::Managed)?;
        self.write(dptr, address)
    }

    fn cuMemFree(&self, dptr: CUdeviceptr_v1) -> Outcome {
        self.free(u64::from(dptr))
    }

    fn cuMemFree_v2(&self, dptr: CUdeviceptr) -> Outcome {
        self.free(dptr)
    }

    fn cuMemFreeAsync(&self, dptr: CUdeviceptr, h_stream: CUstream) -> Outcome {
        self.free_async(dptr, h_stream, false)
    }

    fn cuMemFreeAsync_ptsz(&self, dptr: CUdeviceptr, h_stream: CUstream) -> Outcome {
        self.free_async(dptr, h_stream, true)
    }

    fn cuArrayDestroy(&self, h_array: CUarray) -> Outcome {
        self.destroy_array(handle(h_array))
    }

    fn cuMipmappedArrayDestroy(&self, h_mipmapped_array: CUmipmappedArray) -> Outcome {
        self.destroy_mipmap(handle(h_mipmapped_array))
    }

    fn cuDeviceTotalMem(&self, bytes: *mut c_uint, dev: CUdevice) -> Outcome {
        self.write(bytes, self.total(dev)?.min(u64::from(c_uint::MAX)) as c_uint)
    }

    fn cuDeviceTotalMem_v2(&self, bytes: *mut usize, dev: CUdevice) -> Outcome {
        self.write(bytes, self.total(dev)? as usize)
    }

    fn cuMemGetInfo(&self, free: *mut c_uint, total: *mut c_uint) -> Outcome {
        let (left, size) = self.info()?;
        self.write(free, left.min(u64::from(c_uint::MAX)) as c_uint)?;
        self.write(total, size.min(u64::from(c_uint::MAX)) as c_uint)
    }

    fn cuMemGetInfo_v2(&self, free: *mut usize, total: *mut usize) -> Outcome {
        let (left, size) = self.info()?;
        self.write(free, left as usize)?;
        self.write(total, size as usize)
    }

    methods! { self;
        cuMemAdvise(dev_ptr: CUdeviceptr, count: usize, advice: c_uint, device: CUdevice) =>
            self.advise(dev_ptr, count, advice, device);
        cuMemAdvise_v2(dev_ptr: CUdeviceptr, count: usize, advice: c_uint, to: CUmemLocation) =>
            self.advise(dev_ptr, count, advice, ordinal_of(to)?);
        cuMemPrefetchAsync(dev_ptr: CUdeviceptr, count: usize, to: CUdevice, _stream: CUstream) =>
            self.prefetch(dev_ptr, count, to);
        cuMemPrefetchAsync_ptsz(dev_ptr: CUdeviceptr, count: usize, to: CUdevice, _stream: CUstream) =>
            self.prefetch(dev_ptr, count, to);
        cuMemPrefetchAsync_v2(dev_ptr: CUdeviceptr, count: usize, to: CUmemLocation, _flags: c_uint,
            _stream: CUstream) => self.prefetch(dev_ptr, count, ordinal_of(to)?);
        cuMemPrefetchAsync_v2_ptsz(dev_ptr: CUdeviceptr, count: usize, to: CUmemLocation, _flags: c_uint,
            _stream: CUstream) => self.prefetch(dev_ptr, count, ordinal_of(to)?);
        cuMemPrefetchBatchAsync(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
            prefetch_locs: *mut CUmemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize,
            _flags: c_ulonglong, _stream: CUstream) =>
            self.prefetch_all((dptrs, sizes, count), (prefetch_locs, prefetch_loc_idxs, num_prefetch_locs));
        cuMemPrefetchBatchAsync_ptsz(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
            prefetch_locs: *mut CUmemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize,
            _flags: c_ulonglong, _stream: CUstream) =>
            self.prefetch_all((dptrs, sizes, count), (prefetch_locs, prefetch_loc_idxs, num_prefetch_locs));
        cuMemDiscardAndPrefetchBatchAsync(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
            prefetch_locs: *mut CUmemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize,
            _flags: c_ulonglong, _stream: CUstream) =>
            self.prefetch_all((dptrs, sizes, count), (prefetch_locs, prefetch_loc_idxs, num_prefetch_locs));
        cuMemDiscardAndPrefetchBatchAsync_ptsz(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
            prefetch_locs: *mut CUmemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize,
            _flags: c_ulonglong, _stream: CUstream) =>
            self.prefetch_all((dptrs, sizes, count), (prefetch_locs, prefetch_loc_idxs, num_prefetch_locs));
        cuMemDiscardBatchAsync(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
            _flags: c_ulonglong, _stream: CUstream) => self.hints(dptrs, sizes, count);
        cuStreamAttachMemAsync(_stream: CUstream, dptr: CUdeviceptr, length: usize, _flags: c_uint) =>
            self.hint(dptr, length.max(1));
        cuStreamAttachMemAsync_ptsz(_stream: CUstream, dptr: CUdeviceptr, length: usize, _flags: c_uint) =>
            self.hint(dptr, length.max(1));
    }

    fn cuMemRangeGetAttribute(
        &self,
        data: *mut c_void,
        data_size: usize,
        attribute: c_uint,
        dev_ptr: CUdeviceptr,
        count: usize,
    ) -> Outcome {
        self.hint(dev_ptr, count)?;
        if data_size != size_of::<c_int>() {
            return Err(status::INVALID_VALUE);
        }
        let answer = self.simulation()?.objects().range_attribute(dev_ptr, attribute)?;
        self.write(data.cast::<c_int>(), answer)
    }

    fn cuMemAllocHost(&self, pp: *mut *mut c_void, bytesize: c_uint) -> Outcome {
        self.host_alloc(pp, bytesize as usize, 0)
    }

    fn cuMemAllocHost_v2(&self, pp: *mut *mut c_void, bytesize: usize) -> Outcome {
        self.host_alloc(pp, bytesize, 0)
    }

    fn cuMemHostAlloc(&self, pp: *mut *mut c_void, bytesize: usize, flags: c_uint) -> Outcome {
        self.host_alloc(pp, bytesize, flags)
    }

    fn cuMemFreeHost(&self, p: *mut c_void) -> Outcome {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let address = p.addr() as u64;
        match objects.regions.host_around(address) {
            Some((base, block)) if base == address && !block.registered => {
                objects.free_host(address);
                Ok(())
            }
            _ => Err(status::INVALID_VALUE),
        }
    }

    fn cuMemHostRegister(&self, p: *mut c_void, bytesize: usize, flags: c_uint) -> Outcome {
        self.host_register(p, bytesize, flags)
    }

    fn cuMemHostRegister_v2(&self, p: *mut c_void, bytesize: usize, flags: c_uint) -> Outcome {
        self.host_register(p, bytesize, flags)
    }

    fn cuMemHostUnregister(&self, p: *mut c_void) -> Outcome {
        let mut objects = self.simulation()?.objects();
        let address = p.addr() as u64;
        match objects.regions.host_around(address) {
            Some((base, block)) if base == address && block.registered => {
                objects.free_host(address);
                Ok(())
            }
            _ => Err(statuses::HOST_MEMORY_NOT_REGISTERED),
        }
    }

    fn cuMemHostGetDevicePointer(
        &self,
        _pdptr: *mut CUdeviceptr_v1,
        _p: *mut c_void,
        _flags: c_uint,
    ) -> Outcome {
        Err(status::NOT_SUPPORTED)
    }

    fn cuMemHostGetDevicePointer_v2(
        &self,
        pdptr: *mut CUdeviceptr,
        p: *mut c_void,
        flags: c_uint,
    ) -> Outcome {
        if flags != 0 {
            return Err(status::INVALID_VALUE);
        }
        self.host_block(p)?;
        self.write(pdptr, p.addr() as u64)
    }

    fn cuMemHostGetFlags(&self, p_flags: *mut c_uint, p: *mut c_void) -> Outcome {
        let flags = self.host_block(p)?.1.flags;
        self.write(p_flags, flags)
    }

    fn cuMemGetAddressRange(
        &self,
        pbase: *mut CUdeviceptr_v1,
        psize: *mut c_uint,
        dptr: CUdeviceptr_v1,
    ) -> Outcome {
        let (base, size) = self.range(u64::from(dptr))?;
        self.offer(pbase, base as CUdeviceptr_v1);
        self.offer(psize, size as c_uint);
        Ok(())
    }

    fn cuMemGetAddressRange_v2(
        &self,
        pbase: *mut CUdeviceptr,
        psize: *mut usize,
        dptr: CUdeviceptr,
    ) -> Outcome {
        let (base, size) = self.range(dptr)?;
        self.offer(pbase, base);
        self.offer(psize, size as usize);
        Ok(())
    }

    fn cuPointerGetAttribute(&self, data: *mut c_void, attribute: c_uint, ptr: CUdeviceptr) -> Outcome {
        let value = self.pointer_attribute(attribute, ptr)?;
        self.write_attribute(data, attribute, value)
    }

    fn cuPointerGetAttributes(
        &self,
        num_attributes: c_uint,
        attributes: *mut CUpointer_attribute,
        data: *mut *mut c_void,
        ptr: CUdeviceptr,
    ) -> Outcome {
        // For an address without memory, every attribute is 0.
        for index in 0..num_attributes as usize {
            let attribute = self.read_at(attributes.cast::<c_uint>(), index)?;
            let value = self.pointer_attribute(attribute, ptr).unwrap_or_else(|_| Self::nothing(attribute));
            self.write_attribute(self.read_at(data, index)?, attribute, value)?;
        }
        Ok(())
    }

    fn cuPointerSetAttribute(&self, _value: *const c_void, attribute: c_uint, ptr: CUdeviceptr) -> Outcome {
        self.range(ptr)?;
        if attribute == 6 { Ok(()) } else { Err(status::INVALID_VALUE) }
    }
}
