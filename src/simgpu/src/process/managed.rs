//! Where managed memory is: nowhere yet, on its device, or on the host.
//!
//! A real driver moves pages. Here a whole allocation is in one place. Advice, prefetches, copies and fills move it.
//! `SIMGPU_MANAGED` tells whether new managed memory is on the device from the start. simgpu cannot see what kernels and the host
//! read and write, so that moves nothing.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::config::Managing;
use crate::model::managed::{HOST_LOCATION, Managed, Residence};
use crate::model::movement::{Movement, Side};
use crate::model::regions::{Origin, Region};
use crate::state::layout::MemoryKind;
use crate::status::{Outcome, statuses};

/// `CU_DEVICE_INVALID`: the number that means no location.
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
    /// Returns the managed allocation that contains an address: its start, its region, and its state.
    fn managed_around(&self, address: u64) -> Option<(u64, Region, Managed)> {
        let (base, region) = self.regions.around(address)?;
        (region.origin == Origin::Managed).then_some(())?;
        Some((base, region, *self.managed.get(&base)?))
    }

    /// Forgets that an allocation is managed. Returns true if its memory was on the device, and then the end of the region gives
    /// that memory back. Also returns true for an allocation that is not managed.
    pub(crate) fn end_managed(&mut self, simulation: &Simulation, base: u64, device: usize) -> bool {
        let Some(managed) = self.managed.remove(&base) else { return true };
        if managed.place == Residence::Host {
            simulation.change_host(device, |bytes| bytes.saturating_sub(managed.size));
        }
        managed.place == Residence::Device
    }

    /// Moves an allocation to the device or to the host. If the device has too little room, the allocation moves to the host.
    ///
    /// The new place is charged before the old one is given back. So for a moment both are charged.
    fn move_to(&mut self, simulation: &Simulation, base: u64, wanted: Residence) {
        let Some((_, region, managed)) = self.managed_around(base) else { return };
        let Some(device) = region.device.filter(|_| managed.place != wanted) else { return };
        let bytes = managed.bytes;
        let in_block = self.blocks.holds(base, &region);
        let full = wanted == Residence::Device
            && if in_block {
                self.blocks.move_to_device(simulation, base).is_none()
            } else {
                simulation.grow(device, MemoryKind::Managed, bytes).is_err()
            };
        let place = if full { Residence::Host } else { wanted };
        if place == managed.place {
            return;
        }
        match managed.place {
            Residence::Nowhere => {}
            Residence::Device if in_block => self.blocks.leave_device(simulation, base),
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

    /// Moves the managed memory on both sides of a movement to where the device reads or writes it.
    pub(crate) fn touch(&mut self, simulation: &Simulation, movement: &Movement) {
        let ends = match movement {
            Movement::Copy { to, from, .. } => [Some(to.side), Some(from.side)],
            Movement::Fill { to, .. } => [Some(Side::Device(*to)), None],
        };
        for side in ends.into_iter().flatten() {
            let Side::Device(address) = side else { continue };
            let Some((base, _, managed)) = self.managed_around(address) else { continue };
            // The device can reach memory that is on the host. So memory that prefers the host moves there, or stays there.
            match (managed.place, managed.prefers) {
                (_, Some(HOST_LOCATION)) => self.move_to(simulation, base, Residence::Host),
                (Residence::Nowhere | Residence::Host, _) => {
                    self.move_to(simulation, base, Residence::Device);
                }
                (Residence::Device, _) => {}
            }
        }
    }

    /// Implements `cuMemAdvise`.
    pub(crate) fn advise(&mut self, simulation: &Simulation, address: u64, what: u32, to: i32) -> Outcome {
        let (base, _, _) = self.managed_around(address).ok_or(status::INVALID_VALUE)?;
        if to != HOST_LOCATION {
            simulation.device(to)?;
        }
        // With this setting, a device takes all of an allocation and cannot share it with the host. So no advice is possible.
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
        // A preferred location alone moves nothing. The exception is memory that counts as on the device
        // although nothing has used it yet.
        let (prefers, unseen) = (known.prefers, simulation.config.managing == Managing::AtOnce);
        if unseen && prefers == Some(HOST_LOCATION) {
            self.move_to(simulation, base, Residence::Host);
        }
        Ok(())
    }

    /// Implements a prefetch of managed memory to a location.
    pub(crate) fn prefetch(&mut self, simulation: &Simulation, address: u64, to: i32) -> Outcome {
        if to != HOST_LOCATION {
            simulation.device(to)?;
        }
        let Some((base, _, _)) = self.managed_around(address) else { return Ok(()) };
        self.move_to(simulation, base, if to == HOST_LOCATION { Residence::Host } else { Residence::Device });
        if let Some(known) = self.managed.get_mut(&base) {
            known.last = Some(to);
        }
        Ok(())
    }

    /// Implements `cuMemRangeGetAttribute`.
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
