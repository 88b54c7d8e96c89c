//! Cost model without timing events: NVML's utilisation samples alone.
//!
//! Without events the start and the duration of a launch are unknown. So all launches of a process cost the same. For
//! each window of NVML, the process settles the measured use against the time that it prepaid in the window. Over
//! time it pays exactly the use that NVML measured. The cost of a launch is the ratio of both sums.
//!
//! The result is less exact than with events. NVML's figures are late, in whole percents, and a mean of all launches;
//! errors of events are microseconds. And nothing bounds the queued work: launches at a wrong cost run before the
//! next window corrects it.

use super::super::cost::estimate;
use super::correction::WHOLE_FACTOR;
use super::nvml_windows::Sample;
use crate::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};

/// Millionths of a sum that remain after a window of 1/6 s: 0.93, a memory of two seconds.
const DECAY: u64 = 930_000;
/// Cost of the first launches: 2 ms. A high cost is refunded after the first window; launches at a
/// low cost have run.
pub const FIRST_COST: GpuTime = GpuTime::from_millis(2);
/// Smallest cost of a launch: 1 us.
const LEAST_COST: GpuTime = GpuTime::from_micros(1);
/// Largest factor by which the cost changes with a window.
const MOST_COST_STEP: u64 = 8;
/// NVML's own window on most devices: 1/6 s.
const NVML_WINDOW: WallTime = WallTime::from_nanos(166_666_667);
/// Windows of NVML that one observation counts for at most: 12, which is two seconds. The slowest devices have one
/// sample per second.
const MOST_WINDOWS: u64 = 12;
/// Parts of a launch in the sums, so that few launches can fade.
const LAUNCH_PARTS: u64 = 1 << 16;

/// The prepaid time of a process, and the number of launches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prepaid {
    /// GPU time.
    pub time: GpuTime,
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
    /// Adds `launches` launches that were prepaid at `now` with `time` in all.
    pub fn add(&mut self, now: Monotonic, launches: u32, time: GpuTime) {
        let number = bin(now);
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
    pub fn within(&self, from: Monotonic, to: Monotonic) -> Prepaid {
        let first = bin(from).max(bin(to).saturating_sub(255));
        let bins = (first..bin(to))
            .filter_map(|number| self.bins.get(place(number)).filter(|bin| bin.0 == number).map(|bin| bin.1));
        bins.fold(Prepaid::default(), |sum, bin| Prepaid {
            time: sum.time.saturating_add(bin.time),
            launches: sum.launches.saturating_add(bin.launches),
        })
    }
}

/// Returns the number of the bin in which an instant lies.
const fn bin(at: Monotonic) -> u64 {
    at.nanos() >> BIN_BITS
}

fn place(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0) & BINS.saturating_sub(1)
}

/// The cost of a launch of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmlCostModel {
    cost: GpuTime,
    seen: GpuTime,
    launches: u64,
    last: Monotonic,
    rounding: u64,
}

impl NvmlCostModel {
    /// Makes a model without observations. `rounded_down`: this NVML cuts percents off, so that half a percent is missing on
    /// average.
    #[must_use]
    pub const fn new(rounded_down: bool) -> Self {
        Self {
            cost: FIRST_COST,
            seen: GpuTime::ZERO,
            launches: 0,
            last: Monotonic::BEGIN,
            rounding: if rounded_down { 5 } else { 0 },
        }
    }

    /// Returns the prepayment for a launch.
    #[inline]
    #[must_use]
    pub const fn cost(&self) -> GpuTime {
        self.cost
    }

    /// Learns NVML's sample of a window in which the process prepaid `prepaid`. Returns the change to settle:
    /// measured time less prepaid time.
    pub fn learn(&mut self, sample: &Sample, prepaid: Prepaid) -> GpuTimeChange {
        let length = sample.to.since(sample.from);
        if sample.to <= self.last || length.is_zero() || sample.percent > 100 {
            return GpuTimeChange::NONE;
        }
        self.last = sample.to;
        let tenths = u64::from(sample.percent).saturating_mul(10);
        let tenths = tenths.saturating_add(u64::from(sample.processes).saturating_mul(self.rounding));
        let seen = length.gpu_if_alone().scaled(tenths.min(1000), 1000).unwrap_or(GpuTime::MAX);
        self.weigh(seen, prepaid.launches, length);
        seen.less(prepaid.time)
    }

    fn weigh(&mut self, seen: GpuTime, launches: u64, length: WallTime) {
        if seen.is_zero() && launches == 0 {
            return;
        }
        for _ in 0..windows(length) {
            self.seen = GpuTime::from_nanos(faded(self.seen.nanos()));
            self.launches = faded(self.launches);
        }
        self.seen = self.seen.saturating_add(seen);
        self.launches = self.launches.saturating_add(launches.saturating_mul(LAUNCH_PARTS));
        if self.launches == 0 {
            return;
        }
        let cost = self.seen.scaled(LAUNCH_PARTS, self.launches).unwrap_or(estimate::MOST_PREPAID);
        let (least, most) = (self.cost.part(MOST_COST_STEP), self.cost.saturating_mul(MOST_COST_STEP));
        self.cost = cost.clamp(least.max(LEAST_COST), most.min(estimate::MOST_PREPAID));
    }
}

/// Returns the rest of a sum after a window.
fn faded(sum: u64) -> u64 {
    let rest = u128::from(sum).saturating_mul(u128::from(DECAY)).checked_div(u128::from(WHOLE_FACTOR));
    rest.and_then(|rest| u64::try_from(rest).ok()).unwrap_or(u64::MAX)
}

/// Returns the number of NVML's usual windows that `length` counts for: the nearest one, at least 1.
fn windows(length: WallTime) -> u64 {
    length.saturating_add(NVML_WINDOW.part(2)).count(NVML_WINDOW).clamp(1, MOST_WINDOWS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::{ms, ns};
    use crate::time::testing::charge;

    /// The begin of the first window.
    const BEGIN: Monotonic = Monotonic::from_nanos(90_000_000_000_000);

    fn sample(window: u64, percent: u32) -> Sample {
        let from = BEGIN + window * NVML_WINDOW;
        Sample { from, to: from + NVML_WINDOW, percent, processes: u32::from(percent > 0) }
    }

    #[test]
    fn payments_sum_to_the_use_that_nvml_reports() {
        let (mut model, mut paid) = (NvmlCostModel::new(false), charge(0));
        for window in 0..60 {
            let launches = 50;
            let time = launches * model.cost();
            let settled = model.learn(&sample(window, 30), Prepaid { time, launches });
            paid = paid.saturating_add(GpuTimeChange::charge(time)).saturating_add(settled);
        }
        let seen = NVML_WINDOW.gpu_if_alone().scaled(3, 10).unwrap();
        assert!((60 * seen).nanos().abs_diff(paid.amount().nanos()) < 1000, "{paid:?}");
        assert!(model.cost().nanos().abs_diff(seen.part(50).nanos()) < 100, "{}", model.cost());
    }

    #[test]
    fn the_cost_falls_and_rises_by_no_more_than_eight_times_a_window() {
        let mut model = NvmlCostModel::new(false);
        let mut learn = |window, percent, launches| {
            model.learn(&sample(window, percent), Prepaid { time: ns(0), launches });
            model.cost()
        };
        assert_eq!(learn(0, 1, 1000), FIRST_COST.part(8));
        assert_eq!(learn(1, 0, 1_000_000), FIRST_COST.part(64));
        let mut model = NvmlCostModel::new(false);
        model.learn(&sample(0, 100), Prepaid { time: ns(0), launches: 1 });
        assert_eq!(model.cost(), 8 * FIRST_COST);
    }

    #[test]
    fn old_costs_fade_within_seconds_and_faster_in_a_longer_window() {
        let cost_after = |windows: u64| {
            let mut model = NvmlCostModel::new(false);
            (0..200).for_each(|window| {
                model
                    .learn(&sample(window, 100), Prepaid { time: ns(0), launches: NVML_WINDOW.count(ms(1)) });
            });
            let sample = Sample { to: sample(200, 100).from + windows * NVML_WINDOW, ..sample(200, 100) };
            model.learn(&sample, Prepaid { time: ns(0), launches: (windows * NVML_WINDOW).count(ms(2)) });
            model.cost().nanos() / 1000
        };
        // Launches of 1 ms, and then of 2 ms. A window counts for 0.07 of the memory, and 0.65 of the memory is left
        // after six of them.
        assert_eq!([0, 1, 6].map(cost_after), [1004, 1040, 1248]);
    }

    #[test]
    fn a_window_counts_as_so_many_as_it_is_nearest_to() {
        let learned = |length| {
            let mut model = NvmlCostModel::new(false);
            model.learn(&sample(0, 100), Prepaid { time: ns(0), launches: 1 });
            let next = sample(1, 0);
            model.learn(&Sample { to: next.from + length, ..next }, Prepaid { time: ns(0), launches: 1 });
            model.seen
        };
        let faded = |times| ns((0..times).fold(NVML_WINDOW.nanos(), |sum, _| faded(sum)));
        assert_eq!(
            [8, 14, 16, 24, 26].map(|tenths| learned((tenths * NVML_WINDOW).part(10))),
            [1, 1, 2, 2, 3].map(faded)
        );
    }

    #[test]
    fn a_window_in_which_nothing_was_launched_and_nothing_ran_teaches_nothing() {
        let mut model = NvmlCostModel::new(false);
        model.learn(&sample(0, 30), Prepaid { time: ns(0), launches: 50 });
        let (cost, sum) = (model.cost(), model.seen);
        model.learn(&sample(1, 0), Prepaid::default());
        assert_eq!((model.cost(), model.seen), (cost, sum));
        model.learn(&sample(2, 0), Prepaid { time: ns(0), launches: 50 });
        assert!(model.cost() < cost && model.seen < sum, "launches that ran for nothing");
    }

    #[test]
    fn percents_that_were_cut_off_are_half_a_percent_more_on_average() {
        let mut model = NvmlCostModel::new(true);
        let difference = model.learn(&sample(0, 10), Prepaid::default());
        assert_eq!(difference, GpuTimeChange::charge(NVML_WINDOW.gpu_if_alone().scaled(105, 1000).unwrap()));
        assert_eq!(
            NvmlCostModel::new(true).learn(&sample(0, 0), Prepaid::default()),
            charge(0),
            "a process that is not listed has none"
        );
    }

    #[test]
    fn windows_that_follow_on_each_other_have_each_launch_once() {
        let mut course = PrepaymentHistory::default();
        for at in 0..1000 {
            course.add(BEGIN + ms(at), 1, ns(7));
        }
        let cuts =
            [0, 123_456_789, 200_000_001, 850_000_000, 3_000_000_000].map(|cut| BEGIN - ms(20) + ns(cut));
        let windows = cuts.windows(2).map(|cut| course.within(cut[0], cut[1]));
        let sum = windows.fold((GpuTime::ZERO, 0), |sum, part| (sum.0 + part.time, sum.1 + part.launches));
        assert_eq!(sum, (ns(7000), 1000));
        assert_eq!(
            course.within(BEGIN + ms(9_000), BEGIN + ms(10_000)),
            Prepaid::default(),
            "whatever the place held"
        );
    }

    #[test]
    fn samples_that_cannot_be_change_nothing() {
        let mut model = NvmlCostModel::new(true);
        model.learn(&sample(5, 50), Prepaid { time: ns(1), launches: 10 });
        let before = model;
        for wrong in
            [sample(5, 10), sample(4, 10), sample(6, 4_000_000), Sample { to: ns(0), ..sample(6, 1) }]
        {
            assert_eq!(model.learn(&wrong, Prepaid { time: ns(1), launches: 10 }), charge(0));
            assert_eq!(model, before);
        }
    }
}
