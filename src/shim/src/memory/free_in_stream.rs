//! Memory outside pools that the driver frees when a stream reaches the free (`cuMemFreeAsync`).
//!
//! Example: a kernel of one second runs in a stream, and the program frees a buffer of `cuMemAlloc` behind the kernel. The call
//! returns at once, but the buffer stays on the device for another second. If the charge ended with the call, the slice could
//! take the same bytes a second time.
//!
//! So the charge stays until the stream reaches the free: a host function behind the free ends the charge. A request that does
//! not fit beside such memory waits, for [`LEAVING`](gpuslice_region::LEAVING) at most. The end of the context ends the charge as
//! well, because the driver then does not call the host function.

use super::addresses::Charge;
use super::memory_call::{MemoryCall, Waiting};
use super::state::Memory;
use super::stream_frees::StreamFree;
use crate::os::clock::now;
use crate::os::reentrancy;
use core::time::Duration;
use gpuslice_policy::time::Monotonic;
use gpuslice_region::{Device, pause};

/// Pause between two checks of a waiting thread. Guessed: a millisecond is short beside the kernels for which programs wait.
const STREAM_FREE_PAUSE: Duration = Duration::from_millis(1);

impl Memory {
    /// Keeps the charge of an address that the program frees in a stream, under a number. `call_when_reached` asks the driver to
    /// call [`end_stream_free`](Self::end_stream_free) with that number when the stream reaches the free. If it returns false,
    /// this function returns the charge to the caller.
    ///
    /// The free is in the table before the driver knows the host function, because the driver may call that function at once.
    pub(crate) fn begin_stream_free(
        &'static self,
        address: u64,
        charge: Charge,
        call_when_reached: impl FnOnce(usize) -> bool,
    ) -> Option<Charge> {
        let number = self.stream_frees.add(address, charge, MemoryCall::begin(self.member()));
        if call_when_reached(number) { None } else { self.take_stream_free(number).map(|free| free.charge) }
    }

    /// Ends the charge of a free: the stream has reached it, and the device has the memory back. Calls no function of the driver,
    /// because the driver forbids that in a host function.
    pub(crate) fn end_stream_free(&self, number: usize) {
        if let Some(free) = self.take_stream_free(number) {
            free.charge.end_of_freed(self, free.address);
        }
    }

    /// Waits until `bytes` may fit, because streams have reached frees of this process; no longer than `until`. Returns false if
    /// no free is pending, or if the bytes do not fit even without the memory of the pending frees.
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
