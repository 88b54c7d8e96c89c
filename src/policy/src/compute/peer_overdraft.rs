//! Peer overdraft: admits a throttled launch early, because a kernel on another device may wait for it.
//!
//! Example: a collective kernel on one GPU overruns its estimate, and a launch on a second GPU is throttled. The
//! kernel may wait for that launch. So the launch is admitted at once, and the slice owes its cost.
//!
//! The overrun may have other reasons. So the budget of all overdrafts bounds this one, too
//! ([`overdraft`](super::limiter::overdraft)).

use super::cost::estimate;
use super::limiter::token_bucket::RateLimit;
use crate::time::{Monotonic, WallTime};

/// Time for which an overrun counts as continuing after it was seen: 5 ms. The worker looks each millisecond, and the host
/// may be late.
const FRESH: WallTime = WallTime::from_millis(5);

/// Returns true if an overrun that a process saw at the instant `seen` continues.
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

/// Returns true if the share of a device throttles a launch that a peer overdraft may admit. The slice must owe time, and
/// no more than the largest estimate, one second of GPU time. An overdraft is paid by its prediction, and may run for far
/// longer.
#[must_use]
pub fn may_overdraw(paid_until: Monotonic, now: Monotonic, rate_limit: RateLimit) -> bool {
    paid_until > now && paid_until <= now.saturating_add(rate_limit.wall(estimate::MOST_PREPAID))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::GpuTime;
    use crate::time::literals::{ms, ns, us};
    use crate::units::Permille;

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

    fn rate_limit(rate: u16, burst: u64) -> RateLimit {
        RateLimit::new(Permille::new(rate).unwrap(), GpuTime::from_millis(burst))
    }

    #[test]
    fn a_slice_may_overdraw_while_it_owes_up_to_a_second_of_gpu_time() {
        let may_overdraw = |until| may_overdraw(until, ms(100), rate_limit(500, 20));
        assert_eq!(
            [ms(100), ms::<Monotonic>(100) + ns(1), ms(2100), ms::<Monotonic>(2100) + ns(1)]
                .map(may_overdraw),
            [false, true, true, false]
        );
    }
}
