//! Peer overdraft: admits a throttled launch early, because a kernel on another device may wait for it.
//!
//! Example: a collective kernel on one GPU overruns its estimate, and a launch on a second GPU is throttled. The
//! kernel may wait for that launch. So the launch is admitted at once, and the slice owes its cost.
//!
//! The overrun may have other reasons, so the overdraft is bounded ([`peer_overdraft`]).

use super::coupling::MOST;
use super::limiter::token_bucket::{self, RateLimit};
use crate::units::{Nanos, Permille};

/// Nanoseconds for which an overrun counts as continuing after it was seen: 5 ms. The worker looks each millisecond,
/// on a host that may be late.
const FRESH: u64 = 5_000_000;
/// GPU time of peer overdrafts that may be admitted at once, in nanoseconds: 20 ms. It has room for a few launches
/// before the awaited one.
const MOST_OVERDRAFT: u64 = 20_000_000;
/// Debt beyond which no peer overdraft is admitted, in nanoseconds of GPU time: one second. An overdraft is paid by
/// its prediction and may run for far longer.
const MOST_OWED: u64 = 1_000_000_000;

/// Returns true if an overrun that was seen at `seen` continues.
#[must_use]
pub const fn overrun_continues(seen: u64, now: u64) -> bool {
    seen > 0 && seen <= now.saturating_add(FRESH) && now <= seen.saturating_add(FRESH)
}

/// Returns true if waiting threads know of an overrun that was last published at `seen`. A thread that looks after half
/// of `FRESH` may have found the publication stale, on a host that was late.
#[must_use]
pub const fn is_published(seen: u64, now: u64) -> bool {
    overrun_continues(seen, now) && now <= seen.saturating_add(FRESH / 2)
}

/// Returns true if the share of a device throttles a launch that may be admitted by a peer overdraft. The slice must
/// owe time, and at most one second of GPU time.
#[must_use]
pub fn may_overdraw(paid_until: u64, now: u64, terms: RateLimit) -> bool {
    paid_until > now && paid_until <= now.saturating_add(terms.wall(MOST_OWED))
}

/// Returns the word of paid overdrafts, after one more of `amount` nanoseconds of GPU time. `until` is the word
/// before. `None`: the launch is not admitted.
///
/// Half of the share pays for overdrafts, and the other half pays the debt. The bucket saves at most 20 ms of GPU
/// time, or the burst if that is less; a launch that costs more is admitted once. A word too far ahead belongs to
/// other terms or is invalid.
#[must_use]
pub fn peer_overdraft(until: u64, now: u64, amount: u64, terms: RateLimit) -> Option<u64> {
    let (rate, most) = (terms.rate(), now.saturating_add(MOST));
    let half = Permille::new((rate.get() / 2).max(1)).unwrap_or(rate);
    let terms = RateLimit::new(half, Nanos::new(MOST_OVERDRAFT.min(terms.burst())));
    let until = if until > most { 0 } else { until };
    token_bucket::wait(until, now)
        .is_none()
        .then(|| token_bucket::prepay(until, now, amount, terms).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_run_is_overdue_for_five_milliseconds_after_it_was_seen_to_be() {
        let overrun_continues = |now| overrun_continues(100 * MS, now);
        assert_eq!(
            [95 * MS - 1, 95 * MS, 105 * MS, 105 * MS + 1].map(overrun_continues),
            [false, true, true, false]
        );
        assert!(!super::overrun_continues(0, 0), "never");
    }

    #[test]
    fn who_waits_knows_it_for_half_of_that_time() {
        assert_eq!(
            [102 * MS + MS / 2, 102 * MS + MS / 2 + 1].map(|now| is_published(100 * MS, now)),
            [true, false]
        );
        assert!(!is_published(0, 1));
    }

    fn terms(rate: u16, burst: u64) -> RateLimit {
        RateLimit::new(Permille::new(rate).unwrap(), Nanos::from_millis(burst))
    }

    #[test]
    fn half_of_a_share_pays_for_what_goes_ahead() {
        let now = 100_000 * MS;
        let peer_overdraft =
            |until, cost, rate, burst| peer_overdraft(until, now, cost * MS, terms(rate, burst));
        assert_eq!(peer_overdraft(0, 25, 500, 20), Some(now + 20 * MS), "20 ms are saved up");
        assert_eq!(peer_overdraft(now, 5, 500, 20), Some(now + 20 * MS));
        assert_eq!(peer_overdraft(now + 1, 5, 500, 20), None);
        assert_eq!(peer_overdraft(0, 25, 500, 200), Some(now + 20 * MS), "no more");
        assert_eq!(peer_overdraft(0, 2, 500, 1), Some(now + 4 * MS), "less, where less is lent");
        assert_eq!(peer_overdraft(now, 1, 1, 1), Some(now + 1000 * MS), "a thousandth is not divided");
        assert_eq!(peer_overdraft(now, 200, 1, 1), Some(now + MOST), "nobody waits for longer");
        assert_eq!(peer_overdraft(now + MOST, 5, 500, 20), None);
        assert_eq!(peer_overdraft(now + MOST + 1, 5, 500, 20), Some(now - 60 * MS), "that is no such word");
    }

    #[test]
    fn who_owes_up_to_a_second_of_gpu_time_is_held_back() {
        let may_overdraw = |until| may_overdraw(until, 100 * MS, terms(500, 20));
        assert_eq!(
            [100 * MS, 100 * MS + 1, 2100 * MS, 2100 * MS + 1].map(may_overdraw),
            [false, true, true, false]
        );
    }
}
