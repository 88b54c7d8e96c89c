//! Samples the slice's use of GPU time once a second, for reports over the last seconds.
//!
//! In each second with work, one process writes a sample: the sums at the start of that second. The difference between the
//! present sum and the sample is the use since then. A second without work has no sample. The first sample after such a gap
//! therefore also holds for the start of the gap.
//!
//! A process claims a sample by writing 0 into `second`, and makes it valid by writing the number of the second. A process
//! killed in between leaves an empty sample, which the next process of that second writes. Two processes that write the
//! same sample write the same sums, except for time that is counted in between.

use crate::{
    compute::reclaim::TimeUsed,
    layout::Layout,
    layout::compute_words::{DeviceTime, UsageSample},
    sync::atomics::{full_fence, read_fence},
};
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

/// The time between two samples.
const SECOND: WallTime = WallTime::from_millis(1_000);
/// The longest span of a report, in seconds. The first sample of this span is not the next one to be overwritten.
const LONGEST_SPAN: u64 = 62;

/// GPU time that a slice used on a device over a span that ends now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentUsage {
    /// GPU time charged.
    pub used: GpuTime,
    /// Wall time that launches were throttled, summed over threads.
    pub throttled: WallTime,
    /// Length of the span on the clock.
    pub span: WallTime,
}

/// A sample as a reader finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadSample {
    /// Time since the second of the sample began.
    pub(crate) age: WallTime,
    pub(crate) used: GpuTime,
    pub(crate) throttled: WallTime,
}

impl UsageSample {
    /// Writes the sample of second `word - 1`, unless it is written already or another process writes it.
    pub(crate) fn note(&self, word: u64, used: impl FnOnce() -> TimeUsed) {
        let noted = self.second.observe();
        if noted == word || !self.second.replace(noted, 0) {
            return;
        }
        // A reader that sees the new sums also sees that the old sample is invalid: pairs with the fence in `read`.
        full_fence();
        let TimeUsed { used, throttled, .. } = used();
        self.charged_ns.set(used);
        self.throttled_ns.set(throttled);
        self.second.publish(word);
    }

    /// Returns the sample, if it is complete and not in the future.
    pub(crate) fn read(&self, now: Monotonic) -> Option<ReadSample> {
        let word = self.second.observe();
        let (used, throttled) = (self.charged_ns.get(), self.throttled_ns.get());
        // If a sum belongs to a later sample, the second reading of the word differs: pairs with the fence in `note`.
        read_fence();
        if self.second.observe() != word {
            return None;
        }
        let instant = Monotonic::BEGIN.saturating_add(SECOND.saturating_mul(word.checked_sub(1)?));
        (instant <= now).then(|| ReadSample { age: now.since(instant), used, throttled })
    }
}

impl<const SLOTS: usize> DeviceTime<SLOTS> {
    /// Returns the sample with which a span of the length `span` begins, and the length of the span from that sample.
    fn base(&self, span: WallTime, now: Monotonic) -> Option<(ReadSample, WallTime)> {
        let notes = || self.history.iter().filter_map(|moment| moment.read(now));
        let before = notes().filter(|note| (span..span.saturating_add(SECOND)).contains(&note.age));
        if let Some(note) = before.min_by_key(|note| note.age) {
            return Some((note, note.age));
        }
        // No work was under way before this sample.
        notes().filter(|note| note.age < span).max_by_key(|note| note.age).map(|note| (note, span))
    }
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Writes the sample of this second, unless it is written already.
    pub(crate) fn note_second(&self, device: usize, now: Monotonic) {
        let Some(time) = self.time(device) else { return };
        let second = now.since(Monotonic::BEGIN).count(SECOND);
        let place = usize::try_from(second).ok().and_then(|second| second.checked_rem(time.history.len()));
        let Some(moment) = place.and_then(|place| time.history.get(place)) else { return };
        moment.note(second.saturating_add(1), || self.time_used(device));
    }

    /// Returns the GPU time used on a device over `seconds` seconds, 1 to [`LONGEST_SPAN`]. The span is up to one second longer
    /// if work was under way then.
    pub(crate) fn used_over(&self, device: usize, seconds: u64, now: Monotonic) -> RecentUsage {
        let span = SECOND.saturating_mul(seconds.clamp(1, LONGEST_SPAN));
        // The counters are read after the sample. Time that is counted in between belongs to the span.
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
