//! Admits a launch without credit if it ends together with launches that run already: the overlap overdraft.
//!
//! Example: launches on eight streams are paid in groups. The credit runs out in the middle of a round, so three
//! streams would idle until the other five finish. A launch on one of the three adds nothing to the slice's busy time
//! if it ends with the others. It is admitted, and the process owes its cost.
//!
//! What could go wrong: the launches may not overlap after all. Therefore a process owes the cost of at most one
//! launch that runs alone.

use super::super::cost::estimate::Estimate;
use super::lease;

/// A launch may end later than the last admitted one by one part in eight of its own duration. Streams that are
/// filled in turn end one after the other.
const LATER: u64 = 8;

/// Returns the predicted instant at which a stream completes `plain` nanoseconds of further work. `until` is the prediction
/// before, `now` the present.
#[must_use]
pub const fn done(until: u64, now: u64, plain: u64) -> u64 {
    let start = if until > now { until } else { now };
    start.saturating_add(plain)
}

/// GPU time that a process owes for overlap overdrafts since its last payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Beside {
    owed: u64,
}

impl Beside {
    /// Makes a debt of `owed` nanoseconds of GPU time.
    #[must_use]
    pub const fn of(owed: u64) -> Self {
        Self { owed }
    }

    /// Returns the debt after a launch, in nanoseconds of GPU time. `None`: the launch is not admitted as debt.
    ///
    /// `done` is the predicted end of the launch's stream, `last` that of the last stream. The launch is admitted if
    /// launches of its kind overlap and it ends with the last stream. The debt stays within one launch that runs
    /// alone, so a wrong belief about overlap costs one launch.
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
