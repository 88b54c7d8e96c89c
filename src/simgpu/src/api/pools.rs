//! Functions that allocate memory in the order of a stream.

use gpuslice_driver::types::*;

use super::Pools;
use super::methods::methods;
use super::submit::StreamArgument;
use crate::call::DriverCall;
use crate::engine::{Completion, Target, Work};
use crate::model::graphs::Op;
use crate::model::ipc_handles::{self, Label, Purpose};
use crate::model::objects::{handle, pointer};
use crate::model::pools::{Freed, MANAGED_TYPE, PINNED_TYPE, Pool, PoolPlace, on_device};
use crate::model::regions::Origin;
use crate::model::streams::Stream;
use crate::model::virtual_memory::{FILE_DESCRIPTOR, location};
use crate::process::host_queue::HostTask;
use crate::process::simulation::Simulation;
use crate::process::virtual_memory::device_of;
use crate::status::Outcome;

/// `CUmemPool_attribute`.
mod attribute {
    pub(super) const THRESHOLD: u32 = 4;
    pub(super) const RESERVED: u32 = 5;
    pub(super) const RESERVED_HIGH: u32 = 6;
    pub(super) const USED: u32 = 7;
    pub(super) const USED_HIGH: u32 = 8;
    pub(super) const ALLOCATION_TYPE: u32 = 9;
    pub(super) const HANDLE_TYPES: u32 = 10;
    pub(super) const LOCATION_ID: u32 = 11;
    pub(super) const LOCATION_TYPE: u32 = 12;
    pub(super) const MOST: u32 = 13;
    pub(super) const DECOMPRESSION: u32 = 14;
}

/// Returns the device and the place of a pool. The device is `None` for the host, and for managed memory without a location.
fn place_of(
    simulation: &Simulation,
    allocation_type: u32,
    location: CUmemLocation,
) -> Result<(Option<usize>, PoolPlace), Status> {
    let device = match (allocation_type, location.kind) {
        (MANAGED_TYPE, location::NONE) => None,
        (MANAGED_TYPE, location::PART_OF_DEVICE) => return Err(status::INVALID_VALUE),
        (PINNED_TYPE | MANAGED_TYPE, kind) => device_of(simulation, (kind, location.id))?,
        _ => return Err(status::INVALID_VALUE),
    };
    Ok((device, (allocation_type, location.kind, location.id)))
}

impl DriverCall {
    /// Allocates from a pool for work in a stream: from `pool`, or from the current pool of the stream's device. If the stream
    /// captures, this adds an allocation to the graph instead, and the address gets memory only when the graph is launched.
    fn allocate_async(
        &self,
        to: *mut CUdeviceptr,
        size: usize,
        pool: Option<CUmemoryPool>,
        on: StreamArgument,
    ) -> Outcome {
        if to.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let stream = objects.stream(simulation, on.0, on.1)?;
        objects.refuse_implicit(stream)?;
        let found = objects.streams.streams.get(stream)?;
        let (context, device) = (found.context, found.place.device);
        let pool = match pool {
            Some(pool) => handle(pool),
            None => objects.pools.current_of(on_device(simulation.ordinal(device)), Some(device)),
        };
        let size = size as u64;
        if objects.capture_of(stream)?.is_some() {
            let device = objects.pools.get(pool)?.device.unwrap_or(device);
            let reused = objects.captured_address(stream, size, device)?;
            let address = reused.map_or_else(|| objects.graph_address(simulation, size), Ok)?;
            objects.capture(stream, &Op::Alloc { address, size, device })?;
            return self.write(to, address);
        }
        let address = objects.pool_allocate(simulation, pool, size, stream, context)?;
        self.write(to, address)
    }

    /// Frees memory in the order of a stream. The memory is that of a pool, of a graph, or of `cuMemAlloc`.
    pub(super) fn free_async(&self, address: CUdeviceptr, stream: CUstream, per_thread: bool) -> Outcome {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let on = StreamArgument(handle(stream), per_thread);
        let stream = objects.stream(simulation, on.0, on.1)?;
        objects.refuse_implicit(stream)?;
        if address == 0 {
            return Ok(());
        }
        if let Some((_, capture)) = objects.capture_of(stream)? {
            objects.check_free(capture.graph, address)?;
            return objects.capture(stream, &Op::Free(address)).map(|_| ());
        }
        let region = *objects.regions.at(address).ok_or(status::INVALID_VALUE)?;
        let Stream { place, context, .. } = *objects.streams.streams.get(stream)?;
        drop(objects);
        let ticket = simulation.enqueue(place, Work::Marker)?;
        let is_reached = || simulation.completion(place.device, Target::Ticket(ticket)) == Completion::Done;
        if matches!(region.origin, Origin::Linear | Origin::Low | Origin::Managed) && !is_reached() {
            let free = HostTask::Free(address, region.number);
            return self.queue_host_task(simulation, context, place, free);
        }
        let mut objects = simulation.objects();
        match region.origin {
            Origin::Pool(_) => {
                let freed = Freed { device: place.device, stream, ticket };
                objects.pool_free(simulation, address, Some(freed))
            }
            Origin::Graph => objects.free_graph_block(address),
            Origin::ImportedBlock | Origin::External => objects.close_borrowed(simulation, address),
            Origin::Linear | Origin::Low | Origin::Managed => objects.free(simulation, address),
            _ => Err(status::INVALID_VALUE),
        }
    }

    fn create_pool(&self, to: *mut CUmemoryPool, properties: *const CUmemPoolProps) -> Outcome {
        let simulation = self.simulation()?;
        let given: PoolProperties = self.read(properties.cast())?;
        let (device, place) = place_of(simulation, given.kind, given.location)?;
        let mut pool = Pool::new(device, place);
        pool.handle_types = given.handle_types;
        pool.most = given.max_size as u64;
        self.write(to, pointer(simulation.objects().pools.pools.add(pool)))
    }

    /// Returns the pool for memory of one kind in one location.
    fn location_pool(
        &self,
        location: *mut CUmemLocation,
        kind: u32,
        is_default: bool,
    ) -> Result<u64, Status> {
        let simulation = self.simulation()?;
        let (device, place) = place_of(simulation, kind, self.read(location)?)?;
        let mut objects = simulation.objects();
        Ok(if is_default {
            objects.pools.default_of(place, device)
        } else {
            objects.pools.current_of(place, device)
        })
    }

    /// Exports a pool as a file with a label. The program gets the descriptor of the file.
    fn export_pool(&self, to: *mut c_void, pool: CUmemoryPool, kind: c_uint, flags: u64) -> Outcome {
        let simulation = self.simulation()?;
        let objects = simulation.objects();
        let pool = objects.pools.get(handle(pool))?;
        let device = pool.device.ok_or(status::INVALID_VALUE)?;
        let shares = pool.handle_types & kind & FILE_DESCRIPTOR != 0 && !pool.is_default && !pool.is_imported;
        if to.is_null() || flags != 0 || !shares {
            return Err(status::INVALID_VALUE);
        }
        let file = ipc_handles::make_file(0).ok_or(status::OUT_OF_MEMORY)?;
        ipc_handles::write_label(&file, Label { number: simulation.serial, device: device as u64, size: 0 })?;
        self.write(to.cast::<c_int>(), ipc_handles::hand_over(&file)?)
    }

    /// Imports a pool of another process. Its memory is imported later, pointer by pointer.
    fn import_pool(&self, to: *mut CUmemoryPool, from: *mut c_void, kind: c_uint, flags: u64) -> Outcome {
        let simulation = self.simulation()?;
        let descriptor = c_int::try_from(from.addr()).map_err(|_| status::INVALID_VALUE)?;
        if to.is_null() || flags != 0 || kind != FILE_DESCRIPTOR {
            return Err(status::INVALID_VALUE);
        }
        let label = ipc_handles::read_label(&ipc_handles::duplicate(descriptor)?)?;
        let device = usize::try_from(label.device).map_err(|_| status::INVALID_VALUE)?;
        if label.size != 0 {
            return Err(status::INVALID_VALUE);
        }
        let mut pool = Pool::new(Some(device), on_device(simulation.ordinal(device)));
        pool.is_imported = true;
        self.write(to, pointer(simulation.objects().pools.pools.add(pool)))
    }

    fn import_pointer(
        &self,
        to: *mut CUdeviceptr,
        pool: CUmemoryPool,
        from: *const CUmemPoolPtrExportData,
    ) -> Outcome {
        let bytes: [u8; 64] = self.read(from.cast())?;
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        if to.is_null() || !objects.pools.get(handle(pool))?.is_imported {
            return Err(status::INVALID_VALUE);
        }
        let address = objects.open_ticket(simulation, &bytes, Purpose::PoolPointer)?;
        self.write(to, address)
    }

    fn use_pool(&self, (device, place): (Option<usize>, PoolPlace), pool: CUmemoryPool) -> Outcome {
        let mut objects = self.simulation()?.objects();
        let given = objects.pools.get(handle(pool))?;
        if given.device != device || given.allocation_type != place.0 {
            return Err(status::INVALID_VALUE);
        }
        objects.pools.set_current(place, handle(pool));
        Ok(())
    }

    fn pool_attribute(&self, pool: CUmemoryPool, number: c_uint, to: *mut c_void) -> Outcome {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        objects.unsafe_call()?;
        let pool = objects.settled(simulation, handle(pool))?;
        let word = to.cast::<u64>();
        let int = to.cast::<u32>();
        match number {
            1..=3 => self.write(int, pool.policies.get(number as usize - 1).copied().unwrap_or(0)),
            attribute::THRESHOLD => self.write(word, pool.threshold),
            attribute::RESERVED => self.write(word, pool.reserved()),
            attribute::RESERVED_HIGH => self.write(word, pool.reserved_high),
            attribute::USED => self.write(word, pool.used()),
            attribute::USED_HIGH => self.write(word, pool.used_high),
            attribute::ALLOCATION_TYPE => self.write(int, pool.allocation_type),
            attribute::HANDLE_TYPES => self.write(int, pool.handle_types),
            attribute::LOCATION_ID => self.write(to.cast::<c_int>(), pool.location.1),
            attribute::LOCATION_TYPE => self.write(int, pool.location.0),
            attribute::MOST => self.write(word, pool.most),
            attribute::DECOMPRESSION => self.write(int, 0),
            _ => Err(status::INVALID_VALUE),
        }
    }

    fn set_pool_attribute(&self, pool: CUmemoryPool, number: c_uint, from: *mut c_void) -> Outcome {
        let mut objects = self.simulation()?.objects();
        objects.unsafe_call()?;
        let pool = objects.pools.get_mut(handle(pool))?;
        match number {
            1..=3 => {
                let value = self.read(from.cast::<u32>())?;
                if let Some(policy) = pool.policies.get_mut(number as usize - 1) {
                    *policy = u32::from(value != 0);
                }
            }
            attribute::THRESHOLD => pool.threshold = self.read(from.cast::<u64>())?,
            // The program can set a high-water mark only to 0. The mark then restarts from the present use.
            attribute::RESERVED_HIGH | attribute::USED_HIGH if self.read(from.cast::<u64>())? != 0 => {
                return Err(status::INVALID_VALUE);
            }
            attribute::RESERVED_HIGH => pool.reserved_high = pool.reserved(),
            attribute::USED_HIGH => pool.used_high = pool.used(),
            _ => return Err(status::INVALID_VALUE),
        }
        Ok(())
    }

    fn pool_of(&self, device: CUdevice, is_default: bool, to: *mut CUmemoryPool) -> Outcome {
        let mut location = CUmemLocation { kind: 1, id: device };
        let pool = self.location_pool(&raw mut location, PINNED_TYPE, is_default)?;
        self.write(to, pointer(pool))
    }
}

impl Pools for DriverCall {
    methods! { self;
        cuMemAllocAsync(dptr: *mut CUdeviceptr, bytesize: usize, h_stream: CUstream) =>
            self.allocate_async(dptr, bytesize, None, StreamArgument::legacy(h_stream));
        cuMemAllocAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, h_stream: CUstream) =>
            self.allocate_async(dptr, bytesize, None, StreamArgument::per_thread(h_stream));
        cuMemAllocFromPoolAsync(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, h_stream: CUstream) =>
            self.allocate_async(dptr, bytesize, Some(pool), StreamArgument::legacy(h_stream));
        cuMemAllocFromPoolAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, h_stream: CUstream) =>
            self.allocate_async(dptr, bytesize, Some(pool), StreamArgument::per_thread(h_stream));

        cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice) => self.pool_of(dev, true, pool_out);
        cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice) => self.pool_of(dev, false, pool);
        cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) => {
            let device = self.simulation()?.device(dev)?;
            self.use_pool((Some(device), on_device(dev)), pool)
        };
        cuMemGetDefaultMemPool(pool_out: *mut CUmemoryPool, location: *mut CUmemLocation, kind: c_uint) =>
            self.write(pool_out, pointer(self.location_pool(location, kind, true)?));
        cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: c_uint) =>
            self.write(pool, pointer(self.location_pool(location, kind, false)?));
        cuMemSetMemPool(location: *mut CUmemLocation, kind: c_uint, pool: CUmemoryPool) =>
            self.use_pool(place_of(self.simulation()?, kind, self.read(location)?)?, pool);
        cuMemPoolCreate(pool: *mut CUmemoryPool, pool_props: *const CUmemPoolProps) =>
            self.create_pool(pool, pool_props);
        cuMemPoolDestroy(pool: CUmemoryPool) => {
            let simulation = self.simulation()?;
            simulation.objects().end_pool(simulation, handle(pool))
        };
        cuMemPoolTrimTo(pool: CUmemoryPool, min_bytes_to_keep: usize) => {
            let simulation = self.simulation()?;
            let mut objects = simulation.objects();
            objects.unsafe_call()?;
            objects.pools.get(handle(pool))?;
            objects.trim_pool(simulation, handle(pool), Some(min_bytes_to_keep as u64))
        };
        cuMemPoolGetAttribute(pool: CUmemoryPool, attr: c_uint, value: *mut c_void) =>
            self.pool_attribute(pool, attr, value);
        cuMemPoolSetAttribute(pool: CUmemoryPool, attr: c_uint, value: *mut c_void) =>
            self.set_pool_attribute(pool, attr, value);
        cuMemPoolExportToShareableHandle(handle_out: *mut c_void, pool: CUmemoryPool, handle_type: c_uint,
            flags: c_ulonglong) => self.export_pool(handle_out, pool, handle_type, flags);
        cuMemPoolImportFromShareableHandle(pool_out: *mut CUmemoryPool, handle: *mut c_void, handle_type: c_uint,
            flags: c_ulonglong) => self.import_pool(pool_out, handle, handle_type, flags);
        cuMemPoolExportPointer(share_data_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr) => {
            let simulation = self.simulation()?;
            if share_data_out.is_null() {
                return Err(status::INVALID_VALUE);
            }
            let ticket = simulation.objects().ticket(simulation, ptr, Purpose::PoolPointer)?;
            self.write(share_data_out.cast::<[u8; 64]>(), ticket)
        };
        cuMemPoolImportPointer(ptr_out: *mut CUdeviceptr, pool: CUmemoryPool,
            share_data: *mut CUmemPoolPtrExportData) => self.import_pointer(ptr_out, pool, share_data);
        cuMemPoolSetAccess(pool: CUmemoryPool, _map: *const CUmemAccessDesc, _count: usize) =>
            self.simulation()?.objects().pools.get(handle(pool)).map(|_| ());
        cuMemPoolGetAccess(flags: *mut CUmemAccess_flags, mem_pool: CUmemoryPool, _location: *mut CUmemLocation) => {
            self.simulation()?.objects().pools.get(handle(mem_pool))?;
            self.write(flags.cast::<u32>(), 3)
        };
    }
}
