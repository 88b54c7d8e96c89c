//! The lease of the process that samples NVML and looks at co-tenants, and the correction that this process publishes.
//!
//! One process of the slice has the lease at a time. It renews the lease by writing its slot and the time into a word.
//! Another process takes over when the holder is silent for too long or dead.

use gpuslice_policy::compute::attribution::correction;
use gpuslice_policy::compute::measuring::overlap::Overlap;
use gpuslice_policy::time::{Monotonic, WallTime};

use crate::{layout::Layout, layout::compute_words::SamplerWords};

/// Bits of the lease word for the holder's slot plus 1. The other bits are the time, in units of 65.5 us.
const HOLDER_MASK: u64 = 0xffff;

/// Answer to a process that asks for the sampler lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplerLease {
    /// The process has had the lease since its last call.
    Kept,
    /// The process has taken the lease. Another process may have had it since the last call.
    Taken,
    /// Another process has the lease.
    Elsewhere,
}

impl SamplerLease {
    /// Returns true if the process has the lease.
    #[must_use]
    pub const fn is_held(self) -> bool {
        !matches!(self, Self::Elsewhere)
    }
}

/// Takes or renews the lease for `slot`, unless another process has renewed it within `patience`.
///
/// Holder and time share one word, so a compare-and-swap cannot take a lease that was renewed meanwhile. A time in the
/// future is wrong, and its holder counts as silent. If two processes take over at once, one compare-and-swap fails, and
/// that process tries again later.
///
/// Two threads of the holder may renew at once. The thread whose compare-and-swap fails finds the renewal of the other
/// thread, and the process keeps the lease. Otherwise that thread would take the lease for lost and drop the state of the
/// replay.
fn renew_lease(sampler: &SamplerWords, slot: usize, now: Monotonic, patience: WallTime) -> SamplerLease {
    let word = sampler.lease.get();
    let (who, since) = (word & HOLDER_MASK, Monotonic::from_nanos(word & !HOLDER_MASK));
    let me = number(slot);
    let is_silent = now.since(since) >= patience.max(WallTime::from_nanos(HOLDER_MASK)) || since > now;
    let is_mine = who == me && since <= now;
    let is_free = who == 0 || is_mine || is_silent;
    if is_free && sampler.lease.replace(word, (now.nanos() & !HOLDER_MASK) | me) {
        return if who == me { SamplerLease::Kept } else { SamplerLease::Taken };
    }
    if is_free && sampler.lease.get() & HOLDER_MASK == me {
        SamplerLease::Kept
    } else {
        SamplerLease::Elsewhere
    }
}

/// Ends the lease of a dead process.
pub(crate) fn end_lease(sampler: &SamplerWords, slot: usize) {
    let word = sampler.lease.get();
    if word & HOLDER_MASK == number(slot) {
        let _ = sampler.lease.replace(word, 0);
    }
}

/// Returns the holder bits for a slot: its number plus 1, because 0 means that the lease is free.
fn number(slot: usize) -> u64 {
    u64::try_from(slot.saturating_add(1)).unwrap_or(HOLDER_MASK)
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Takes or renews the sampler lease of a device for `slot`.
    pub(crate) fn renew_sampler_lease(
        &self,
        device: usize,
        slot: usize,
        now: Monotonic,
        patience: WallTime,
    ) -> SamplerLease {
        self.time(device)
            .map_or(SamplerLease::Elsewhere, |time| renew_lease(&time.sampler.0, slot, now, patience))
    }

    /// Returns the slice's own part of busy time, in millionths.
    pub(crate) fn correction(&self, device: usize) -> u32 {
        self.time(device).map_or(correction::WHOLE_FACTOR, |time| {
            correction::factor_of(time.control.0.correction_millionths.get())
        })
    }

    /// Counts an interval of `length`, of which the part `covered` was newly covered.
    pub(crate) fn add_overlap(&self, device: usize, length: WallTime, covered: WallTime) {
        if let Some(time) = self.time(device) {
            time.overlap.0.change(|word| {
                let mut overlap = Overlap::from_word(word);
                overlap.add(length, covered);
                overlap.word()
            });
        }
    }

    /// Returns the part of `length` of busy time that other intervals do not cover, on average.
    pub(crate) fn overlap_part(&self, device: usize, length: WallTime) -> WallTime {
        self.time(device).map_or(length, |time| Overlap::from_word(time.overlap.0.get()).part(length))
    }
}
