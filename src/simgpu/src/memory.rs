//! How does ordinary device memory come and go?

use gpuslice_driver::types::{Status, status};

use crate::arena::{ALIGNMENT, PAGE};
use crate::driver::Outcome;
use crate::local::Local;
use crate::managed::Managed;
use crate::regions::{HostBlock, Origin, Region};
use crate::simulation::Simulation;
use crate::state::Kind;

/// The driver's pitch: widths are rounded up to this.
pub(crate) const PITCH: u64 = 512;

impl Local {
    /// Allocates linear memory in the current context. What is charged is the size, rounded to the granule that
    /// the settings say.
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
        let granule = simulation.settings.linear_granule;
        let charged = size.checked_next_multiple_of(granule).ok_or(status::OUT_OF_MEMORY)?;
        let (kind, alignment) = match origin {
            Origin::Managed => (Kind::Managed, PAGE),
            _ => (Kind::Linear, ALIGNMENT),
        };
        let taken = if origin == Origin::Managed { simulation.at_once(charged)? } else { charged };
        simulation.allocate(device, kind, taken)?;
        let region =
            Region { size, backing: 0, device: Some(device), context, origin, charged: taken, number: 0 };
        let placed = place(simulation, region, alignment);
        let Some((address, region)) = placed else {
            simulation.release(device, kind, taken);
            return Err(status::OUT_OF_MEMORY);
        };
        self.regions.add(address, region);
        if origin == Origin::Managed {
            self.managed.insert(address, Managed::new(charged, taken > 0));
        }
        Ok(address)
    }

    /// Frees what [`Local::allocate`] made.
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

    /// Ends a region that is charged by itself, whatever made it.
    pub(crate) fn end_region(&mut self, simulation: &Simulation, address: u64) {
        if let Some(region) = self.regions.remove(address) {
            let lent = self.borrowed.take_loan(address);
            if let Some(device) = region.device {
                self.end_managed(simulation, address, device);
            }
            end(simulation, address, &region, lent);
        }
    }

    /// Frees all memory that lives in a context.
    pub(crate) fn end_memory_of(&mut self, simulation: &Simulation, context: u64) {
        for address in self.regions.matching(|region| region.context == context && region.kind().is_some()) {
            self.end_region(simulation, address);
        }
        for address in self.regions.host_of(context) {
            self.free_host(address);
        }
    }

    /// Ends memory of the host that the program or the driver made.
    pub(crate) fn free_host(&mut self, address: u64) -> Option<HostBlock> {
        let block = self.regions.remove_host(address)?;
        if !block.registered {
            unmap_host(address, block.size);
        }
        Some(block)
    }
}

/// Finds an address and bytes for a region.
fn place(simulation: &Simulation, mut region: Region, alignment: u64) -> Option<(u64, Region)> {
    let arena = &simulation.arena;
    let spread = match region.origin {
        Origin::Managed => region.size.checked_next_multiple_of(PAGE)?,
        _ => region.size,
    };
    let backing = arena.take(spread, alignment)?;
    region.backing = backing;
    let address = match region.origin {
        Origin::Low => arena.take_low(region.size),
        Origin::Managed => arena.expose(backing, spread).then_some(backing),
        _ => Some(backing),
    };
    if address.is_none() {
        arena.give(backing, spread);
    }
    Some((address?, region))
}

/// Gives back what a region had: addresses, bytes, and what was charged.
///
/// What others use as well lives on with them: the number of that loan is `lent`.
fn end(simulation: &Simulation, address: u64, region: &Region, lent: Option<u64>) {
    let arena = &simulation.arena;
    match region.origin {
        Origin::Low => {
            arena.give_low(address, region.size);
            arena.give(region.backing, region.size);
        }
        Origin::Managed => {
            let spread = region.size.next_multiple_of(PAGE);
            arena.hide(address, spread);
            arena.give(region.backing, spread);
        }
        _ => arena.give(region.backing, region.size),
    }
    match (lent, region.kind(), region.device) {
        (Some(number), _, _) => simulation.shared.lock().leave(simulation.slot, number),
        (None, Some(kind), Some(device)) => simulation.release(device, kind, region.charged),
        _ => {}
    }
}

/// Memory of the host, as `cuMemHostAlloc` makes it: whole pages that cost nothing until they are used.
pub(crate) fn map_host(size: u64) -> Result<u64, Status> {
    let length = usize::try_from(size).ok().filter(|size| *size > 0).ok_or(status::INVALID_VALUE)?;
    let (rights, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping at a place that the kernel chooses.
    let base = unsafe { libc::mmap(core::ptr::null_mut(), length, rights, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(status::OUT_OF_MEMORY);
    }
    Ok(base.expose_provenance() as u64)
}

fn unmap_host(address: u64, size: u64) {
    let length = usize::try_from(size).unwrap_or(0);
    let base = core::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0));
    // SAFETY: the mapping that `map_host` made; its owner has given it up.
    unsafe { libc::munmap(base, length) };
}
