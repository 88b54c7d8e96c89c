//! Peer overdraft: admits a throttled launch early, because a kernel on another device may wait for it.
//!
//! Example: a collective kernel on one GPU overruns its estimate, and a launch on a second GPU is throttled. The
//! kernel may wait for that launch. So the launch is admitted at once, and the slice owes its cost.
//!
//! The overrun may have other reasons, so the budget of all overdrafts bounds it
//! ([`overdraft`](super::limiter::overdraft)).

use super::cost::estimate;
use super::limiter::token_bucket::RateLimit;

/// Nanoseconds for which an overrun counts as continuing after it was seen: 5 ms. The worker looks each millisecond,
/// on a host that may be late.
const FRESH: u64 = 5_000_000;

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
/// owe time, and no more than the largest estimate, one second of GPU time. An overdraft is paid by its prediction and
/// may run for far longer.
#[must_use]
pub fn may_overdraw(paid_until: u64, now: u64, terms: RateLimit) -> bool {
    paid_until > now && paid_until <= now.saturating_add(terms.wall(estimate::MOST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Nanos, Permille};

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
    fn who_owes_up_to_a_second_of_gpu_time_is_held_back() {
        let may_overdraw = |until| may_overdraw(until, 100 * MS, terms(500, 20));
        assert_eq!(
            [100 * MS, 100 * MS + 1, 2100 * MS, 2100 * MS + 1].map(may_overdraw),
            [false, true, true, false]
        );
    }
}
