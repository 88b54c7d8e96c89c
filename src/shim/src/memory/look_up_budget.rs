//! Time that look-ups and loads of code may spend on measuring the memory that they take.
//!
//! A framework makes hundreds of look-ups at its start. A reading of free memory costs microseconds, but milliseconds with some
//! drivers in containers. A question to NVML costs milliseconds, and all processes of the machine wait meanwhile. So each of the
//! two sources has a budget: [`BURST`], and one part in [`NVML_PART`] of the time since the first question. A single question may
//! exceed the budget. Look-ups beyond the budget of NVML are charged by free memory. Look-ups beyond the budget of free memory
//! are not measured. The next comparison with NVML corrects the charges of both kinds.
//!
//! Loads of code have a budget of their own for free memory, with the same bounds. Beyond this budget, the library does not
//! measure a load whose image shows all memory that the load takes.

use crate::driver_calls::nvml::initialization::NVML_PART;
use crate::os::clock::now;
use crate::os::time_word::TimeWord;
use gpuslice_policy::time::{Monotonic, WallTime};

/// Time that look-ups may spend on one source in a row. Example: 900 look-ups, each with two readings of free memory of 5 us,
/// take 9 ms.
const BURST: WallTime = WallTime::from_millis(10);

/// Time that a process may spend on questions to one source.
#[derive(Debug, Default)]
pub(crate) struct LookUpBudget {
    /// Instant at which the time spent until now is one part in [`NVML_PART`] of the time since the first question. Each question
    /// moves it later by its own duration times [`NVML_PART`].
    paid_at: TimeWord<Monotonic>,
}

impl LookUpBudget {
    /// Returns true if look-ups may not ask the source.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent_at(now())
    }

    /// Asks the source, and subtracts the time of the question from the budget.
    pub(crate) fn pay<T>(&self, ask: impl FnOnce() -> T) -> T {
        let began = now();
        let answer = ask();
        self.spend(began, now());
        answer
    }

    fn is_spent_at(&self, now: Monotonic) -> bool {
        self.paid_at.get().since(now) >= BURST.saturating_mul(NVML_PART)
    }

    /// Spends the time between two instants.
    fn spend(&self, began: Monotonic, ended: Monotonic) {
        let cost = ended.since(began).saturating_mul(NVML_PART);
        let later = |paid_at: Monotonic| Some(paid_at.max(began).saturating_add(cost));
        // The function always returns a value, so the change never fails.
        let _before = self.paid_at.change(later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: WallTime = WallTime::from_millis(1_000);

    fn start() -> Monotonic {
        Monotonic::from_nanos(77_000_000_000)
    }

    /// Makes a measurement that takes `cost` whenever the budget allows one. Stops after `duration`, and returns the sum of the
    /// costs.
    fn spent_in(duration: WallTime, cost: WallTime) -> WallTime {
        let (budget, mut now, mut spent) = (LookUpBudget::default(), start(), WallTime::ZERO);
        while now < start().saturating_add(duration) {
            if budget.is_spent_at(now) {
                now = now.saturating_add(WallTime::from_micros(1));
            } else {
                let ended = now.saturating_add(cost);
                budget.spend(now, ended);
                (now, spent) = (ended, spent.saturating_add(cost));
            }
        }
        spent
    }

    #[test]
    fn measuring_takes_the_burst_and_its_part_of_the_time_whatever_it_costs() {
        for cost in [5, 100, 4_500, 8_000].map(WallTime::from_micros) {
            for duration in [SECOND.part(10), SECOND, SECOND.saturating_mul(10)] {
                let (spent, bound) =
                    (spent_in(duration, cost), BURST.saturating_add(duration.part(NVML_PART)));
                let range = bound.saturating_sub(cost)..=bound.saturating_add(cost);
                assert!(range.contains(&spent), "{cost:?} for {duration:?}: {spent:?} of {bound:?}");
            }
        }
    }

    #[test]
    fn nine_hundred_cheap_measurements_in_a_row_are_all_made() {
        let (budget, mut now) = (LookUpBudget::default(), start());
        for nth in 0..900 {
            assert!(!budget.is_spent_at(now), "{nth}");
            let ended = now.saturating_add(WallTime::from_micros(10));
            budget.spend(now, ended);
            now = ended;
        }
    }
}
