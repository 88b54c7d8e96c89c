//! Measures the device memory of a context while a call of the driver makes it.
//!
//! Before the call there may be no context in which the library could ask the driver for free memory. So it asks NVML before and
//! after the call. The growth of NVML's figure for this process is the size of the context. There is one exception: a context
//! cannot have this size, but it can have the different size that free memory shows. Then NVML's figure is that of another
//! process, whose number on the host is the number of this process in its container.
//!
//! If NVML gives no figure, the loss of the device's free memory is the size. Neighbours change free memory too. So the library
//! subtracts the change of the ledgers of this slice and of the other slices in the folder. It does not use free memory if
//! another process makes a context meanwhile, because no ledger has the size of that context yet. It also does not use free
//! memory that shows a size that a context cannot have.
//!
//! If neither source gives a size, the library takes the size that the slice has measured for an earlier context. If the slice
//! has measured none, it takes the size that a slice of the folder has measured on a GPU of the same model. If there is none, it
//! takes an estimate.

use super::measurement::reconcile_here;
use super::nvml_baseline::{difference, signed};
use super::reading::Reading;
use super::state::Memory;
use crate::driver_calls::nvml::memory::{Session, Silence};
use crate::slice::device::SliceDevice;
use gpuslice_policy::sizes::context::believed;
use gpuslice_region::Calls;

/// Measurement of a context that is about to be made.
#[derive(Debug)]
pub(crate) struct ContextMeasurement {
    memory: &'static Memory,
    pub(crate) place: SliceDevice,
    /// Source of NVML's figures, if the device has a quota and there is a source.
    nvml: Option<Session>,
    /// Bytes that this process holds by NVML; `None` without a source.
    own: Option<Result<u64, Silence>>,
    charged: u64,
    calls: Calls,
    /// True for a context of the usual kind, whose size is the same for all.
    is_usual: bool,
    device: Option<Reading>,
}

impl ContextMeasurement {
    /// Reads the figures before a call that makes a context.
    pub(crate) fn read(memory: &'static Memory, place: SliceDevice) -> Self {
        // Struct update syntax would drop the value that it takes the fields from. The drop says that the context is made.
        let mut making = Self::beside(memory, place);
        making.is_usual = true;
        making
    }

    /// Reads the figures before a call that makes a green context, or a context into which libraries are loaded as well.
    pub(crate) fn beside(memory: &'static Memory, place: SliceDevice) -> Self {
        if memory.baselines.has_unmeasured() {
            reconcile_here(memory, 1);
        }
        let nvml = if memory.has_quota(place.device) { Session::open(&place.uuid) } else { None };
        let calls = memory.member().memory_calls();
        let charged = memory.own(place.device);
        let own = nvml.map(|nvml| memory.own_by(place.device, nvml));
        let device = if nvml.is_some() { Reading::take(memory, place, 0) } else { None };
        // The mark comes before the call of the driver. So another process sees the mark in one of its two readings, or the call
        // does not overlap its readings.
        memory.member().begin_context_creation();
        Self { memory, place, nvml, own, charged, calls, is_usual: false, device }
    }

    /// Returns the bytes that the context took. The ledger already has `reserved` bytes for it.
    ///
    /// `grown` is the growth of NVML's figure, and `lost` is the loss of free memory. Both are without the bytes that the
    /// ledgers explain. If another thread of the process took or gave back memory meanwhile (`still` is false), the size that the
    /// slice knows comes first. The slice learns a size only if `still` is true, and for a context of the usual kind.
    pub(crate) fn took(&self, reserved: u64, estimate: u64) -> u64 {
        let (memory, device) = (self.memory, self.place.device);
        // Without a measurement of the slice itself, this opens the regions of the folder.
        let known = || memory.context_bytes(self.place).filter(|_| self.is_usual);
        if !memory.has_quota(device) {
            let took = known().unwrap_or(estimate);
            memory.baselines.note_estimate(device, 0, signed(took));
            self.leave_available_to_later_calls();
            return took;
        }
        let now = Reading::take(memory, self.place, reserved);
        let answer = self.nvml.map(|nvml| memory.own_by(device, nvml));
        let charged = memory.own(device).saturating_sub(reserved);
        let still = charged == self.charged && memory.member().memory_calls().is_still_since(self.calls, 1);
        let lost = self.device.zip(now).and_then(|(before, now)| before.lost(&now)).filter(|_| still);
        let more = difference(self.charged, charged);
        let own = answer.and_then(Result::ok);
        let grown = held(self.own)
            .zip(own)
            .map(|(before, own)| difference(before, own).saturating_sub(more).max(0).unsigned_abs())
            .filter(|grown| {
                let contradicted = lost.filter(|lost| *lost != signed(*grown));
                believed(signed(*grown), estimate).is_some()
                    || contradicted.is_none_or(|lost| believed(lost, estimate).is_none())
            });
        let seen = grown.or_else(|| lost.and_then(|lost| believed(lost, estimate)));
        if let Some(seen) = seen.filter(|_| still && self.is_usual) {
            memory.learn_context_bytes(device, seen);
        }
        let took = seen.filter(|_| still).or_else(known).or(seen);
        if let Some(before) = self.device {
            before.note_room(memory, self.place, 0, 1);
        }
        if let Some((now, took)) = now.zip(took) {
            now.note_room(memory, self.place, took, 1);
        }
        let took = took.unwrap_or(estimate);
        if [self.own, answer].contains(&Some(Err(Silence::Failed))) {
            // A later answer tells whether the size is right.
            memory.baselines.note_estimate(device, 0, signed(took));
        } else {
            // If NVML's growth was not believed, NVML knows this process by another number.
            let own = own.filter(|_| grown.is_some());
            memory.baselines.note(device, own, own.map_or(charged, |_| charged.saturating_add(took)));
        }
        self.leave_available_to_later_calls();
        took
    }

    /// Lets later memory calls measure the available memory, if no member has done so. If the device shares the host's memory,
    /// there is nothing to measure, because programs without a GPU change its free memory.
    fn leave_available_to_later_calls(&self) {
        let (memory, place) = (self.memory, self.place);
        let lacks = !place.shares_host_memory && !memory.member().is_available_known(place.device);
        memory.baselines.set_lacks_available(place.device, lacks);
    }
}

/// Returns the bytes that the process holds by an answer before the call. A process without a context is in no list of NVML.
/// `None`: there is no answer.
const fn held(answer: Option<Result<u64, Silence>>) -> Option<u64> {
    match answer {
        Some(Ok(bytes)) => Some(bytes),
        Some(Err(Silence::Unlisted)) => Some(0),
        Some(Err(Silence::Failed)) | None => None,
    }
}

impl Drop for ContextMeasurement {
    fn drop(&mut self) {
        self.memory.member().end_context_creation();
    }
}
