//! Whose turn is it among the processes of a slice?
//!
//! Time that becomes free goes to the process that has had least: start-time fair queueing, whose virtual time is GPU
//! time served. Without it, of two processes that ask as often, one with kernels of 10 ms would get fifty times what
//! one with leases of 0.2 ms gets. Each process announces how much it asks for and how much it was served, so that
//! every other can compute when its own turn comes. Nobody hands anything over, so nobody waits for the dead.

use super::lease;
use super::token_bucket::Terms;

/// How far the processes of a slice that were idle may be behind, all together, in turns ([`super::lease::turn`]): two.
const LAG: u64 = 2;
/// How late a process may be for its turn before others go, in nanoseconds: half a millisecond. It sleeps too long, was
/// suspended or killed; it is due again when it asks again.
pub const PATIENCE: u64 = 500_000;
/// A process that should have looked so long ago, in nanoseconds, does not wait: it is stopped, or dead.
pub const OVERDUE: u64 = 10_000_000;

/// What a process has announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ask {
    /// GPU time it was served, in nanoseconds, as virtual time.
    pub served: u64,
    /// GPU time it waits for, in nanoseconds; 0 if it does not wait.
    pub wants: u64,
}

impl Ask {
    /// The same for others at `now`, where the process said that it looks again at `looks`; 0: it is looking.
    ///
    /// Nobody lets a process go first that is overdue. All that wait for one that never comes would be due when
    /// [`PATIENCE`] has passed, and whoever wakes up sooner would have the turn, however much it had.
    #[must_use]
    pub const fn of_one_that(self, looks: u64, now: u64) -> Self {
        let is_overdue = looks > 0 && looks.saturating_add(OVERDUE) <= now;
        Self { wants: if is_overdue { 0 } else { self.wants }, ..self }
    }
}

/// How far behind the others a process may start that was idle, in nanoseconds of GPU time: its part of two turns, where so
/// many `processes` divide the slice's time. It goes first until it has had them; the time that it did not ask for before is
/// lost.
///
/// So no launch waits for longer than two turns of each process take, `2 n t`. One that has just had its turn waits for the
/// others. Each of these is `2 t / n` behind at most, catches up with the turn, and passes by another one:
/// `(n - 1) (2 t / n + 2 t)`, which is less.
#[must_use]
pub fn lag(processes: usize, terms: Terms) -> u64 {
    let all = lease::turn(terms).saturating_mul(LAG);
    all.checked_div(u64::try_from(processes).unwrap_or(u64::MAX)).unwrap_or(all)
}

/// The virtual time at which a process begins to ask, which was served `served` before: its own, unless it was idle.
///
/// A process that was never served begins behind those that wait, among `asks`, and are within two turns of theirs. Beside
/// fourteen newcomers a second, each of which begins in front, a process that stays has a seventh of its part at a share of
/// 10 %.
#[must_use]
pub fn start(served: u64, virtual_time: u64, terms: Terms, asks: impl Iterator<Item = Ask> + Clone) -> u64 {
    if served > 0 {
        let processes = asks.filter(|ask| ask.served > 0).count();
        return served.max(virtual_time.saturating_sub(lag(processes, terms)));
    }
    let waiting = asks.filter(|ask| ask.wants > 0).map(|ask| ask.served);
    waiting.fold(virtual_time, u64::max).min(virtual_time.saturating_add(lag(1, terms)))
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
/// `free_since` is when the slice's time becomes free, or became ([`super::token_bucket::free_since`]); `before` is what others are to
/// be served first. If it is free and they have not gone within [`PATIENCE`], it goes.
#[must_use]
pub fn wait(free_since: u64, before: u64, now: u64, terms: Terms) -> Option<u64> {
    let due = free_since.saturating_add(terms.wall(before).min(PATIENCE));
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
    fn nobody_lets_one_go_first_that_should_have_looked_long_ago() {
        let ask = Ask { served: MS, wants: 2 * MS };
        let wants = |looks, now| ask.of_one_that(looks, now).wants;
        assert_eq!(wants(100 * MS, 100 * MS + OVERDUE - 1), 2 * MS);
        assert_eq!(wants(100 * MS, 100 * MS + OVERDUE), 0);
        assert_eq!(wants(0, 100 * MS), 2 * MS, "it is looking");
        assert_eq!(wants(u64::MAX, 100 * MS), 2 * MS, "it is about to sleep");
    }

    #[test]
    fn a_turn_comes_after_those_before_or_when_they_are_late() {
        assert_eq!(wait(100 * MS, 0, 100 * MS, terms()), None);
        assert_eq!(wait(100 * MS, 0, 99 * MS, terms()), Some(100 * MS));
        assert_eq!(wait(100 * MS, 100_000, 100 * MS, terms()), Some(100 * MS + 200_000));
        assert_eq!(wait(100 * MS, 400 * MS, 100 * MS, terms()), Some(100 * MS + PATIENCE));
        assert_eq!(wait(100 * MS, 400 * MS, 100 * MS + PATIENCE, terms()), None);
    }

    fn begins(served: u64, virtual_time: u64, asks: &[Ask]) -> u64 {
        start(served, virtual_time, terms(), asks.iter().copied())
    }

    #[test]
    fn the_idle_come_back_with_a_small_lead_at_most() {
        assert_eq!(begins(7 * MS, 100 * MS, &[]), 92 * MS);
        assert_eq!(begins(98 * MS, 100 * MS, &[]), 98 * MS);
        assert_eq!(begins(MS, 0, &[]), MS);
        let others = [Ask { served: 100 * MS, wants: 0 }; 8];
        assert_eq!(begins(7 * MS, 100 * MS, &others), 99 * MS, "of eight each an eighth");
    }

    #[test]
    fn nobody_waits_longer_than_two_turns_of_each_take() {
        for (processes, count) in (1..100).zip(1..) {
            let turn = lease::turn(terms());
            let most = (count - 1) * (lag(processes, terms()) + 2 * turn);
            assert!(most <= 2 * turn * count, "{processes}");
        }
    }

    #[test]
    fn those_who_were_never_served_begin_behind_all_that_wait() {
        let ask = |served, wants| Ask { served: served * MS, wants };
        let asks = [ask(101, MS), ask(103, 1), ask(104, 0), ask(0, 0)];
        assert_eq!(begins(0, 100 * MS, &asks), 103 * MS);
        assert_eq!(begins(0, 94 * MS, &asks), 102 * MS, "but not behind one that is far ahead");
        assert_eq!(begins(1, 101 * MS, &asks[3..]), 93 * MS, "only they");
        assert_eq!(begins(0, 107 * MS, &asks), 107 * MS);
        assert_eq!(begins(0, 100 * MS, &[]), 100 * MS);
    }
}
