//! Token bucket for GPU time, in one word: the virtual scheduling form of GCRA.
//!
//! The word `paid_until` is the instant up to which the slice's GPU time is paid (GCRA: the theoretical arrival
//! time). Example: at a share of 50 %, work of 3 ms moves the word by 6 ms.
//!
//! - Work is admitted while the word lies in the past. Work of `cost` moves the word by `cost / rate`.
//! - A word that lies further back than the burst loses the rest. A word in the future is debt.
//!
//! The word holds a time and not a count of tokens, because the clock then refills the bucket. No process has to refill it,
//! and a death needs no repair.
//!
//! All functions take the word and return its next value. The caller writes that value by compare-and-swap. Wrong values
//! from a shared file cannot overflow, because all arithmetic saturates.

use crate::time::{GpuTime, GpuTimeChange, MOST_GPU_TIME, Monotonic, WallTime};
use crate::units::Permille;

/// Largest debt of a slice: one minute.
///
/// Debt is never forgiven up to this bound. A kernel that runs for longer is rarer than a wrong measurement.
pub const MOST_DEBT: GpuTime = MOST_GPU_TIME;

/// Time by which a sleeper may oversleep before a refund wakes it: 0.2 ms.
///
/// It is a fifth of the millisecond by which no launch may wait longer than the ledger requires. With a smaller value,
/// refunds would wake sleepers in vain.
pub const TOLERANCE: WallTime = WallTime::from_micros(200);

/// Rate and burst of a slice: its share of the GPU's time, and the unused time that it may save up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    rate: Permille,
    burst: GpuTime,
}

impl RateLimit {
    /// Makes a rate limit of a share and of the GPU time that may be saved up.
    #[must_use]
    pub const fn new(rate: Permille, burst: GpuTime) -> Self {
        Self { rate, burst }
    }

    /// Returns the share.
    #[must_use]
    pub const fn rate(self) -> Permille {
        self.rate
    }

    /// Returns the GPU time that may be saved up.
    #[must_use]
    pub const fn burst(self) -> GpuTime {
        self.burst
    }

    /// Returns the wall time that pays for `gpu`, rounded up to a nanosecond.
    #[must_use]
    pub fn wall(self, gpu: GpuTime) -> WallTime {
        WallTime::from_nanos(gpu.saturating_mul(1000).nanos().div_ceil(self.thousandths()))
    }

    /// Returns the GPU time that `wall` pays for: the share of `wall`, rounded down to a nanosecond.
    #[must_use]
    pub fn gpu(self, wall: WallTime) -> GpuTime {
        wall.gpu_if_alone().scaled(self.thousandths(), 1000).unwrap_or(GpuTime::MAX)
    }

    /// Returns the rate in thousandths. A rate of 0 would never pay, so it counts as 1.
    fn thousandths(self) -> u64 {
        u64::from(self.rate.get()).max(1)
    }
}

/// Returns the time that work has to wait. `None`: it is admitted.
#[must_use]
pub fn wait(paid_until: Monotonic, now: Monotonic) -> Option<WallTime> {
    Some(paid_until.since(now)).filter(|left| !left.is_zero())
}

/// Returns the word after a payment of `cost`.
///
/// Saved time is used first. Work that costs more than the savings is admitted once, and the slice owes the rest.
#[must_use]
pub fn prepay(paid_until: Monotonic, now: Monotonic, cost: GpuTime, rate_limit: RateLimit) -> Monotonic {
    charge_since(paid_until, (now, now), cost, rate_limit)
}

/// Returns the word after a charge for work that began at the earlier instant `since`.
///
/// The share has paid for the work since then, so the saved time is that of `since`. The largest debt is that of `now`.
/// Otherwise a debt that other launches have made meanwhile would be cut off.
#[must_use]
pub fn charge_since(
    paid_until: Monotonic,
    (since, now): (Monotonic, Monotonic),
    cost: GpuTime,
    rate_limit: RateLimit,
) -> Monotonic {
    let saved = since.saturating_sub(rate_limit.wall(rate_limit.burst));
    let most = now.saturating_add(rate_limit.wall(MOST_DEBT));
    paid_until.max(saved).saturating_add(rate_limit.wall(cost)).min(most.max(saved))
}

/// Returns the word after a measurement. `difference` is the measured time less the prepaid time.
///
/// A refund may move the word further back than the burst. The next payment loses that part.
#[must_use]
pub fn settle(
    paid_until: Monotonic,
    now: Monotonic,
    difference: GpuTimeChange,
    rate_limit: RateLimit,
) -> Monotonic {
    if difference.is_refund() {
        paid_until.saturating_sub(rate_limit.wall(difference.amount()))
    } else {
        prepay(paid_until, now, difference.amount(), rate_limit)
    }
}

/// Returns the word after a change of the rate limit. The GPU time that is owed or saved stays the same.
///
/// Otherwise the slice would pay a debt made at 5 % at the pace of 5 % after the share has become 80 %.
#[must_use]
pub fn change(paid_until: Monotonic, now: Monotonic, old: RateLimit, new: RateLimit) -> Monotonic {
    if paid_until >= now {
        now.saturating_add(new.wall(old.gpu(paid_until.since(now))))
    } else {
        let saved = old.gpu(now.since(paid_until)).min(new.burst);
        now.saturating_sub(new.wall(saved))
    }
}

/// Returns the instant from which time is free, after the word changed to `paid_until`. `free_from` was that instant before.
///
/// The word alone does not show this instant. Example: a refund at 100 ms moves the word from 120 ms to 70 ms. The time is
/// free from 100 ms on, because the process whose turn it is sleeps until then. A charge at 130 ms moves the word to 90 ms,
/// and the time is still free since 100 ms.
#[must_use]
pub fn free_from(free_from: Monotonic, paid_until: Monotonic, now: Monotonic) -> Monotonic {
    if paid_until > now {
        paid_until
    } else if free_from > now {
        now
    } else {
        free_from
    }
}

/// Returns the instant of [`free_from`] for a reader that finds both words. The writer changes one after the other. If they
/// contradict each other, the result follows `paid_until`.
#[must_use]
pub fn free_since(paid_until: Monotonic, free_from: Monotonic, now: Monotonic) -> Monotonic {
    if paid_until > now || free_from > now { paid_until } else { free_from }
}

/// Returns true if a refund must wake a sleeper with the deadline `sleeps_until`, because the sleeper may launch earlier
/// now.
#[must_use]
pub fn wakes(sleeps_until: Monotonic, paid_until: Monotonic, now: Monotonic) -> bool {
    sleeps_until > paid_until.max(now).saturating_add(TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::{ms, ns};
    use crate::time::testing::charge;
    use proptest::prelude::*;

    const NOW: Monotonic = Monotonic::from_nanos(1 << 50);

    fn rate_limit(thousandths: u16, burst: u64) -> RateLimit {
        RateLimit::new(Permille::new(thousandths).unwrap(), GpuTime::from_millis(burst))
    }

    #[test]
    fn time_is_free_from_the_instant_at_which_a_refund_frees_it_until_it_is_paid_for() {
        let freed = free_from(ns(120), ns(70), ns(100));
        assert_eq!(freed, ns(100));
        assert_eq!(free_from(freed, ns(90), ns(130)), ns(100), "a charge that leaves it free");
        assert_eq!(free_from(freed, ns(50), ns(130)), ns(100), "another refund");
        assert_eq!(free_from(freed, ns(140), ns(130)), ns(140), "a payment");
        assert_eq!(free_since(ns(90), freed, ns(130)), ns(100));
        assert_eq!(free_since(ns(140), freed, ns(130)), ns(140), "a payment is under way");
        assert_eq!(free_since(ns(90), ns(u64::MAX), ns(130)), ns(90), "no process can have written that");
    }

    #[test]
    fn a_cost_moves_the_word_by_cost_over_rate() {
        assert_eq!(prepay(NOW, NOW, ms(3), rate_limit(300, 20)), NOW + ms(10));
        assert_eq!(prepay(NOW, NOW, ns(1), rate_limit(300, 20)), NOW + ns(4), "rounded up");
    }

    #[test]
    fn idle_time_saves_up_the_burst_and_no_more() {
        let rate_limit = rate_limit(500, 20);
        let after = prepay(ns(0), NOW, ms(1), rate_limit);
        assert_eq!(after, NOW - ms(40) + ms(2));
        assert_eq!(wait(after, NOW), None);
    }

    #[test]
    fn work_that_costs_more_than_is_saved_goes_once_and_is_owed() {
        let rate_limit = rate_limit(100, 20);
        let after = prepay(NOW, NOW, ms(400), rate_limit);
        assert_eq!(wait(after, NOW), Some(ms(4000)));
        assert_eq!(wait(after, NOW + ms(4000)), None);
    }

    #[test]
    fn a_debt_beyond_a_minute_of_gpu_time_is_taken_for_a_wrong_measurement() {
        let rate_limit = rate_limit(500, 20);
        let after = settle(NOW, NOW, charge(i64::MAX), rate_limit);
        assert_eq!(after, NOW + ms(120_000));
        assert_eq!(settle(after, NOW, charge(i64::MAX), rate_limit), after);
    }

    #[test]
    fn a_charge_for_earlier_work_is_paid_by_the_clock_since_then_and_cuts_no_debt() {
        let rate_limit = rate_limit(500, 20);
        let charged = |paid_until, since| charge_since(paid_until, (since, NOW), ms(50), rate_limit);
        assert_eq!(
            charged(ns(0), NOW - ms(300)),
            NOW - ms(240),
            "40 ms were saved up then, and 100 ms are charged"
        );
        assert_eq!(charged(NOW + ms(7), NOW - ms(300_000)), NOW + ms(107), "a debt of others");
        assert_eq!(charged(NOW + ms(120_000), NOW - ms(300)), NOW + ms(120_000), "the largest debt");
    }

    #[test]
    fn a_refund_takes_back_prepaid_time() {
        let rate_limit = rate_limit(300, 20);
        let paid = prepay(NOW, NOW, ms(7), rate_limit);
        assert_eq!(settle(paid, NOW + ms(1), charge(-7_000_000), rate_limit), NOW);
        assert_eq!(settle(paid, NOW + ms(1), charge(0), rate_limit), paid);
    }

    #[test]
    fn a_change_of_the_rate_limit_keeps_the_gpu_time_that_is_owed_or_saved() {
        assert_eq!(change(NOW + ms(100), NOW, rate_limit(50, 20), rate_limit(500, 20)), NOW + ms(10));
        assert_eq!(change(NOW - ms(100), NOW, rate_limit(50, 20), rate_limit(500, 20)), NOW - ms(10));
        assert_eq!(
            change(ns(0), NOW, rate_limit(50, 20), rate_limit(500, 20)),
            NOW - ms(40),
            "the burst bounds it"
        );
    }

    #[test]
    fn a_refund_wakes_sleepers_that_would_sleep_on_and_no_others() {
        assert!(wakes(NOW + ms(5), NOW - ms(1), NOW));
        assert!(wakes(NOW + ms(5), NOW + ms(1), NOW));
        assert!(!wakes(NOW + ms(5), NOW + ms(5), NOW));
        assert!(!wakes(NOW + TOLERANCE, NOW - ms(1), NOW));
    }

    proptest! {
        #[test]
        fn admitted_time_is_at_most_elapsed_times_rate_and_burst_and_one_job(
            steps in prop::collection::vec((0_u64..50_000_000, 1_u64..30_000_000), 1..200),
            thousandths in 1_u16..=1000,
        ) {
            let rate_limit = rate_limit(thousandths, 20);
            let (mut word, mut now, mut admitted, mut longest) = (NOW, NOW, GpuTime::ZERO, GpuTime::ZERO);
            for (passed, cost) in steps {
                let (passed, cost) = (ns(passed), ns(cost));
                now += passed;
                if wait(word, now).is_none() {
                    word = prepay(word, now, cost, rate_limit);
                    admitted += cost;
                    longest = longest.max(cost);
                }
                prop_assert!(admitted <= rate_limit.gpu(now.since(NOW)) + rate_limit.burst() + longest + ns(1));
            }
        }

        #[test]
        fn no_value_makes_the_word_wrap_around(
            word in any::<u64>(), now in any::<u64>(), by in any::<i64>(),
            (old, new) in (0_u16..=1000, 0_u16..=1000), burst in any::<u64>(),
        ) {
            let [old, new] = [old, new].map(|rate| RateLimit::new(Permille::new(rate).unwrap(), GpuTime::from_nanos(burst)));
            let (word, now) = (ns(word), ns(now));
            let after = settle(word, now, charge(by), old);
            prop_assert!(by < 0 || after >= word.min(now));
            prop_assert!(by > 0 || after <= word.max(now));
            let _ = change(word, now, old, new);
        }
    }
}
