//! Orders the processes of a slice: start-time fair queueing of GPU time.
//!
//! Example: two processes ask equally often, one for kernels of 10 ms and one for leases of 0.2 ms. In order of arrival the
//! first would get fifty times the time of the second. Here free time goes to the process that has had least.
//!
//! The virtual time of fair queueing is the GPU time served. Each process publishes the time that it asks for and the time
//! that it was served. From these words, every other process computes when its own turn comes. No process hands a turn
//! over, so no process waits for a dead one.
//!
//! Risk: a process that publishes a request and then stops would delay all others. [`TURN_GRACE`] and [`STOPPED_AFTER`]
//! bound that wait.

use super::lease;
use super::token_bucket::RateLimit;
use crate::time::{GpuTime, Monotonic, WallTime};

/// Number of turns ([`super::lease::turn`]) by which all idle processes of a slice together may be behind: two.
const LAG_TURNS: u64 = 2;
/// Time by which a process may be late for its turn before others are served: 0.5 ms. A late process overslept, was
/// suspended, or was killed. Its turn comes at its next request.
pub const TURN_GRACE: WallTime = WallTime::from_micros(500);
/// Time after its deadline from which a process does not count as waiting: 10 ms. It is stopped or dead.
pub const STOPPED_AFTER: WallTime = WallTime::from_millis(10);

/// The published words of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ask {
    /// GPU time served to the process. It is the process's virtual time.
    pub virtual_service: GpuTime,
    /// GPU time that the process waits for. Zero: it does not wait.
    pub requested: GpuTime,
}

impl Ask {
    /// Returns the request as other processes count it at `now`. `looks` is the instant at which the process tries again.
    /// While the process tries, `looks` is the beginning of the clock.
    ///
    /// An overdue process counts as not waiting. Otherwise all processes behind it would become due together after
    /// [`TURN_GRACE`]. The first of them to wake up would take the turn, whatever GPU time it had before.
    #[must_use]
    pub fn of_one_that(self, looks: Monotonic, now: Monotonic) -> Self {
        let is_overdue = looks > Monotonic::BEGIN && looks.saturating_add(STOPPED_AFTER) <= now;
        Self { requested: if is_overdue { GpuTime::ZERO } else { self.requested }, ..self }
    }
}

/// Returns the GPU time by which an idle process may start behind the others. It is the process's part of two turns, if
/// `processes` divide the slice's time.
///
/// The process is served first until it has received this time. Earlier time for which it did not ask is lost.
///
/// This bound holds: with `n` processes and turns of `t`, no launch waits for longer than two turns of each process, `2 n
/// t`. Take a process that has just had its turn. Each of the `n - 1` others is at most `2 t / n` behind. Each of them
/// catches up in its turn, and passes the process by one more turn. The sum is `(n - 1) (2 t / n + 2 t)`, which is less
/// than `2 n t`.
#[must_use]
pub fn lag(processes: usize, rate_limit: RateLimit) -> GpuTime {
    lease::turn(rate_limit).saturating_mul(LAG_TURNS).part(u64::try_from(processes).unwrap_or(u64::MAX))
}

/// Returns the virtual time of a process at its first request. `served` is the GPU time that it was served before.
///
/// A process that was active starts at its own value. An idle process starts at most one [`lag`] behind `virtual_time`. A
/// new process starts behind those processes of `asks` that wait, if they are within two turns of `virtual_time`.
///
/// Example for the last rule: fourteen new processes come each second at a share of 10 %. If each of them started in front,
/// a process that stays would get a seventh of its part.
#[must_use]
pub fn start(
    served: GpuTime,
    virtual_time: GpuTime,
    rate_limit: RateLimit,
    asks: impl Iterator<Item = Ask> + Clone,
) -> GpuTime {
    if !served.is_zero() {
        let processes = asks.filter(|ask| !ask.virtual_service.is_zero()).count();
        return served.max(virtual_time.saturating_sub(lag(processes, rate_limit)));
    }
    let waiting = asks.filter(|ask| !ask.requested.is_zero()).map(|ask| ask.virtual_service);
    waiting.fold(virtual_time, GpuTime::max).min(virtual_time.saturating_add(lag(1, rate_limit)))
}

/// Returns the GPU time that other processes of `asks` get before the process at index `me`.
#[must_use]
pub fn before(me: usize, served: GpuTime, asks: impl IntoIterator<Item = Ask>) -> GpuTime {
    let earlier = |(other, ask): (usize, Ask)| {
        let is_earlier = other != me && (ask.virtual_service, other) < (served, me);
        if is_earlier { ask.requested } else { GpuTime::ZERO }
    };
    asks.into_iter().enumerate().map(earlier).fold(GpuTime::ZERO, GpuTime::saturating_add)
}

/// Returns the instant at which a waiting process must try again. `None`: it is its turn now.
///
/// `free_since` is the instant at which the slice's time becomes or became free ([`super::token_bucket::free_since`]).
/// `before` is the GPU time that others get first. If the time is free and the others have not taken theirs within
/// [`TURN_GRACE`], the process has its turn.
#[must_use]
pub fn wait(
    free_since: Monotonic,
    before: GpuTime,
    now: Monotonic,
    rate_limit: RateLimit,
) -> Option<Monotonic> {
    let due = free_since.saturating_add(rate_limit.wall(before).min(TURN_GRACE));
    (due > now).then_some(due)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::GpuTime;
    use crate::time::literals::{ms, ns};
    use crate::units::Permille;

    fn rate_limit() -> RateLimit {
        RateLimit::new(Permille::new(500).unwrap(), GpuTime::from_millis(20))
    }

    #[test]
    fn processes_with_less_service_go_first_and_only_if_they_ask() {
        let asks = [
            Ask { virtual_service: ms(10), requested: ms(1) },
            Ask { virtual_service: ms(5), requested: ms(2) },
            Ask { virtual_service: ms(1), requested: ns(0) },
            Ask { virtual_service: ms(10), requested: ms(1) },
        ];
        assert_eq!(before(0, ms(10), asks), ms(2));
        assert_eq!(before(1, ms(5), asks), ns(0));
        assert_eq!(before(3, ms(10), asks), ms(3), "of equals the lower number");
    }

    #[test]
    fn a_process_that_should_have_looked_long_ago_does_not_go_first() {
        let ask = Ask { virtual_service: ms(1), requested: ms(2) };
        let requested = |looks, now| ask.of_one_that(looks, now).requested;
        assert_eq!(requested(ms(100), ms::<Monotonic>(100) + STOPPED_AFTER - ns(1)), ms(2));
        assert_eq!(requested(ms(100), ms::<Monotonic>(100) + STOPPED_AFTER), ns(0));
        assert_eq!(requested(ns(0), ms(100)), ms(2), "it is looking");
        assert_eq!(requested(ns(u64::MAX), ms(100)), ms(2), "it is about to sleep");
    }

    #[test]
    fn a_turn_comes_after_those_before_or_when_they_are_late() {
        assert_eq!(wait(ms(100), ns(0), ms(100), rate_limit()), None);
        assert_eq!(wait(ms(100), ns(0), ms(99), rate_limit()), Some(ms(100)));
        assert_eq!(
            wait(ms(100), ns(100_000), ms(100), rate_limit()),
            Some(ms::<Monotonic>(100) + ns(200_000))
        );
        assert_eq!(wait(ms(100), ms(400), ms(100), rate_limit()), Some(ms::<Monotonic>(100) + TURN_GRACE));
        assert_eq!(wait(ms(100), ms(400), ms::<Monotonic>(100) + TURN_GRACE, rate_limit()), None);
    }

    fn begins(served: GpuTime, virtual_time: GpuTime, asks: &[Ask]) -> GpuTime {
        start(served, virtual_time, rate_limit(), asks.iter().copied())
    }

    #[test]
    fn the_idle_come_back_with_a_small_lead_at_most() {
        assert_eq!(begins(ms(7), ms(100), &[]), ms(92));
        assert_eq!(begins(ms(98), ms(100), &[]), ms(98));
        assert_eq!(begins(ms(1), ns(0), &[]), ms(1));
        let others = [Ask { virtual_service: ms(100), requested: ns(0) }; 8];
        assert_eq!(begins(ms(7), ms(100), &others), ms(99), "of eight each an eighth");
    }

    #[test]
    fn no_process_waits_longer_than_two_turns_of_each_take() {
        for (processes, count) in (1..100).zip(1..) {
            let turn = lease::turn(rate_limit());
            let most = (count - 1) * (lag(processes, rate_limit()) + 2 * turn);
            assert!(most <= (2 * count) * turn, "{processes}");
        }
    }

    #[test]
    fn processes_never_served_begin_behind_all_that_wait() {
        let ask = |served, requested| Ask { virtual_service: ms(served), requested };
        let asks = [ask(101, ms(1)), ask(103, ns(1)), ask(104, ns(0)), ask(0, ns(0))];
        assert_eq!(begins(ns(0), ms(100), &asks), ms(103));
        assert_eq!(begins(ns(0), ms(94), &asks), ms(102), "but not behind one that is far ahead");
        assert_eq!(begins(ns(1), ms(101), &asks[3..]), ms(93), "only they");
        assert_eq!(begins(ns(0), ms(107), &asks), ms(107));
        assert_eq!(begins(ns(0), ms(100), &[]), ms(100));
    }
}
