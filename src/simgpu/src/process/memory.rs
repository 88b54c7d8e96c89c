//! Allocates and frees ordinary device memory.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::hardware::allocation_sizes::{ALIGNMENT, DEVICE_BLOCK_BYTES, PAGE};
use crate::model::blocks;
use crate::model::managed::Managed;
use crate::model::regions::{HostBlock, Origin, Region};
use crate::state::layout::MemoryKind;
use crate::status::Outcome;

/// The row pitch of pitched memory is a multiple of this number of bytes.
pub(crate) const PITCH: u64 = 512;

impl ProcessObjects {
    /// Allocates memory in the current context, and returns its address. `origin` tells which kind. The settings
    /// determine how much is charged.
    pub(crate) fn allocate(
        &mut self,
        simulation: &Simulation,
        size: u64,
        origin: Origin,
    ) -> Result<u64, Status> {
        let (context, device) = self.current().map(|(handle, context)| (handle, context.device))?;
        if size == 0 {
            return Err(status::INVALID_VALUE);
        }
        let slot = if simulation.settings.has_blocks() { blocks::slot_of(size, origin) } else { 0 };
        if slot > 0 {
            return self.allocate_small(simulation, (context, device), (size, slot), origin);
        }
        let charged = simulation.settings.taken(size).ok_or(status::OUT_OF_MEMORY)?;
        let kind = if origin == Origin::Managed { MemoryKind::Managed } else { MemoryKind::Linear };
        let taken = if origin == Origin::Managed { simulation.at_once(charged)? } else { charged };
        simulation.allocate(device, kind, taken)?;
        let region =
            Region { size, backing: 0, device: Some(device), context, origin, charged: taken, number: 0 };
        let placed = place(simulation, region);
        let Some((address, region)) = placed else {
            simulation.release(device, kind, taken);
            return Err(status::OUT_OF_MEMORY);
        };
        self.regions.add(address, region);
        if origin == Origin::Managed {
            self.managed.insert(address, Managed::new(size, charged, taken > 0));
        }
        Ok(address)
    }

    /// Allocates memory in a slot of a shared block.
    fn allocate_small(
        &mut self,
        simulation: &Simulation,
        (context, device): (u64, usize),
        (size, slot): (u64, u64),
        origin: Origin,
    ) -> Result<u64, Status> {
        let is_managed = origin == Origin::Managed;
        let on_device = !is_managed || simulation.at_once(slot)? > 0;
        let placed = self.blocks.take_slot(simulation, (context, device), (origin, slot), on_device)?;
        let kind = if is_managed { MemoryKind::Managed } else { MemoryKind::Linear };
        if is_managed && !simulation.arena.expose(placed.backing, slot) {
            self.blocks.give_slot(simulation, placed.address, on_device);
            return Err(status::OUT_OF_MEMORY);
        }
        if let Err(code) = simulation.allocate(device, kind, 0) {
            self.blocks.give_slot(simulation, placed.address, on_device);
            return Err(code);
        }
        let (address, backing) = (placed.address, placed.backing);
        let region = Region { size, backing, device: Some(device), context, origin, charged: 0, number: 0 };
        self.regions.add(address, region);
        if is_managed {
            self.managed.insert(address, Managed::new(size, slot, on_device));
        }
        Ok(address)
    }

    /// Frees memory that [`ProcessObjects::allocate`] allocated.
    pub(crate) fn free(&mut self, simulation: &Simulation, address: u64) -> Outcome {
        let Some(region) = self.regions.at(address).copied() else {
            return Err(status::INVALID_VALUE);
        };
        match region.origin {
            Origin::Linear | Origin::Low | Origin::Managed => {
                self.end_region(simulation, address);
                Ok(())
            }
            _ => Err(status::INVALID_VALUE),
        }
    }

    /// Frees a region when its stream reaches the free. By then the context may have ended, and another region may have the
    /// address. So the number of the region must be the right one.
    pub(crate) fn free_region(&mut self, simulation: &Simulation, address: u64, number: u64) {
        if self.regions.at(address).is_some_and(|region| region.number == number) {
            self.end_region(simulation, address);
        }
    }

    /// Ends a region that has a charge of its own, whatever its origin.
    pub(crate) fn end_region(&mut self, simulation: &Simulation, address: u64) {
        if let Some(region) = self.regions.remove(address) {
            let lent = self.borrowed.take_loan(address);
            let was_on_device =
                region.device.is_none_or(|device| self.end_managed(simulation, address, device));
            if self.blocks.holds(address, &region) {
                if region.origin == Origin::Managed {
                    simulation.arena.hide(address, blocks::slot_of(region.size, region.origin));
                }
                self.blocks.give_slot(simulation, address, was_on_device);
            } else {
                give(simulation, address, &region);
            }
            end(simulation, &region, lent);
        }
    }

    /// Frees all memory that belongs to a context.
    pub(crate) fn end_memory_of(&mut self, simulation: &Simulation, context: u64) {
        for address in self.regions.matching(|region| region.context == context && region.kind().is_some()) {
            self.end_region(simulation, address);
        }
        for address in self.regions.host_of(context) {
            self.free_host(address);
        }
    }

    /// Frees host memory that the driver made, or unregisters memory of the program.
    pub(crate) fn free_host(&mut self, address: u64) -> Option<HostBlock> {
        let block = self.regions.remove_host(address)?;
        if !block.registered {
            unmap_host(address, block.size);
        }
        Some(block)
    }
}

/// Returns how many bytes of the arena a region needs, and their alignment.
fn spread(simulation: &Simulation, region: &Region) -> Option<(u64, u64)> {
    match region.origin {
        // This region has whole blocks for itself.
        Origin::Linear | Origin::Low | Origin::Managed if simulation.settings.has_blocks() => {
            Some((simulation.settings.taken(region.size)?, DEVICE_BLOCK_BYTES))
        }
        Origin::Managed => Some((region.size.checked_next_multiple_of(PAGE)?, PAGE)),
        _ => Some((region.size, ALIGNMENT)),
    }
}

/// Takes an address, and bytes of the arena, for a region.
fn place(simulation: &Simulation, mut region: Region) -> Option<(u64, Region)> {
    let arena = &simulation.arena;
    let (bytes, alignment) = spread(simulation, &region)?;
    let backing = arena.take(bytes, alignment)?;
    region.backing = backing;
    let address = match region.origin {
        Origin::Low => arena.take_low(bytes, alignment),
        Origin::Managed => arena.expose(backing, bytes).then_some(backing),
        _ => Some(backing),
    };
    if address.is_none() {
        arena.give(backing, bytes);
    }
    Some((address?, region))
}

/// Gives back the address and the bytes of a region.
fn give(simulation: &Simulation, address: u64, region: &Region) {
    let arena = &simulation.arena;
    let Some((bytes, _)) = spread(simulation, region) else { return };
    match region.origin {
        Origin::Low => arena.give_low(address, bytes),
        Origin::Managed => arena.hide(address, bytes),
        _ => {}
    }
    arena.give(region.backing, bytes);
}

/// Refunds what a region was charged.
///
/// `lent` is the number of the region's export, if there is one. If another process uses the memory, that process
/// is charged for it from now on.
fn end(simulation: &Simulation, region: &Region, lent: Option<u64>) {
    match (lent, region.kind(), region.device) {
        (Some(number), _, _) => simulation.shared.lock().leave(simulation.slot, number),
        (None, Some(kind), Some(device)) => simulation.release(device, kind, region.charged),
        _ => {}
    }
}

/// Makes host memory that the device can use, as `cuMemHostAlloc` does. Pages that nobody touches cost nothing.
pub(crate) fn map_host(size: u64) -> Result<u64, Status> {
    let length = usize::try_from(size).ok().filter(|size| *size > 0).ok_or(status::INVALID_VALUE)?;
    let (rights, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: without `MAP_FIXED` the kernel chooses a free address, so the mapping replaces no other.
    let base = unsafe { libc::mmap(core::ptr::null_mut(), length, rights, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(status::OUT_OF_MEMORY);
    }
    Ok(base.expose_provenance() as u64)
}

fn unmap_host(address: u64, size: u64) {
    let length = usize::try_from(size).unwrap_or(0);
    let base = core::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0));
    // SAFETY: `munmap` needs a mapping without users: `map_host` made it, and its owner has given it up.
    unsafe { libc::munmap(base, length) };
}
