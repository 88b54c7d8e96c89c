//! Decides for each launch whether it is measured alone or in a batch.
//!
//! A long kernel is measured alone, because two events cost little compared with it. A kernel of unknown cost is measured
//! alone, because a batch does not show the cost of one kernel. After a gap a launch is measured alone, because its events
//! pass within the gap.
//!
//! In a program whose batches have gaps, the estimates learn nothing from batches. There the [`Sampler`] chooses single
//! launches.

use super::super::cost::estimate::Estimate;
use crate::time::WallTime;

/// Work that is measured because it is long takes at least 400 times the cost of one event. So a pair of events costs 0.5 %
/// of the throughput. [`long`] and [`full`] use this factor.
const EVENTS: u64 = 400;

/// Duration from which a kernel is measured alone, however little an event costs: 0.5 ms.
pub const LONG_KERNEL: WallTime = WallTime::from_micros(500);

/// Duration from which a graph is measured alone, however little an event costs: 0.3 ms. The content of a graph
/// can change from launch to launch.
pub const LONG_GRAPH: WallTime = WallTime::from_micros(300);

/// Predicted duration of the work that fills a batch, however little an event costs: 2 ms.
pub const FULL: WallTime = WallTime::from_millis(2);

/// Length of a gap after which a launch is measured alone: 50 us. The GPU is idle in the gap, so two events delay no
/// kernel. A batch across such gaps says little about its kernels.
pub const SPARSE_GAP: WallTime = WallTime::from_micros(50);

/// Gaps below one part in 20 of a batch do not count. A batch with longer gaps is a batch *with gaps*.
pub(super) const GAPLESS: u64 = 20;

/// One launch in 512 is measured alone if batches have gaps. The constants below derive from this one, except
/// [`CHECK_ONE_IN`].
const SAMPLED: u32 = 512;

/// Number of launches after which the next launch is measured alone, although its stream may be empty.
const LATEST: u32 = 2 * SAMPLED;

/// One in eleven launches that wait checks whether it can be measured. A check costs a fifth of a launch.
///
/// Eleven is a prime, and few programs wait after each eleven launches. Example: in a program that waits after each 10
/// launches, one of ten can be measured. With 2, 4, 5 or 6 the checks miss it. With 31 they come too rarely before
/// [`LATEST`], and shares are up to 2.6 points too small.
const CHECK_ONE_IN: u32 = 11;

/// The number of launches for which a batch with gaps counts. After eight such batches a launch is measured alone.
///
/// After such a batch, as many launches of [`AFTER_GAPS`] and more are measured alone. If a program has gaps only because
/// its host is delayed, it soon returns to batches, whose events cost less.
const GAPPY: u32 = SAMPLED / 8;

/// Duration from which launches are measured alone after a batch with gaps: 0.1 ms.
///
/// A full batch has at most [`GAPLESS`] launches of this duration. If it has gaps, they are 5 us long on average, and two
/// events pass within one gap.
const AFTER_GAPS: WallTime = FULL.part(GAPLESS);

/// The way to measure a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// The launch is measured between two events of its own.
    Single,
    /// The launch is measured in a batch with others on the same stream.
    Batched,
}

impl Timing {
    /// Decides about the measurement of a launch. `known` is its estimate. Kernels of its kind are [`long`] from the
    /// duration `long` on. Its stream may have been idle for `gap` because of the host.
    #[inline]
    #[must_use]
    pub fn of(known: Option<&Estimate>, long: WallTime, gap: WallTime) -> Self {
        match known {
            Some(known) if gap < SPARSE_GAP && Self::is_together(known, long) => Self::Batched,
            _ => Self::Single,
        }
    }

    /// Returns true if a launch with this estimate belongs in a batch when its stream was idle for less than
    /// [`SPARSE_GAP`]. Kernels of its kind are [`long`] from the duration `long` on.
    #[inline]
    #[must_use]
    pub fn is_together(known: &Estimate, long: WallTime) -> bool {
        known.is_certain() && known.duration < long
    }
}

/// Returns the duration from which on a kernel or a graph is measured alone. `event` is the cost of an event.
#[must_use]
pub fn long(is_graph: bool, event: WallTime) -> WallTime {
    beside_events(if is_graph { LONG_GRAPH } else { LONG_KERNEL }, event)
}

/// Returns the predicted duration of the work that fills a batch. `event` is the cost of an event.
#[must_use]
pub fn full(event: WallTime) -> WallTime {
    beside_events(FULL, event)
}

/// Returns the length of work compared with which two events cost little. It is at least `least`.
fn beside_events(least: WallTime, event: WallTime) -> WallTime {
    event.saturating_mul(EVENTS).max(least)
}

/// Returns the time from the record of an event to its passing, in an empty stream. Another event was recorded `before`
/// ago. Each event costs `event`.
#[must_use]
pub const fn delay(before: WallTime, event: WallTime) -> WallTime {
    event.saturating_sub(before)
}

/// Chooses launches to be measured alone, in a program whose batches have gaps, so that the estimates learn nothing from
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampler {
    count: u32,
    /// The count at which a launch is measured alone, or checks whether it can be measured.
    due: u32,
    /// Number of next launches of [`AFTER_GAPS`] and more that are measured alone.
    left: u32,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { count: 0, due: SAMPLED - 1, left: 0 }
    }
}

impl Sampler {
    /// Counts a launch with this estimate that belongs in a batch. Returns true if it is measured alone instead.
    ///
    /// `may_be_empty` tells whether the stream may have become empty
    /// ([`Spell::may_have_ended`](super::batch::Spell::may_have_ended)). The events around a launch of 10 us into an
    /// empty stream look as if the kernel had taken 10 us. So a small kernel waits until its stream is known to be
    /// busy, or known to be empty after a wait. It waits for at most `LATEST` launches.
    pub fn launch(&mut self, estimate: &Estimate, may_be_empty: impl FnOnce() -> bool) -> bool {
        let is_alone = self.is_alone(estimate);
        let is_due = self.count >= SAMPLED - 1 || is_alone;
        let waits = is_due && estimate.duration < AFTER_GAPS && self.count < LATEST && may_be_empty();
        self.passes();
        if waits {
            self.due = self.count.saturating_add(CHECK_ONE_IN - 1);
            return false;
        }
        if self.count >= SAMPLED {
            (self.count, self.due) = (0, SAMPLED - 1);
        }
        self.left = self.left.saturating_sub(u32::from(is_alone));
        is_due
    }

    /// Returns true if a next launch with this estimate is measured alone, or checks whether it can be measured.
    #[inline]
    #[must_use]
    pub fn is_due(&self, estimate: &Estimate) -> bool {
        self.count >= self.due || self.is_alone(estimate)
    }

    /// Returns true if a launch with this estimate is measured alone because of a batch with gaps.
    #[inline]
    fn is_alone(&self, estimate: &Estimate) -> bool {
        self.left > 0 && estimate.duration >= AFTER_GAPS
    }

    /// Counts a launch that was not chosen.
    #[inline]
    pub const fn passes(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// Counts `batches` that had gaps.
    pub fn note_gaps(&mut self, batches: u64) {
        if batches > 0 {
            let batches = u32::try_from(batches).unwrap_or(u32::MAX);
            self.count = self.count.saturating_add(batches.saturating_mul(GAPPY));
            self.left = GAPPY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::{ns, us};

    fn estimate(duration: WallTime) -> Estimate {
        let mut estimate = Estimate::NONE;
        (estimate.charged, estimate.duration, estimate.samples) = (duration.gpu_if_alone(), duration, 1);
        estimate
    }

    #[test]
    fn long_kernels_graphs_the_unknown_and_the_sparse_are_measured_alone() {
        let known =
            |duration, is_graph, gap| Timing::of(Some(&estimate(duration)), long(is_graph, ns(0)), gap);
        assert_eq!(known(us(499), false, ns(0)), Timing::Batched);
        assert_eq!(known(us(500), false, ns(0)), Timing::Single);
        assert_eq!(known(us(299), true, ns(0)), Timing::Batched);
        assert_eq!(known(us(300), true, ns(0)), Timing::Single);
        assert_eq!(known(us(20), false, SPARSE_GAP), Timing::Single);
        assert_eq!(Timing::of(None, LONG_KERNEL, ns(0)), Timing::Single);
    }

    #[test]
    fn two_events_are_at_most_a_two_hundredth_of_a_launch_measured_for_its_length() {
        assert_eq!([false, true].map(|is_graph| long(is_graph, ns(2_500))), [us(1_000); 2]);
        assert_eq!([false, true].map(|is_graph| long(is_graph, ns(1_000))), [us(500), us(400)]);
        assert_eq!([2_500, 6_000].map(|event| full(ns(event))), [FULL, us(2_400)]);
    }

    #[test]
    fn a_small_launch_waits_to_be_sampled_until_its_stream_is_known_to_be_empty() {
        let due = || {
            let mut sampler = Sampler::default();
            (0..SAMPLED - 1).for_each(|_| sampler.passes());
            sampler
        };
        let small = estimate(us(20));
        let mut sampler = due();
        assert!(!sampler.launch(&small, || true) && !sampler.launch(&small, || true));
        assert!(sampler.launch(&small, || false));
        assert_eq!(sampler, Sampler::default());
        let mut sampler = due();
        assert_eq!((0..2000).position(|_| sampler.launch(&small, || true)), Some(SAMPLED as usize + 1));
        assert!(due().launch(&estimate(AFTER_GAPS), || true), "a longer one does not");
    }

    #[test]
    fn of_launches_that_wait_to_be_sampled_one_in_eleven_looks() {
        let small = estimate(us(20));
        let mut sampler = Sampler::default();
        let looks = |_: &u32| {
            let is_due = sampler.is_due(&small);
            if is_due {
                assert!(!sampler.launch(&small, || true));
            } else {
                sampler.passes();
            }
            is_due
        };
        assert_eq!((1..540).filter(looks).collect::<Vec<_>>(), [512, 523, 534]);
    }

    #[test]
    fn one_launch_in_512_is_sampled_and_a_batch_with_gaps_counts_as_64() {
        let small = estimate(us(20));
        let mut sampler = Sampler::default();
        assert_eq!((0..1024).filter(|_| sampler.launch(&small, || false)).count(), 2);
        sampler.note_gaps(7);
        assert_eq!((0..64).position(|_| sampler.launch(&small, || false)), Some(63));
        sampler.note_gaps(1 << 26);
        assert!(sampler.launch(&small, || true), "it waits no longer");
    }

    #[test]
    fn after_a_batch_with_gaps_64_launches_of_a_tenth_of_a_millisecond_are_measured_alone() {
        let (small, large) = (estimate(us(99)), estimate(AFTER_GAPS));
        let mut sampler = Sampler::default();
        let is_measured = |sampler: &mut Sampler, estimate| {
            let is_due = sampler.is_due(estimate);
            if !is_due {
                sampler.passes();
            }
            is_due && sampler.launch(estimate, || true)
        };
        sampler.note_gaps(0);
        assert!(!is_measured(&mut sampler, &large));
        sampler.note_gaps(1);
        assert!(!is_measured(&mut sampler, &small));
        let measured: Vec<_> = (0..500).filter(|_| is_measured(&mut sampler, &large)).collect();
        assert_eq!(measured[..64], (0..64).collect::<Vec<_>>());
        assert_eq!(measured.len(), 65, "one more is the one in 512");
    }
}
