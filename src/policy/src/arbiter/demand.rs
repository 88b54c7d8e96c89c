//! Estimates the demand of a slice: the part of the GPU that the slice would use if it got that part.
//!
//! - A slice that waits for its share would use all that it may use.
//! - So would a slice whose queue does not empty between two looks. The driver's time slicing limits it, and not its rate.
//! - For any other slice nothing limits the use, so its demand is its recent use.
//!
//! The demand of an idle slice is not predicted. Its rate leaves room for a start (see [`super`]).

use super::allocate::WHOLE_GPU;
use crate::time::{GpuTime, Monotonic, WallTime};

/// Time for which a slice that has waited counts with its full demand: 50 ms. The slice waits between two launches, so a
/// look often finds it at an instant at which it does not wait.
const HOLD: WallTime = WallTime::from_millis(50);
/// Length of a window of use: 40 ms. Two windows show that a slice has stopped.
const USE_WINDOW: WallTime = WallTime::from_millis(40);
/// Age from which a new window counts: 10 ms.
const YOUNG: WallTime = WallTime::from_millis(10);
/// Time without progress after which work counts as that of a stopped process: 100 ms.
pub const STOPPED: WallTime = WallTime::from_millis(100);
/// Time until the next look for which queued work needs the GPU: 5 ms.
const BACKLOG: WallTime = WallTime::from_millis(5);
/// Time for which a slice of high priority stays active after its queue is empty: 0.5 ms. A program that waits for each
/// request needs a wake-up before it starts the next one. A launch of another slice in between would delay that request.
const PAUSE: WallTime = WallTime::from_micros(500);
/// The most time of such pauses that a slice can save up: 2 ms. Pauses are at most a tenth of the time. So other slices get
/// the GPU between small kernels that come one by one.
const PAUSES: WallTime = WallTime::from_millis(2);
/// Time in which recent use is forgotten: one second.
const RECENT_USE: WallTime = WallTime::from_millis(1_000);

/// GPU time by which a slice must exceed its kept part and its debt to have enough: 20 ms. A slice that gets only its kept
/// part gets it in whole kernels, and already waits for the debt of the last kernel.
const ENOUGH: GpuTime = GpuTime::from_millis(20);
/// Time for which a slice has enough after it last had the GPU: 200 ms.
const ENOUGH_FOR: WallTime = WallTime::from_millis(200);

/// Figures of a slice on a device: sums over its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SliceFigures {
    /// Charged GPU time. It only grows.
    pub used: GpuTime,
    /// Wall time that launches waited for the share. It only grows.
    pub throttled: WallTime,
    /// Predicted GPU time of work in flight.
    pub queued: GpuTime,
    /// Wall time by which the instant up to which the slice has paid is ahead of the clock.
    pub owed: WallTime,
    /// True if a process waits for the share.
    pub waits: bool,
}

/// The observed demand of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemandEstimator {
    last: SliceFigures,
    at: Monotonic,
    /// The last instant at which the slice waited.
    waited: Option<Monotonic>,
    /// The last instant at which the slice's use had grown.
    moved: Monotonic,
    /// The last instant at which work was queued.
    queued_at: Option<Monotonic>,
    /// Time for which the slice may stay active without queued work.
    patience: WallTime,
    /// Queued work at the last look but one, and at the last look.
    queued: [GpuTime; 2],
    /// Start of the window, and the use at that instant.
    window: (Monotonic, GpuTime),
    /// Use in the window before, in millionths.
    before: u64,
    /// Use in both windows, in millionths.
    mean: u64,
    /// Use over about the last second, in millionths.
    lately: u64,
    /// The instant up to which the slice has had its kept part.
    fed_until: Monotonic,
    has_enough: bool,
}

impl DemandEstimator {
    /// Starts with the first look at a slice. Its earlier use is unknown.
    #[must_use]
    pub const fn new(now: Monotonic, seen: &SliceFigures) -> Self {
        Self {
            last: *seen,
            at: now,
            waited: None,
            moved: now,
            queued_at: None,
            patience: PAUSES,
            queued: [GpuTime::ZERO; 2],
            window: (now, seen.used),
            before: 0,
            mean: 0,
            lately: 0,
            fed_until: now,
            has_enough: false,
        }
    }

    /// Adds a look. Returns the demand in millionths of the GPU.
    ///
    /// `eager`: the slice has high priority. Then queued work counts as full demand at once, and for a moment longer.
    /// `least` is the slice's kept part in millionths, and `owes` is its debt.
    pub fn look(
        &mut self,
        now: Monotonic,
        seen: &SliceFigures,
        eager: bool,
        least: u64,
        owes: GpuTime,
    ) -> u64 {
        if now < self.at || seen.used < self.last.used {
            // The region was created again, or the clock went back.
            *self = Self::new(now, seen);
        }
        if seen.waits || seen.throttled > self.last.throttled {
            self.waited = Some(now);
        }
        if seen.used > self.last.used || seen.queued.is_zero() || self.last.queued.is_zero() {
            self.moved = now;
        }
        let had = scale(seen.used.saturating_sub(self.last.used), least);
        let enough = now.saturating_add(scale(ENOUGH.saturating_add(owes), least));
        let fed_until = self.fed_until.max(self.at).saturating_add(had);
        self.fed_until = fed_until.min(enough.saturating_add(ENOUGH_FOR));
        self.has_enough = self.fed_until > enough;
        let passed = now.since(self.at);
        (self.last, self.at) = (*seen, now);
        let recent = self.use_until(now, seen.used);
        let queued = self.queued();
        self.patience = self.patience.saturating_add(passed.part(10)).min(PAUSES);
        if !queued.is_zero() {
            self.queued_at = Some(now);
        } else if self.is_at_work() {
            self.patience = self.patience.saturating_sub(passed);
        }
        let [first, second] = self.queued;
        self.queued = [second, queued];
        if self.waited.is_some_and(|waited| now.since(waited) < HOLD) || (eager && self.is_at_work()) {
            return WHOLE_GPU;
        }
        if eager {
            return 0;
        }
        recent.max(part(first.min(second).min(queued), BACKLOG))
    }

    /// Returns the queued work that makes progress.
    #[must_use]
    pub fn queued(&self) -> GpuTime {
        if self.at.since(self.moved) < STOPPED { self.last.queued } else { GpuTime::ZERO }
    }

    /// Returns true if work is queued, or was a moment ago.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        let since = self.queued_at.map(|queued| self.at.since(queued));
        since.is_some_and(|since| since.is_zero() || (since < PAUSE && !self.patience.is_zero()))
    }

    /// Returns the recent use, in millionths of the GPU.
    #[must_use]
    pub const fn mean(&self) -> u64 {
        self.mean
    }

    /// Returns the use over about the last second, in millionths of the GPU.
    #[must_use]
    pub const fn lately(&self) -> u64 {
        self.lately
    }

    /// Returns true if the slice has used so much time that slices of high priority come first, even if they have full
    /// demand. Their requests sometimes follow each other closely.
    #[must_use]
    pub const fn has_enough(&self) -> bool {
        self.has_enough
    }

    /// Returns the recent use, in millionths: of this window or of the one before, whichever is more.
    fn use_until(&mut self, now: Monotonic, used: GpuTime) -> u64 {
        let (began, from) = self.window;
        let passed = now.since(began);
        let here = if passed < YOUNG { 0 } else { part(used.saturating_sub(from), passed) };
        let recent = here.max(self.before);
        self.mean = mean((self.before, USE_WINDOW), (here, passed.min(USE_WINDOW)));
        if passed >= USE_WINDOW {
            let weight = passed.min(RECENT_USE);
            self.lately = mean((self.lately, RECENT_USE.saturating_sub(weight)), (here, weight));
            (self.window, self.before) = ((now, used), here);
        }
        recent
    }
}

/// Returns the mean of two uses, each over its time.
fn mean((first, long): (u64, WallTime), (second, further): (u64, WallTime)) -> u64 {
    let sum = long.saturating_mul(first).saturating_add(further.saturating_mul(second));
    sum.count(long.saturating_add(further))
}

/// Returns `time` as a part of `of`, in millionths. It is at most the whole.
fn part(time: GpuTime, of: WallTime) -> u64 {
    if of.is_zero() {
        return 0;
    }
    time.scaled(WHOLE_GPU, of.nanos()).map_or(WHOLE_GPU, GpuTime::nanos).min(WHOLE_GPU)
}

/// Returns the wall time in which a part in millionths adds up to `time`.
fn scale(time: GpuTime, part: u64) -> WallTime {
    if part == 0 {
        return WallTime::ZERO;
    }
    time.wall_if_alone().scaled(WHOLE_GPU, part).unwrap_or(WallTime::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::{ms, ns, us};

    /// The part that is kept for each of two slices.
    const LEAST: u64 = WHOLE_GPU / 20;

    /// Looks every 5 ms. `seen` returns the figures of a look. Returns the demands.
    fn needs(looks: u64, seen: impl Fn(u64) -> SliceFigures) -> Vec<u64> {
        let mut demand = DemandEstimator::new(ns(0), &seen(0));
        (1..=looks).map(|look| demand.look(ms(look * 5), &seen(look), false, LEAST, ns(0))).collect()
    }

    #[test]
    fn a_slice_that_waits_needs_all_and_for_a_while_after() {
        let needs = needs(40, |look| SliceFigures { waits: look == 10, ..SliceFigures::default() });
        assert_eq!(needs[8], 0);
        assert!(needs[9..19].iter().all(|need| *need == WHOLE_GPU), "{needs:?}");
        assert_eq!(needs[19], 0);
        let throttled =
            self::needs(3, |look| SliceFigures { throttled: ns(look / 3), ..SliceFigures::default() });
        assert_eq!(throttled, [0, 0, WHOLE_GPU]);
    }

    #[test]
    fn a_slice_that_does_not_wait_needs_the_time_it_uses() {
        let needs = needs(40, |look| SliceFigures { used: ms(look * 2), ..SliceFigures::default() });
        assert_eq!(needs[39], WHOLE_GPU * 2 / 5);
    }

    #[test]
    fn a_queue_that_does_not_empty_needs_all_and_a_single_one_nothing() {
        let needs = needs(10, |look| SliceFigures {
            queued: if look > 5 { ms(20) } else { ns(0) },
            ..SliceFigures::default()
        });
        assert_eq!([needs[5], needs[6], needs[7]], [0, 0, WHOLE_GPU]);
        let now_and_then =
            self::needs(10, |look| SliceFigures { queued: ms(look % 2 * 20), ..SliceFigures::default() });
        assert!(now_and_then.iter().all(|need| *need == 0), "{now_and_then:?}");
    }

    #[test]
    fn a_stopped_slice_needs_nothing_after_a_tenth_of_a_second() {
        let needs = needs(60, |look| SliceFigures { used: ms(look.min(30) * 5), ..SliceFigures::default() });
        assert_eq!(needs[29], WHOLE_GPU);
        assert!(needs[29 + 20..].iter().all(|need| *need == 0), "{needs:?}");
    }

    /// Looks every 0.25 ms at a slice of high priority. The slice has queued work at the looks for which `is_queued`
    /// returns true. Returns for each look whether the demand is full.
    fn eager(looks: u64, is_queued: impl Fn(u64) -> bool) -> Vec<bool> {
        let mut demand = DemandEstimator::new(ns(0), &SliceFigures::default());
        let seen = |look: u64| SliceFigures {
            queued: ms(is_queued(look).into()),
            used: ns(look),
            ..SliceFigures::default()
        };
        (1..=looks)
            .map(|look| demand.look(us(look * 250), &seen(look), true, LEAST, ns(0)) == WHOLE_GPU)
            .collect()
    }

    #[test]
    fn a_request_that_has_ended_may_be_followed_by_the_next() {
        // A request takes ten milliseconds of thirty.
        let needs = eager(1200, |look| look % 120 < 40);
        let after = |look: usize| [needs[look + 38], needs[look + 39], needs[look + 40], needs[look + 41]];
        for request in (0..1080).step_by(120) {
            assert_eq!(after(request), [true, true, false, false], "{request}");
        }
    }

    #[test]
    fn requests_one_by_one_leave_the_gpu_to_others_in_between() {
        let needs = eager(1200, |look| look % 2 == 0);
        let pauses = needs.iter().skip(200).step_by(2).filter(|need| **need).count();
        assert!(pauses < 150, "{pauses} of 500");
    }

    #[test]
    fn a_slice_far_above_its_kept_part_has_enough_for_a_fifth_of_a_second() {
        let mut demand = DemandEstimator::new(ns(0), &SliceFigures::default());
        let mut look = |at: u64, used: u64| {
            demand.look(
                ms(at),
                &SliceFigures { used: ms(used), ..SliceFigures::default() },
                false,
                LEAST,
                ns(0),
            );
            demand.has_enough()
        };
        // The slice uses the whole GPU for 100 ms, then nothing.
        assert!(!look(20, 20) && look(22, 22) && look(100, 100));
        assert!(look(299, 100) && !look(300, 100));
    }

    #[test]
    fn a_slice_within_its_kept_part_never_has_enough() {
        for (part, kernel) in [(20, 20), (20, 30), (20, 100), (100, 20), (100, 400)] {
            let mut demand = DemandEstimator::new(ns(0), &SliceFigures::default());
            // Each kernel ends at a look, and its time is paid bit by bit until the next kernel ends.
            let mut has_enough = |look: u64| {
                let seen = SliceFigures { used: ms((look / 10 + 1) * kernel), ..SliceFigures::default() };
                let owes = us((10 - look % 10) * kernel * 100);
                demand.look(us(look * kernel * part * 100), &seen, false, WHOLE_GPU / part, owes);
                demand.has_enough()
            };
            assert!((1..500).all(|look| !has_enough(look)), "kernels of {kernel} ms, one of {part}");
        }
    }

    #[test]
    fn a_region_made_anew_and_a_clock_set_back_begin_again() {
        let mut demand =
            DemandEstimator::new(ms(900), &SliceFigures { used: ms(800), ..SliceFigures::default() });
        assert_eq!(
            demand.look(
                ms(905),
                &SliceFigures { used: ms(3), ..SliceFigures::default() },
                false,
                LEAST,
                ns(0)
            ),
            0
        );
        assert_eq!(
            demand.look(ms(5), &SliceFigures { used: ms(4), ..SliceFigures::default() }, false, LEAST, ns(0)),
            0
        );
        assert_eq!(
            demand.look(
                ms(45),
                &SliceFigures { used: ms(24), ..SliceFigures::default() },
                false,
                LEAST,
                ns(0)
            ),
            WHOLE_GPU / 2
        );
    }
}
