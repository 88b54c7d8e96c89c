//! Estimates the demand of a slice: the part of the GPU that it would use if it got it.
//!
//! - A slice that waits for its share would use all that it may.
//! - So would a slice whose queue does not empty between two looks. The driver's time slicing limits it, not its
//!   rate.
//! - Any other slice uses as much as it wants. Its demand is its recent use.
//!
//! The demand of an idle slice is not predicted. Its rate leaves room for a start (see [`super`]).

use super::allocate::WHOLE;

/// Nanoseconds for which a slice that has waited counts with its full demand: 50 ms. It waits between two launches,
/// so a look often finds it not waiting.
const HOLD: u64 = 50_000_000;
/// Nanoseconds of a window of use: 40 ms. Two windows show that a slice has stopped.
const WINDOW: u64 = 40_000_000;
/// Nanoseconds before which a new window tells nothing: 10 ms.
const YOUNG: u64 = 10_000_000;
/// Nanoseconds without progress after which work counts as that of a stopped process: 100 ms.
const STOPPED: u64 = 100_000_000;
/// Queued work that needs the GPU until the next look, in nanoseconds: 5 ms.
const BACKLOG: u64 = 5_000_000;
/// Nanoseconds for which a slice of high priority stays active after its queue is empty: 0.5 ms. A program that waits
/// for one request starts the next one a wake-up later. A launch of another slice in between would delay it.
const PAUSE: u64 = 500_000;
/// Nanoseconds of such pauses at once: 2 ms. They are at most a tenth of the time. Other slices get the GPU between
/// small kernels that come one by one.
const PAUSES: u64 = 2_000_000;
/// Nanoseconds in which recent use is forgotten: one second.
const LATELY: u64 = 1_000_000_000;

/// GPU time by which a slice must exceed its kept part to have enough, in nanoseconds: 20 ms, and its debt on top. A
/// slice with only its kept part gets it in whole kernels, and already waits for the debt of the last one.
const ENOUGH: u64 = 20_000_000;
/// Nanoseconds for which a slice has enough after it last had the GPU: 200 ms.
const ENOUGH_FOR: u64 = 200_000_000;

/// Figures of a slice on a device: sums over its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SliceFigures {
    /// Charged GPU time, in nanoseconds. It only grows.
    pub used: u64,
    /// Wall time that launches waited for the share, in nanoseconds. It only grows.
    pub throttled: u64,
    /// Predicted GPU time of work in flight, in nanoseconds.
    pub queued: u64,
    /// Wall nanoseconds by which the slice's word is ahead of the clock.
    pub owed: u64,
    /// True if a process waits for the share.
    pub waits: bool,
}

/// The observed demand of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemandEstimator {
    last: SliceFigures,
    at: u64,
    /// The last instant at which the slice waited.
    waited: Option<u64>,
    /// The last instant at which its use had grown.
    moved: u64,
    /// The last instant at which work was queued.
    queued_at: Option<u64>,
    /// Nanoseconds for which the slice may stay active without queued work.
    patience: u64,
    /// Queued work at the last look but one, and at the last.
    queued: [u64; 2],
    /// Start of the window, and the use at that instant.
    window: (u64, u64),
    /// Use in the window before, in millionths.
    before: u64,
    /// Use in both windows, in millionths.
    mean: u64,
    /// Use over about the last second, in millionths.
    lately: u64,
    /// The instant up to which the slice has had its kept part.
    fed_until: u64,
    has_enough: bool,
}

impl DemandEstimator {
    /// Starts with the first sight of a slice. Its earlier use is unknown.
    #[must_use]
    pub const fn new(now: u64, seen: &SliceFigures) -> Self {
        Self {
            last: *seen,
            at: now,
            waited: None,
            moved: now,
            queued_at: None,
            patience: PAUSES,
            queued: [0; 2],
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
    /// `least` is the slice's kept part in millionths, and `owes` its debt in nanoseconds of GPU time.
    pub fn look(&mut self, now: u64, seen: &SliceFigures, eager: bool, least: u64, owes: u64) -> u64 {
        if now < self.at || seen.used < self.last.used {
            // The region was created again, or the clock went back.
            *self = Self::new(now, seen);
        }
        if seen.waits || seen.throttled > self.last.throttled {
            self.waited = Some(now);
        }
        if seen.used > self.last.used || seen.queued == 0 || self.last.queued == 0 {
            self.moved = now;
        }
        let had = scale(seen.used.saturating_sub(self.last.used), least);
        let enough = now.saturating_add(scale(ENOUGH.saturating_add(owes), least));
        let fed_until = self.fed_until.max(self.at).saturating_add(had);
        self.fed_until = fed_until.min(enough.saturating_add(ENOUGH_FOR));
        self.has_enough = self.fed_until > enough;
        let passed = now.saturating_sub(self.at);
        (self.last, self.at) = (*seen, now);
        let recent = self.use_until(now, seen.used);
        let queued = self.queued();
        self.patience = self.patience.saturating_add(passed / 10).min(PAUSES);
        if queued > 0 {
            self.queued_at = Some(now);
        } else if self.is_at_work() {
            self.patience = self.patience.saturating_sub(passed);
        }
        let [first, second] = self.queued;
        self.queued = [second, queued];
        if self.waited.is_some_and(|waited| now.saturating_sub(waited) < HOLD) || (eager && self.is_at_work())
        {
            return WHOLE;
        }
        if eager {
            return 0;
        }
        recent.max(part(first.min(second).min(queued), BACKLOG))
    }

    /// Returns the queued work that makes progress, in nanoseconds of GPU time.
    #[must_use]
    pub const fn queued(&self) -> u64 {
        if self.at.saturating_sub(self.moved) < STOPPED { self.last.queued } else { 0 }
    }

    /// Returns true if work is queued, or was a moment ago.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        let since = self.queued_at.map(|queued| self.at.saturating_sub(queued));
        since.is_some_and(|since| since == 0 || (since < PAUSE && self.patience > 0))
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

    /// Returns true if the slice has had so much that slices of high priority come first, even with full demand. Their
    /// requests follow each other closely at times.
    #[must_use]
    pub const fn has_enough(&self) -> bool {
        self.has_enough
    }

    /// Returns the recent use, in millionths: of this window or of the one before, whichever is more.
    fn use_until(&mut self, now: u64, used: u64) -> u64 {
        let (began, from) = self.window;
        let passed = now.saturating_sub(began);
        let here = if passed < YOUNG { 0 } else { part(used.saturating_sub(from), passed) };
        let recent = here.max(self.before);
        let both = self.before.saturating_mul(WINDOW).saturating_add(here.saturating_mul(passed.min(WINDOW)));
        self.mean = both.checked_div(WINDOW.saturating_add(passed.min(WINDOW))).unwrap_or(0);
        if passed >= WINDOW {
            let weight = passed.min(LATELY);
            let kept = self.lately.saturating_mul(LATELY.saturating_sub(weight));
            self.lately = kept.saturating_add(here.saturating_mul(weight)).checked_div(LATELY).unwrap_or(0);
            (self.window, self.before) = ((now, used), here);
        }
        recent
    }
}

/// Returns `time` as a part of `of`, in millionths; at most the whole.
fn part(time: u64, of: u64) -> u64 {
    let millionths = u128::from(time).saturating_mul(u128::from(WHOLE)).checked_div(u128::from(of));
    u64::try_from(millionths.unwrap_or(0)).unwrap_or(WHOLE).min(WHOLE)
}

/// Returns the nanoseconds in which a part in millionths adds up to `time` nanoseconds.
fn scale(time: u64, part: u64) -> u64 {
    let clock = u128::from(time).saturating_mul(u128::from(WHOLE)).checked_div(u128::from(part));
    u64::try_from(clock.unwrap_or(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// The kept part of each of two slices.
    const LEAST: u64 = WHOLE / 20;

    /// Looks every 5 ms at the figures from `seen`. Returns the demands.
    fn needs(looks: u64, seen: impl Fn(u64) -> SliceFigures) -> Vec<u64> {
        let mut demand = DemandEstimator::new(0, &seen(0));
        (1..=looks).map(|look| demand.look(look * 5 * MS, &seen(look), false, LEAST, 0)).collect()
    }

    #[test]
    fn who_waits_needs_all_and_for_a_while_after() {
        let needs = needs(40, |look| SliceFigures { waits: look == 10, ..SliceFigures::default() });
        assert_eq!(needs[8], 0);
        assert!(needs[9..19].iter().all(|need| *need == WHOLE), "{needs:?}");
        assert_eq!(needs[19], 0);
        let throttled =
            self::needs(3, |look| SliceFigures { throttled: look / 3, ..SliceFigures::default() });
        assert_eq!(throttled, [0, 0, WHOLE]);
    }

    #[test]
    fn who_does_not_wait_needs_what_it_uses() {
        let needs = needs(40, |look| SliceFigures { used: look * 2 * MS, ..SliceFigures::default() });
        assert_eq!(needs[39], WHOLE * 2 / 5);
    }

    #[test]
    fn a_queue_that_does_not_empty_needs_all_and_a_single_one_nothing() {
        let needs = needs(10, |look| SliceFigures {
            queued: if look > 5 { 20 * MS } else { 0 },
            ..SliceFigures::default()
        });
        assert_eq!([needs[5], needs[6], needs[7]], [0, 0, WHOLE]);
        let now_and_then =
            self::needs(10, |look| SliceFigures { queued: look % 2 * 20 * MS, ..SliceFigures::default() });
        assert!(now_and_then.iter().all(|need| *need == 0), "{now_and_then:?}");
    }

    #[test]
    fn who_stopped_needs_nothing_after_a_tenth_of_a_second() {
        let needs = needs(60, |look| SliceFigures { used: look.min(30) * 5 * MS, ..SliceFigures::default() });
        assert_eq!(needs[29], WHOLE);
        assert!(needs[29 + 20..].iter().all(|need| *need == 0), "{needs:?}");
    }

    /// Looks every 0.25 ms at a slice of high priority that has queued work at the looks for which `is_queued` holds. Returns
    /// whether its demand is full at each look.
    fn eager(looks: u64, is_queued: impl Fn(u64) -> bool) -> Vec<bool> {
        let mut demand = DemandEstimator::new(0, &SliceFigures::default());
        let seen = |look: u64| SliceFigures {
            queued: u64::from(is_queued(look)) * MS,
            used: look,
            ..SliceFigures::default()
        };
        (1..=looks).map(|look| demand.look(look * MS / 4, &seen(look), true, LEAST, 0) == WHOLE).collect()
    }

    #[test]
    fn a_request_that_has_ended_may_be_followed_by_the_next() {
        // Ten milliseconds of thirty.
        let needs = eager(1200, |look| look % 120 < 40);
        let after = |look: usize| [needs[look + 38], needs[look + 39], needs[look + 40], needs[look + 41]];
        for request in (0..1080).step_by(120) {
            assert_eq!(after(request), [true, true, false, false], "{request}");
        }
    }

    #[test]
    fn what_comes_one_by_one_leaves_the_gpu_to_others_in_between() {
        let needs = eager(1200, |look| look % 2 == 0);
        let pauses = needs.iter().skip(200).step_by(2).filter(|need| **need).count();
        assert!(pauses < 150, "{pauses} of 500");
    }

    #[test]
    fn who_has_had_far_more_than_is_kept_for_it_has_enough_for_a_fifth_of_a_second() {
        let mut demand = DemandEstimator::new(0, &SliceFigures::default());
        let mut look = |at: u64, used: u64| {
            demand.look(
                at * MS,
                &SliceFigures { used: used * MS, ..SliceFigures::default() },
                false,
                LEAST,
                0,
            );
            demand.has_enough()
        };
        // All of the GPU for 100 ms, then nothing.
        assert!(!look(20, 20) && look(22, 22) && look(100, 100));
        assert!(look(299, 100) && !look(300, 100));
    }

    #[test]
    fn who_has_no_more_than_is_kept_for_it_never_has_enough() {
        for (part, kernel) in [(20, 20), (20, 30), (20, 100), (100, 20), (100, 400)] {
            let mut demand = DemandEstimator::new(0, &SliceFigures::default());
            // Each kernel ends at a look, and is paid bit by bit until the next one.
            let mut has_enough = |look: u64| {
                let seen = SliceFigures { used: (look / 10 + 1) * kernel * MS, ..SliceFigures::default() };
                let owes = (10 - look % 10) * kernel * MS / 10;
                demand.look(look * kernel * part * MS / 10, &seen, false, WHOLE / part, owes);
                demand.has_enough()
            };
            assert!((1..500).all(|look| !has_enough(look)), "kernels of {kernel} ms, one of {part}");
        }
    }

    #[test]
    fn a_region_made_anew_and_a_clock_set_back_begin_again() {
        let mut demand =
            DemandEstimator::new(900 * MS, &SliceFigures { used: 800 * MS, ..SliceFigures::default() });
        assert_eq!(
            demand.look(905 * MS, &SliceFigures { used: 3 * MS, ..SliceFigures::default() }, false, LEAST, 0),
            0
        );
        assert_eq!(
            demand.look(5 * MS, &SliceFigures { used: 4 * MS, ..SliceFigures::default() }, false, LEAST, 0),
            0
        );
        assert_eq!(
            demand.look(45 * MS, &SliceFigures { used: 24 * MS, ..SliceFigures::default() }, false, LEAST, 0),
            WHOLE / 2
        );
    }
}
