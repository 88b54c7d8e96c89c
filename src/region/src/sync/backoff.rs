//! Randomised exponential back-off for retries of a reservation and of a lock request.
//!
//! Each wait is random, up to a bound that doubles from try to try. Processes that collided once therefore retry at
//! different times. The waits are lower bounds: the kernel adds about 50 microseconds to each one.

use core::{hash::BuildHasher as _, time::Duration};
use std::{hash::RandomState, process};

use crate::sync::pause::pause;

/// Bounds of a series of waits.
#[derive(Clone, Copy, Debug)]
pub struct BackoffBounds {
    /// Upper bound of the first wait.
    first: Duration,
    /// Upper bound of every wait.
    longest: Duration,
    /// The most time that all waits take together. After it there is no further try.
    total: Duration,
}

/// Bounds for a reservation that met pending ones.
///
/// A reservation is pending for less than a microsecond, unless its thread loses the processor. With some dozen busy
/// processes on two processors, 30 ms is too short (measured). A process that has used up its processor quota is
/// stopped for up to 100 ms. A wrong denial costs more than this wait.
pub const RESERVING: BackoffBounds = BackoffBounds {
    first: Duration::from_micros(2),
    longest: Duration::from_millis(1),
    total: Duration::from_millis(200),
};

/// Bounds for the join lock of a process that joins. Each process holds it for some tens of microseconds. A process that
/// sleeps for longer than others hold the lock joins late when many processes start together.
pub(crate) const JOINING: BackoffBounds = BackoffBounds {
    first: Duration::from_micros(20),
    longest: Duration::from_micros(200),
    total: Duration::from_secs(1),
};

/// Bounds for the join lock of a process that removes the region. The process may give up: the region then stays.
pub(crate) const REMOVING: BackoffBounds = BackoffBounds {
    first: Duration::from_micros(100),
    longest: Duration::from_millis(10),
    total: Duration::from_millis(500),
};

/// Bounds for a process that tries once.
pub(crate) const NO_WAIT: BackoffBounds =
    BackoffBounds { first: Duration::ZERO, longest: Duration::ZERO, total: Duration::ZERO };

/// Bounds for the lock on limits. Each process holds it for some microseconds.
pub(crate) const CHANGING: BackoffBounds = BackoffBounds {
    first: Duration::from_micros(20),
    longest: Duration::from_millis(1),
    total: Duration::from_secs(2),
};

/// Calls `attempt` until it succeeds or fails. When the waits are used up, returns the error that `late` makes of the
/// time waited.
pub(crate) fn retry_until<T, E>(
    bounds: BackoffBounds,
    mut attempt: impl FnMut() -> Result<Option<T>, E>,
    late: impl FnOnce(Duration) -> E,
) -> Result<T, E> {
    let mut backoff = Backoff::new(bounds);
    loop {
        if let Some(had) = attempt()? {
            return Ok(had);
        }
        if !backoff.wait() {
            return Err(late(backoff.waited()));
        }
    }
}

/// A series of waits.
#[derive(Debug)]
pub struct Backoff {
    bounds: BackoffBounds,
    longest_now: Duration,
    waited: Duration,
    random: u64,
}

impl Backoff {
    /// Starts a series. Each series has its own random seed: two forked siblings must not draw the same numbers.
    #[must_use]
    pub fn new(bounds: BackoffBounds) -> Self {
        let random = RandomState::new().hash_one(process::id()) | 1;
        Self { bounds, longest_now: bounds.first, waited: Duration::ZERO, random }
    }

    /// Returns the time waited so far.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// Waits once. `false`: the total is used up, and the call returned at once.
    #[allow(clippy::disallowed_methods, reason = "the bounded wait is what this file is for")]
    pub fn wait(&mut self) -> bool {
        let Some(next) = self.next() else { return false };
        pause(next);
        true
    }

    /// Returns the next wait. It is at least half of its bound, so that a series ends.
    fn next(&mut self) -> Option<Duration> {
        if self.waited >= self.bounds.total {
            return None;
        }
        let longest = u64::try_from(self.longest_now.as_nanos()).unwrap_or(u64::MAX);
        let half = longest.div_ceil(2).max(1);
        let next = Duration::from_nanos(half.saturating_add(self.draw().checked_rem(half).unwrap_or(0)));
        self.waited = self.waited.saturating_add(next);
        self.longest_now = self.longest_now.saturating_mul(2).min(self.bounds.longest);
        Some(next)
    }

    /// Returns the next random number, by xorshift.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_of_waits_grows_to_its_longest_and_ends_at_its_total() {
        for bounds in [RESERVING, JOINING, REMOVING, CHANGING] {
            let mut backoff = Backoff::new(bounds);
            let waits: Vec<_> = core::iter::from_fn(|| backoff.next()).collect();
            assert!(waits.iter().all(|wait| *wait <= bounds.longest && !wait.is_zero()));
            assert!(waits[0] <= bounds.first);
            assert!(waits.iter().any(|wait| *wait >= bounds.longest / 2));
            let total: Duration = waits.iter().sum();
            assert!(total >= bounds.total && total <= bounds.total + bounds.longest);
        }
    }
}
