//! Admits a launch although the slice has no GPU time left, or another process comes first: the overdraft.
//!
//! There are three reasons for such a launch:
//!
//! - The launch ends together with launches that run already ([`ends_with_others`]). Example: launches on eight streams are
//!   paid in groups. The credit runs out in the middle of a round, so three streams would be idle until the other five
//!   finish. A launch on one of the three adds nothing to the slice's busy time.
//! - A kernel on another device may wait for the launch: the *peer overdraft*. Example: a collective kernel on one GPU
//!   overruns its estimate ([`overrun_continues`]), and a launch on a second GPU is throttled.
//! - A kernel of its own process may wait for the launch.
//!
//! Each reason is a guess, and each may be wrong. Therefore one budget pays for all of them ([`admit`]). The slice owes the
//! time like any other debt. Half of the share pays for overdrafts, while the whole share pays the debt. So overdrafts
//! never put a slice further into debt than [`MOST_OVERDRAFT`] and one launch.

use super::super::cost::estimate::Estimate;
use super::lease;
use super::token_bucket::{self, RateLimit};
use crate::time::{GpuTime, Monotonic, WallTime};
use crate::units::Permille;

/// GPU time of overdrafts that may be admitted at once: 20 ms, or the burst if that is less. It has room for a few launches
/// before the one for which a kernel waits. It moves the use in a window of one second by at most 2 points.
pub const MOST_OVERDRAFT: GpuTime = GpuTime::from_millis(20);
/// Longest wait for the budget, or for another device: 10 s. A kernel may wait for the launch. So the launch must not wait
/// longer, even after an expensive launch or because of wrong evidence. If half of the share does not pay for launches
/// within that time, one launch is admitted each 10 s.
pub const MOST_WAIT: WallTime = WallTime::from_millis(10_000);
/// A launch may end later than the last admitted launch by one part in eight of its own duration. Streams that are filled
/// in turn end one after the other.
const LATER: u64 = 8;
/// Time for which an overrun counts as continuing after it was seen: 5 ms. The worker looks each millisecond, and the host
/// may be late.
const FRESH: WallTime = WallTime::from_millis(5);

/// Returns the word of paid overdrafts after one more overdraft of `amount`. `until` is the word before. `None`: the launch
/// is not admitted.
///
/// Half of the share fills the budget. A launch that costs more than the budget has is admitted once. A word too far in the
/// future belongs to another rate limit or is invalid.
#[must_use]
pub fn admit(until: Monotonic, now: Monotonic, amount: GpuTime, rate_limit: RateLimit) -> Option<Monotonic> {
    let (rate, most) = (rate_limit.rate(), now.saturating_add(MOST_WAIT));
    let half = Permille::new((rate.get() / 2).max(1)).unwrap_or(rate);
    let rate_limit = RateLimit::new(half, MOST_OVERDRAFT.min(rate_limit.burst()));
    let until = if until > most { Monotonic::BEGIN } else { until };
    token_bucket::wait(until, now)
        .is_none()
        .then(|| token_bucket::prepay(until, now, amount, rate_limit).min(most))
}

/// Returns the predicted instant at which a stream completes further work that takes `duration`. `until` is the prediction
/// before that work, and `now` is the present instant.
#[must_use]
pub fn done(until: Monotonic, now: Monotonic, duration: WallTime) -> Monotonic {
    until.max(now).saturating_add(duration)
}

/// Returns true if launches like this one overlap, and this one ends with the last stream. `done` is the predicted end of
/// the launch's stream, and `last` is the end of the last stream.
#[must_use]
pub fn ends_with_others(estimate: &Estimate, done: Monotonic, last: Monotonic) -> bool {
    lease::overlaps(estimate) && done <= last.saturating_add(estimate.duration.part(LATER))
}

/// Returns true if an overrun that a process saw at the instant `seen` continues. A kernel that overruns its estimate may
/// wait for a launch on another device.
#[must_use]
pub fn overrun_continues(seen: Monotonic, now: Monotonic) -> bool {
    seen > Monotonic::BEGIN && seen <= now.saturating_add(FRESH) && now <= seen.saturating_add(FRESH)
}

/// Returns true if waiting threads know of an overrun that was last published at `seen`. On a late host, a thread that
/// looks after half of `FRESH` may have found the publication stale.
#[must_use]
pub fn is_published(seen: Monotonic, now: Monotonic) -> bool {
    overrun_continues(seen, now) && now <= seen.saturating_add(FRESH.part(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::{ms, ns, us};
    use proptest::prelude::*;

    const NOW: Monotonic = Monotonic::from_nanos(1 << 50);

    fn rate_limit(rate: u16, burst: u64) -> RateLimit {
        RateLimit::new(Permille::new(rate).unwrap(), GpuTime::from_millis(burst))
    }

    #[test]
    fn a_stream_ends_after_its_queued_work_and_no_sooner_than_it_could_begin() {
        assert_eq!(done(ms(10), ms(4), ms(1)), ms(11));
        assert_eq!(done(ms(4), ms(10), ms(1)), ms(11));
    }

    #[test]
    fn a_launch_ends_with_the_others_or_would_run_on_alone() {
        let of = |charged, duration| Estimate { charged, duration, ..Estimate::NONE };
        let ends = |estimate, done| ends_with_others(&estimate, done, ms(20));
        assert!(ends(of(ms(1), ms(8)), ms(21)));
        assert!(!ends(of(ms(1), ms(8)), ms::<Monotonic>(21) + ns(1)));
        assert!(!ends(of(ms(8), ms(8)), ms(20)), "it does not overlap");
    }

    #[test]
    fn an_overrun_continues_for_five_milliseconds_after_it_was_seen() {
        let overrun_continues = |now| overrun_continues(ms(100), now);
        assert_eq!(
            [ms::<Monotonic>(95) - ns(1), ms(95), ms(105), ms::<Monotonic>(105) + ns(1)]
                .map(overrun_continues),
            [false, true, true, false]
        );
        assert!(!super::overrun_continues(ns(0), ns(0)), "never");
    }

    #[test]
    fn waiting_threads_know_of_an_overrun_for_half_of_that_time() {
        assert_eq!(
            [us(102_500), us::<Monotonic>(102_500) + ns(1)].map(|now| is_published(ms(100), now)),
            [true, false]
        );
        assert!(!is_published(ns(0), ns(1)));
    }

    #[test]
    fn half_of_the_share_pays_for_overdrafts() {
        let admit = |until, cost, rate, burst| admit(until, NOW, ms(cost), rate_limit(rate, burst));
        assert_eq!(admit(ns(0), 25, 500, 20), Some(NOW + ms(20)), "20 ms are saved up");
        assert_eq!(admit(NOW, 5, 500, 20), Some(NOW + ms(20)));
        assert_eq!(admit(NOW + ns(1), 5, 500, 20), None);
        assert_eq!(admit(ns(0), 25, 500, 200), Some(NOW + ms(20)), "no more");
        assert_eq!(admit(ns(0), 2, 500, 1), Some(NOW + ms(4)), "less, where less is lent");
        assert_eq!(admit(NOW, 1, 1, 1), Some(NOW + ms(1000)), "a thousandth is not divided");
        assert_eq!(admit(NOW, 200, 1, 1), Some(NOW + MOST_WAIT), "no launch waits for longer");
        assert_eq!(admit(NOW + MOST_WAIT, 5, 500, 20), None);
        assert_eq!(
            admit(NOW + MOST_WAIT + ns(1), 5, 500, 20),
            Some(NOW - ms(60)),
            "no budget has such a word"
        );
    }

    proptest! {
        /// Whenever launches ask, a slice in debt owes for overdrafts no more than the budget and one launch.
        #[test]
        fn overdrafts_owe_the_budget_and_one_launch(
            rate in 1..1000_u16,
            burst in 0..100_u64,
            asks in prop::collection::vec((0..50_000_000_u64, 1..40_000_000_u64), 1..100),
        ) {
            let rate_limit = rate_limit(rate, burst);
            // Half of the share pays this much within the longest wait.
            let most = rate_limit.gpu(MOST_WAIT.part(2)).saturating_sub(ns(100));
            // The slice is in debt from the start, so that the share pays only debt.
            let (mut now, mut until, mut owed, mut largest) = (NOW, Monotonic::BEGIN, GpuTime::ZERO, GpuTime::ZERO);
            for (pause, amount) in asks {
                let (pause, amount) = (ns(pause), most.min(ns(amount)));
                now += pause;
                owed = owed.saturating_sub(rate_limit.gpu(pause));
                if let Some(next) = admit(until, now, amount, rate_limit) {
                    until = next;
                    owed += amount;
                    largest = largest.max(amount);
                }
                prop_assert!(owed <= MOST_OVERDRAFT.min(ms(burst)) + largest + ns(100), "{owed} of {largest}");
            }
        }
    }
}
