//! The refund of a dead process.

use super::queue_bound;

/// The work that a process had under way when it died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Nothing: all that it launched is settled.
    None,
    /// Launches whose cost was predicted and prepaid.
    Predicted,
    /// A launch of which nothing was known, too, for which [`FIRST_PRIOR`](super::super::cost::table::FIRST_PRIOR) was prepaid.
    Unpredicted,
}

/// The difference between what a dead process ran and its `outstanding` GPU time (prepaid, neither measured nor given
/// back). All in nanoseconds, the instants of the monotonic clock. Negative: so much is given back.
///
/// Its work cannot have run for longer than since it last settled, and not for longer than was predicted. Without the refund
/// a slice at 5 % would stand still for a second after the death of a process with 50 ms queued. A launch that nothing
/// predicts counts as what may be queued at the most: without that, processes that end behind their first launch would use
/// the GPU for nothing. What it really takes nobody knows after the death: a driver may stop it then.
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
