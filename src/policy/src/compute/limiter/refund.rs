//! Computes the refund of GPU time after a process has died.

use super::queue_bound;

/// The work that a process had in flight when it died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// None: all launches are settled.
    None,
    /// Launches whose cost was predicted and prepaid.
    Predicted,
    /// Also a launch of unknown cost, for which [`FIRST_PRIOR`](super::super::cost::table::FIRST_PRIOR) was prepaid.
    Unpredicted,
}

/// Returns the time that a dead process ran less its `outstanding` time, in nanoseconds. `outstanding` is prepaid time that is
/// neither measured nor refunded. The instants are of the monotonic clock. A negative result is a refund.
///
/// Example: a process dies with 50 ms queued, in a slice at 5 %. Without a refund the slice could launch nothing for a
/// second.
///
/// The work ran for no longer than the time since the last settlement, and for no longer than was predicted. A launch
/// of unknown cost counts as the largest bound of queued work. Otherwise a series of processes that each end behind
/// their first launch would use the GPU for nothing. The true duration is unknown after the death: a driver may stop
/// the kernel at that point.
#[must_use]
pub fn estate(outstanding: u64, work: Work, last_settled: u64, now: u64) -> i64 {
    let most = match work {
        Work::None => 0,
        Work::Predicted => outstanding,
        Work::Unpredicted => outstanding.max(queue_bound::MOST),
    };
    let ran = now.saturating_sub(last_settled).min(most);
    ran.cast_signed().saturating_sub(outstanding.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_leave_what_cannot_have_run() {
        assert_eq!(estate(50, Work::Predicted, 1000, 1010), -40);
        assert_eq!(estate(50, Work::Predicted, 1000, 2000), 0);
        assert_eq!(estate(50, Work::Predicted, 1000, 900), -50);
        assert_eq!(estate(50, Work::None, 1000, 2000), -50);
    }

    #[test]
    fn the_dead_are_charged_what_may_have_run_of_a_launch_that_nothing_predicts() {
        assert_eq!(estate(50, Work::Unpredicted, 1000, 1010), -40);
        assert_eq!(estate(50, Work::Unpredicted, 1000, 1050), 0);
        assert_eq!(estate(50, Work::Unpredicted, 1000, 3000), 1950);
        assert_eq!(estate(50, Work::Unpredicted, 1000, u64::MAX), 49_999_950, "50 ms at the most");
        assert_eq!(estate(2 * queue_bound::MOST, Work::Unpredicted, 0, u64::MAX), 0);
    }
}
