//! Memory of no pool that the driver frees when a stream reaches the free (`cuMemFreeAsync`).
//!
//! Example: a kernel of one second runs in a stream, and the program frees a buffer of `cuMemAlloc` behind it. The call returns
//! at once, and the device has the memory for another second. If the charge ended with the call, the slice could take as much
//! again meanwhile.
//!
//! So the charge stays until the stream is there: a host function behind the free ends it. A request that does not fit beside
//! such memory waits, for [`LEAVING`] at most. The end of the context ends the charge as well, because the driver then calls no
//! host function.

use super::addresses::{Charge, Owner};
use super::memory_call::{MemoryCall, Waiting};
use super::state::Memory;
use crate::os::clock::now;
use crate::os::reentrancy;
use core::time::Duration;
use gpuslice_region::{Device, LEAVING, pause};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Pause between two looks of a wait. Guessed: a millisecond is little beside the kernels that programs wait for.
const STREAM_FREE_PAUSE: Duration = Duration::from_millis(1);

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
pub(crate) struct StreamFree {
    address: u64,
    charge: Charge,
    /// The device gets the memory back before the ledger does, so measurements of free memory count the free as a call under way.
    _call: MemoryCall,
}

impl StreamFree {
    fn is_of(&self, context: usize) -> bool {
        matches!(self.charge.owner, Owner::Context(of) | Owner::Block(of) if of == context)
    }

    /// Gives the charge back: the device has the memory.
    pub(super) fn end(self, memory: &Memory) {
        self.charge.end_of_freed(memory, self.address);
    }
}

impl StreamFrees {
    /// Takes out the frees that the end of a context ends.
    pub(super) fn take_of(&self, context: usize) -> BTreeMap<usize, StreamFree> {
        self.0.lock().frees.extract_if(.., |_, free| free.is_of(context)).collect()
    }

    pub(super) fn put_back(&self, frees: BTreeMap<usize, StreamFree>) {
        self.0.lock().frees.extend(frees);
    }

    fn take(&self, number: usize) -> Option<StreamFree> {
        self.0.lock().frees.remove(&number)
    }

    /// Returns the bytes of a device that come back when the streams reach the frees. Blocks of small allocations do not count.
    fn bytes(&self, device: Device) -> u64 {
        let pending = self.0.lock();
        let charges =
            pending.frees.values().map(|free| &free.charge).filter(|charge| charge.device == device);
        let bytes =
            |charge: &Charge| if matches!(charge.owner, Owner::Context(_)) { charge.bytes } else { 0 };
        charges.map(bytes).fold(0, u64::saturating_add)
    }
}

impl Memory {
    /// Keeps the charge of an address that the driver has been asked to free in a stream, under a number. `call_when_reached` has
    /// the driver call [`end_stream_free`](Self::end_stream_free) with that number when the stream is there. If it returns false,
    /// the charge comes back to the caller.
    ///
    /// The free is in the table before the driver knows of the call, which may come at once.
    pub(crate) fn begin_stream_free(
        &'static self,
        address: u64,
        charge: Charge,
        call_when_reached: impl FnOnce(usize) -> bool,
    ) -> Option<Charge> {
        let free = StreamFree { address, charge, _call: MemoryCall::begin(self.member()) };
        let mut pending = self.stream_frees.0.lock();
        pending.begun = pending.begun.wrapping_add(1);
        let number = pending.begun;
        pending.frees.insert(number, free);
        drop(pending);
        if call_when_reached(number) { None } else { self.take_stream_free(number).map(|free| free.charge) }
    }

    /// Ends the charge of a free: the device has the memory. Calls no function of the driver.
    pub(crate) fn end_stream_free(&self, number: usize) {
        if let Some(free) = self.take_stream_free(number) {
            free.end(self);
        }
    }

    /// Waits until `bytes` may fit, because streams have reached frees of this process. Returns false if there is no such free,
    /// or if the bytes do not fit even without its memory.
    pub(super) fn wait_for_stream_frees(&self, device: Device, bytes: u64) -> bool {
        let fits = |beside: u64| {
            let held = self.region().held(device).saturating_sub(beside);
            self.region().memory_limit(device).is_none_or(|limit| held.saturating_add(bytes) <= limit)
        };
        let coming = self.stream_frees.bytes(device);
        if coming == 0 || !fits(coming) {
            return false;
        }
        let _waiting = Waiting::within_call(self.member());
        let end = now().saturating_add(LEAVING);
        while !fits(0) && self.stream_frees.bytes(device) > 0 && now() < end {
            reentrancy::leave_during(|| pause(STREAM_FREE_PAUSE));
        }
        true
    }

    fn take_stream_free(&self, number: usize) -> Option<StreamFree> {
        let there = || self.stream_frees.take(number);
        there().or_else(|| self.ending_contexts.find(|contents| contents.stream_frees.remove(&number), there))
    }
}
