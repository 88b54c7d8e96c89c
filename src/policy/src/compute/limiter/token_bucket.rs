//! Until when is a slice's GPU time paid?
//!
//! A token bucket whose tokens are time, in one word: `paid_until`, the instant up to which the slice's GPU time is
//! paid. Work may go while it lies in the past; work of `cost` moves it by `cost / rate`. What lies further back than
//! the burst is lost, what lies ahead is debt. Nothing refills it and nothing has to be repaired after a death.
//!
//! All functions take the word and give its next value, so that a caller can apply them by compare-exchange.

use crate::units::{MOST_GPU_TIME, Nanos, Permille};

/// The most that a slice may owe, in nanoseconds of GPU time: one minute.
///
/// Debt is never forgiven, but a kernel that runs for longer is rarer than a measurement that is wrong.
pub const MOST_DEBT: u64 = MOST_GPU_TIME.get();

/// How far ahead of the ledger a sleeper may sleep before a refund wakes it, in nanoseconds: 0.2 ms.
///
/// A fifth of the millisecond that nobody may wait beyond what the ledger owes; less would wake sleepers for nothing.
pub const TOLERANCE: u64 = 200_000;

/// What a slice may use: a share of the GPU's time and how much of it may be saved up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    rate: Permille,
    burst: u64,
}

impl Terms {
    /// This share, and so much unused GPU time that may be saved up.
    #[must_use]
    pub const fn new(rate: Permille, burst: Nanos) -> Self {
        Self { rate, burst: burst.get() }
    }

    /// The share.
    #[must_use]
    pub const fn rate(self) -> Permille {
        self.rate
    }

    /// GPU time that may be saved up, in nanoseconds.
    #[must_use]
    pub const fn burst(self) -> u64 {
        self.burst
    }

    /// Nanoseconds on the clock that pay for so many of GPU time, rounded up.
    #[must_use]
    pub fn wall(self, gpu: u64) -> u64 {
        gpu.saturating_mul(1000).div_ceil(self.thousandths())
    }

    /// Nanoseconds of GPU time that so many on the clock pay for, rounded down.
    #[must_use]
    pub fn gpu(self, wall: u64) -> u64 {
        let gpu = u128::from(wall).saturating_mul(u128::from(self.thousandths()));
        u64::try_from(gpu / 1000).unwrap_or(u64::MAX)
    }

    /// A share of nothing would never pay: it counts as the least there is.
    fn thousandths(self) -> u64 {
        u64::from(self.rate.get()).max(1)
    }
}

/// How long work has to wait, in nanoseconds; none if it may go. Being early by nothing is being due.
#[must_use]
pub const fn wait(paid_until: u64, now: u64) -> Option<u64> {
    match paid_until.saturating_sub(now) {
        0 => None,
        left => Some(left),
    }
}

/// The word after so much GPU time, in nanoseconds, was paid for.
///
/// Saved up time is used first. What costs more than is saved is admitted once and then owed.
#[must_use]
pub fn prepay(paid_until: u64, now: u64, cost: u64, terms: Terms) -> u64 {
    let saved = now.saturating_sub(terms.wall(terms.burst));
    let most = now.saturating_add(terms.wall(MOST_DEBT));
    paid_until.max(saved).saturating_add(terms.wall(cost)).min(most.max(saved))
}

/// The word after a measurement: so many nanoseconds of GPU time more, or less, than was prepaid.
///
/// A refund may move the word behind what can be saved up; the next payment loses that part.
#[must_use]
pub fn settle(paid_until: u64, now: u64, difference: i64, terms: Terms) -> u64 {
    if difference >= 0 {
        prepay(paid_until, now, difference.unsigned_abs(), terms)
    } else {
        paid_until.saturating_sub(terms.wall(difference.unsigned_abs()))
    }
}

/// The word after a change of terms: the GPU time that is owed or saved stays what it was.
///
/// Without it a debt made at 5 % would be paid at the pace of 5 % after the share has become 80 %.
#[must_use]
pub fn change(paid_until: u64, now: u64, old: Terms, new: Terms) -> u64 {
    if paid_until >= now {
        now.saturating_add(new.wall(old.gpu(paid_until.saturating_sub(now))))
    } else {
        let saved = old.gpu(now.saturating_sub(paid_until)).min(new.burst);
        now.saturating_sub(new.wall(saved))
    }
}

/// The instant from which on time is free, after the word has changed to `paid_until`; `free_from` was that instant before.
///
/// The word alone does not say it. A refund at 100 ms that moves it from 120 ms to 70 ms frees the time at 100 ms: until then the
/// process sleeps whose turn it is. A charge at 130 ms that moves it to 90 ms leaves the time free since 100 ms.
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

/// The same for a reader that finds both: they change one after the other, and the word holds where they contradict each other.
#[must_use]
pub const fn free_since(paid_until: u64, free_from: u64, now: u64) -> u64 {
    if paid_until > now || free_from > now { paid_until } else { free_from }
}

/// Whether a refund must wake a waiter that sleeps until `sleeps_until`, since it is due earlier by now.
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

    fn terms(thousandths: u16, burst: u64) -> Terms {
        Terms::new(Permille::new(thousandths).unwrap(), Nanos::from_millis(burst))
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
            let [old, new] = [old, new].map(|rate| Terms::new(Permille::new(rate).unwrap(), Nanos::new(burst)));
            let after = settle(word, now, by, old);
            prop_assert!(by < 0 || after >= word.min(now));
            prop_assert!(by > 0 || after <= word.max(now));
            let _ = change(word, now, old, new);
        }
    }
}
