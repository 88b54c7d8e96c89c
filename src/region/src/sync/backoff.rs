//! How long does a reservation wait before its next try, and a newcomer for the join lock?
//!
//! Waits are random up to a longest one that doubles from try to try, so that those who met once part ways.
//! The times are lower bounds: the kernel adds its own (about 50 microseconds a wait).

use core::{hash::BuildHasher as _, time::Duration};
use std::{hash::RandomState, process};

use crate::sync::pause::pause;

/// Bounds of a series of waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The longest that the first wait can be.
    first: Duration,
    /// The longest that any wait can be.
    longest: Duration,
    /// After so much waiting there is no further try.
    total: Duration,
}

/// A reservation: an undecided one lasts well under a microsecond unless its thread lost its processor, and then
/// as long as that lasts. 30 ms were seen to be too few with some dozen busy processes on two processors; a
/// process that has used up its processor quota stands still for up to 100 ms. A wrong refusal is worse than this.
pub(crate) const RESERVING: Pace = Pace {
    first: Duration::from_micros(2),
    longest: Duration::from_millis(1),
    total: Duration::from_millis(200),
};

/// The join lock: it is held for some tens of microseconds by each newcomer. Whoever sleeps longer than some of them
/// hold it gets it late when many start together.
pub(crate) const JOINING: Pace = Pace {
    first: Duration::from_micros(20),
    longest: Duration::from_micros(200),
    total: Duration::from_secs(1),
};

/// The join lock, for one who would remove the region: it is better left than waited for.
pub(crate) const REMOVING: Pace = Pace {
    first: Duration::from_micros(100),
    longest: Duration::from_millis(10),
    total: Duration::from_millis(500),
};

/// The lock of those who change limits: it is held for some microseconds by each.
pub(crate) const CHANGING: Pace = Pace {
    first: Duration::from_micros(20),
    longest: Duration::from_millis(1),
    total: Duration::from_secs(2),
};

/// Tries again and again, until something is had or fails. What becomes of it when the waits have ended, after so long, is
/// for `late` to say.
pub(crate) fn until_had<T, E>(
    pace: Pace,
    mut attempt: impl FnMut() -> Result<Option<T>, E>,
    late: impl FnOnce(Duration) -> E,
) -> Result<T, E> {
    let mut patience = Patience::new(pace);
    loop {
        if let Some(had) = attempt()? {
            return Ok(had);
        }
        if !patience.wait() {
            return Err(late(patience.waited()));
        }
    }
}

/// A series of waits.
#[derive(Debug)]
pub(crate) struct Patience {
    pace: Pace,
    longest_now: Duration,
    waited: Duration,
    random: u64,
}

impl Patience {
    /// A new series, with randomness of its own: two forked siblings must not draw the same numbers.
    pub(crate) fn new(pace: Pace) -> Self {
        let random = RandomState::new().hash_one(process::id()) | 1;
        Self { pace, longest_now: pace.first, waited: Duration::ZERO, random }
    }

    /// How long there was waited.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// Waits, unless it was waited long enough: `false`.
    #[allow(clippy::disallowed_methods, reason = "the bounded wait is what this file is for")]
    pub(crate) fn wait(&mut self) -> bool {
        let Some(next) = self.next() else { return false };
        pause(next);
        true
    }

    /// The next wait. At least half of the longest one, so that a series has an end.
    fn next(&mut self) -> Option<Duration> {
        if self.waited >= self.pace.total {
            return None;
        }
        let longest = u64::try_from(self.longest_now.as_nanos()).unwrap_or(u64::MAX);
        let half = longest.div_ceil(2).max(1);
        let next = Duration::from_nanos(half.saturating_add(self.draw().checked_rem(half).unwrap_or(0)));
        self.waited = self.waited.saturating_add(next);
        self.longest_now = self.longest_now.saturating_mul(2).min(self.pace.longest);
        Some(next)
    }

    /// The next random number (xorshift).
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
        for pace in [RESERVING, JOINING, REMOVING, CHANGING] {
            let mut patience = Patience::new(pace);
            let waits: Vec<_> = core::iter::from_fn(|| patience.next()).collect();
            assert!(waits.iter().all(|wait| *wait <= pace.longest && !wait.is_zero()));
            assert!(waits[0] <= pace.first);
            assert!(waits.iter().any(|wait| *wait >= pace.longest / 2));
            let total: Duration = waits.iter().sum();
            assert!(total >= pace.total && total <= pace.total + pace.longest);
        }
    }
}
