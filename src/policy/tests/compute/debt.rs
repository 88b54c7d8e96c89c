//! A second ledger with other arithmetic: a debt in thousandths of nanoseconds of GPU time instead of an instant.

use gpuslice_policy::compute::limiter::token_bucket::{MOST_DEBT, RateLimit};
use gpuslice_policy::time::{GpuTimeChange, Monotonic, WallTime};

/// The debt. A negative debt is saved time.
#[derive(Debug, Clone, Copy)]
pub struct Debt {
    owed: i128,
    at: Monotonic,
    /// Number of payments so far. Each of them rounds the instant of the word up.
    payments: u64,
}

impl Debt {
    /// Makes a slice with all savings that it may have.
    pub fn new(rate_limit: RateLimit) -> Self {
        Self { owed: -saved(rate_limit), at: Monotonic::BEGIN, payments: 0 }
    }

    fn pass(&mut self, now: Monotonic, rate_limit: RateLimit) {
        self.owed -= i128::from(now.since(self.at).nanos()) * i128::from(rate_limit.rate().get());
        self.at = now;
    }

    pub fn settle(&mut self, difference: GpuTimeChange, now: Monotonic, rate_limit: RateLimit) {
        self.pass(now, rate_limit);
        self.payments += 1;
        if !difference.is_refund() {
            self.owed = self.owed.max(-saved(rate_limit));
        }
        self.owed =
            (self.owed + i128::from(difference.nanos()) * 1000).min(i128::from(MOST_DEBT.nanos()) * 1000);
    }

    /// Gives the slice wall time.
    pub fn give(&mut self, wall: WallTime, now: Monotonic, rate_limit: RateLimit) {
        self.pass(now, rate_limit);
        self.owed -= i128::from(wall.nanos()) * i128::from(rate_limit.rate().get());
    }

    /// Changes the rate limit. The debt stays, and savings are cut to the new burst.
    pub fn change(&mut self, now: Monotonic, old: RateLimit, new: RateLimit) {
        self.pass(now, old);
        self.payments += 1;
        self.owed = self.owed.max(-saved(new));
    }

    /// Returns true if a word equals the debt, except for rounding. Savings beyond the burst do not count.
    pub fn is(&self, paid_until: Monotonic, now: Monotonic, rate_limit: RateLimit) -> bool {
        let mut debt = *self;
        debt.pass(now, rate_limit);
        let least = -saved(rate_limit);
        let word =
            (i128::from(paid_until.nanos()) - i128::from(now.nanos())) * i128::from(rate_limit.rate().get());
        let rounded = i128::from(self.payments + 2) * 2000;
        (word.max(least) - debt.owed.max(least)).abs() <= rounded
    }

    /// Returns the debt in nanoseconds of GPU time.
    pub fn owed(&self, now: Monotonic, rate_limit: RateLimit) -> i128 {
        let mut debt = *self;
        debt.pass(now, rate_limit);
        debt.owed / 1000
    }
}

fn saved(rate_limit: RateLimit) -> i128 {
    i128::from(rate_limit.burst().nanos()) * 1000
}
