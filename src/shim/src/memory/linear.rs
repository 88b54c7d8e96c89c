//! How is ordinary memory paid for: by itself, or by a block that it shares with others?

use super::addresses::{Charge, Owner};
use super::small_blocks::apply;
use super::state::Memory;
use crate::slice::handle::Reservation;
use core::mem::ManuallyDrop;
use gpuslice_policy::sizes::blocks::{BLOCK, Family, Kind, Way, taken};
use gpuslice_region::Device;

/// An allocation that is about to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The context that it lives in.
    pub(crate) context: usize,
    /// What sort of address it has.
    pub(crate) kind: Kind,
    /// Its bytes.
    pub(crate) bytes: u64,
}

/// What was reserved for an allocation. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Grant {
    slice: &'static Memory,
    device: Device,
    wanted: Wanted,
    /// None once it is kept.
    paid: Option<Paid>,
}

#[derive(Debug)]
enum Paid {
    /// By itself.
    Whole(Reservation),
    /// By a block, which was reserved if the way needs one.
    Slot(Way),
}

impl Grant {
    /// Reserves what an allocation takes; `fit` reserves bytes of the device.
    #[inline]
    pub(crate) fn new(
        slice: &'static Memory,
        device: Device,
        wanted: Wanted,
        fit: impl FnOnce(u64) -> Option<Reservation>,
    ) -> Option<Self> {
        let paid = match Family::of(wanted.context, wanted.kind, wanted.bytes) {
            None => Paid::Whole(fit(taken(wanted.bytes))?),
            Some(family) => Self::slot(slice, device, family, fit)?,
        };
        Some(Self { slice, device, wanted, paid: Some(paid) })
    }

    fn slot(
        slice: &'static Memory,
        device: Device,
        family: Family,
        fit: impl FnOnce(u64) -> Option<Reservation>,
    ) -> Option<Paid> {
        let way = slice.small.0.lock().begin(family);
        if !way.needs_block() {
            if slice.may_grant(device) {
                return Some(Paid::Slot(way));
            }
            let change = slice.small.0.lock().failed(way);
            apply(slice, device, change);
            return None;
        }
        let Some(reserved) = fit(BLOCK) else {
            let change = slice.small.0.lock().refused(way);
            apply(slice, device, change);
            return None;
        };
        slice.small.0.lock().reserved(&way);
        // The blocks have it from here on.
        reserved.keep();
        Some(Paid::Slot(way))
    }

    /// The device it is of, and how many bytes of it were reserved.
    pub(crate) fn granted(&self) -> (Device, u64) {
        let bytes = match &self.paid {
            Some(Paid::Whole(reserved)) => reserved.bytes(),
            Some(Paid::Slot(way)) if way.needs_block() => BLOCK,
            _ => 0,
        };
        (self.device, bytes)
    }

    /// Brings it to the size that the driver really made, which is seldom another; false if that does not fit.
    #[must_use]
    pub(crate) fn settle(&mut self, bytes: u64) -> bool {
        if taken(bytes) == taken(self.wanted.bytes) {
            return true;
        }
        let (slice, device) = (self.slice, self.device);
        let Some(mut other) =
            Self::new(slice, device, Wanted { bytes, ..self.wanted }, |bytes| slice.reserve(device, bytes))
        else {
            return false;
        };
        core::mem::swap(self, &mut other);
        true
    }

    /// What was reserved, which is the caller's to keep or to give back.
    fn into_paid(self) -> Option<Paid> {
        let mut kept = ManuallyDrop::new(self);
        kept.paid.take()
    }

    /// Keeps what was reserved for an address. False: the driver took more than anybody expected and there is no room for it.
    #[must_use]
    #[inline]
    pub(crate) fn record(self, address: u64) -> bool {
        let (slice, device, context) = (self.slice, self.device, self.wanted.context);
        let way = match self.into_paid() {
            Some(Paid::Whole(reserved)) => {
                slice.addresses.record(reserved, address, context);
                return true;
            }
            Some(Paid::Slot(way)) => way,
            None => return true,
        };
        let change = slice.small.0.lock().landed(way, address);
        apply(slice, device, change);
        if change.more && !pay_for_more(slice, device, address) {
            return false;
        }
        let charge = Charge { device, bytes: BLOCK, owner: Owner::Block(context) };
        slice.addresses.insert(address, charge);
        true
    }
}

/// Reserves a block that nobody expected. Where there is no room the address is forgotten.
#[cold]
fn pay_for_more(slice: &'static Memory, device: Device, address: u64) -> bool {
    if let Some(reserved) = slice.reserve(device, BLOCK) {
        reserved.keep();
        return true;
    }
    // The block counts as charged there, and is only if another call has got a slot of it meanwhile.
    let mut change = slice.small.0.lock().ended(address);
    match change.back.checked_sub(1) {
        Some(back) => change.back = back,
        None => change.charge = change.charge.saturating_add(1),
    }
    apply(slice, device, change);
    false
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(Paid::Slot(way)) = self.paid.take() {
            let change = self.slice.small.0.lock().failed(way);
            apply(self.slice, self.device, change);
        }
    }
}

impl Charge {
    /// What was charged for an address that has ended goes back.
    pub(crate) fn end(self, slice: &Memory, address: u64) {
        match self.owner {
            Owner::Block(_) => slice.small.ended(slice, self.device, address),
            Owner::Context(_) | Owner::Pool(_) => slice.refund(self.device, self.bytes),
        }
    }
}
