//! What do the functions do that take memory and addresses apart from each other?

use gpuslice_driver::types::*;

use super::Vmm;
use super::methods::methods;
use crate::driver::{Driver, Outcome};
use crate::vmm::{FILE_DESCRIPTOR, GRANULARITY, Properties, device_of};

/// `CUmemAccessDesc`, its enumerations as numbers.
#[repr(C)]
#[derive(Clone, Copy)]
struct Access {
    location: CUmemLocation,
    flags: u32,
}

const _: () = assert!(size_of::<Access>() == size_of::<CUmemAccessDesc>());

/// `CUarrayMapInfo`, its enumerations as numbers.
#[repr(C)]
#[derive(Clone, Copy)]
struct ArrayMap {
    resource_kind: u32,
    resource: u64,
    subresource_kind: u32,
    subresource: [u64; 4],
    operation: u32,
    handle_kind: u32,
    handle: u64,
    offset: u64,
    device_mask: u32,
    flags: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<ArrayMap>() == size_of::<CUarrayMapInfo>());

/// `CUmemOperationType`: memory is given.
const MAP: u32 = 1;

impl Driver {
    fn create_memory(
        &self,
        to: *mut u64,
        size: usize,
        properties: *const CUmemAllocationProp,
        flags: u64,
    ) -> Outcome {
        if to.is_null() || flags != 0 {
            return Err(status::INVALID_VALUE);
        }
        let given: AllocationProperties = self.read(properties.cast())?;
        let simulation = self.simulation()?;
        let created = simulation.local().create_memory(simulation, size as u64, Properties::of(&given))?;
        self.write(to, created)
    }

    fn map_arrays(&self, list: *mut CUarrayMapInfo, count: c_uint) -> Outcome {
        let simulation = self.simulation()?;
        for index in 0..count as usize {
            let one: ArrayMap = self.read_at(list.cast(), index)?;
            let given = (one.operation == MAP).then_some(one.handle);
            simulation.local().map_array(simulation, one.resource, given)?;
        }
        Ok(())
    }
}

impl Vmm for Driver {
    methods! { self;
        cuMemCreate(handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp,
            flags: c_ulonglong) => self.create_memory(handle, size, prop, flags);
        cuMemRelease(handle: CUmemGenericAllocationHandle) => {
            let simulation = self.simulation()?;
            simulation.local().release_handle(simulation, handle)
        };
        cuMemAddressReserve(ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr,
            flags: c_ulonglong) => {
            if ptr.is_null() || flags != 0 {
                return Err(status::INVALID_VALUE);
            }
            let simulation = self.simulation()?;
            let reserved = simulation.local().reserve(simulation, size as u64, alignment as u64, addr)?;
            self.write(ptr, reserved)
        };
        cuMemAddressFree(ptr: CUdeviceptr, size: usize) => {
            let simulation = self.simulation()?;
            simulation.local().unreserve(simulation, ptr, size as u64)
        };
        cuMemMap(ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle,
            flags: c_ulonglong) => {
            if flags != 0 {
                return Err(status::INVALID_VALUE);
            }
            let simulation = self.simulation()?;
            simulation.local().map(simulation, ptr, size as u64, offset as u64, handle)
        };
        cuMemUnmap(ptr: CUdeviceptr, size: usize) => {
            let simulation = self.simulation()?;
            simulation.local().unmap(simulation, ptr, size as u64)
        };
        cuMemMapArrayAsync(map_info_list: *mut CUarrayMapInfo, count: c_uint, _h_stream: CUstream) =>
            self.map_arrays(map_info_list, count);
        cuMemMapArrayAsync_ptsz(map_info_list: *mut CUarrayMapInfo, count: c_uint, _h_stream: CUstream) =>
            self.map_arrays(map_info_list, count);
        cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void) => {
            if handle.is_null() {
                return Err(status::INVALID_VALUE);
            }
            let simulation = self.simulation()?;
            let retained = simulation.local().retain(simulation, addr.addr() as u64)?;
            self.write(handle, retained)
        };
        cuMemExportToShareableHandle(shareable_handle: *mut c_void, handle: CUmemGenericAllocationHandle,
            handle_type: c_uint, flags: c_ulonglong) => {
            if shareable_handle.is_null() || handle_type != FILE_DESCRIPTOR || flags != 0 {
                return Err(status::INVALID_VALUE);
            }
            let simulation = self.simulation()?;
            let descriptor = simulation.local().export_memory(simulation, handle)?;
            self.write(shareable_handle.cast::<c_int>(), descriptor)
        };
        cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, os_handle: *mut c_void,
            sh_handle_type: c_uint) => {
            let descriptor = c_int::try_from(os_handle.addr()).map_err(|_| status::INVALID_VALUE)?;
            if handle.is_null() || sh_handle_type != FILE_DESCRIPTOR {
                return Err(status::INVALID_VALUE);
            }
            let simulation = self.simulation()?;
            let imported = simulation.local().import_memory(simulation, descriptor)?;
            self.write(handle, imported)
        };
        cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize) => {
            let simulation = self.simulation()?;
            for index in 0..count {
                let access: Access = self.read_at(desc.cast(), index)?;
                device_of(simulation, (access.location.kind, access.location.id))?;
                simulation.local().set_access(ptr, size as u64, access.flags)?;
            }
            Ok(())
        };
        cuMemGetAccess(flags: *mut c_ulonglong, location: *const CUmemLocation, ptr: CUdeviceptr) => {
            let simulation = self.simulation()?;
            let location = self.read(location)?;
            device_of(simulation, (location.kind, location.id))?;
            let access = simulation.local().access(ptr)?;
            self.write(flags, u64::from(access))
        };
        cuMemGetAllocationGranularity(granularity: *mut usize, prop: *const CUmemAllocationProp, option: c_uint) => {
            let given: AllocationProperties = self.read(prop.cast())?;
            device_of(self.simulation()?, (given.location.kind, given.location.id))?;
            if option > 1 {
                return Err(status::INVALID_VALUE);
            }
            self.write(granularity, GRANULARITY as usize)
        };
        cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle) => {
            let given = self.simulation()?.local().memory(handle)?.properties;
            let location = CUmemLocation { kind: given.location.0, id: given.location.1 };
            let (kind, handle_types, flags) = (given.kind, given.handle_types, given.flags);
            let security = core::ptr::null_mut();
            self.write(prop.cast(), AllocationProperties { kind, handle_types, location, security, flags })
        };
    }
}
