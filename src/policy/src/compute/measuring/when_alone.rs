//! Decides which launches are measured alone, and which in a batch.

use super::super::cost::estimate::Estimate;

/// Of what lies between two events because it is long, one event is at most one part in so many: a pair costs 0.5 % of the
/// throughput. All lengths from which work is measured by itself follow ([`long`], [`full`]).
const EVENTS: u64 = 400;

/// From here on a kernel is measured alone, in nanoseconds, however little an event costs: 0.5 ms.
pub const LONG: u64 = 500_000;

/// From here on a graph is measured alone, in nanoseconds, however little an event costs: 0.3 ms, since what is in it can change
/// from launch to launch.
pub const LONG_GRAPH: u64 = 300_000;

/// How much predicted work makes a run full, in nanoseconds, however little an event costs: 2 ms.
pub const FULL: u64 = 2_000_000;

/// After how long a gap a launch is measured alone, in nanoseconds: 50 us, of which two events are 2 %. The GPU had nothing
/// to do meanwhile, and a run that goes on over such gaps says little of when its kernels ran.
pub const SPARSE: u64 = 50_000;

/// One launch in so many is measured alone where runs have gaps.
const SAMPLED: u32 = 512;

/// After how many launches one is measured alone although its stream may have run empty.
const LATEST: u32 = 2 * SAMPLED;

/// One of so many launches that wait for that looks whether it can be: a look costs as much as a fifth of a launch.
///
/// A prime that few programs wait after. In a program that waits after each 10 launches one of ten can be measured: with 2, 4,
/// 5 or 6 the looks miss it, with 31 they come too seldom before `LATEST`, and shares are up to 2.6 points too small.
const LOOKS: u32 = 11;

/// From here on every launch is measured alone where runs have gaps, in nanoseconds: 0.1 ms. In a gap events keep nothing
/// waiting.
const SAMPLED_ALWAYS: u64 = 100_000;

/// As how many launches a run with gaps counts.
const GAPPY: u32 = 64;

/// How a launch is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bracket {
    /// Between two events of its own.
    Alone,
    /// In a run with others on the same stream.
    Together,
}

impl Bracket {
    /// How to measure a launch of which so much is known, where those of its kind are [`long`] from `long` nanoseconds on, and
    /// where its stream may have stood idle for `gap` nanoseconds because of the host.
    #[inline]
    #[must_use]
    pub const fn of(known: Option<&Estimate>, long: u64, gap: u64) -> Self {
        match known {
            Some(known) if gap < SPARSE && Self::is_together(known, long) => Self::Together,
            _ => Self::Alone,
        }
    }

    /// Whether a launch of which so much is known is measured with others, where those of its kind are [`long`] from `long`
    /// nanoseconds on and its stream was not idle for [`SPARSE`] or longer.
    #[inline]
    #[must_use]
    pub const fn is_together(known: &Estimate, long: u64) -> bool {
        known.is_certain() && known.plain < long
    }
}

/// From here on a kernel, or a graph, is measured alone, where an event costs `event`. In nanoseconds.
#[must_use]
pub const fn long(is_graph: bool, event: u64) -> u64 {
    beside_events(if is_graph { LONG_GRAPH } else { LONG }, event)
}

/// How much predicted work makes a run full, where an event costs `event`. In nanoseconds.
#[must_use]
pub const fn full(event: u64) -> u64 {
    beside_events(FULL, event)
}

/// The length of work from which two events are next to nothing of it, and no less than `least`.
const fn beside_events(least: u64, event: u64) -> u64 {
    let length = event.saturating_mul(EVENTS);
    if length > least { length } else { least }
}

/// How long after it was recorded an event passes in a stream that had ended, where another was recorded there `before` ago, and
/// each costs `event`. In nanoseconds.
#[must_use]
pub const fn delay(before: u64, event: u64) -> u64 {
    event.saturating_sub(before)
}

/// Chooses launches to be measured alone, in a program whose runs have gaps and so teach nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampler {
    count: u32,
    /// The count at which a launch is measured alone, or looks whether it can be.
    due: u32,
    /// From how many nanoseconds on every launch is measured alone: where runs have gaps.
    always: u64,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { count: 0, due: SAMPLED - 1, always: u64::MAX }
    }
}

impl Sampler {
    /// A launch of this estimate that belongs into a run; whether it is measured alone instead.
    ///
    /// `may_be_empty` tells whether the stream may have run empty ([`Spell::may_have_ended`](super::batch::Spell::may_have_ended)). The events around a launch of
    /// 10 us into an empty stream look as if its kernel had taken 10 us. So a small kernel is not measured until the stream is
    /// known to be busy, or known to be empty after a wait, for `LATEST` launches at most.
    pub fn launch(&mut self, estimate: &Estimate, may_be_empty: impl FnOnce() -> bool) -> bool {
        let is_due = self.count >= SAMPLED - 1 || estimate.plain >= self.always;
        let waits = is_due && estimate.plain < SAMPLED_ALWAYS && self.count < LATEST && may_be_empty();
        self.passes();
        if waits {
            self.due = self.count.saturating_add(LOOKS - 1);
            return false;
        }
        if self.count >= SAMPLED {
            *self = Self::default();
        }
        is_due
    }

    /// Whether the next launch, if it is of this estimate, is to be measured alone or to look whether it can be.
    #[inline]
    #[must_use]
    pub const fn is_due(&self, estimate: &Estimate) -> bool {
        self.count >= self.due || estimate.plain >= self.always
    }

    /// A launch was not chosen.
    #[inline]
    pub const fn passes(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// A run turned out to have gaps.
    pub const fn gaps(&mut self) {
        self.count = self.count.saturating_add(GAPPY);
        self.always = SAMPLED_ALWAYS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    fn estimate(plain: u64) -> Estimate {
        let mut estimate = Estimate::NONE;
        (estimate.charged, estimate.plain, estimate.samples) = (plain, plain, 1);
        estimate
    }

    #[test]
    fn long_kernels_graphs_the_unknown_and_the_sparse_are_measured_alone() {
        let known = |plain, is_graph, gap| Bracket::of(Some(&estimate(plain)), long(is_graph, 0), gap);
        assert_eq!(known(499 * US, false, 0), Bracket::Together);
        assert_eq!(known(500 * US, false, 0), Bracket::Alone);
        assert_eq!(known(299 * US, true, 0), Bracket::Together);
        assert_eq!(known(300 * US, true, 0), Bracket::Alone);
        assert_eq!(known(20 * US, false, SPARSE), Bracket::Alone);
        assert_eq!(Bracket::of(None, LONG, 0), Bracket::Alone);
    }

    #[test]
    fn two_events_are_at_most_a_two_hundredth_of_what_is_measured_because_it_is_long() {
        assert_eq!([false, true].map(|is_graph| long(is_graph, 2_500)), [1_000 * US; 2]);
        assert_eq!([false, true].map(|is_graph| long(is_graph, 1_000)), [500 * US, 400 * US]);
        assert_eq!([2_500, 6_000].map(full), [FULL, 2_400 * US]);
    }

    #[test]
    fn a_small_launch_waits_to_be_sampled_until_its_stream_is_known_to_be_empty() {
        let due = || {
            let mut sampler = Sampler::default();
            (0..SAMPLED - 1).for_each(|_| sampler.passes());
            sampler
        };
        let small = estimate(20 * US);
        let mut sampler = due();
        assert!(!sampler.launch(&small, || true) && !sampler.launch(&small, || true));
        assert!(sampler.launch(&small, || false));
        assert_eq!(sampler, Sampler::default());
        let mut sampler = due();
        assert_eq!((0..2000).position(|_| sampler.launch(&small, || true)), Some(SAMPLED as usize + 1));
        assert!(due().launch(&estimate(SAMPLED_ALWAYS), || true), "a longer one does not");
    }

    #[test]
    fn of_launches_that_wait_to_be_sampled_one_in_eleven_looks() {
        let small = estimate(20 * US);
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
    fn one_launch_in_512_is_sampled_and_a_run_with_gaps_counts_as_64() {
        let small = estimate(20 * US);
        let mut sampler = Sampler::default();
        assert_eq!((0..1024).filter(|_| sampler.launch(&small, || false)).count(), 2);
        (0..7).for_each(|_| sampler.gaps());
        assert_eq!((0..64).position(|_| sampler.launch(&small, || false)), Some(63));
        sampler.gaps();
        assert!(sampler.launch(&estimate(SAMPLED_ALWAYS), || false));
    }
}
