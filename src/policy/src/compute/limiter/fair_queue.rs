//! Orders the processes of a slice: start-time fair queueing of GPU time.
//!
//! Example: two processes ask equally often, one with kernels of 10 ms and one with leases of 0.2 ms. In order of
//! arrival the first would get fifty times the time of the second. Here free time goes to the process that has been
//! served least.
//!
//! The virtual time of fair queueing is the GPU time served. Each process publishes the time that it asks for and the
//! time that it was served. Every other process computes from these words when its own turn comes. No process hands a
//! turn over, so no process waits for a dead one.
//!
//! What could go wrong: a process that publishes a request and stops would hold up all others. [`PATIENCE`] and
//! [`OVERDUE`] bound that wait.

use super::lease;
use super::token_bucket::RateLimit;

/// Turns ([`super::lease::turn`]) by which all idle processes of a slice together may be behind: two.
const LAG: u64 = 2;
/// Nanoseconds by which a process may be late for its turn before others are served: 0.5 ms. A late process overslept,
/// was suspended, or was killed. It is due again at its next request.
pub const PATIENCE: u64 = 500_000;
/// Nanoseconds after its deadline from which a process does not count as waiting: 10 ms. It is stopped or dead.
pub const OVERDUE: u64 = 10_000_000;

/// The published words of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ask {
    /// GPU time served to the process, in nanoseconds. It is the process's virtual time.
    pub served: u64,
    /// GPU time that the process waits for, in nanoseconds. 0: it does not wait.
    pub wants: u64,
}

impl Ask {
    /// Returns the request as other processes count it at `now`. `looks` is the instant at which the process tries again; 0 while
    /// it tries.
    ///
    /// An overdue process counts as not waiting. Otherwise all processes behind it would become due together after
    /// [`PATIENCE`], and the first to wake up would take the turn, whatever it was served before.
    #[must_use]
    pub const fn of_one_that(self, looks: u64, now: u64) -> Self {
        let is_overdue = looks > 0 && looks.saturating_add(OVERDUE) <= now;
        Self { wants: if is_overdue { 0 } else { self.wants }, ..self }
    }
}

/// Returns the GPU time by which an idle process may start behind the others, in nanoseconds: its part of two turns, where
/// `processes` divide the slice's time.
///
/// The process is served first until it has received this time. Time for which it did not ask earlier is lost.
///
/// The bound follows: with `n` processes and turns of `t`, no launch waits for longer than two turns of each process,
/// `2 n t`. Take a process that has just had its turn. Each of the `n - 1` others is at most `2 t / n` behind,
/// catches up in its turn, and passes by one more turn. The sum is `(n - 1) (2 t / n + 2 t)`, which is less than `2 n
/// t`.
#[must_use]
pub fn lag(processes: usize, terms: RateLimit) -> u64 {
    let all = lease::turn(terms).saturating_mul(LAG);
    all.checked_div(u64::try_from(processes).unwrap_or(u64::MAX)).unwrap_or(all)
}

/// Returns the virtual time at which a process starts to ask. `served` is the GPU time that it was served before.
///
/// A process that was active starts at its own value. An idle process starts at most one [`lag`] behind
/// `virtual_time`. A new process starts behind the waiting ones among `asks`, if they are within two turns of
/// `virtual_time`.
///
/// Example for the last rule: fourteen new processes come each second at a share of 10 %. If each started in front, a
/// process that stays would get a seventh of its part.
#[must_use]
pub fn start(
    served: u64,
    virtual_time: u64,
    terms: RateLimit,
    asks: impl Iterator<Item = Ask> + Clone,
) -> u64 {
    if served > 0 {
        let processes = asks.filter(|ask| ask.served > 0).count();
        return served.max(virtual_time.saturating_sub(lag(processes, terms)));
    }
    let waiting = asks.filter(|ask| ask.wants > 0).map(|ask| ask.served);
    waiting.fold(virtual_time, u64::max).min(virtual_time.saturating_add(lag(1, terms)))
}

/// Returns the nanoseconds of GPU time that other processes of `asks` get before the process at index `me`.
#[must_use]
pub fn before(me: usize, served: u64, asks: impl IntoIterator<Item = Ask>) -> u64 {
    let earlier = |(other, ask): (usize, Ask)| {
        let is_earlier = other != me && ask.wants > 0 && (ask.served, other) < (served, me);
        if is_earlier { ask.wants } else { 0 }
    };
    asks.into_iter().enumerate().map(earlier).fold(0, u64::saturating_add)
}

/// Returns the instant at which a waiting process must try again, on the monotonic clock. `None`: it is its turn now.
///
/// `free_since` is the instant at which the slice's time becomes or became free
/// ([`super::token_bucket::free_since`]). `before` is the GPU time that others get first, in nanoseconds. If the time
/// is free and the others have not taken theirs within [`PATIENCE`], it is the process's turn.
#[must_use]
pub fn wait(free_since: u64, before: u64, now: u64, terms: RateLimit) -> Option<u64> {
    let due = free_since.saturating_add(terms.wall(before).min(PATIENCE));
    (due > now).then_some(due)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Nanos, Permille};

    const MS: u64 = 1_000_000;

    fn terms() -> RateLimit {
        RateLimit::new(Permille::new(500).unwrap(), Nanos::from_millis(20))
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
