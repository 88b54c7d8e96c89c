//! Charges of linear memory. A large allocation has a charge of its own. Small allocations share the charge of a block.

use super::addresses::{Charge, Owner};
use super::small_blocks::apply;
use super::state::Memory;
use crate::slice::handle::Reservation;
use core::mem::ManuallyDrop;
use gpuslice_policy::sizes::blocks::{BLOCK, BlockFamily, Kind, Payment, taken};
use gpuslice_region::Device;

/// Allocation that is about to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedAllocation {
    /// Context of the allocation.
    pub(crate) context: usize,
    /// Kind of the address that the program asks for.
    pub(crate) kind: Kind,
    /// Bytes that the program asks for.
    pub(crate) bytes: u64,
}

/// Reservation for an allocation. A drop gives it back.
#[derive(Debug)]
pub(crate) struct GrantedAllocation {
    memory: &'static Memory,
    device: Device,
    wanted: WantedAllocation,
    /// `None` once the caller has kept the reservation.
    paid: Option<Paid>,
}

#[derive(Debug)]
enum Paid {
    /// A reservation for this allocation alone.
    Whole(Reservation),
    /// A slot in a block. If the payment needs a new block, the bytes of that block are reserved.
    Slot(Payment),
}

impl GrantedAllocation {
    /// Reserves the bytes that an allocation takes. `fit` reserves a number of bytes of the device, or returns `None`.
    #[inline]
    pub(crate) fn new(
        memory: &'static Memory,
        device: Device,
        wanted: WantedAllocation,
        fit: impl FnOnce(u64) -> Option<Reservation>,
    ) -> Option<Self> {
        let paid = match BlockFamily::of(wanted.context, wanted.kind, wanted.bytes) {
            None => Paid::Whole(fit(taken(wanted.bytes))?),
            Some(family) => Self::slot(memory, device, family, fit)?,
        };
        Some(Self { memory, device, wanted, paid: Some(paid) })
    }

    /// Gets a slot for a small allocation of a family. If the blocks of the family may have no free slot, it reserves a block.
    /// If the quota has no room for a block, another call may have paid for a slot meanwhile: then the allocation uses that slot.
    /// No lock is held while `fit` runs, because `fit` may wait for memory.
    fn slot(
        memory: &'static Memory,
        device: Device,
        family: BlockFamily,
        fit: impl FnOnce(u64) -> Option<Reservation>,
    ) -> Option<Paid> {
        let mut way = memory.small.0.lock().begin(family);
        if way.needs_block() {
            if let Some(reserved) = fit(BLOCK) {
                memory.small.0.lock().reserved(&way);
                // From here on the table of blocks accounts for the reserved bytes.
                reserved.keep();
                return Some(Paid::Slot(way));
            }
            let refused = memory.small.0.lock().refused(way);
            way = refused.map_err(|change| apply(memory, device, change)).ok()?;
        }
        if memory.may_grant(device) {
            return Some(Paid::Slot(way));
        }
        let change = memory.small.0.lock().failed(way);
        apply(memory, device, change);
        None
    }

    /// Returns the device, and the bytes that were reserved on it.
    pub(crate) fn granted(&self) -> (Device, u64) {
        let bytes = match &self.paid {
            Some(Paid::Whole(reserved)) => reserved.bytes(),
            Some(Paid::Slot(way)) if way.needs_block() => BLOCK,
            _ => 0,
        };
        (self.device, bytes)
    }

    /// Replaces the reservation if the driver made an allocation of another size, which is rare. Returns false if the quota has
    /// no room for that size.
    #[must_use]
    pub(crate) fn settle(&mut self, bytes: u64) -> bool {
        if taken(bytes) == taken(self.wanted.bytes) {
            return true;
        }
        let (memory, device) = (self.memory, self.device);
        let Some(mut other) = Self::new(memory, device, WantedAllocation { bytes, ..self.wanted }, |bytes| {
            memory.reserve(device, bytes)
        }) else {
            return false;
        };
        core::mem::swap(self, &mut other);
        true
    }

    /// Returns the reservation without a drop of `self`. The caller has to keep the reservation or give it back.
    fn into_paid(self) -> Option<Paid> {
        let mut kept = ManuallyDrop::new(self);
        kept.paid.take()
    }

    /// Keeps the reservation as the charge of `address`. Returns false if the driver took a block that the library did not
    /// expect, and the quota has no room for it.
    #[must_use]
    #[inline]
    pub(crate) fn record(self, address: u64) -> bool {
        let (memory, device) = (self.memory, self.device);
        let WantedAllocation { context, kind, .. } = self.wanted;
        let way = match self.into_paid() {
            Some(Paid::Whole(reserved)) => {
                let is_counted =
                    kind == Kind::Managed && memory.managed.count(memory, device, reserved.bytes());
                let owner = if is_counted { Owner::Managed(context) } else { Owner::Context(context) };
                memory.addresses.record(reserved, address, owner);
                return true;
            }
            Some(Paid::Slot(way)) => way,
            None => return true,
        };
        if kind == Kind::Managed {
            memory.managed.note_uncounted();
        }
        let change = memory.small.0.lock().finish(way, address);
        apply(memory, device, change);
        if change.more && !pay_for_more(memory, device, address) {
            return false;
        }
        let charge = Charge { device, bytes: BLOCK, owner: Owner::Block(context) };
        memory.addresses.insert(address, charge);
        true
    }
}

/// Reserves a block that the library did not expect. If the quota has no room, forgets the address and returns false.
#[cold]
fn pay_for_more(memory: &'static Memory, device: Device, address: u64) -> bool {
    if let Some(reserved) = memory.reserve(device, BLOCK) {
        reserved.keep();
        return true;
    }
    // The table of blocks counts this block as charged, although the region has no charge for it. If the end of the address frees
    // the block, there is one block less to refund. If another call has got a slot of it meanwhile, the block is charged now.
    let mut change = memory.small.0.lock().ended(address);
    match change.back.checked_sub(1) {
        Some(back) => change.back = back,
        None => change.charge = change.charge.saturating_add(1),
    }
    apply(memory, device, change);
    false
}

impl Drop for GrantedAllocation {
    fn drop(&mut self) {
        if let Some(Paid::Slot(way)) = self.paid.take() {
            let change = self.memory.small.0.lock().failed(way);
            apply(self.memory, self.device, change);
        }
    }
}

impl Charge {
    /// Gives back the charge of an address that has ended with its context.
    pub(crate) fn end(self, memory: &Memory, address: u64) {
        match self.owner {
            Owner::Block(_) => memory.small.ended(memory, self.device, address),
            Owner::Managed(_) | Owner::Context(_) | Owner::Pool(_) => self.refund(memory),
        }
    }

    /// Gives back the charge of an address that the driver has freed.
    pub(crate) fn end_of_freed(self, memory: &Memory, address: u64) {
        match self.owner {
            Owner::Block(_) => memory.small.end_free(memory, self.device, address, true),
            Owner::Managed(_) | Owner::Context(_) | Owner::Pool(_) => self.refund(memory),
        }
    }

    /// Gives back a charge that no other allocation shares.
    fn refund(&self, memory: &Memory) {
        if matches!(self.owner, Owner::Managed(_)) {
            memory.managed.subtract(self.device, self.bytes);
        }
        memory.refund(self.device, self.bytes);
    }
}
