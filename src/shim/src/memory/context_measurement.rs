//! Measures the device memory of a context while a call makes it.
//!
//! Before the call there may be no context in which the library could ask the driver for free memory. So it asks NVML before and
//! after the call. The library believes the growth of NVML's figure for this process, with one exception. In it, a context cannot
//! take as much, and the device's free memory shows another size that a context can have. Then NVML knows this process by a
//! number that is another process's on the host.
//!
//! If NVML does not tell, the device's free memory does. Neighbours move it too. The bytes that the ledgers of this slice and of
//! the slices beside it took or gave back meanwhile are taken off. While another process makes a context, no ledger has its size.
//! Then free memory does not count. Nor does it count if it shows a size that a context cannot have.
//!
//! If neither tells, a context counts as much as one of the slice that was measured. Before the first such context, it counts as
//! an estimate.

use super::measurement::reconcile_here;
use super::nvml_baseline::signed;
use super::reading::Reading;
use super::state::Memory;
use crate::driver_calls::nvml::memory::Session;
use crate::slice::device::SliceDevice;
use gpuslice_policy::sizes::context::believed;
use gpuslice_region::Calls;

/// Measurement of a context that is about to be made.
#[derive(Debug)]
pub(crate) struct ContextMeasurement {
    memory: &'static Memory,
    pub(crate) place: SliceDevice,
    /// Session with NVML, if the device has a quota.
    nvml: Option<Session>,
    own: Option<u64>,
    charged: u64,
    calls: Calls,
    /// True for a context of the usual kind, whose size is the same for all.
    is_usual: bool,
    device: Option<Reading>,
}

impl ContextMeasurement {
    /// Reads the figures before a call that makes a context.
    pub(crate) fn read(memory: &'static Memory, place: SliceDevice) -> Self {
        // Struct update syntax would drop the value that it takes the fields from, and so end the making.
        let mut making = Self::beside(memory, place);
        making.is_usual = true;
        making
    }

    /// Reads the figures before a call that makes a green context, or a context that libraries come with.
    pub(crate) fn beside(memory: &'static Memory, place: SliceDevice) -> Self {
        if memory.baselines.has_unmeasured() {
            reconcile_here(memory, 1);
        }
        let nvml = if memory.has_quota(place.device) { Session::open() } else { None };
        let calls = memory.member().memory_calls();
        let charged = memory.own(place.device);
        let own = nvml.and_then(|nvml| nvml.own(&place.uuid).ok());
        let device = if nvml.is_some() { Reading::take(memory, place, 0) } else { None };
        // This comes before the driver's call: another process sees the mark at one of its readings, or its readings do not meet
        // the call.
        memory.member().begin_context_creation();
        Self { memory, place, nvml, own, charged, calls, is_usual: false, device }
    }

    /// Returns the bytes that the context took. The ledger has `reserved` bytes of it already.
    pub(crate) fn took(&self, reserved: u64, estimate: u64) -> u64 {
        let (memory, device) = (self.memory, self.place.device);
        let known = memory.context_bytes(device).filter(|_| self.is_usual);
        if !memory.has_quota(device) {
            let took = known.unwrap_or(estimate);
            memory.baselines.note_estimate(device, 0, signed(took));
            self.leave_available_to_later_calls();
            return took;
        }
        let now = Reading::take(memory, self.place, reserved);
        let own = self.nvml.and_then(|nvml| nvml.own(&self.place.uuid).ok());
        let charged = memory.own(device).saturating_sub(reserved);
        let still = charged == self.charged && memory.member().memory_calls().is_still_since(self.calls, 1);
        let lost = self.device.zip(now).and_then(|(before, now)| before.lost(&now)).filter(|_| still);
        let more = charged.saturating_sub(self.charged);
        let grown =
            own.map(|own| own.saturating_sub(self.own.unwrap_or(0)).saturating_sub(more)).filter(|grown| {
                let contradicted = lost.filter(|lost| *lost != signed(*grown));
                believed(signed(*grown), estimate).is_some()
                    || contradicted.is_none_or(|lost| believed(lost, estimate).is_none())
            });
        let seen = grown.or_else(|| lost.and_then(|lost| believed(lost, estimate)));
        if let Some(seen) = seen.filter(|_| still && self.is_usual) {
            memory.learn_context_bytes(device, seen);
        }
        let took = seen.filter(|_| still).or(known).or(seen);
        if let Some(before) = self.device {
            before.note_room(memory, self.place, 0, 1);
        }
        if let Some((now, took)) = now.zip(took) {
            now.note_room(memory, self.place, took, 1);
        }
        let took = took.unwrap_or(estimate);
        // If NVML's growth was not believed, NVML knows this process by another number.
        let own = own.filter(|_| grown.is_some());
        memory.baselines.note(device, own, own.map_or(charged, |_| charged.saturating_add(took)));
        self.leave_available_to_later_calls();
        took
    }

    /// Lets later memory calls measure the available memory, if no member has done so. Memory that is the host's shows nothing.
    fn leave_available_to_later_calls(&self) {
        let (memory, place) = (self.memory, self.place);
        let lacks = !place.shares_host_memory && !memory.member().is_available_known(place.device);
        memory.baselines.set_lacks_available(place.device, lacks);
    }
}

impl Drop for ContextMeasurement {
    fn drop(&mut self) {
        self.memory.member().end_context_creation();
    }
}
