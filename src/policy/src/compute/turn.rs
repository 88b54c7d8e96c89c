//! Whose turn is it among the processes of a slice?
//!
//! Time that becomes free goes to the process that has had least: start-time fair queueing, whose virtual time is GPU
//! time served. Without it, of two processes that ask as often, one with kernels of 10 ms would get fifty times what
//! one with leases of 0.2 ms gets. Each process announces how much it asks for and how much it was served, so that
//! every other can compute when its own turn comes. Nobody hands anything over, so nobody waits for the dead.

use super::bucket::Terms;

/// How far behind the others a process may start that was idle, in nanoseconds of GPU time: 8 ms, two turns
/// ([`super::lease::turn`]). It goes first for two turns; the time that it did not ask for before is lost.
///
/// A larger lag adds up: with 20 ms, of eight processes the one that was served first waits until seven others have had 20 ms
/// each, 1.4 s at a share of 10 %.
pub const LAG: u64 = 8_000_000;
/// How late a process may be for its turn before others go, in nanoseconds: half a millisecond. It sleeps too long, was
/// suspended or killed; it is due again when it asks again.
pub const PATIENCE: u64 = 500_000;

/// What a process has announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ask {
    /// GPU time it was served, in nanoseconds, as virtual time.
    pub served: u64,
    /// GPU time it waits for, in nanoseconds; 0 if it does not wait.
    pub wants: u64,
}

/// The virtual time at which a process begins to ask, which was served `served` before: its own, unless it was idle.
///
/// A process that was never served begins behind those that wait, among `asks`, and are within [`LAG`] of their turn. Beside
/// fourteen newcomers a second, each of which begins in front, a process that stays has a seventh of its part at a share of
/// 10 %.
#[must_use]
pub fn start(served: u64, virtual_time: u64, asks: impl IntoIterator<Item = Ask>) -> u64 {
    if served > 0 {
        return served.max(virtual_time.saturating_sub(LAG));
    }
    let waiting = asks.into_iter().filter(|ask| ask.wants > 0).map(|ask| ask.served);
    waiting.fold(virtual_time, u64::max).min(virtual_time.saturating_add(LAG))
}

/// Nanoseconds of GPU time that others among `asks` are to be served before the one at `me`.
#[must_use]
pub fn before(me: usize, served: u64, asks: impl IntoIterator<Item = Ask>) -> u64 {
    let earlier = |(other, ask): (usize, Ask)| {
        let is_earlier = other != me && ask.wants > 0 && (ask.served, other) < (served, me);
        if is_earlier { ask.wants } else { 0 }
    };
    asks.into_iter().enumerate().map(earlier).fold(0, u64::saturating_add)
}

/// When a process that waits must look again, on the monotonic clock; none if it may go now.
///
/// `before` is what others are to be served first. If it is due and they have not gone within [`PATIENCE`], it goes.
#[must_use]
pub fn wait(paid_until: u64, before: u64, now: u64, terms: Terms) -> Option<u64> {
    let due = paid_until.saturating_add(terms.wall(before).min(PATIENCE));
    (due > now).then_some(due)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Nanos, Permille};

    const MS: u64 = 1_000_000;

    fn terms() -> Terms {
        Terms::new(Permille::new(500).unwrap(), Nanos::from_millis(20))
    }

    #[test]
    fn those_who_had_less_go_first_and_only_if_they_ask() {
        let asks = [
            Ask { served: 10 * MS, wants: MS },
            Ask { served: 5 * MS, wants: 2 * MS },
            Ask { served: MS, wants: 0 },
            Ask { served: 10 * MS, wants: MS },
        ];
        assert_eq!(before(0, 10 * MS, asks), 2 * MS);
        assert_eq!(before(1, 5 * MS, asks), 0);
        assert_eq!(before(3, 10 * MS, asks), 3 * MS, "of equals the lower number");
    }

    #[test]
    fn a_turn_comes_after_those_before_or_when_they_are_late() {
        assert_eq!(wait(100 * MS, 0, 100 * MS, terms()), None);
        assert_eq!(wait(100 * MS, 0, 99 * MS, terms()), Some(100 * MS));
        assert_eq!(wait(100 * MS, 100_000, 100 * MS, terms()), Some(100 * MS + 200_000));
        assert_eq!(wait(100 * MS, 400 * MS, 100 * MS, terms()), Some(100 * MS + PATIENCE));
        assert_eq!(wait(100 * MS, 400 * MS, 100 * MS + PATIENCE, terms()), None);
    }

    #[test]
    fn the_idle_come_back_with_a_small_lead_at_most() {
        assert_eq!(start(7 * MS, 100 * MS, []), 92 * MS);
        assert_eq!(start(98 * MS, 100 * MS, []), 98 * MS);
        assert_eq!(start(MS, 0, []), MS);
    }

    #[test]
    fn those_who_were_never_served_begin_behind_all_that_wait() {
        let ask = |served, wants| Ask { served: served * MS, wants };
        let asks = [ask(101, MS), ask(103, 1), ask(104, 0), ask(0, 0)];
        assert_eq!(start(0, 100 * MS, asks), 103 * MS);
        assert_eq!(start(0, 94 * MS, asks), 102 * MS, "but not behind one that is far ahead");
        assert_eq!(start(1, 100 * MS, asks), 92 * MS, "only they");
        assert_eq!(start(0, 107 * MS, asks), 107 * MS);
        assert_eq!(start(0, 100 * MS, []), 100 * MS);
    }
}
