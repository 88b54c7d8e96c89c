//! Cost model without timing events: NVML's utilisation samples alone.
//!
//! Without events the start and the duration of a launch are unknown. So all launches of a process cost the same. For
//! each window of NVML, the process settles the measured use against the time that it prepaid in the window. Over
//! time it pays exactly what NVML measured. The cost of a launch is the ratio of both sums.
//!
//! The result is less exact than with events. NVML's figures are late, in whole percents, and a mean of all launches;
//! errors of events are microseconds. And nothing bounds the queued work: launches at a wrong cost run before the
//! next window corrects it.

use super::super::cost::estimate;
use super::correction::scale;
use super::nvml_windows::Sample;

/// Millionths of a sum that remain after a window of 1/6 s: 0.93, a memory of two seconds.
const DECAY: u64 = 930_000;
/// Cost of the first launches, in nanoseconds: 2 ms. A high cost is refunded after the first window; launches at a
/// low cost have run.
pub const FIRST: u64 = 2_000_000;
/// Smallest cost of a launch, in nanoseconds.
const LEAST: u64 = 1_000;
/// Largest factor by which the cost changes with a window.
const MOST_STEP: u64 = 8;
/// NVML's own window on most devices, in nanoseconds: 1/6 s.
const WINDOW: u64 = 166_666_667;
/// Windows of NVML that one observation counts for at most: 12, which is two seconds. The slowest devices have one
/// sample per second.
const MOST_WINDOWS: u64 = 12;
/// Parts of a launch in the sums, so that few launches can fade.
const PARTS: u64 = 1 << 16;

/// The prepaid time of a process, and the number of launches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prepaid {
    /// GPU time, in nanoseconds.
    pub time: u64,
    /// Number of launches.
    pub launches: u64,
}

/// Length of a bin, as a power of two in nanoseconds: 16.8 ms.
const BIN_BITS: u32 = 24;
/// Number of bins: more than four seconds.
const BINS: usize = 256;

/// The prepayments of the last four seconds, in bins.
#[derive(Debug, Clone)]
pub struct PrepaymentHistory {
    bins: Vec<(u64, Prepaid)>,
}

impl Default for PrepaymentHistory {
    fn default() -> Self {
        Self { bins: vec![(0, Prepaid::default()); BINS] }
    }
}

impl PrepaymentHistory {
    /// Adds `launches` launches that were prepaid at `now` with `time` nanoseconds of GPU time in all.
    pub fn add(&mut self, now: u64, launches: u32, time: u64) {
        let number = now >> BIN_BITS;
        let Some(bin) = self.bins.get_mut(place(number)) else { return };
        if bin.0 != number {
            *bin = (number, Prepaid::default());
        }
        bin.1.time = bin.1.time.saturating_add(time);
        bin.1.launches = bin.1.launches.saturating_add(launches.into());
    }

    /// Returns the prepayments within a window, in whole bins: those that begin in the window. So consecutive windows count each
    /// bin once.
    #[must_use]
    pub fn within(&self, from: u64, to: u64) -> Prepaid {
        let first = (from >> BIN_BITS).max((to >> BIN_BITS).saturating_sub(255));
        let bins = (first..to >> BIN_BITS)
            .filter_map(|number| self.bins.get(place(number)).filter(|bin| bin.0 == number).map(|bin| bin.1));
        bins.fold(Prepaid::default(), |sum, bin| Prepaid {
            time: sum.time.saturating_add(bin.time),
            launches: sum.launches.saturating_add(bin.launches),
        })
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0) & BINS.saturating_sub(1)
}

/// The cost of a launch of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmlCostModel {
    cost: u64,
    seen: u64,
    launches: u64,
    last: u64,
    rounding: u64,
}

impl NvmlCostModel {
    /// Makes a model without observations. `rounded_down`: this NVML cuts percents off, so that half a percent is missing on
    /// average.
    #[must_use]
    pub const fn new(rounded_down: bool) -> Self {
        Self { cost: FIRST, seen: 0, launches: 0, last: 0, rounding: if rounded_down { 5 } else { 0 } }
    }

    /// Returns the prepayment for a launch, in nanoseconds.
    #[inline]
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Learns NVML's sample of a window in which the process prepaid `prepaid`. Returns the nanoseconds to settle:
    /// measured time less prepaid time.
    pub fn learn(&mut self, sample: &Sample, prepaid: Prepaid) -> i64 {
        let length = sample.to.saturating_sub(sample.from);
        if sample.to <= self.last || length == 0 || sample.percent > 100 {
            return 0;
        }
        self.last = sample.to;
        let tenths = u64::from(sample.percent).saturating_mul(10);
        let tenths = tenths.saturating_add(u64::from(sample.processes).saturating_mul(self.rounding));
        let seen = scale(length, tenths.min(1000).saturating_mul(1000));
        self.weigh(seen, prepaid.launches, length);
        seen.cast_signed().saturating_sub(prepaid.time.cast_signed())
    }

    fn weigh(&mut self, seen: u64, launches: u64, length: u64) {
        if seen == 0 && launches == 0 {
            return;
        }
        for _ in 0..windows(length) {
            self.seen = scale(self.seen, DECAY);
            self.launches = scale(self.launches, DECAY);
        }
        self.seen = self.seen.saturating_add(seen);
        self.launches = self.launches.saturating_add(launches.saturating_mul(PARTS));
        let whole = u128::from(self.seen).saturating_mul(u128::from(PARTS));
        let Some(cost) = whole.checked_div(u128::from(self.launches)) else { return };
        let cost = u64::try_from(cost).unwrap_or(estimate::MOST);
        let (least, most) = (self.cost / MOST_STEP, self.cost.saturating_mul(MOST_STEP));
        self.cost = cost.clamp(least.max(LEAST), most.min(estimate::MOST));
    }
}

/// Returns the number of NVML's usual windows that `length` nanoseconds count for: the nearest one, at least 1.
fn windows(length: u64) -> u64 {
    (length.saturating_add(WINDOW / 2) / WINDOW).clamp(1, MOST_WINDOWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn sample(window: u64, percent: u32) -> Sample {
        let from = S + window * WINDOW;
        Sample { from, to: from + WINDOW, percent, processes: u32::from(percent > 0) }
    }

    #[test]
    fn what_nvml_saw_is_what_is_paid_in_the_end() {
        let (mut coarse, mut paid) = (NvmlCostModel::new(false), 0);
        for window in 0..60 {
            let launches = 50;
            let time = launches * coarse.cost();
            paid += time.cast_signed() + coarse.learn(&sample(window, 30), Prepaid { time, launches });
        }
        assert!((60 * WINDOW * 3 / 10).abs_diff(paid.unsigned_abs()) < 1000, "{paid}");
        assert!(coarse.cost().abs_diff(WINDOW * 3 / 10 / 50) < 100, "{}", coarse.cost());
    }

    #[test]
    fn the_cost_falls_and_rises_by_no_more_than_eight_times_a_window() {
        let mut coarse = NvmlCostModel::new(false);
        let mut learn = |window, percent, launches| {
            coarse.learn(&sample(window, percent), Prepaid { time: 0, launches });
            coarse.cost()
        };
        assert_eq!(learn(0, 1, 1000), FIRST / 8);
        assert_eq!(learn(1, 0, 1_000_000), FIRST / 64);
        let mut coarse = NvmlCostModel::new(false);
        coarse.learn(&sample(0, 100), Prepaid { time: 0, launches: 1 });
        assert_eq!(coarse.cost(), 8 * FIRST);
    }

    #[test]
    fn what_was_seen_fades_within_seconds_and_more_of_it_in_a_longer_window() {
        let cost_after = |windows: u64| {
            let mut coarse = NvmlCostModel::new(false);
            (0..200).for_each(|window| {
                coarse.learn(&sample(window, 100), Prepaid { time: 0, launches: WINDOW / 1_000_000 });
            });
            let sample = Sample { to: sample(200, 100).from + windows * WINDOW, ..sample(200, 100) };
            coarse.learn(&sample, Prepaid { time: 0, launches: windows * WINDOW / 2_000_000 });
            coarse.cost() / 1000
        };
        // Launches of 1 ms, and then of 2 ms. A window counts for 0.07 of the memory, and 0.65 of the memory is left
        // after six of them.
        assert_eq!([0, 1, 6].map(cost_after), [1004, 1040, 1248]);
    }

    #[test]
    fn a_window_counts_as_so_many_as_it_is_nearest_to() {
        let learned = |length| {
            let mut coarse = NvmlCostModel::new(false);
            coarse.learn(&sample(0, 100), Prepaid { time: 0, launches: 1 });
            let next = sample(1, 0);
            coarse.learn(&Sample { to: next.from + length, ..next }, Prepaid { time: 0, launches: 1 });
            coarse.seen
        };
        let faded = |times| (0..times).fold(WINDOW, |sum, _| scale(sum, DECAY));
        assert_eq!(
            [8, 14, 16, 24, 26].map(|tenths| learned(WINDOW * tenths / 10)),
            [1, 1, 2, 2, 3].map(faded)
        );
    }

    #[test]
    fn a_window_in_which_nothing_was_launched_and_nothing_ran_teaches_nothing() {
        let mut coarse = NvmlCostModel::new(false);
        coarse.learn(&sample(0, 30), Prepaid { time: 0, launches: 50 });
        let (cost, sum) = (coarse.cost(), coarse.seen);
        coarse.learn(&sample(1, 0), Prepaid::default());
        assert_eq!((coarse.cost(), coarse.seen), (cost, sum));
        coarse.learn(&sample(2, 0), Prepaid { time: 0, launches: 50 });
        assert!(coarse.cost() < cost && coarse.seen < sum, "launches that ran for nothing");
    }

    #[test]
    fn percents_that_were_cut_off_are_half_a_percent_more_on_average() {
        let mut coarse = NvmlCostModel::new(true);
        let difference = coarse.learn(&sample(0, 10), Prepaid::default());
        assert_eq!(difference.unsigned_abs() / 1000, WINDOW * 105 / 1000 / 1000);
        assert_eq!(
            NvmlCostModel::new(true).learn(&sample(0, 0), Prepaid::default()),
            0,
            "who is not listed has none"
        );
    }

    #[test]
    fn windows_that_follow_on_each_other_have_each_launch_once() {
        const BEGIN: u64 = 90_000 * S;
        let mut course = PrepaymentHistory::default();
        for at in 0..1000 {
            course.add(BEGIN + at * 1_000_000, 1, 7);
        }
        let cuts = [0, 123_456_789, 200_000_001, 850_000_000, 3 * S].map(|cut| BEGIN - 20_000_000 + cut);
        let windows = cuts.windows(2).map(|cut| course.within(cut[0], cut[1]));
        let sum = windows.fold((0, 0), |sum, part| (sum.0 + part.time, sum.1 + part.launches));
        assert_eq!(sum, (7000, 1000));
        assert_eq!(
            course.within(BEGIN + 9 * S, BEGIN + 10 * S),
            Prepaid::default(),
            "whatever the place held"
        );
    }

    #[test]
    fn samples_that_cannot_be_change_nothing() {
        let mut coarse = NvmlCostModel::new(true);
        coarse.learn(&sample(5, 50), Prepaid { time: 1, launches: 10 });
        let before = coarse;
        for wrong in [sample(5, 10), sample(4, 10), sample(6, 4_000_000), Sample { to: 0, ..sample(6, 1) }] {
            assert_eq!(coarse.learn(&wrong, Prepaid { time: 1, launches: 10 }), 0);
            assert_eq!(coarse, before);
        }
    }
}
