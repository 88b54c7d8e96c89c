//! Memory of no pool that the driver frees when a stream reaches the free (`cuMemFreeAsync`).
//!
//! Example: a kernel of one second runs in a stream, and the program frees a buffer of `cuMemAlloc` behind it. The call returns
//! at once, and the device has the memory for another second. If the charge ended with the call, the slice could take as much
//! again meanwhile.
//!
//! So the charge stays until the stream reaches the free: a host function behind the free ends it. A request that does not fit
//! beside such memory waits, for [`LEAVING`] at most. The end of the context ends the charge as well, because the driver then
//! calls no host function.

use super::addresses::Charge;
use super::memory_call::{MemoryCall, Waiting};
use super::state::Memory;
use super::stream_frees::StreamFree;
use crate::os::clock::now;
use crate::os::reentrancy;
use core::time::Duration;
use gpuslice_policy::time::Monotonic;
use gpuslice_region::{Device, pause};

/// Pause between two looks of a wait. Guessed: a millisecond is little beside the kernels that programs wait for.
const STREAM_FREE_PAUSE: Duration = Duration::from_millis(1);

impl Memory {
    /// Keeps the charge of an address that the driver has been asked to free in a stream, under a number. `call_when_reached` has
    /// the driver call [`end_stream_free`](Self::end_stream_free) with that number when the stream reaches the free. If it
    /// returns false, the charge comes back to the caller.
    ///
    /// The free is in the table before the driver knows of the call, which may come at once.
    pub(crate) fn begin_stream_free(
        &'static self,
        address: u64,
        charge: Charge,
        call_when_reached: impl FnOnce(usize) -> bool,
    ) -> Option<Charge> {
        let number = self.stream_frees.add(address, charge, MemoryCall::begin(self.member()));
        if call_when_reached(number) { None } else { self.take_stream_free(number).map(|free| free.charge) }
    }

    /// Ends the charge of a free: the device has the memory. Calls no function of the driver.
    pub(crate) fn end_stream_free(&self, number: usize) {
        if let Some(free) = self.take_stream_free(number) {
            free.charge.end_of_freed(self, free.address);
        }
    }

    /// Waits until `bytes` may fit, because streams have reached frees of this process; no longer than `until`. Returns false if
    /// there is no such free, or if the bytes do not fit even without its memory.
    pub(super) fn wait_for_stream_frees(&self, device: Device, bytes: u64, until: Monotonic) -> bool {
        let coming = self.stream_frees.bytes(device);
        if coming == 0 || !self.fits_without(device, bytes, coming) {
            return false;
        }
        let _waiting = Waiting::within_call(self.member());
        // One pause comes first. Otherwise a request that fails although its bytes fit would be repeated without a pause.
        loop {
            reentrancy::leave_during(|| pause(STREAM_FREE_PAUSE));
            let is_over = self.fits_without(device, bytes, 0) || self.stream_frees.bytes(device) == 0;
            if is_over || now() >= until {
                return true;
            }
        }
    }

    fn take_stream_free(&self, number: usize) -> Option<StreamFree> {
        let there = || self.stream_frees.take(number);
        there().or_else(|| self.ending_contexts.find(|contents| contents.stream_frees.remove(&number), there))
    }
}
