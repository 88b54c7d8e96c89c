//! Admits a launch although the slice has no GPU time left, or another process comes first: the overdraft.
//!
//! A launch may need that for one of three reasons:
//!
//! - It ends together with launches that run already ([`Beside`]). Example: launches on eight streams are
//!   paid in groups. The credit runs out in the middle of a round, so three streams would idle until the other five
//!   finish. A launch on one of the three adds nothing to the slice's busy time.
//! - A kernel on another device may wait for it ([`peer_overdraft`](super::super::peer_overdraft)).
//! - A kernel of its own process may wait for it.
//!
//! Each reason is a guess, and each may be wrong. Therefore one budget pays for all of them ([`admit`]). The slice owes
//! the time like any other. Because half of the share pays for overdrafts while the whole share pays the debt,
//! overdrafts never put a slice further into debt than [`MOST`] and one launch.

use super::super::cost::estimate::Estimate;
use super::lease;
use super::token_bucket::{self, RateLimit};
use crate::units::{Nanos, Permille};

/// GPU time of overdrafts that may be admitted at once, in nanoseconds: 20 ms, or the burst if that is less. It has
/// room for a few launches before the one for which a kernel waits. A window of one second moves by at most 2 points.
pub const MOST: u64 = 20_000_000;
/// Longest wait for the budget, or for another device, in nanoseconds: 10 s. A kernel may wait for the launch, so the
/// launch must not wait longer after one that was expensive, or by wrong evidence. Of launches that half of the share
/// does not pay within that time, one is admitted each 10 s.
pub const MOST_WAIT: u64 = 10_000_000_000;
/// A launch may end later than the last admitted one by one part in eight of its own duration. Streams that are
/// filled in turn end one after the other.
const LATER: u64 = 8;

/// Returns the word of paid overdrafts after one more of `amount` nanoseconds of GPU time. `until` is the word before.
/// `None`: the launch is not admitted.
///
/// Half of the share fills the budget. A launch that costs more than the budget has is admitted once. A word too far
/// ahead belongs to other terms or is invalid.
#[must_use]
pub fn admit(until: u64, now: u64, amount: u64, terms: RateLimit) -> Option<u64> {
    let (rate, most) = (terms.rate(), now.saturating_add(MOST_WAIT));
    let half = Permille::new((rate.get() / 2).max(1)).unwrap_or(rate);
    let terms = RateLimit::new(half, Nanos::new(MOST.min(terms.burst())));
    let until = if until > most { 0 } else { until };
    token_bucket::wait(until, now)
        .is_none()
        .then(|| token_bucket::prepay(until, now, amount, terms).min(most))
}

/// Returns the predicted instant at which a stream completes `plain` nanoseconds of further work. `until` is the prediction
/// before, `now` the present.
#[must_use]
pub const fn done(until: u64, now: u64, plain: u64) -> u64 {
    let start = if until > now { until } else { now };
    start.saturating_add(plain)
}

/// GPU time that a process has launched beside other work since its last payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Beside {
    owed: u64,
}

impl Beside {
    /// Makes a sum of `owed` nanoseconds of GPU time.
    #[must_use]
    pub const fn of(owed: u64) -> Self {
        Self { owed }
    }

    /// Returns the sum after a launch, in nanoseconds of GPU time. `None`: the launch would not run beside other work.
    ///
    /// `done` is the predicted end of the launch's stream, `last` that of the last stream. Launches of its kind overlap,
    /// and it ends with the last stream. Because each such launch may move the end, they stay within one launch that runs
    /// alone.
    #[must_use]
    pub fn go(self, estimate: &Estimate, done: u64, last: u64) -> Option<u64> {
        let owed = self.owed.saturating_add(estimate.charged);
        let is_beside = lease::overlaps(estimate) && done <= last.saturating_add(estimate.plain / LATER);
        (is_beside && owed <= estimate.plain).then_some(owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const NOW: u64 = 1 << 50;

    fn terms(rate: u16, burst: u64) -> RateLimit {
        RateLimit::new(Permille::new(rate).unwrap(), Nanos::from_millis(burst))
    }

    #[test]
    fn a_stream_is_done_after_what_it_has_and_no_sooner_than_it_could_begin() {
        assert_eq!(done(10 * MS, 4 * MS, MS), 11 * MS);
        assert_eq!(done(4 * MS, 10 * MS, MS), 11 * MS);
    }

    #[test]
    fn a_launch_ends_with_the_others_or_would_run_on_alone() {
        let of = |charged, plain| Estimate { charged, plain, ..Estimate::NONE };
        let ends = |estimate, done| Beside::default().go(&estimate, done, 20 * MS).is_some();
        assert!(ends(of(MS, 8 * MS), 21 * MS));
        assert!(!ends(of(MS, 8 * MS), 21 * MS + 1));
        assert!(!ends(of(8 * MS, 8 * MS), 20 * MS), "it does not overlap");
        let go = |owed| Beside::of(owed).go(&of(3 * MS, 8 * MS), MS, MS);
        assert_eq!([go(0), go(5 * MS), go(5 * MS + 1)], [Some(3 * MS), Some(8 * MS), None]);
    }

    #[test]
    fn half_of_the_share_pays_for_overdrafts() {
        let admit = |until, cost, rate, burst| admit(until, NOW, cost * MS, terms(rate, burst));
        assert_eq!(admit(0, 25, 500, 20), Some(NOW + 20 * MS), "20 ms are saved up");
        assert_eq!(admit(NOW, 5, 500, 20), Some(NOW + 20 * MS));
        assert_eq!(admit(NOW + 1, 5, 500, 20), None);
        assert_eq!(admit(0, 25, 500, 200), Some(NOW + 20 * MS), "no more");
        assert_eq!(admit(0, 2, 500, 1), Some(NOW + 4 * MS), "less, where less is lent");
        assert_eq!(admit(NOW, 1, 1, 1), Some(NOW + 1000 * MS), "a thousandth is not divided");
        assert_eq!(admit(NOW, 200, 1, 1), Some(NOW + MOST_WAIT), "no launch waits for longer");
        assert_eq!(admit(NOW + MOST_WAIT, 5, 500, 20), None);
        assert_eq!(admit(NOW + MOST_WAIT + 1, 5, 500, 20), Some(NOW - 60 * MS), "no budget has such a word");
    }

    proptest! {
        /// Whenever launches ask, a slice that is in debt owes no more for overdrafts than the budget and one launch.
        #[test]
        fn overdrafts_owe_the_budget_and_one_launch(
            rate in 1..1000_u16,
            burst in 0..100_u64,
            asks in prop::collection::vec((0..50 * MS, 1..40 * MS), 1..100),
        ) {
            let terms = terms(rate, burst);
            // Half of the share pays this much within the longest wait.
            let most = terms.gpu(MOST_WAIT / 2).saturating_sub(100);
            // In debt from the start, so that the share pays debt only.
            let (mut now, mut until, mut owed, mut largest) = (NOW, 0, 0_u64, 0);
            for (pause, amount) in asks {
                let amount = amount.min(most);
                now += pause;
                owed = owed.saturating_sub(terms.gpu(pause));
                if let Some(next) = admit(until, now, amount, terms) {
                    until = next;
                    owed += amount;
                    largest = largest.max(amount);
                }
                prop_assert!(owed <= MOST.min(burst * MS) + largest + 100, "{owed} of {largest}");
            }
        }
    }
}
