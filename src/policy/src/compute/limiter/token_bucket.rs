//! Token bucket for GPU time, in one word: the virtual scheduling form of GCRA.
//!
//! The word `paid_until` is the instant up to which the slice's GPU time is paid (GCRA: the theoretical arrival
//! time). Example: at a share of 50 %, work of 3 ms moves the word by 6 ms.
//!
//! - Work is admitted while the word lies in the past. Work of `cost` moves the word by `cost / rate`.
//! - A word that lies further back than the burst loses the rest. A word in the future is debt.
//!
//! Why a word of time, and no counter of tokens: the clock refills the bucket, so no process has to, and a death
//! needs no repair.
//!
//! All functions take the word and return its next value. The caller applies them by compare-and-swap. Wrong values
//! from a shared file cannot overflow: all arithmetic saturates.

use crate::units::{MOST_GPU_TIME, Nanos, Permille};

/// Largest debt of a slice, in nanoseconds of GPU time: one minute.
///
/// Debt is never forgiven. But a kernel that runs for longer is rarer than a wrong measurement.
pub const MOST_DEBT: u64 = MOST_GPU_TIME.get();

/// Nanoseconds by which a sleeper may oversleep before a refund wakes it: 0.2 ms.
///
/// That is a fifth of the millisecond by which no launch may wait longer than the ledger requires. A smaller value
/// would wake sleepers for nothing.
pub const TOLERANCE: u64 = 200_000;

/// Rate and burst of a slice: its share of the GPU's time, and the unused time that it may save up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    rate: Permille,
    burst: u64,
}

impl RateLimit {
    /// Makes terms of a share and of the GPU time that may be saved up.
    #[must_use]
    pub const fn new(rate: Permille, burst: Nanos) -> Self {
        Self { rate, burst: burst.get() }
    }

    /// Returns the share.
    #[must_use]
    pub const fn rate(self) -> Permille {
        self.rate
    }

    /// Returns the GPU time that may be saved up, in nanoseconds.
    #[must_use]
    pub const fn burst(self) -> u64 {
        self.burst
    }

    /// Returns the wall nanoseconds that pay for `gpu` nanoseconds of GPU time, rounded up.
    #[must_use]
    pub fn wall(self, gpu: u64) -> u64 {
        gpu.saturating_mul(1000).div_ceil(self.thousandths())
    }

    /// Returns the nanoseconds of GPU time that `wall` nanoseconds of the clock pay for, rounded down.
    #[must_use]
    pub fn gpu(self, wall: u64) -> u64 {
        let gpu = u128::from(wall).saturating_mul(u128::from(self.thousandths()));
        u64::try_from(gpu / 1000).unwrap_or(u64::MAX)
    }

    /// Returns the rate in thousandths. A rate of 0 would never pay, so it counts as 1.
    fn thousandths(self) -> u64 {
        u64::from(self.rate.get()).max(1)
    }
}

/// Returns the nanoseconds of the clock that work has to wait. `None`: it is admitted.
#[must_use]
pub const fn wait(paid_until: u64, now: u64) -> Option<u64> {
    match paid_until.saturating_sub(now) {
        0 => None,
        left => Some(left),
    }
}

/// Returns the word after a payment of `cost` nanoseconds of GPU time.
///
/// Saved time is used first. Work that costs more than the savings is admitted once, and the slice owes the rest.
#[must_use]
pub fn prepay(paid_until: u64, now: u64, cost: u64, terms: RateLimit) -> u64 {
    let saved = now.saturating_sub(terms.wall(terms.burst));
    let most = now.saturating_add(terms.wall(MOST_DEBT));
    paid_until.max(saved).saturating_add(terms.wall(cost)).min(most.max(saved))
}

/// Returns the word after a measurement. `difference` is the measured time less the prepaid time, in nanoseconds of GPU time.
///
/// A refund may move the word further back than the burst. The next payment loses that part.
#[must_use]
pub fn settle(paid_until: u64, now: u64, difference: i64, terms: RateLimit) -> u64 {
    if difference >= 0 {
        prepay(paid_until, now, difference.unsigned_abs(), terms)
    } else {
        paid_until.saturating_sub(terms.wall(difference.unsigned_abs()))
    }
}

/// Returns the word after a change of terms. The GPU time that is owed or saved stays the same.
///
/// Otherwise a debt made at 5 % would be paid at the pace of 5 % after the share has become 80 %.
#[must_use]
pub fn change(paid_until: u64, now: u64, old: RateLimit, new: RateLimit) -> u64 {
    if paid_until >= now {
        now.saturating_add(new.wall(old.gpu(paid_until.saturating_sub(now))))
    } else {
        let saved = old.gpu(now.saturating_sub(paid_until)).min(new.burst);
        now.saturating_sub(new.wall(saved))
    }
}

/// Returns the instant from which time is free, after the word changed to `paid_until`. `free_from` was that instant before.
///
/// The word alone does not tell it. Example: a refund at 100 ms moves the word from 120 ms to 70 ms. The time is free
/// from 100 ms on, because until then the process whose turn it is sleeps. A charge at 130 ms moves the word to 90
/// ms: the time is still free since 100 ms.
#[must_use]
pub const fn free_from(free_from: u64, paid_until: u64, now: u64) -> u64 {
    if paid_until > now {
        paid_until
    } else if free_from > now {
        now
    } else {
        free_from
    }
}

/// Returns the instant of [`free_from`] for a reader that finds both words. The writer changes one after the other; if they
/// contradict each other, `paid_until` holds.
#[must_use]
pub const fn free_since(paid_until: u64, free_from: u64, now: u64) -> u64 {
    if paid_until > now || free_from > now { paid_until } else { free_from }
}

/// Returns true if a refund must wake a sleeper with the deadline `sleeps_until`, because the sleeper is due earlier
/// now.
#[must_use]
pub const fn wakes(sleeps_until: u64, paid_until: u64, now: u64) -> bool {
    let due = if paid_until > now { paid_until } else { now };
    sleeps_until > due.saturating_add(TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const NOW: u64 = 1 << 50;

    fn terms(thousandths: u16, burst: u64) -> RateLimit {
        RateLimit::new(Permille::new(thousandths).unwrap(), Nanos::from_millis(burst))
    }

    #[test]
    fn time_is_free_from_the_instant_at_which_a_refund_frees_it_until_it_is_paid_for() {
        let freed = free_from(120, 70, 100);
        assert_eq!(freed, 100);
        assert_eq!(free_from(freed, 90, 130), 100, "a charge that leaves it free");
        assert_eq!(free_from(freed, 50, 130), 100, "another refund");
        assert_eq!(free_from(freed, 140, 130), 140, "a payment");
        assert_eq!(free_since(90, freed, 130), 100);
        assert_eq!(free_since(140, freed, 130), 140, "a payment is under way");
        assert_eq!(free_since(90, u64::MAX, 130), 90, "nobody can have written that");
    }

    #[test]
    fn a_cost_moves_the_word_by_cost_over_rate() {
        assert_eq!(prepay(NOW, NOW, 3 * MS, terms(300, 20)), NOW + 10 * MS);
        assert_eq!(prepay(NOW, NOW, 1, terms(300, 20)), NOW + 4, "rounded up");
    }

    #[test]
    fn idle_time_saves_up_the_burst_and_no_more() {
        let terms = terms(500, 20);
        let after = prepay(0, NOW, MS, terms);
        assert_eq!(after, NOW - 40 * MS + 2 * MS);
        assert_eq!(wait(after, NOW), None);
    }

    #[test]
    fn work_that_costs_more_than_is_saved_goes_once_and_is_owed() {
        let terms = terms(100, 20);
        let after = prepay(NOW, NOW, 400 * MS, terms);
        assert_eq!(wait(after, NOW), Some(4000 * MS));
        assert_eq!(wait(after, NOW + 4000 * MS), None);
    }

    #[test]
    fn a_debt_beyond_a_minute_of_gpu_time_is_taken_for_a_wrong_measurement() {
        let terms = terms(500, 20);
        let after = settle(NOW, NOW, i64::MAX, terms);
        assert_eq!(after, NOW + 120_000 * MS);
        assert_eq!(settle(after, NOW, i64::MAX, terms), after);
    }

    #[test]
    fn a_refund_takes_back_what_was_prepaid() {
        let terms = terms(300, 20);
        let paid = prepay(NOW, NOW, 7 * MS, terms);
        assert_eq!(settle(paid, NOW + MS, -7_000_000, terms), NOW);
        assert_eq!(settle(paid, NOW + MS, 0, terms), paid);
    }

    #[test]
    fn a_change_of_terms_keeps_the_gpu_time_that_is_owed_or_saved() {
        assert_eq!(change(NOW + 100 * MS, NOW, terms(50, 20), terms(500, 20)), NOW + 10 * MS);
        assert_eq!(change(NOW - 100 * MS, NOW, terms(50, 20), terms(500, 20)), NOW - 10 * MS);
        assert_eq!(change(0, NOW, terms(50, 20), terms(500, 20)), NOW - 40 * MS, "the burst bounds it");
    }

    #[test]
    fn a_refund_wakes_who_would_sleep_on_and_nobody_else() {
        assert!(wakes(NOW + 5 * MS, NOW - MS, NOW));
        assert!(wakes(NOW + 5 * MS, NOW + MS, NOW));
        assert!(!wakes(NOW + 5 * MS, NOW + 5 * MS, NOW));
        assert!(!wakes(NOW + TOLERANCE, NOW - MS, NOW));
    }

    proptest! {
        #[test]
        fn admitted_time_is_at_most_elapsed_times_rate_and_burst_and_one_job(
            steps in prop::collection::vec((0_u64..50 * MS, 1_u64..30 * MS), 1..200),
            thousandths in 1_u16..=1000,
        ) {
            let terms = terms(thousandths, 20);
            let (mut word, mut now, mut admitted, mut longest) = (NOW, NOW, 0, 0);
            for (passed, cost) in steps {
                now += passed;
                if wait(word, now).is_none() {
                    word = prepay(word, now, cost, terms);
                    admitted += cost;
                    longest = longest.max(cost);
                }
                prop_assert!(admitted <= terms.gpu(now - NOW) + terms.burst() + longest + 1);
            }
        }

        #[test]
        fn no_value_makes_the_word_wrap_around(
            word in any::<u64>(), now in any::<u64>(), by in any::<i64>(),
            (old, new) in (0_u16..=1000, 0_u16..=1000), burst in any::<u64>(),
        ) {
            let [old, new] = [old, new].map(|rate| RateLimit::new(Permille::new(rate).unwrap(), Nanos::new(burst)));
            let after = settle(word, now, by, old);
            prop_assert!(by < 0 || after >= word.min(now));
            prop_assert!(by > 0 || after <= word.max(now));
            let _ = change(word, now, old, new);
        }
    }
}
