//! Frees of memory outside pools that no stream has reached yet.

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
    /// Frees by their number.
    frees: BTreeMap<usize, StreamFree>,
}

/// A free that a stream has not reached yet.
#[derive(Debug)]
pub(super) struct StreamFree {
    pub(super) address: u64,
    pub(super) charge: Charge,
    /// The device gets the memory back before the ledger does. So a measurement of free memory must see the free as a call under
    /// way.
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

    /// Adds a free, and returns its number. `call` stays counted until a thread takes the free out.
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

    /// Returns the most bytes that a device can get back when the streams reach the frees. A small allocation counts as a whole
    /// block, although it may share the block.
    pub(super) fn bytes(&self, device: Device) -> u64 {
        let pending = self.0.lock();
        let charges = pending.frees.values().map(|free| &free.charge);
        let charges = charges.filter(|charge| charge.device == device);
        charges.fold(0, |sum: u64, charge| sum.saturating_add(charge.bytes))
    }
}
