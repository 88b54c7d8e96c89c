//! Who of the slice looks at its neighbours and asks NVML, and what has it learned?
//!
//! One process at a time: it says so in a word, with the time, and keeps it for as long as it says so again in time. The
//! others take over from one that is silent or dead.

use gpuslice_policy::compute::{overlap::Overlap, trim};

use crate::{layout::Layout, layout::compute_words::SamplerWords};

/// Bits of the word for who; the rest is the time, in units of 65.5 us.
const WHO: u64 = 0xffff;

/// Says that `slot` is the one, if nobody else is or was within `patience`.
fn renew_lease(sampler: &SamplerWords, slot: usize, now: u64, patience: u64) -> bool {
    let word = sampler.lease.get();
    let (who, since) = (word & WHO, word & !WHO);
    let me = number(slot);
    let is_silent = now.saturating_sub(since) >= patience.max(WHO) || since > now;
    let is_mine = who == me && since <= now;
    (who == 0 || is_mine || is_silent) && sampler.lease.replace(word, (now & !WHO) | me)
}

/// A dead process is not the one any more.
pub(crate) fn end_lease(sampler: &SamplerWords, slot: usize) {
    let word = sampler.lease.get();
    if word & WHO == number(slot) {
        let _ = sampler.lease.replace(word, 0);
    }
}

fn number(slot: usize) -> u64 {
    u64::try_from(slot.saturating_add(1)).unwrap_or(WHO)
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Whether `slot` is to ask NVML of a device.
    pub(crate) fn renew_sampler_lease(&self, device: usize, slot: usize, now: u64, patience: u64) -> bool {
        self.time(device).is_some_and(|time| renew_lease(&time.sampler.0, slot, now, patience))
    }

    /// The part of busy time that is the slice's own.
    pub(crate) fn correction(&self, device: usize) -> u32 {
        self.time(device)
            .map_or(trim::ONE, |time| trim::factor_of(time.control.0.correction_millionths.get()))
    }

    /// An interval was measured of which so much is newly covered.
    pub(crate) fn add_overlap(&self, device: usize, length: u64, covered: u64) {
        if let Some(time) = self.time(device) {
            time.overlap.0.change(|word| {
                let mut overlap = Overlap::from_word(word);
                overlap.add(length, covered);
                overlap.word()
            });
        }
    }

    /// The part of so much busy time that is newly covered on average.
    pub(crate) fn overlap_part(&self, device: usize, length: u64) -> u64 {
        self.time(device).map_or(length, |time| Overlap::from_word(time.overlap.0.get()).part(length))
    }
}
