//! Device memory of a context.
//!
//! There may be no context yet in which the driver could be asked for free memory, so NVML is asked on both sides. What it
//! says of this process is believed where a context can take so much, or where the device's free memory says the same. A
//! figure that does not grow by a context is not this process's: the number that NVML knows it by is another process's on
//! the host.
//!
//! Where NVML does not tell, the device's free memory does. Neighbours move it too. What the ledgers of this slice and of
//! those beside it say that they took or gave back meanwhile is taken off. While another process makes a context, no ledger
//! has its size: then free memory is no witness. Neither is it for a size that a context cannot have.
//!
//! Where neither tells, a context counts as what one of the slice was seen to take, and before the first as an estimate.

use super::measurement::settle_here;
use super::nvml_baseline::signed;
use super::reading::Reading;
use super::state::Memory;
use crate::driver_calls::nvml::memory::Session;
use crate::slice::device::SliceDevice;
use gpuslice_policy::sizes::context::believed;
use gpuslice_region::Calls;

/// A context is about to be made.
#[derive(Debug)]
pub(crate) struct Making {
    memory: &'static Memory,
    pub(crate) place: SliceDevice,
    /// NVML, if the device has a quota.
    nvml: Option<Session>,
    own: Option<u64>,
    charged: u64,
    calls: Calls,
    /// True if it is a context like others, whose size is the same for all.
    is_usual: bool,
    device: Option<Reading>,
}

impl Making {
    /// Asks before a call that makes a context.
    pub(crate) fn read(memory: &'static Memory, place: SliceDevice) -> Self {
        // Not made of another value's fields, which would end the making with it.
        let mut making = Self::beside(memory, place);
        making.is_usual = true;
        making
    }

    /// Asks before a call that makes something else of the kind.
    pub(crate) fn beside(memory: &'static Memory, place: SliceDevice) -> Self {
        if memory.witness.is_unsettled() {
            settle_here(memory, 1);
        }
        let nvml = if memory.has_quota(place.device) { Session::open() } else { None };
        let calls = memory.member().memory_calls();
        let charged = memory.own(place.device);
        let own = nvml.and_then(|nvml| nvml.own(&place.uuid).ok());
        let device = if nvml.is_some() { Reading::take(memory, place, 0) } else { None };
        // Before the driver is called: others see the mark at one of their readings, or do not meet the call.
        memory.member().begin_context_creation();
        Self { memory, place, nvml, own, charged, calls, is_usual: false, device }
    }

    /// What the context took. `reserved` bytes of it are in the ledger already.
    pub(crate) fn took(&self, reserved: u64, estimate: u64) -> u64 {
        let (memory, device) = (self.memory, self.place.device);
        let known = memory.context_bytes(device).filter(|_| self.is_usual);
        if !memory.has_quota(device) {
            let took = known.unwrap_or(estimate);
            memory.witness.note_estimate(device, 0, signed(took));
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
        let took = seen.filter(|_| still).or(known).or(seen).unwrap_or(estimate);
        if let Some(before) = self.device {
            before.note_room(memory, self.place, 0);
        }
        if let Some(now) = now {
            now.note_room(memory, self.place, took);
        }
        // Where it is not told NVML knows this process by another number.
        let own = own.filter(|_| grown.is_some());
        memory.witness.note(device, own, own.map_or(charged, |_| charged.saturating_add(took)));
        took
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.memory.member().end_context_creation();
    }
}
