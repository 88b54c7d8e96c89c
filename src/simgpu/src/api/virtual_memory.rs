//! Functions of physical memory and of address ranges, which are separate objects.

use gpuslice_driver::types::*;

use super::Vmm;
use super::methods::methods;
use crate::call::DriverCall;
use crate::model::multicast::{MulticastProperties, Part};
use crate::model::virtual_memory::{FABRIC, FILE_DESCRIPTOR, GRANULARITY, Properties};
use crate::process::virtual_memory::device_of;
use crate::status::Outcome;

/// `CUmemAccessDesc`, with its enumerations as numbers.
#[repr(C)]
#[derive(Clone, Copy)]
struct Access {
    location: CUmemLocation,
    flags: u32,
}

const _: () = assert!(size_of::<Access>() == size_of::<CUmemAccessDesc>());

/// `CUarrayMapInfo`, with its enumerations as numbers.
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

/// `CUmemOperationType` for a mapping.
const MAP: u32 = 1;

impl DriverCall {
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
        let created = simulation.objects().create_memory(simulation, size as u64, Properties::of(&given))?;
        self.write(to, created)
    }

    fn map_arrays(&self, list: *mut CUarrayMapInfo, count: c_uint) -> Outcome {
        let simulation = self.simulation()?;
        for index in 0..count as usize {
            let one: ArrayMap = self.read_at(list.cast(), index)?;
            let given = (one.operation == MAP).then_some(one.handle);
            simulation.objects().map_array(simulation, one.resource, given)?;
        }
        Ok(())
    }
}

/// A place in a multicast object: its offset, and the device if the call names one.
struct MulticastPlace {
    object: u64,
    offset: usize,
    device: Option<CUdevice>,
}

impl DriverCall {
    fn make_group(
        &self,
        to: *mut CUmemGenericAllocationHandle,
        wanted: *const CUmulticastObjectProp,
    ) -> Outcome {
        if to.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let wanted: MulticastProperties = self.read(wanted.cast())?;
        let simulation = self.simulation()?;
        let made = simulation.objects().make_group(simulation, wanted)?;
        self.write(to, made)
    }

    fn bind(&self, place: MulticastPlace, part: Part, flags: u64) -> Outcome {
        let simulation = self.simulation()?;
        if flags != 0 {
            return Err(status::INVALID_VALUE);
        }
        let on = place.device.map(|device| simulation.device(device)).transpose()?;
        simulation.objects().bind(simulation, place.object, place.offset as u64, part, on)
    }

    fn bind_address(&self, place: MulticastPlace, address: CUdeviceptr, size: usize, flags: u64) -> Outcome {
        let part = self.simulation()?.objects().part_at(address, size as u64)?;
        self.bind(place, part, flags)
    }
}

impl Vmm for DriverCall {
    methods! { self;
        cuMemCreate(handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp,
            flags: c_ulonglong) => self.create_memory(handle, size, prop, flags);
        cuMemRelease(handle: CUmemGenericAllocationHandle) => {
            let simulation = self.simulation()?;
            simulation.objects().release_handle(simulation, handle)
        };
        cuMemAddressReserve(ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr,
            flags: c_ulonglong) => {
            if ptr.is_null() || flags != 0 {
                return Err(status::INVALID_VALUE);
            }
            let simulation = self.simulation()?;
            let reserved = simulation.objects().reserve(simulation, size as u64, alignment as u64, addr)?;
            self.write(ptr, reserved)
        };
        cuMemAddressFree(ptr: CUdeviceptr, size: usize) => {
            let simulation = self.simulation()?;
            simulation.objects().unreserve(simulation, ptr, size as u64)
        };
        cuMemMap(ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle,
            flags: c_ulonglong) => {
            if flags != 0 {
                return Err(status::INVALID_VALUE);
            }
            let simulation = self.simulation()?;
            simulation.objects().map(simulation, ptr, size as u64, offset as u64, handle)
        };
        cuMemUnmap(ptr: CUdeviceptr, size: usize) => {
            let simulation = self.simulation()?;
            simulation.objects().unmap(simulation, ptr, size as u64)
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
            let retained = simulation.objects().retain(simulation, addr.addr() as u64)?;
            self.write(handle, retained)
        };
        cuMemExportToShareableHandle(shareable_handle: *mut c_void, handle: CUmemGenericAllocationHandle,
            handle_type: c_uint, flags: c_ulonglong) => {
            if shareable_handle.is_null() || !matches!(handle_type, FILE_DESCRIPTOR | FABRIC) || flags != 0 {
                return Err(status::INVALID_VALUE);
            }
            let simulation = self.simulation()?;
            if handle_type == FABRIC {
                let bytes = simulation.objects().export_to_fabric(simulation, handle)?;
                return self.write(shareable_handle.cast::<[u8; 64]>(), bytes);
            }
            let descriptor = simulation.objects().export_memory(simulation, handle)?;
            self.write(shareable_handle.cast::<c_int>(), descriptor)
        };
        cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, os_handle: *mut c_void,
            sh_handle_type: c_uint) => {
            if handle.is_null() || !matches!(sh_handle_type, FILE_DESCRIPTOR | FABRIC) {
                return Err(status::INVALID_VALUE);
            }
            let simulation = self.simulation()?;
            if sh_handle_type == FABRIC {
                let bytes: [u8; 64] = self.read(os_handle.cast())?;
                let imported = simulation.objects().import_from_fabric(simulation, &bytes)?;
                return self.write(handle, imported);
            }
            let descriptor = c_int::try_from(os_handle.addr()).map_err(|_| status::INVALID_VALUE)?;
            let imported = simulation.objects().import_memory(simulation, descriptor)?;
            self.write(handle, imported)
        };
        cuMulticastCreate(mc_handle: *mut CUmemGenericAllocationHandle, prop: *const CUmulticastObjectProp) =>
            self.make_group(mc_handle, prop);
        cuMulticastAddDevice(mc_handle: CUmemGenericAllocationHandle, dev: CUdevice) => {
            let simulation = self.simulation()?;
            let device = simulation.device(dev)?;
            simulation.objects().add_to_group(mc_handle, device)
        };
        cuMulticastBindMem(mc_handle: CUmemGenericAllocationHandle, mc_offset: usize,
            mem_handle: CUmemGenericAllocationHandle, mem_offset: usize, size: usize, flags: c_ulonglong) => {
            let part = Part { memory: mem_handle, offset: mem_offset as u64, size: size as u64 };
            self.bind(MulticastPlace { object: mc_handle, offset: mc_offset, device: None }, part, flags)
        };
        cuMulticastBindMem_v2(mc_handle: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize,
            mem_handle: CUmemGenericAllocationHandle, mem_offset: usize, size: usize, flags: c_ulonglong) => {
            let part = Part { memory: mem_handle, offset: mem_offset as u64, size: size as u64 };
            self.bind(MulticastPlace { object: mc_handle, offset: mc_offset, device: Some(dev) }, part, flags)
        };
        cuMulticastBindAddr(mc_handle: CUmemGenericAllocationHandle, mc_offset: usize, memptr: CUdeviceptr,
            size: usize, flags: c_ulonglong) =>
            self.bind_address(MulticastPlace { object: mc_handle, offset: mc_offset, device: None }, memptr, size, flags);
        cuMulticastBindAddr_v2(mc_handle: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize,
            memptr: CUdeviceptr, size: usize, flags: c_ulonglong) =>
            self.bind_address(MulticastPlace { object: mc_handle, offset: mc_offset, device: Some(dev) }, memptr, size, flags);
        cuMulticastUnbind(mc_handle: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, size: usize) => {
            let simulation = self.simulation()?;
            let device = simulation.device(dev)?;
            simulation.objects().unbind(simulation, mc_handle, device, mc_offset as u64, size as u64)
        };
        cuMulticastGetGranularity(granularity: *mut usize, prop: *const CUmulticastObjectProp, option: c_uint) => {
            let wanted: MulticastProperties = self.read(prop.cast())?;
            if wanted.devices == 0 || option > 1 {
                return Err(status::INVALID_VALUE);
            }
            self.write(granularity, GRANULARITY as usize)
        };
        cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize) => {
            let simulation = self.simulation()?;
            for index in 0..count {
                let access: Access = self.read_at(desc.cast(), index)?;
                device_of(simulation, (access.location.kind, access.location.id))?;
                simulation.objects().set_access(ptr, size as u64, access.flags)?;
            }
            Ok(())
        };
        cuMemGetAccess(flags: *mut c_ulonglong, location: *const CUmemLocation, ptr: CUdeviceptr) => {
            let simulation = self.simulation()?;
            let location = self.read(location)?;
            device_of(simulation, (location.kind, location.id))?;
            let access = simulation.objects().access(ptr)?;
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
            let given = self.simulation()?.objects().memory(handle)?.properties;
            let location = CUmemLocation { kind: given.location.0, id: given.location.1 };
            let (kind, handle_types, flags) = (given.kind, given.handle_types, given.flags);
            let security = core::ptr::null_mut();
            self.write(prop.cast(), AllocationProperties { kind, handle_types, location, security, flags })
        };
    }
}
