//! Cost model without timing events: NVML's utilisation samples alone.
//!
//! Without events the start and the duration of a launch are unknown. So all launches of a process cost the same. The cost
//! is the mean that NVML measured, plus or minus a part of the time that is owed. Example: launches prepaid 20 ms in a
//! window, and NVML measured 30 ms. The launches of the next two seconds cost more, until the 10 ms are paid. Over time the
//! process pays exactly for the use that NVML measured.
//!
//! With most drivers, a sample names one process and gives it the use of the whole GPU. Of two busy processes, one then has
//! all of a window, and the other has nothing. If the model settled the differences at once, the slice would stop after
//! each charge. Of each refund it would lose the part beyond the burst.
//!
//! So samples that name the process show only its mean cost, over many windows. The processes of a slice divide the use of
//! a window by the time that each has prepaid in it.
//!
//! The result is less exact than with events. NVML's figures are late, in whole percents, and a mean of all launches.
//! Errors of events are microseconds. Also, nothing bounds the queued work: launches at a wrong cost run before the next
//! window corrects it.

use super::super::cost::estimate;
use super::correction::WHOLE_FACTOR;
use super::nvml_windows::Sample;
use super::prepayments::{Prepaid, Prepayments};
use crate::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};

/// Millionths of a sum that remain after a window of 1/6 s: 0.93, a memory of [`MEMORY`] windows.
const DECAY: u64 = 930_000;
/// Windows in the memory of a sum: 14, which is two seconds.
const MEMORY: u64 = 14;
/// Cost of the first launches: 2 ms. The model refunds a cost that is too high after the first window. It cannot stop
/// launches that have run at a cost that was too low.
pub const FIRST_COST: GpuTime = GpuTime::from_millis(2);
/// Smallest cost of a launch: 1 us.
const LEAST_COST: GpuTime = GpuTime::from_micros(1);
/// A launch costs at least the measured mean divided by this: a half, however much time the process is owed. So a process
/// that is owed time uses at most twice its time.
const LEAST_COST_PART: u64 = 2;
/// Largest time that a process owes or is owed: one second. The model settles the time beyond it at once.
const MOST_OWED: GpuTime = GpuTime::from_millis(1_000);
/// Divisor of a window: until a window names a slice, the model assumes that the slice used a quarter of it.
const UNNAMED_PART: u64 = 4;
/// Windows of prepaid time after which the model assumes that NVML does not know the slice, if no window has named it: 5. A
/// slice that NVML knows, and that uses the time that it pays for, stays unnamed for so long once in 150 times.
const UNNAMED_WINDOWS: u64 = 5;
/// Number of windows with launches after which the model assumes the same, however little the launches have prepaid: 40.
const MOST_UNNAMED: u64 = 40;
/// NVML's own window on most devices: 1/6 s.
const NVML_WINDOW: WallTime = WallTime::from_nanos(166_666_667);
/// The most windows of NVML for which one observation counts: 12, which is two seconds. The slowest devices have one sample
/// per second.
const MOST_WINDOWS: u64 = 12;
/// Parts of a launch or of a window in the sums. With whole numbers, a few of them could not fade.
const PARTS: u64 = 1 << 16;

/// The result of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// The window shows nothing yet, or nothing new.
    Nothing,
    /// NVML does not know the slice's processes by their numbers. The cost is the first one again.
    Unknown,
    /// The caller settles this change at once. Launches pay the rest.
    Settled(GpuTimeChange),
}

/// The cost of a launch of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmlCostModel {
    cost: GpuTime,
    /// Time of the windows that name the process, and the process's launches in parts. These sums fade only with a window
    /// that names the process, because other windows say little about it.
    seen: GpuTime,
    launches: u64,
    is_named: bool,
    /// The process's launches, and windows, in parts. These sums fade only with a window that names the slice.
    recent: u64,
    windows: u64,
    /// Measured time that no launch has paid yet.
    owed: GpuTimeChange,
    /// Prepaid time before the first window that names the slice.
    unnamed: GpuTime,
    /// Number of windows with launches before that window.
    empty: u64,
    /// True from [`Learned::Unknown`] until a window names the slice. The cost stays the first one meanwhile, because no
    /// window would raise a lower cost.
    is_unknown: bool,
    /// The instant at which the model learned from the first window that names the slice.
    learned_at: Monotonic,
    last: Monotonic,
    rounding: u64,
}

impl NvmlCostModel {
    /// Makes a model without observations. `rounded_down`: this NVML rounds percents down, so that half a percent is
    /// missing on average.
    #[must_use]
    pub const fn new(rounded_down: bool) -> Self {
        Self {
            cost: FIRST_COST,
            seen: GpuTime::ZERO,
            launches: 0,
            is_named: false,
            recent: 0,
            windows: 0,
            owed: GpuTimeChange::NONE,
            unnamed: GpuTime::ZERO,
            empty: 0,
            is_unknown: false,
            learned_at: Monotonic::NEVER,
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

    /// Learns NVML's samples of a window for the process and for its slice, with the prepayments in the window.
    ///
    /// The model settles nothing until a window has named the slice. Example: the driver numbers processes of another
    /// namespace. Each window would then show no use, and a settlement would refund all prepaid time.
    pub fn learn(
        &mut self,
        (own, slice): (&Sample, &Sample),
        prepaid: &Prepayments,
        now: Monotonic,
    ) -> Learned {
        let length = own.to.since(own.from);
        if own.to <= self.last || length.is_zero() || own.percent > 100 {
            return Learned::Nothing;
        }
        self.last = own.to;
        self.fade((own.processes > 0, slice.processes > 0), windows(length));
        let launches = prepaid.own.launches.saturating_mul(PARTS);
        self.launches = self.launches.saturating_add(launches);
        if self.windows == 0 {
            return self.guess(self.time(own.total, 1, length), prepaid.own);
        }
        self.is_unknown = false;
        if self.learned_at == Monotonic::NEVER {
            (self.seen, self.learned_at) = (GpuTime::ZERO, now);
        }
        let is_guess = own.from < self.learned_at;
        let used = self.part((own, slice), prepaid, length);
        let own_used = self.time(own.percent, own.processes, length);
        self.is_named |= own.processes > 0;
        self.seen = self.seen.saturating_add(if self.is_named { own_used } else { used });
        self.recent = self.recent.saturating_add(launches);
        let difference = used.less(core::mem::take(&mut self.unnamed).saturating_add(prepaid.own.time));
        let settled = if is_guess { difference } else { self.owe(difference) };
        self.set_cost(estimate::MOST_PREPAID);
        Learned::Settled(settled)
    }

    /// Returns the owed time and forgets it. The caller settles this time, because no launch will pay it.
    pub const fn take_owed(&mut self) -> GpuTimeChange {
        core::mem::replace(&mut self.owed, GpuTimeChange::NONE)
    }

    /// Returns the GPU time that a sample of a window stands for.
    fn time(&self, percent: u32, processes: u32, length: WallTime) -> GpuTime {
        let tenths = u64::from(percent).saturating_mul(10);
        let tenths = tenths.saturating_add(u64::from(processes).saturating_mul(self.rounding));
        length.gpu_if_alone().scaled(tenths.min(1000), 1000).unwrap_or(GpuTime::MAX)
    }

    /// Returns the process's part of the slice's use in a window, in proportion to its counted time. If no process launched
    /// anything, earlier launches run on, and the process that the window names has all of the use.
    fn part(&self, (own, slice): (&Sample, &Sample), prepaid: &Prepayments, length: WallTime) -> GpuTime {
        let (time, all) = (prepaid.counted, prepaid.counted.saturating_add(prepaid.beside));
        let used = self.time(slice.percent, slice.processes, length).scaled(time.nanos(), all.nanos());
        used.unwrap_or_else(|| self.time(own.percent, own.processes, length))
    }

    /// Lowers the cost of launches while no window has named the slice. `total` is the use of the GPU by all processes in
    /// the last window.
    ///
    /// Example: the first cost of launches of short kernels is far too high. The slice then uses so little of the GPU
    /// beside others that no window names it. Without a lower cost this would never change.
    fn guess(&mut self, total: GpuTime, prepaid: Prepaid) -> Learned {
        self.unnamed = self.unnamed.saturating_add(prepaid.time);
        self.empty = self.empty.saturating_add(u64::from(prepaid.launches > 0));
        let most = NVML_WINDOW.gpu_if_alone().saturating_mul(UNNAMED_WINDOWS);
        if self.unnamed >= most || self.empty >= MOST_UNNAMED {
            *self = Self { last: self.last, rounding: self.rounding, is_unknown: true, ..Self::new(false) };
            return Learned::Unknown;
        }
        if !self.is_unknown {
            self.seen = total.part(UNNAMED_PART);
            self.set_cost(FIRST_COST);
        }
        Learned::Nothing
    }

    /// Fades the sums. The window counts for `times` windows. The two flags show whether it names the process and the
    /// slice.
    fn fade(&mut self, (is_named, is_slice_named): (bool, bool), times: u64) {
        for _ in (0..times).filter(|_| is_named) {
            (self.seen, self.launches) =
                (GpuTime::from_nanos(faded(self.seen.nanos())), faded(self.launches));
        }
        for _ in (0..times).filter(|_| is_slice_named) {
            (self.recent, self.windows) = (faded(self.recent), faded(self.windows).saturating_add(PARTS));
        }
    }

    /// Adds a difference to the owed time. Returns the part beyond the most that may be owed.
    fn owe(&mut self, difference: GpuTimeChange) -> GpuTimeChange {
        let owed = self.owed.saturating_add(difference);
        self.owed = owed.clamp(GpuTimeChange::refund(MOST_OWED), GpuTimeChange::charge(MOST_OWED));
        GpuTimeChange::from_nanos(owed.nanos().saturating_sub(self.owed.nanos()))
    }

    /// Sets the cost to the measured mean, plus a launch's part of the owed time. All launches of one memory together pay
    /// the owed time.
    fn set_cost(&mut self, most: GpuTime) {
        let Some(mean) = self.seen.scaled(PARTS, self.launches) else { return };
        let owed = self.owed.amount().scaled(self.windows, MEMORY.saturating_mul(self.recent));
        let owed = owed.unwrap_or(GpuTime::ZERO);
        let cost = if self.owed.is_refund() {
            mean.saturating_sub(owed).max(mean.part(LEAST_COST_PART))
        } else {
            mean.saturating_add(owed)
        };
        self.cost = cost.clamp(LEAST_COST, most);
    }
}

/// Returns the rest of a sum after a window.
fn faded(sum: u64) -> u64 {
    let rest = u128::from(sum).saturating_mul(u128::from(DECAY)).checked_div(u128::from(WHOLE_FACTOR));
    rest.and_then(|rest| u64::try_from(rest).ok()).unwrap_or(u64::MAX)
}

/// Returns the number of NVML's usual windows for which `length` counts: the nearest number, at least 1.
fn windows(length: WallTime) -> u64 {
    length.saturating_add(NVML_WINDOW.part(2)).count(NVML_WINDOW).clamp(1, MOST_WINDOWS)
}

#[cfg(test)]
mod tests {
    use super::super::prepayments::PrepaymentHistory;
    use super::*;
    use crate::time::literals::{ms, ns};
    use crate::time::testing::charge;

    /// The start of the first window.
    const BEGIN: Monotonic = Monotonic::from_nanos(90_000_000_000_000);
    const WHOLE_WINDOW: GpuTime = NVML_WINDOW.gpu_if_alone();

    /// Returns a sample of the window with this number, in which the GPU was used for `total` percent.
    fn sample(window: u64, percent: u32, total: u32) -> Sample {
        let from = BEGIN + window * NVML_WINDOW;
        Sample { from, to: from + NVML_WINDOW, percent, total, processes: u32::from(percent > 0) }
    }

    fn prepaid(launches: u64, time: GpuTime) -> Prepaid {
        Prepaid { time, launches }
    }

    /// Lets a process learn from a window in which it had the GPU alone. The answer comes at the end of the window.
    fn learn_alone(model: &mut NvmlCostModel, window: u64, percent: u32, own: Prepaid) -> Learned {
        let sample = sample(window, percent, percent);
        model.learn(
            (&sample, &sample),
            &Prepayments { own, counted: own.time, beside: GpuTime::ZERO },
            sample.to,
        )
    }

    /// Returns a model whose launches of 1 ms have had the GPU alone for `windows` windows.
    fn settled_model(windows: u64) -> NvmlCostModel {
        let mut model = NvmlCostModel::new(false);
        let launches = WHOLE_WINDOW.nanos().div_ceil(1_000_000);
        (0..windows).for_each(|window| {
            learn_alone(&mut model, window, 100, prepaid(launches, WHOLE_WINDOW));
        });
        model
    }

    #[test]
    fn the_launches_of_the_next_seconds_pay_the_use_that_nvml_reports() {
        let (mut model, mut paid) = (settled_model(1), 0_i64);
        for window in 1..120 {
            // In the first windows the kernels take three times as long.
            let percent = if window < 4 { 90 } else { 30 };
            let own = prepaid(50, 50 * model.cost());
            let Learned::Settled(settled) = learn_alone(&mut model, window, percent, own) else { panic!() };
            assert_eq!(settled, charge(0));
            paid += i64::try_from(own.time.nanos()).unwrap();
        }
        let seen = i64::try_from(WHOLE_WINDOW.scaled(3 * 9 + 116 * 3, 10).unwrap().nanos()).unwrap();
        assert!((seen - paid - model.owed.nanos()).abs() < 1000, "a difference is paid or owed");
        assert!(model.owed.nanos().abs() < 2_000_000, "{:?}", model.owed);
        assert!(model.cost().nanos().abs_diff(ms::<GpuTime>(1).nanos()) < 30_000, "{}", model.cost());
    }

    #[test]
    fn the_launches_of_one_memory_share_the_owed_time() {
        let mut model = settled_model(200);
        let before = model.cost().nanos();
        learn_alone(&mut model, 200, 100, prepaid(167, WHOLE_WINDOW.part(2)));
        assert_eq!(model.owed, GpuTimeChange::charge(WHOLE_WINDOW - WHOLE_WINDOW.part(2)));
        // The process owes half of a window, and the memory has 14 windows.
        assert_eq!(1000 * model.cost().nanos() / before, 1035);
    }

    #[test]
    fn the_first_window_settles_what_launches_at_a_guessed_cost_paid() {
        let mut model = NvmlCostModel::new(false);
        let (first, second) = (sample(0, 30, 30), sample(1, 30, 30));
        let guessed = Prepayments { own: prepaid(40, ms(80)), counted: ms(80), beside: ns(0) };
        let used = WHOLE_WINDOW.scaled(3, 10).unwrap();
        let expected = Learned::Settled(used.less(ms(80)));
        // The answer comes within the second window, in which launches still had the guessed cost.
        assert_eq!(model.learn((&first, &first), &guessed, first.to + ms(50)), expected);
        assert_eq!(model.cost(), used.part(40));
        assert_eq!(model.learn((&second, &second), &guessed, second.to + ms(50)), expected);
        assert_eq!(learn_alone(&mut model, 2, 30, prepaid(40, used)), Learned::Settled(charge(0)));
        assert_eq!(model.owed, charge(0));
    }

    #[test]
    fn processes_of_a_slice_divide_its_use_by_the_time_that_they_prepaid() {
        let mut model = settled_model(20);
        let before = model;
        // The window names the other process.
        let (own, slice) = (sample(20, 0, 90), sample(20, 90, 90));
        let course = Prepayments { own: prepaid(30, ms(30)), counted: ms(20), beside: ms(60) };
        assert_eq!(model.learn((&own, &slice), &course, own.to), Learned::Settled(charge(0)));
        assert_eq!(model.owed, WHOLE_WINDOW.scaled(9, 40).unwrap().less(ms(30)));
        assert_eq!(model.seen, before.seen, "it tells nothing of the mean cost of this process");
    }

    #[test]
    fn a_kernel_that_runs_on_without_launches_is_owed_by_the_process_that_nvml_names() {
        let (mut named, mut other) = (settled_model(20), settled_model(20));
        let (own, none) = (sample(20, 100, 100), sample(20, 0, 100));
        named.learn((&own, &own), &Prepayments::default(), own.to);
        other.learn((&none, &own), &Prepayments::default(), own.to);
        assert_eq!([named, other].map(|model| model.owed), [GpuTimeChange::charge(WHOLE_WINDOW), charge(0)]);
    }

    #[test]
    fn a_launch_costs_half_of_the_mean_at_least_and_a_second_is_owed_at_most() {
        let mut model = NvmlCostModel::new(false);
        let mut settle = |window, time| {
            let learned = learn_alone(&mut model, window, 10, prepaid(10, time));
            let Learned::Settled(settled) = learned else { return (charge(0), model) };
            (settled, model)
        };
        let used = WHOLE_WINDOW.part(10);
        (0..200).for_each(|window| assert_eq!(settle(window, used).0, charge(0)));
        let mean = used.part(10);
        let (settled, after) = settle(200, ms::<GpuTime>(1200) + used);
        assert_eq!((settled, after.owed), (charge(-200_000_000), charge(-1_000_000_000)));
        assert!(after.cost().nanos().abs_diff(mean.part(2).nanos()) < 1000, "{}", after.cost());
        let (settled, mut after) = (201..213).fold((charge(0), after), |_, window| settle(window, ns(0)));
        assert_eq!((settled, after.owed), (charge(0), charge(-800_000_008)));
        assert_eq!(
            (after.take_owed(), after.take_owed()),
            (charge(-800_000_008), charge(0)),
            "it is settled once"
        );
    }

    #[test]
    fn a_cost_is_of_the_last_windows_that_name_the_process() {
        let cost_after = |launch: u64, names: &[u32]| {
            let mut model = settled_model(200);
            for (window, percent) in (200..).zip(names) {
                // Kernels take 2 ms now.
                let own = prepaid(WHOLE_WINDOW.nanos() / launch, WHOLE_WINDOW.part(2));
                learn_alone(&mut model, window, *percent, own);
                model.take_owed();
            }
            model.seen.scaled(PARTS, model.launches).unwrap().nanos() / 1000
        };
        // A window counts for 0.07 of the memory, and 0.65 of the memory is left after six windows.
        assert_eq!([0, 1, 6].map(|windows| cost_after(2_000_000, &[100; 6][..windows])), [998, 1034, 1213]);
        // Each of two such processes launches half as much. Every other window names it, with the use of both.
        assert_eq!(cost_after(4_000_000, &[100, 0, 100, 0, 100, 0, 100, 0, 100, 0, 100, 0]), 1216);
    }

    #[test]
    fn a_window_counts_as_so_many_as_it_is_nearest_to() {
        let learned = |length: WallTime| {
            let mut model = settled_model(1);
            let next = Sample { processes: 1, ..sample(1, 0, 0) };
            let next = Sample { to: next.from + length, ..next };
            model.learn((&next, &next), &Prepayments::default(), next.to);
            model.seen
        };
        let faded = |times| ns((0..times).fold(NVML_WINDOW.nanos(), |sum, _| faded(sum)));
        assert_eq!(
            [8, 14, 16, 24, 26].map(|tenths| learned((tenths * NVML_WINDOW).part(10))),
            [1, 1, 2, 2, 3].map(faded)
        );
    }

    #[test]
    fn launches_cost_less_while_windows_name_others_and_the_first_cost_at_most() {
        let mut model = NvmlCostModel::new(false);
        let learn = |model: &mut NvmlCostModel, window, total, launches| {
            let sample = sample(window, 0, total);
            let own = prepaid(launches, ms(10));
            let learned = model.learn(
                (&sample, &sample),
                &Prepayments { own, counted: own.time, beside: GpuTime::ZERO },
                sample.to,
            );
            assert_eq!(learned, Learned::Nothing, "nothing is settled");
            model.cost()
        };
        assert_eq!(learn(&mut model, 0, 96, 5), FIRST_COST);
        assert_eq!(learn(&mut model, 1, 96, 75), WHOLE_WINDOW.scaled(96, 100 * 4 * 80).unwrap());
        assert_eq!(
            learn(&mut model, 2, 2, 20),
            WHOLE_WINDOW.scaled(2, 100 * 4 * 100).unwrap(),
            "an idle GPU"
        );
        // The first window that names the process counts for all that the process launched and paid before.
        let used = WHOLE_WINDOW;
        let settled = used.less(ms(40));
        assert_eq!(learn_alone(&mut model, 3, 100, prepaid(100, ms(10))), Learned::Settled(settled));
        // Half of the 200 launches have faded by 0.07.
        assert!(model.cost().nanos().abs_diff(WHOLE_WINDOW.nanos() / 193) < 100, "{}", model.cost());
    }

    #[test]
    fn nvml_does_not_know_a_slice_that_pays_for_five_windows_and_is_never_named() {
        let mut model = NvmlCostModel::new(true);
        let learn = |model: &mut NvmlCostModel, window, time| {
            let sample = sample(window, 0, 100);
            let own = prepaid(1000, time);
            model.learn(
                (&sample, &sample),
                &Prepayments { own, counted: own.time, beside: GpuTime::ZERO },
                sample.to,
            )
        };
        (0..20).for_each(|window| assert_eq!(learn(&mut model, window, ms(40)), Learned::Nothing));
        assert!(model.cost() < FIRST_COST);
        assert_eq!(learn(&mut model, 20, ms(34)), Learned::Unknown);
        assert_eq!(model.cost(), FIRST_COST);
        (21..60).for_each(|window| {
            assert_eq!(learn(&mut model, window, ns(1)), Learned::Nothing);
            assert_eq!(model.cost(), FIRST_COST, "it is not guessed again");
        });
        assert_eq!(learn(&mut model, 60, ns(1)), Learned::Unknown, "launches that prepay little");
        // NVML knows the slice after all.
        learn_alone(&mut model, 61, 100, prepaid(1000, WHOLE_WINDOW));
        assert!(model.cost() < FIRST_COST && !model.is_unknown);
    }

    #[test]
    fn a_charge_counts_as_time_of_the_process_that_pays_it() {
        let mut course = PrepaymentHistory::default();
        course.add_beside(BEGIN, ns(0));
        course.count(BEGIN, WHOLE_WINDOW);
        course.add_beside(BEGIN, WHOLE_WINDOW);
        let window = course.within(BEGIN - ms(20), BEGIN + ms(200));
        assert_eq!((window.counted, window.beside), (WHOLE_WINDOW, WHOLE_WINDOW));
        // Neither process has launched anything, and the kernels of both go on.
        let mut model = settled_model(20);
        let own = sample(20, 100, 100);
        model.learn((&own, &own), &window, own.to);
        assert_eq!(model.owed, GpuTimeChange::charge(WHOLE_WINDOW.part(2)));
    }

    #[test]
    fn percents_that_were_cut_off_are_half_a_percent_more_on_average() {
        let used = |percent, processes| NvmlCostModel::new(true).time(percent, processes, NVML_WINDOW);
        assert_eq!(used(10, 1), WHOLE_WINDOW.scaled(105, 1000).unwrap());
        assert_eq!(used(0, 0), ns(0), "a process that is not listed has none");
    }

    #[test]
    fn samples_that_cannot_be_change_nothing() {
        let mut model = settled_model(6);
        let before = model;
        let own = prepaid(10, ns(1));
        for wrong in [
            sample(5, 10, 10),
            sample(4, 10, 10),
            sample(6, 4_000_000, 4_000_000),
            Sample { to: ns(0), ..sample(6, 1, 1) },
        ] {
            let learned = model.learn(
                (&wrong, &wrong),
                &Prepayments { own, counted: own.time, beside: GpuTime::ZERO },
                wrong.to,
            );
            assert_eq!((learned, model), (Learned::Nothing, before));
        }
    }
}
