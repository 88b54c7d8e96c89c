//! How much of a device's time did the slice use in the last seconds?
//!
//! Once in a second somebody notes what had been used until then, before anything that runs in that second is counted.
//! What was used since is the difference of now and a note. Seconds in which nothing is under way are not noted: so the
//! first note behind such a gap says what had been used when the gap began, too.
//!
//! A note is claimed by its `second` becoming 0, and valid when it has its number. Who is killed in between leaves one
//! that says nothing, which the next one who comes by in that second writes; two who write it at once write the same, but
//! for what was counted between them.

use crate::{
    compute::reclaim::TimeUsed,
    layout::Layout,
    layout::compute_words::{DeviceTime, UsageSample},
    sync::atomics::{full_fence, read_fence},
};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// The longest span that is remembered, in seconds: its first note is not the one that is written next.
const MOST: u64 = 62;

/// What a slice used of a device's time over a span that ends now, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentUsage {
    /// GPU time that was charged.
    pub used: u64,
    /// Time on the clock that launches waited for the share, summed over threads.
    pub throttled: u64,
    /// How long the span was on the clock.
    pub span: u64,
}

/// What a note says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadSample {
    /// Nanoseconds since its second began.
    pub(crate) age: u64,
    pub(crate) used: u64,
    pub(crate) throttled: u64,
}

impl UsageSample {
    /// Notes what has been used, unless that is done or another one is at it.
    pub(crate) fn note(&self, word: u64, used: impl FnOnce() -> TimeUsed) {
        let noted = self.second.observe();
        if noted == word || !self.second.replace(noted, 0) {
            return;
        }
        // Who reads what follows sees that the old note is gone: pairs with the fence in `read`.
        full_fence();
        let TimeUsed { used, throttled, .. } = used();
        self.charged_ns.set(used);
        self.throttled_ns.set(throttled);
        self.second.publish(word);
    }

    /// What is noted, if it is complete and not of the future.
    pub(crate) fn read(&self, now: u64) -> Option<ReadSample> {
        let word = self.second.observe();
        let (used, throttled) = (self.charged_ns.get(), self.throttled_ns.get());
        // If any of it is of a later note, the word is seen to have changed: pairs with the fence of who notes.
        read_fence();
        if self.second.observe() != word {
            return None;
        }
        let instant = word.checked_sub(1)?.checked_mul(SECOND)?;
        Some(ReadSample { age: now.checked_sub(instant)?, used, throttled })
    }
}

impl<const SLOTS: usize> DeviceTime<SLOTS> {
    /// The note that a span of so many nanoseconds begins with, and how long it is then.
    fn base(&self, span: u64, now: u64) -> Option<(ReadSample, u64)> {
        let notes = || self.history.iter().filter_map(|moment| moment.read(now));
        let before = notes().filter(|note| (span..span.saturating_add(SECOND)).contains(&note.age));
        if let Some(note) = before.min_by_key(|note| note.age) {
            return Some((note, note.age));
        }
        // Nothing was under way before it.
        notes().filter(|note| note.age < span).max_by_key(|note| note.age).map(|note| (note, span))
    }
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Notes what has been used of a device, unless that was done in this second.
    pub(crate) fn note_second(&self, device: usize, now: u64) {
        let Some(time) = self.time(device) else { return };
        let second = now.checked_div(SECOND).unwrap_or(0);
        let place = usize::try_from(second).ok().and_then(|second| second.checked_rem(time.history.len()));
        let Some(moment) = place.and_then(|place| time.history.get(place)) else { return };
        moment.note(second.saturating_add(1), || self.time_used(device));
    }

    /// What was used of a device over so many seconds, 1 to [`MOST`]: up to one more where work was under way then.
    pub(crate) fn used_over(&self, device: usize, seconds: u64, now: u64) -> RecentUsage {
        let span = seconds.clamp(1, MOST).saturating_mul(SECOND);
        // Read after the note: what is counted in between belongs to the span.
        let base = self.time(device).and_then(|time| time.base(span, now));
        let Some((note, span)) = base else { return RecentUsage { span, ..RecentUsage::default() } };
        let sum = self.time_used(device);
        RecentUsage {
            used: sum.used.saturating_sub(note.used),
            throttled: sum.throttled.saturating_sub(note.throttled),
            span,
        }
    }
}
