//! Frees of memory of no pool that no stream has reached yet.

use super::addresses::Charge;
use super::memory_call::MemoryCall;
use gpuslice_region::Device;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Frees that no stream has reached yet.
#[derive(Debug, Default)]
pub(crate) struct StreamFrees(Mutex<PendingFrees>);

#[derive(Debug, Default)]
struct PendingFrees {
    begun: usize,
    /// By number.
    frees: BTreeMap<usize, StreamFree>,
}

/// A free that a stream has not reached yet.
#[derive(Debug)]
pub(super) struct StreamFree {
    pub(super) address: u64,
    pub(super) charge: Charge,
    /// The device gets the memory back before the ledger does, so measurements of free memory count the free as a call under way.
    _call: MemoryCall,
}

impl StreamFrees {
    /// Takes out the frees that the end of a context ends.
    pub(super) fn take_of(&self, context: usize) -> BTreeMap<usize, StreamFree> {
        self.0.lock().frees.extract_if(.., |_, free| free.charge.ends_with(context)).collect()
    }

    pub(super) fn put_back(&self, frees: BTreeMap<usize, StreamFree>) {
        self.0.lock().frees.extend(frees);
    }

    /// Adds a free, and returns its number. `call` lasts until the free is taken out.
    pub(super) fn add(&self, address: u64, charge: Charge, call: MemoryCall) -> usize {
        let mut pending = self.0.lock();
        pending.begun = pending.begun.wrapping_add(1);
        let number = pending.begun;
        pending.frees.insert(number, StreamFree { address, charge, _call: call });
        number
    }

    pub(super) fn take(&self, number: usize) -> Option<StreamFree> {
        self.0.lock().frees.remove(&number)
    }

    /// Returns the bytes of a device that come back at most when the streams reach the frees. A small allocation counts as its
    /// block, which it may share.
    pub(super) fn bytes(&self, device: Device) -> u64 {
        let pending = self.0.lock();
        let charges = pending.frees.values().map(|free| &free.charge);
        let charges = charges.filter(|charge| charge.device == device);
        charges.fold(0, |sum: u64, charge| sum.saturating_add(charge.bytes))
    }
}
