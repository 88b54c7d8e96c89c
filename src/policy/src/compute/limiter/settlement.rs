//! Settles the difference between prepaid time and measured time.

use super::super::attribution::correction;
use crate::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};

/// Returns the instant up to which running work is charged. `from` is the instant up to which it was charged before.
/// `None`: there is too little to charge.
///
/// The result is at least 1 ms before `now`, and at most 4 ms after `from`. The worker looks every millisecond. A longer
/// step means that a clock jumped or that the process was stopped. At the end of the work, the slice gets a refund if the
/// charge was too high ([`Settlement::refund`]).
#[must_use]
pub fn running(from: Monotonic, now: Monotonic) -> Option<Monotonic> {
    let until = now.saturating_sub(CHARGE_DELAY);
    let most = from.saturating_add(AT_A_TIME);
    (until >= from.saturating_add(CHARGE_DELAY)).then_some(until.min(most))
}

/// Returns the GPU time by which the charge exceeds the true cost of the work. `charged` was charged for work that took
/// `length`; `progress` of it was charged while it ran. `factor` is the slice's part of the time, in parts of
/// [`correction::WHOLE_FACTOR`].
///
/// `is_replayed`: the [replay](super::super::attribution::correction::Split) settles the errors of earlier factors. Then
/// only time beyond the length is refunded here.
#[must_use]
pub fn beyond(
    charged: GpuTime,
    (length, progress): (WallTime, WallTime),
    factor: u32,
    is_replayed: bool,
) -> GpuTime {
    let beyond = charged.saturating_sub(correction::apply(length, factor));
    let excess = correction::apply(progress.saturating_sub(length), factor);
    if is_replayed { beyond.min(excess) } else { beyond }
}

/// Time before the present up to which running work is charged: 1 ms. The two clocks are not compared more exactly.
const CHARGE_DELAY: WallTime = WallTime::from_millis(1);
/// Time of running work that is charged at once: 4 ms.
const AT_A_TIME: WallTime = WallTime::from_millis(4);

/// The prepaid and the charged GPU time of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    prepaid: GpuTime,
    charged: GpuTime,
}

impl Settlement {
    /// Makes the settlement of a batch for which `prepaid` was paid.
    #[must_use]
    pub const fn new(prepaid: GpuTime) -> Self {
        Self { prepaid, charged: GpuTime::ZERO }
    }

    /// Returns the prepaid time.
    #[must_use]
    pub const fn prepaid(&self) -> GpuTime {
        self.prepaid
    }

    /// Returns the charged time.
    #[must_use]
    pub const fn charged(&self) -> GpuTime {
        self.charged
    }

    /// Adds measured time; the work may still run. Returns the change that the caller must settle now: the part
    /// beyond the prepaid time.
    pub const fn charge(&mut self, amount: GpuTime) -> GpuTimeChange {
        let before = self.beyond();
        self.charged = self.charged.saturating_add(amount);
        GpuTimeChange::charge(self.beyond().saturating_sub(before))
    }

    /// Subtracts time that was charged while the work ran and that the final measurement does not have. Returns the change
    /// that the caller must settle now: a refund, or none.
    pub const fn refund(&mut self, amount: GpuTime) -> GpuTimeChange {
        let before = self.beyond();
        self.charged = self.charged.saturating_sub(amount);
        GpuTimeChange::refund(before.saturating_sub(self.beyond()))
    }

    /// Ends the work. Returns the rest to settle: a refund, or none.
    #[must_use]
    pub const fn close(self) -> GpuTimeChange {
        GpuTimeChange::refund(self.prepaid.saturating_sub(self.charged))
    }

    const fn beyond(&self) -> GpuTime {
        self.charged.saturating_sub(self.prepaid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::{ms, ns};
    use crate::time::testing::charge;

    #[test]
    fn a_settlement_charges_the_excess_at_once_and_the_rest_in_the_end() {
        let mut settlement = Settlement::new(ns(100));
        assert_eq!(settlement.prepaid(), ns(100));
        assert_eq!(settlement.charge(ns(60)), charge(0));
        assert_eq!(settlement.charge(ns(60)), charge(20));
        assert_eq!(settlement.charge(ns(5)), charge(5));
        assert_eq!(settlement.close(), charge(0));
        assert_eq!(settlement.refund(ns(45)), charge(-25));
        assert_eq!(settlement.close(), charge(-20));
        assert_eq!(settlement.charged(), ns(80));
    }

    #[test]
    fn running_work_is_charged_up_to_a_millisecond_ago_and_a_little_at_a_time() {
        assert_eq!(running(ms(10), ms(11)), None);
        assert_eq!(running(ms(10), ms(12)), Some(ms(11)));
        assert_eq!(running(ms(10), ms(5000)), Some(ms(14)));
    }

    #[test]
    fn a_factor_that_fell_gives_back_only_where_no_replay_settles_it() {
        // 10 were charged, of which the present factor leaves 4. Of the time, 2 were too much.
        let half = correction::WHOLE_FACTOR / 2;
        assert_eq!(beyond(ns(10), (ns(8), ns(10)), half, false), ns(6));
        assert_eq!(beyond(ns(10), (ns(8), ns(10)), half, true), ns(1));
        assert_eq!(beyond(ns(10), (ns(10), ns(10)), half, true), ns(0));
    }
}
