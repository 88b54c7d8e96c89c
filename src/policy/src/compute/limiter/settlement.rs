//! Settles the difference between prepaid time and measured time.

use super::super::attribution::correction;

/// Returns the instant up to which running work is charged; `from` is the instant up to which it was charged before. `None`:
/// there is too little to charge. All in nanoseconds of the monotonic clock.
///
/// The result is at least 1 ms before `now`, and at most 4 ms after `from`. The worker looks every millisecond. A
/// longer step means that a clock jumped or that the process was stopped. The end of the work refunds time that was
/// charged too much ([`Settlement::refund`]).
#[must_use]
pub const fn running(from: u64, now: u64) -> Option<u64> {
    let until = now.saturating_sub(BEHIND);
    let most = from.saturating_add(AT_A_TIME);
    if until < from.saturating_add(BEHIND) {
        return None;
    }
    Some(if until < most { until } else { most })
}

/// Returns the nanoseconds by which the charge exceeds the worth of the work. `charged` was charged for work that took `length`;
/// `progress` of it was charged while it ran. `factor` is the slice's part of the time, in parts of [`correction::ONE`].
///
/// `is_replayed`: the [replay](super::super::attribution::factor::Split) settles the errors of earlier factors. Then
/// only time beyond the length is refunded here.
#[must_use]
pub fn beyond(charged: u64, (length, progress): (u64, u64), factor: u32, is_replayed: bool) -> u64 {
    let beyond = charged.saturating_sub(correction::apply(length, factor));
    let excess = correction::apply(progress.saturating_sub(length), factor);
    if is_replayed { beyond.min(excess) } else { beyond }
}

/// Nanoseconds before the present up to which running work is charged: 1 ms. The two clocks are aligned no better.
const BEHIND: u64 = 1_000_000;
/// Nanoseconds of running work that are charged at a time: 4 ms.
const AT_A_TIME: u64 = 4_000_000;

/// The prepaid and the charged GPU time of one batch, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    prepaid: u64,
    charged: u64,
}

impl Settlement {
    /// Makes the bill of a batch for which `prepaid` nanoseconds were paid.
    #[must_use]
    pub const fn new(prepaid: u64) -> Self {
        Self { prepaid, charged: 0 }
    }

    /// Returns the prepaid time, in nanoseconds.
    #[must_use]
    pub const fn prepaid(&self) -> u64 {
        self.prepaid
    }

    /// Returns the charged time, in nanoseconds.
    #[must_use]
    pub const fn charged(&self) -> u64 {
        self.charged
    }

    /// Adds measured time; the work may still run. Returns the nanoseconds that the caller must settle now: the part
    /// beyond the prepaid time.
    pub const fn charge(&mut self, amount: u64) -> i64 {
        let before = self.beyond();
        self.charged = self.charged.saturating_add(amount);
        self.beyond().saturating_sub(before).cast_signed()
    }

    /// Subtracts time that was charged while the work ran and was not measured in the end. Returns the nanoseconds
    /// that the caller must settle now, 0 or less.
    pub const fn refund(&mut self, amount: u64) -> i64 {
        let before = self.beyond();
        self.charged = self.charged.saturating_sub(amount);
        0_i64.saturating_sub_unsigned(before.saturating_sub(self.beyond()))
    }

    /// Ends the work. Returns the rest to settle: a refund (negative), or 0.
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
        let mut settlement = Settlement::new(100);
        assert_eq!(settlement.prepaid(), 100);
        assert_eq!(settlement.charge(60), 0);
        assert_eq!(settlement.charge(60), 20);
        assert_eq!(settlement.charge(5), 5);
        assert_eq!(settlement.close(), 0);
        assert_eq!(settlement.refund(45), -25);
        assert_eq!(settlement.close(), -20);
        assert_eq!(settlement.charged(), 80);
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
        // 10 were charged, of which 4 remain under the present factor; 2 of the time were too much.
        let half = correction::ONE / 2;
        assert_eq!(beyond(10, (8, 10), half, false), 6);
        assert_eq!(beyond(10, (8, 10), half, true), 1);
        assert_eq!(beyond(10, (10, 10), half, true), 0);
    }
}
