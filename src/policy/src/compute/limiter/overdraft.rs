//! Which launch ends beside what was let go before it, and so takes no time of its own?
//!
//! Launches that overlap go in groups, and a group is rarely of whole rounds: where the purse is empty in the middle of
//! one, a part of the GPU has nothing to do until the others are done. Who fills that hole adds nothing to the time in
//! which anything ran. It goes although nothing is left, and owes what it costs.

use super::super::cost::estimate::Estimate;
use super::lease;

/// A launch may end later than the last of what was let go by this part of its own time: one in eight. Streams that are
/// filled in turn end one after the other.
const LATER: u64 = 8;

/// When a stream is predicted to be done that was to be so at `until` and has got so much more work, in nanoseconds, at
/// `now`.
#[must_use]
pub const fn done(until: u64, now: u64, plain: u64) -> u64 {
    let start = if until > now { until } else { now };
    start.saturating_add(plain)
}

/// What the launches of a process owe that went beside others, since it paid last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Beside {
    owed: u64,
}

impl Beside {
    /// So much GPU time is owed, in nanoseconds.
    #[must_use]
    pub const fn of(owed: u64) -> Self {
        Self { owed }
    }

    /// What is owed after a launch whose stream is predicted to be done with it at `done`, if it may go so: it is of those
    /// that overlap, and ends with `last`, the last of what was let go. No more is owed than one launch takes alone: who
    /// is wrong about what runs side by side is wrong by one launch.
    #[must_use]
    pub fn go(self, estimate: &Estimate, done: u64, last: u64) -> Option<u64> {
        let owed = self.owed.saturating_add(estimate.charged);
        let is_beside = lease::overlaps(estimate) && done <= last.saturating_add(estimate.plain / LATER);
        (is_beside && owed <= estimate.plain).then_some(owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn of(charged: u64, plain: u64) -> Estimate {
        let mut estimate = Estimate::NONE;
        (estimate.charged, estimate.plain) = (charged, plain);
        estimate
    }

    #[test]
    fn a_stream_is_done_after_what_it_has_and_no_sooner_than_it_could_begin() {
        assert_eq!(done(10 * MS, 4 * MS, MS), 11 * MS);
        assert_eq!(done(4 * MS, 10 * MS, MS), 11 * MS);
    }

    #[test]
    fn what_ends_with_the_others_goes_and_what_would_run_on_alone_waits() {
        let go = |estimate, done| Beside::default().go(&estimate, done, 20 * MS).is_some();
        assert!(go(of(MS, 8 * MS), 21 * MS));
        assert!(!go(of(MS, 8 * MS), 21 * MS + 1));
        assert!(!go(of(8 * MS, 8 * MS), 20 * MS), "it does not overlap");
    }

    #[test]
    fn as_much_is_owed_as_one_launch_takes_alone() {
        let go = |owed| Beside::of(owed).go(&of(3 * MS, 8 * MS), MS, MS);
        assert_eq!(go(0), Some(3 * MS));
        assert_eq!(go(5 * MS), Some(8 * MS));
        assert_eq!(go(5 * MS + 1), None);
    }
}
