//! Computes the refund of GPU time after a process has died.

use super::queue_bound;
use crate::time::{GpuTime, GpuTimeChange, Monotonic};

/// The work that a process had in flight when it died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// No work: all launches are settled.
    None,
    /// Launches whose cost was predicted and prepaid.
    Predicted,
    /// Launches of which one has an unknown cost, for which [`FIRST_PRIOR`](super::super::cost::table::FIRST_PRIOR) was prepaid.
    Unpredicted,
}

/// Returns the time that a dead process ran, less its `outstanding` time. That is prepaid time that is neither measured nor
/// refunded.
///
/// Example: a process dies with 50 ms queued, in a slice at 5 %. Without a refund the slice could launch nothing for a
/// second.
///
/// The work ran for no longer than the time since the last settlement, and for no longer than was predicted. A launch of
/// unknown cost counts as the largest bound of queued work. Otherwise processes that each end after their first launch
/// would use the GPU for nothing. The true duration stays unknown after the death, because a driver may stop the kernel at
/// that point.
#[must_use]
pub fn on_death(outstanding: GpuTime, work: Work, last_settled: Monotonic, now: Monotonic) -> GpuTimeChange {
    let most = match work {
        Work::None => GpuTime::ZERO,
        Work::Predicted => outstanding,
        Work::Unpredicted => outstanding.max(queue_bound::MOST_BOUND),
    };
    now.since(last_settled).gpu_if_alone().min(most).less(outstanding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::ns;
    use crate::time::testing::charge;

    #[test]
    fn the_dead_leave_prepaid_time_that_cannot_have_run() {
        assert_eq!(on_death(ns(50), Work::Predicted, ns(1000), ns(1010)), charge(-40));
        assert_eq!(on_death(ns(50), Work::Predicted, ns(1000), ns(2000)), charge(0));
        assert_eq!(on_death(ns(50), Work::Predicted, ns(1000), ns(900)), charge(-50));
        assert_eq!(on_death(ns(50), Work::None, ns(1000), ns(2000)), charge(-50));
    }

    #[test]
    fn the_dead_are_charged_the_possible_time_of_a_launch_that_nothing_predicts() {
        assert_eq!(on_death(ns(50), Work::Unpredicted, ns(1000), ns(1010)), charge(-40));
        assert_eq!(on_death(ns(50), Work::Unpredicted, ns(1000), ns(1050)), charge(0));
        assert_eq!(on_death(ns(50), Work::Unpredicted, ns(1000), ns(3000)), charge(1950));
        assert_eq!(
            on_death(ns(50), Work::Unpredicted, ns(1000), ns(u64::MAX)),
            charge(49_999_950),
            "50 ms at the most"
        );
        assert_eq!(on_death(2 * queue_bound::MOST_BOUND, Work::Unpredicted, ns(0), ns(u64::MAX)), charge(0));
    }
}
