//! Time that look-ups of code may spend on measuring the memory that they take.
//!
//! A framework makes hundreds of look-ups at its start. Free memory costs microseconds, but milliseconds on some drivers in
//! containers. NVML takes milliseconds, and all processes of the machine wait meanwhile. So each of the two sources has a budget:
//! [`BURST`], and one part in [`PART`] of the time since the first question, besides one question. Look-ups beyond the budget of
//! NVML are charged by free memory. Look-ups beyond the budget of free memory are not measured. The next comparison with NVML
//! settles both.

#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::driver_calls::nvml::initialization::PART;
use crate::os::clock::now;
use core::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds that look-ups may spend on one source at once. 900 look-ups at two readings of free memory of 5 us each take 9 ms.
const BURST: u64 = 10_000_000;

/// The budget of a process for one source.
#[derive(Debug, Default)]
pub(crate) struct LookUpBudget {
    /// Instant at which the time spent so far is a [`PART`] of the time passed, on the monotonic clock.
    paid_at: AtomicU64,
}

impl LookUpBudget {
    /// Returns true if look-ups may not ask the source.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent_at(now())
    }

    /// Asks the source, and takes the time of the question off the budget.
    pub(crate) fn pay<T>(&self, ask: impl FnOnce() -> T) -> T {
        let began = now();
        let answer = ask();
        self.spend(began, now());
        answer
    }

    fn is_spent_at(&self, now: u64) -> bool {
        self.paid_at.load(Ordering::Relaxed).saturating_sub(now) >= BURST.saturating_mul(PART)
    }

    /// Spends the time between two instants, in nanoseconds of the monotonic clock.
    fn spend(&self, began: u64, ended: u64) {
        let cost = ended.saturating_sub(began).saturating_mul(PART);
        let later = |paid_at: u64| Some(paid_at.max(began).saturating_add(cost));
        // The function always returns a value, so the update never fails.
        let _before = self.paid_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 77 * SECOND;

    /// Measures whenever the budget allows, for as long as `duration`. A measurement takes `cost`. Returns the time spent.
    fn spent_in(duration: u64, cost: u64) -> u64 {
        let (budget, mut now, mut spent) = (LookUpBudget::default(), START, 0);
        while now < START + duration {
            if budget.is_spent_at(now) {
                now += 1_000;
            } else {
                budget.spend(now, now + cost);
                (now, spent) = (now + cost, spent + cost);
            }
        }
        spent
    }

    #[test]
    fn measuring_takes_the_burst_and_its_part_of_the_time_whatever_it_costs() {
        for cost in [5_000, 100_000, 4_500_000, 8_000_000] {
            for duration in [SECOND / 10, SECOND, 10 * SECOND] {
                let (spent, bound) = (spent_in(duration, cost), BURST + duration / PART);
                assert!(
                    (bound - cost..=bound + cost).contains(&spent),
                    "{cost} for {duration}: {spent} of {bound}"
                );
            }
        }
    }

    #[test]
    fn nine_hundred_cheap_measurements_in_a_row_are_all_made() {
        let budget = LookUpBudget::default();
        for nth in 0..900 {
            assert!(!budget.is_spent_at(START + nth * 10_000), "{nth}");
            budget.spend(START + nth * 10_000, START + (nth + 1) * 10_000);
        }
    }
}
