//! Where is managed memory: nowhere yet, on its device, or with the host?
//!
//! A real driver moves pages. Here an allocation is in one place as a whole, and moves by advice, prefetches, copies and
//! fills. Whether it is on the device from the start, `SIMGPU_MANAGED` says. Kernels and the host move nothing: what they
//! touch is not known.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::config::Managing;
use crate::model::managed::{HOST, Managed, Residence};
use crate::model::movement::{Movement, Side};
use crate::model::regions::{Origin, Region};
use crate::state::layout::MemoryKind;
use crate::status::{Outcome, statuses};

/// `CU_DEVICE_INVALID`: no place.
const NO_PLACE: i32 = -2;

/// `CUmem_advise`.
mod advice {
    pub(super) const SET_READ_MOSTLY: u32 = 1;
    pub(super) const UNSET_READ_MOSTLY: u32 = 2;
    pub(super) const SET_PREFERRED: u32 = 3;
    pub(super) const UNSET_PREFERRED: u32 = 4;
    pub(super) const SET_ACCESSED_BY: u32 = 5;
    pub(super) const UNSET_ACCESSED_BY: u32 = 6;
}

/// `CUmem_range_attribute`.
mod attribute {
    pub(super) const READ_MOSTLY: u32 = 1;
    pub(super) const PREFERRED: u32 = 2;
    pub(super) const LAST_PREFETCH: u32 = 4;
}

impl ProcessObjects {
    /// The managed allocation around an address, with where it begins.
    fn managed_around(&self, address: u64) -> Option<(u64, Region, Managed)> {
        let (base, region) = self.regions.around(address)?;
        (region.origin == Origin::Managed).then_some(())?;
        Some((base, region, *self.managed.get(&base)?))
    }

    /// Takes an allocation out of its place as it ends. What it held of the device is its region's to give back. Says
    /// whether it was on the device, as what is not managed is.
    pub(crate) fn end_managed(&mut self, simulation: &Simulation, base: u64, device: usize) -> bool {
        let Some(managed) = self.managed.remove(&base) else { return true };
        if managed.place == Residence::Host {
            simulation.change_host(device, |bytes| bytes.saturating_sub(managed.size));
        }
        managed.place == Residence::Device
    }

    /// Moves an allocation; where the device is full it goes to the host.
    fn settle(&mut self, simulation: &Simulation, base: u64, wanted: Residence) {
        let Some((_, region, managed)) = self.managed_around(base) else { return };
        let Some(device) = region.device.filter(|_| managed.place != wanted) else { return };
        let bytes = managed.bytes;
        let in_block = self.blocks.holds(base, &region);
        let full = wanted == Residence::Device
            && if in_block {
                self.blocks.come(simulation, base).is_none()
            } else {
                simulation.grow(device, MemoryKind::Managed, bytes).is_err()
            };
        let place = if full { Residence::Host } else { wanted };
        if place == managed.place {
            return;
        }
        match managed.place {
            Residence::Nowhere => {}
            Residence::Device if in_block => self.blocks.go(simulation, base),
            Residence::Device => simulation.shrink(device, MemoryKind::Managed, bytes),
            Residence::Host => simulation.change_host(device, |held| held.saturating_sub(managed.size)),
        }
        if place == Residence::Host {
            simulation.change_host(device, |held| held.saturating_add(managed.size));
        }
        let charged = if place == Residence::Device && !in_block { bytes } else { 0 };
        self.regions.set_charged(base, charged);
        if let Some(known) = self.managed.get_mut(&base) {
            known.place = place;
        }
    }

    /// The device reads or writes what both ends of a movement name: what is nowhere yet comes to be.
    pub(crate) fn touch(&mut self, simulation: &Simulation, movement: &Movement) {
        let ends = match movement {
            Movement::Copy { to, from, .. } => [Some(to.side), Some(from.side)],
            Movement::Fill { to, .. } => [Some(Side::Device(*to)), None],
        };
        for side in ends.into_iter().flatten() {
            let Side::Device(address) = side else { continue };
            let Some((base, _, managed)) = self.managed_around(address) else { continue };
            // Memory that prefers the host is reached there, and so is what is there already.
            match (managed.place, managed.prefers) {
                (_, Some(HOST)) => self.settle(simulation, base, Residence::Host),
                (Residence::Nowhere | Residence::Host, _) => self.settle(simulation, base, Residence::Device),
                (Residence::Device, _) => {}
            }
        }
    }

    /// `cuMemAdvise`.
    pub(crate) fn advise(&mut self, simulation: &Simulation, address: u64, what: u32, to: i32) -> Outcome {
        let (base, _, _) = self.managed_around(address).ok_or(status::INVALID_VALUE)?;
        if to != HOST {
            simulation.device(to)?;
        }
        // Devices that cannot share an allocation with the host take it as a whole: no advice is of use.
        if simulation.config.managing == Managing::Exclusive {
            return Err(statuses::INVALID_DEVICE);
        }
        let Some(known) = self.managed.get_mut(&base) else { return Ok(()) };
        match what {
            advice::SET_READ_MOSTLY => known.read_mostly = true,
            advice::UNSET_READ_MOSTLY => known.read_mostly = false,
            advice::SET_PREFERRED => known.prefers = Some(to),
            advice::UNSET_PREFERRED => known.prefers = None,
            advice::SET_ACCESSED_BY | advice::UNSET_ACCESSED_BY => {}
            _ => return Err(status::INVALID_VALUE),
        }
        // What is preferred moves nothing by itself, but for bytes that were taken for those of the device unseen.
        let (prefers, unseen) = (known.prefers, simulation.config.managing == Managing::AtOnce);
        if unseen && prefers == Some(HOST) {
            self.settle(simulation, base, Residence::Host);
        }
        Ok(())
    }

    /// A prefetch of memory that is there.
    pub(crate) fn prefetch(&mut self, simulation: &Simulation, address: u64, to: i32) -> Outcome {
        if to != HOST {
            simulation.device(to)?;
        }
        let Some((base, _, _)) = self.managed_around(address) else { return Ok(()) };
        self.settle(simulation, base, if to == HOST { Residence::Host } else { Residence::Device });
        if let Some(known) = self.managed.get_mut(&base) {
            known.last = Some(to);
        }
        Ok(())
    }

    /// `cuMemRangeGetAttribute`.
    pub(crate) fn range_attribute(&self, address: u64, what: u32) -> Result<i32, Status> {
        let (_, _, managed) = self.managed_around(address).ok_or(status::INVALID_VALUE)?;
        match what {
            attribute::READ_MOSTLY => Ok(i32::from(managed.read_mostly)),
            attribute::PREFERRED => Ok(managed.prefers.unwrap_or(NO_PLACE)),
            attribute::LAST_PREFETCH => Ok(managed.last.unwrap_or(NO_PLACE)),
            _ => Err(status::NOT_SUPPORTED),
        }
    }
}
