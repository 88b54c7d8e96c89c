//! What has been charged for work, and what remains to be settled?

use super::super::attribution::correction;

/// Up to when work is charged that has not ended: from `from`, up to a millisecond ago, and no more than a few at a time.
///
/// The helper looks every millisecond, so more than a few at a time is a clock that jumped or a process that was
/// stopped. What is charged too much in this way is refunded when the work has ended ([`Bill::refund`]).
#[must_use]
pub const fn running(from: u64, now: u64) -> Option<u64> {
    let until = now.saturating_sub(BEHIND);
    let most = from.saturating_add(AT_A_TIME);
    if until < from.saturating_add(BEHIND) {
        return None;
    }
    Some(if until < most { until } else { most })
}

/// By how much more was charged for work than it is worth: `charged` for what is measured as `length`, of which `progress` was
/// charged while it ran. `factor` is the slice's part of that time, in parts of [`correction::ONE`].
///
/// `is_replayed`: what earlier factors got wrong is settled by the [replay](super::super::attribution::factor::Split), so that only time beyond the
/// length is given back here.
#[must_use]
pub fn beyond(charged: u64, (length, progress): (u64, u64), factor: u32, is_replayed: bool) -> u64 {
    let beyond = charged.saturating_sub(correction::apply(length, factor));
    let excess = correction::apply(progress.saturating_sub(length), factor);
    if is_replayed { beyond.min(excess) } else { beyond }
}

/// How far behind the present work is charged that runs, in nanoseconds: 1 ms, since clocks are laid on each other no
/// better.
const BEHIND: u64 = 1_000_000;
/// How much of running work is charged at a time, in nanoseconds: 4 ms.
const AT_A_TIME: u64 = 4_000_000;

/// What was prepaid for a bracket and what has been charged for it, in nanoseconds of GPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bill {
    prepaid: u64,
    charged: u64,
}

impl Bill {
    /// So much was prepaid.
    #[must_use]
    pub const fn new(prepaid: u64) -> Self {
        Self { prepaid, charged: 0 }
    }

    /// What was prepaid.
    #[must_use]
    pub const fn prepaid(&self) -> u64 {
        self.prepaid
    }

    /// What has been charged.
    #[must_use]
    pub const fn charged(&self) -> u64 {
        self.charged
    }

    /// More was measured, the work perhaps still running. What of it must be settled now: all beyond what was prepaid.
    pub const fn charge(&mut self, amount: u64) -> i64 {
        let before = self.beyond();
        self.charged = self.charged.saturating_add(amount);
        self.beyond().saturating_sub(before).cast_signed()
    }

    /// So much less was measured in the end than had been charged while the work ran. What must be settled now.
    pub const fn refund(&mut self, amount: u64) -> i64 {
        let before = self.beyond();
        self.charged = self.charged.saturating_sub(amount);
        0_i64.saturating_sub_unsigned(before.saturating_sub(self.beyond()))
    }

    /// The work has ended. What is left to settle: a refund, or nothing.
    #[must_use]
    pub const fn close(self) -> i64 {
        0_i64.saturating_sub_unsigned(self.prepaid.saturating_sub(self.charged))
    }

    const fn beyond(&self) -> u64 {
        self.charged.saturating_sub(self.prepaid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_settles_what_is_beyond_the_prepaid_at_once_and_the_rest_in_the_end() {
        let mut bill = Bill::new(100);
        assert_eq!(bill.prepaid(), 100);
        assert_eq!(bill.charge(60), 0);
        assert_eq!(bill.charge(60), 20);
        assert_eq!(bill.charge(5), 5);
        assert_eq!(bill.close(), 0);
        assert_eq!(bill.refund(45), -25);
        assert_eq!(bill.close(), -20);
        assert_eq!(bill.charged(), 80);
    }

    #[test]
    fn running_work_is_charged_up_to_a_millisecond_ago_and_a_little_at_a_time() {
        const MS: u64 = 1_000_000;
        assert_eq!(running(10 * MS, 11 * MS), None);
        assert_eq!(running(10 * MS, 12 * MS), Some(11 * MS));
        assert_eq!(running(10 * MS, 5000 * MS), Some(14 * MS));
    }

    #[test]
    fn a_factor_that_fell_gives_back_only_where_no_replay_settles_it() {
        // 10 were charged of which 4 are left by the factor of now; 2 of the time came too much.
        let half = correction::ONE / 2;
        assert_eq!(beyond(10, (8, 10), half, false), 6);
        assert_eq!(beyond(10, (8, 10), half, true), 1);
        assert_eq!(beyond(10, (10, 10), half, true), 0);
    }
}
