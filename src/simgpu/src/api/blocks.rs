//! Allocates, frees and describes ordinary memory.

use gpuslice_driver::types::*;

use crate::call::DriverCall;
use crate::model::managed::HOST_LOCATION;
use crate::model::regions::{HostBlock, Origin};
use crate::os::clock;
use crate::process::memory::{PITCH, map_host};
use crate::status::{Outcome, statuses};

/// Returns the number of a location's device, or the number that stands for the host.
pub(super) fn ordinal_of(place: CUmemLocation) -> Result<i32, Status> {
    match place.kind {
        1 => Ok(place.id),
        2..=4 => Ok(HOST_LOCATION),
        _ => Err(status::INVALID_VALUE),
    }
}

impl DriverCall {
    pub(super) fn allocate(&self, size: u64, origin: Origin) -> Result<u64, Status> {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        objects.unsafe_call()?;
        objects.allocate(simulation, size, origin)
    }

    /// Frees memory of any allocation function, once all queued work has ended.
    pub(super) fn free(&self, address: u64) -> Outcome {
        if address == 0 {
            return Ok(());
        }
        let simulation = self.simulation()?;
        let context = {
            let mut objects = simulation.objects();
            objects.current()?;
            objects.unsafe_call()?;
            objects.regions.at(address).ok_or(status::INVALID_VALUE)?.context
        };
        simulation.wait_for_context(context)?;
        let mut objects = simulation.objects();
        match objects.regions.at(address).ok_or(status::INVALID_VALUE)?.origin {
            Origin::Pool(_) => objects.free_block_now(simulation, address),
            Origin::Graph => objects.free_graph_block(address),
            Origin::ImportedBlock | Origin::External => objects.close_borrowed(simulation, address),
            _ => objects.free(simulation, address),
        }
    }

    pub(super) fn pitch(width: u64, height: u64, element: c_uint) -> Result<(u64, u64), Status> {
        if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
            return Err(status::INVALID_VALUE);
        }
        let pitch = width.checked_next_multiple_of(PITCH).ok_or(status::INVALID_VALUE)?;
        Ok((pitch, pitch.checked_mul(height).ok_or(status::OUT_OF_MEMORY)?))
    }

    pub(super) fn total(&self, device: CUdevice) -> Result<u64, Status> {
        let simulation = self.simulation()?;
        Ok(simulation.settings.capacity(simulation.device(device)?))
    }

    pub(super) fn info(&self) -> Result<(u64, u64), Status> {
        let simulation = self.simulation()?;
        let device = simulation.objects().current()?.1.device;
        let free = simulation.truth().reported_free(device, clock::now());
        Ok((free, simulation.settings.capacity(device)))
    }

    pub(super) fn host_alloc(&self, to: *mut *mut c_void, size: usize, flags: u32) -> Outcome {
        if to.is_null() || flags & !7 != 0 {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let context = objects.current()?.0;
        objects.unsafe_call()?;
        let address = map_host(size as u64)?;
        let block = HostBlock { size: size as u64, flags: flags | 2, registered: false, context };
        objects.regions.add_host(address, block);
        self.write(to, core::ptr::with_exposed_provenance_mut(address as usize))
    }

    pub(super) fn host_register(&self, address: *mut c_void, size: usize, flags: u32) -> Outcome {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let context = objects.current()?.0;
        if address.is_null() || size == 0 || flags & !15 != 0 {
            return Err(status::INVALID_VALUE);
        }
        if objects.regions.host_around(address.addr() as u64).is_some() {
            return Err(statuses::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let block = HostBlock { size: size as u64, flags: flags | 2, registered: true, context };
        objects.regions.add_host(address.expose_provenance() as u64, block);
        Ok(())
    }

    pub(super) fn host_block(&self, address: *mut c_void) -> Result<(u64, HostBlock), Status> {
        let objects = self.simulation()?.objects();
        objects.current()?;
        objects.regions.host_around(address.addr() as u64).ok_or(status::INVALID_VALUE)
    }

    pub(super) fn range(&self, address: u64) -> Result<(u64, u64), Status> {
        let objects = self.simulation()?.objects();
        objects.current()?;
        if let Some((base, region)) = objects.regions.around(address) {
            return Ok((base, region.size));
        }
        let host = objects.regions.host_around(address).map(|(base, block)| (base, block.size));
        host.ok_or(statuses::NOT_FOUND)
    }

    pub(super) fn advise(&self, address: CUdeviceptr, count: usize, advice: u32, to: i32) -> Outcome {
        self.hint(address, count)?;
        let simulation = self.simulation()?;
        simulation.objects().advise(simulation, address, advice, to)
    }

    pub(super) fn prefetch(&self, address: CUdeviceptr, count: usize, to: i32) -> Outcome {
        self.hint(address, count)?;
        let simulation = self.simulation()?;
        simulation.objects().prefetch(simulation, address, to)
    }

    /// Prefetches ranges. The location of a range is the last one whose index is not greater than the range's index.
    pub(super) fn prefetch_all(
        &self,
        (addresses, sizes, count): (*mut CUdeviceptr, *mut usize, usize),
        (places, starts, number): (*mut CUmemLocation, *mut usize, usize),
    ) -> Outcome {
        if number == 0 || number > count || self.read_at(starts, 0)? != 0 {
            return Err(status::INVALID_VALUE);
        }
        let mut place = 0;
        for index in 0..count {
            while place + 1 < number && self.read_at(starts, place + 1)? <= index {
                place += 1;
            }
            let to = ordinal_of(self.read_at(places, place)?)?;
            self.prefetch(self.read_at(addresses, index)?, self.read_at(sizes, index)?, to)?;
        }
        Ok(())
    }

    /// Checks a hint about managed memory. Hints change nothing here, but the memory must exist.
    pub(super) fn hint(&self, address: CUdeviceptr, count: usize) -> Outcome {
        let objects = self.simulation()?.objects();
        objects.current()?;
        let there = objects.regions.parts(address, count as u64).is_some();
        if count > 0 && there { Ok(()) } else { Err(status::INVALID_VALUE) }
    }

    pub(super) fn hints(&self, dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize) -> Outcome {
        for index in 0..count {
            self.hint(self.read_at(dptrs, index)?, self.read_at(sizes, index)?)?;
        }
        Ok(())
    }
}
