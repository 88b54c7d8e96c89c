//! Decides how much GPU time a thread takes in advance: the lease.
//!
//! A thread takes a small credit from the slice's word and spends it alone. So the usual launch reads neither the
//! shared word nor a clock.
//!
//! The size of a lease has two effects. A larger lease means fewer waits, fewer timing events, and fewer switches of the GPU
//! between processes. A smaller lease means that other processes wait for a shorter time, and that a killed thread keeps less
//! from its slice. [`size_for`] decides between them. [`together`] is the payment for launches that overlap on several
//! streams.

use super::super::cost::estimate::Estimate;
use super::queue_bound;
use super::token_bucket::RateLimit;
use crate::time::{GpuTime, WallTime};

/// Largest lease: 0.2 ms.
///
/// In order of arrival, leases of 2 ms make eight processes unequal (Jain index 0.95). Turns ([`super::fair_queue`])
/// are fair with any lease, but a small lease keeps little from the others.
pub const MOST_LEASE: GpuTime = GpuTime::from_micros(200);

/// Largest lease of a process that is alone in its slice: 1 ms.
///
/// A thread closes its batch before each lease, and waits after it. Two events and the error at both ends of a batch are 2
/// to 4 us. That is 2 % of 0.2 ms, and 0.2 ms have room for only one kernel of 0.1 ms. A killed thread keeps the lease only
/// from its own process.
pub const MOST_ALONE: GpuTime = GpuTime::from_millis(1);
/// Wall time whose share a lease of a process alone may hold: 12 ms.
const SPAN_ALONE: WallTime = WallTime::from_millis(12);

/// Largest turn: 4 ms.
pub const TURN: GpuTime = GpuTime::from_millis(4);
/// Wall time whose share a turn may hold: 60 ms.
const TURN_SPAN: WallTime = WallTime::from_millis(60);

/// Smallest lease: 20 us.
pub const LEAST_LEASE: GpuTime = GpuTime::from_micros(20);

/// Wall time whose share a lease may hold: 4 ms. A killed thread keeps that much from its slice.
const LEASE_SPAN: WallTime = WallTime::from_millis(4);

/// Number of threads that hold whole leases: 8. With more threads, each lease is smaller. Otherwise the credit that the
/// threads hold together would make other processes wait.
const WHOLE_LEASES: usize = 8;

/// Conditions of a process on a device, which determine the size of its leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// Rate and burst of the slice.
    pub rate_limit: RateLimit,
    /// True if the device is [coupled](super::super::coupling) with another one. A thread with credit left on the device
    /// would launch there, and would then wait on the other device without credit.
    pub is_coupled: bool,
    /// True if each lease costs a switch of the GPU, whatever its size, because co-tenants use the GPU.
    pub has_cotenants: bool,
    /// Number of other processes of the slice that wait for time.
    pub waiting: usize,
    /// True if no other process of the slice uses the device.
    pub is_alone: bool,
}

/// Returns the GPU time that a thread takes in advance. `threads`: number of threads of the process that launch. `room`:
/// the queued work for which other slices leave room.
///
/// | situation | size |
/// |---|---|
/// | the device is coupled | 20 us |
/// | other processes of the slice wait | a [`turn`], or a part of one round of all that wait |
/// | co-tenants use the GPU | a [`turn`] |
/// | no other process uses the slice | 1 ms, and less at shares below 8 % |
/// | otherwise | 0.2 ms, and less at shares below 5 % |
///
/// Up to 15 threads take the whole size. Of 64 threads each takes an eighth, so they hold 8 leases together.
///
/// If a slice of high priority leaves less `room` than usual, a lease is at most 1 ms. Otherwise a thread could spend its
/// credit after the work of that slice has arrived.
#[must_use]
pub fn size_for(situation: &Situation, threads: usize, room: GpuTime) -> GpuTime {
    let Situation { rate_limit, is_coupled, has_cotenants, waiting, is_alone } = *situation;
    let size = match waiting {
        _ if is_coupled => LEAST_LEASE,
        0 if has_cotenants => turn(rate_limit),
        0 if is_alone => alone(rate_limit),
        0 => usual(rate_limit),
        _ => turn_among(rate_limit, waiting.saturating_add(1)),
    };
    let parts = threads.checked_div(WHOLE_LEASES).unwrap_or(0).max(1);
    let size = size.part(u64::try_from(parts).unwrap_or(1));
    if room < queue_bound::LEAST_BOUND { size.min(MOST_ALONE) } else { size }
}

/// Returns the GPU time of the usual lease: 0.2 ms, and less at shares below 5 %.
fn usual(rate_limit: RateLimit) -> GpuTime {
    rate_limit.gpu(LEASE_SPAN).clamp(LEAST_LEASE, MOST_LEASE)
}

/// Returns the GPU time of a lease if no other process uses the slice: 1 ms, and less at shares below 8 %.
fn alone(rate_limit: RateLimit) -> GpuTime {
    rate_limit.gpu(SPAN_ALONE).clamp(LEAST_LEASE, MOST_ALONE)
}

/// Returns the GPU time that a process takes in its turn: 4 ms, and less below a share of 7 %. It applies while
/// other processes wait, or while co-tenants use the GPU.
///
/// The GPU takes 20 to 100 us to switch between processes. With leases of 0.2 ms two processes would lose a fifth of
/// their share. At a share of 5 % a turn is longer than a batch
/// ([`FULL`](super::super::measuring::when_alone::FULL)). If each batch began with a switch, the slice would get 3 % less.
#[must_use]
pub fn turn(rate_limit: RateLimit) -> GpuTime {
    rate_limit.gpu(TURN_SPAN).clamp(usual(rate_limit), TURN)
}

/// One round of all processes that ask: 24 ms of GPU time. Each of eight processes gets 3 ms.
const ROUND: GpuTime = GpuTime::from_millis(24);

/// Returns the GPU time that a process takes in its turn if `processes` ask, itself included. It is a [`turn`], or the
/// process's part of a round (`ROUND`). So a launch waits no longer among many processes than among six.
///
/// With rounds of 16 ms, eight processes would take turns as long as one batch
/// ([`FULL`](super::super::measuring::when_alone::FULL)). Each batch would then contain one switch of the GPU, and
/// the slice would get 2 % less than its share.
fn turn_among(rate_limit: RateLimit, processes: usize) -> GpuTime {
    let part = ROUND.part(u64::try_from(processes).unwrap_or(u64::MAX));
    turn(rate_limit).min(part).max(usual(rate_limit))
}

/// Largest payment for launches that overlap: 16 ms. It moves the use in a window of one second by at most 1.6 points.
const MOST_TOGETHER: GpuTime = GpuTime::from_millis(16);

/// Launches of one stream that are admitted as a group. At both ends of a group some streams are empty while others are
/// busy. This costs 1 to 2 % of the group.
const ROUNDS: u64 = 10;

/// Returns true if launches with this estimate overlap with others: their charge is less than three quarters of their
/// duration.
#[must_use]
pub(super) fn overlaps(estimate: &Estimate) -> bool {
    estimate.charged < estimate.duration.gpu_if_alone().saturating_mul(3).part(4)
}

/// Returns the GPU time to take for a group of launches like this one on several streams. `None`: the launches do not
/// overlap. `is_try`: take a group even then, to find out whether they overlap.
///
/// Example: eight small kernels fit on the GPU side by side. If each waited for its own GPU time, each would run alone and
/// be charged as a kernel that runs alone. Together they would do an eighth of the work that their share allows. In a group
/// they start together, and each is charged an eighth.
#[must_use]
pub fn together(estimate: &Estimate, is_try: bool) -> Option<GpuTime> {
    // The group consists of whole rounds, so that the last round leaves little of the GPU empty.
    let round = match (overlaps(estimate), is_try) {
        (true, _) => estimate.duration.gpu_if_alone(),
        (false, true) => estimate.charged,
        (false, false) => return None,
    };
    Some(round.saturating_mul(MOST_TOGETHER.count(round).min(ROUNDS)))
}

/// A thread's prepaid credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lease {
    credit: GpuTime,
}

impl Lease {
    /// No credit.
    pub const NONE: Self = Self { credit: GpuTime::ZERO };

    /// Returns the remaining credit.
    #[must_use]
    pub const fn left(&self) -> GpuTime {
        self.credit
    }

    /// Pays `cost` from the credit. Returns false, and pays nothing, if the credit does not
    /// suffice.
    #[inline]
    #[must_use]
    pub const fn spend(&mut self, cost: GpuTime) -> bool {
        match self.credit.checked_sub(cost) {
            Some(left) => {
                self.credit = left;
                true
            }
            None => false,
        }
    }

    /// Returns the GPU time to take from the slice, so that `cost` can be paid. It is at least a lease of `size`, or
    /// nothing if the credit suffices.
    #[must_use]
    pub fn shortfall(&self, cost: GpuTime, size: GpuTime) -> GpuTime {
        let lacking = cost.saturating_sub(self.credit);
        if lacking.is_zero() { lacking } else { lacking.max(size) }
    }

    /// Moves up to `most` out of the credit, for another thread. Returns the GPU time that was moved.
    pub fn share(&mut self, most: GpuTime) -> GpuTime {
        let part = most.min(self.credit);
        self.credit = self.credit.saturating_sub(part);
        part
    }

    /// Adds `amount` that the thread has taken from the slice.
    pub const fn fill(&mut self, amount: GpuTime) {
        self.credit = self.credit.saturating_add(amount);
    }

    /// Ends the credit and returns the rest, which the caller refunds. The thread ends, or will not launch for a long time.
    pub const fn end(&mut self) -> GpuTime {
        core::mem::replace(&mut self.credit, GpuTime::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::GpuTime;
    use crate::time::literals::ns;
    use crate::units::Permille;

    fn rate_limit(thousandths: u16) -> RateLimit {
        RateLimit::new(Permille::new(thousandths).unwrap(), GpuTime::from_millis(20))
    }

    #[test]
    fn a_lease_is_a_fifth_of_a_millisecond_and_less_at_small_shares() {
        assert_eq!(usual(rate_limit(950)), MOST_LEASE);
        assert_eq!(usual(rate_limit(50)), MOST_LEASE);
        assert_eq!(usual(rate_limit(10)), ns(40_000));
        assert_eq!(usual(rate_limit(0)), LEAST_LEASE);
        assert_eq!(
            [950, 50, 0].map(|share| alone(rate_limit(share))),
            [MOST_ALONE, ns(600_000), LEAST_LEASE]
        );
    }

    #[test]
    fn a_turn_is_four_milliseconds_and_less_at_small_shares() {
        assert_eq!(turn(rate_limit(300)), TURN);
        assert_eq!(turn(rate_limit(50)), ns(3_000_000));
        assert_eq!(turn(rate_limit(10)), ns(600_000));
    }

    #[test]
    fn a_turn_is_the_part_of_a_round_where_many_ask() {
        assert_eq!(
            [0, 2, 6, 8, 24, 1000].map(|processes| turn_among(rate_limit(300), processes)),
            [TURN, TURN, TURN, ns(3_000_000), ns(1_000_000), MOST_LEASE]
        );
        assert_eq!(turn_among(rate_limit(10), 8), ns(600_000), "less at small shares");
    }

    /// A process that shares its slice with others, of which none waits.
    const USUAL: Situation = Situation {
        rate_limit: RateLimit::new(Permille::new(300).unwrap(), GpuTime::from_millis(20)),
        is_coupled: false,
        has_cotenants: false,
        waiting: 0,
        is_alone: false,
    };

    #[test]
    fn the_first_condition_that_holds_decides_the_size_of_a_lease() {
        let size = |situation| size_for(&situation, 1, queue_bound::MOST_BOUND);
        assert_eq!(size(USUAL), MOST_LEASE);
        let alone = Situation { is_alone: true, ..USUAL };
        assert_eq!(size(alone), MOST_ALONE);
        let beside = Situation { has_cotenants: true, ..alone };
        assert_eq!(size(beside), TURN);
        let awaited = Situation { waiting: 7, ..beside };
        assert_eq!(size(awaited), ns(3_000_000));
        assert_eq!(size(Situation { is_coupled: true, ..awaited }), LEAST_LEASE);
    }

    #[test]
    fn many_threads_hold_eight_leases_together() {
        let size = |threads| size_for(&USUAL, threads, queue_bound::MOST_BOUND);
        assert_eq!([0, 1, 15, 16, 64].map(size), [1, 1, 1, 2, 8].map(|parts| MOST_LEASE.part(parts)));
    }

    #[test]
    fn where_other_slices_leave_less_room_a_lease_is_a_millisecond_at_most() {
        let beside = Situation { has_cotenants: true, ..USUAL };
        let size = |situation, room| size_for(situation, 1, ns(room));
        assert_eq!([&beside, &USUAL].map(|situation| size(situation, 3_000_000)), [MOST_ALONE, MOST_LEASE]);
        assert_eq!(size(&beside, u64::MAX), TURN);
    }

    #[test]
    fn launches_that_overlap_go_together_and_others_are_tried_now_and_then() {
        let of = |charged, duration| {
            let mut estimate = Estimate::NONE;
            (estimate.charged, estimate.duration) = (charged, duration);
            estimate
        };
        assert_eq!(together(&of(ns(19_000), ns(150_000)), false), Some(ns(1_500_000)));
        assert_eq!(together(&of(ns(1_500_000), ns(1_500_000)), false), None);
        assert_eq!(together(&of(ns(75_000), ns(100_000)), false), None);
        assert!(together(&of(ns(74_999), ns(100_000)), false).is_some());
        assert_eq!(together(&of(ns(100_000), ns(100_000)), true), Some(ns(1_000_000)));
        assert_eq!(together(&of(ns(3_000_000), ns(3_000_000)), true), Some(ns(15_000_000)));
        assert_eq!(together(&of(ns(50_000_000), ns(50_000_000)), true), Some(ns(0)));
    }

    #[test]
    fn a_credit_is_spent_whole_or_not_at_all() {
        let mut lease = Lease::NONE;
        lease.fill(ns(100));
        assert!(lease.spend(ns(60)));
        assert!(!lease.spend(ns(41)));
        assert_eq!(lease.left(), ns(40));
        assert_eq!(lease.end(), ns(40));
        assert_eq!(lease, Lease::NONE);
    }

    #[test]
    fn another_gets_as_much_of_a_credit_as_it_asks_for_and_there_is() {
        let mut lease = Lease { credit: ns(100) };
        assert_eq!([lease.share(ns(60)), lease.share(ns(60)), lease.share(ns(60))], [60, 40, 0].map(ns));
        assert_eq!(lease, Lease::NONE);
    }

    #[test]
    fn a_thread_takes_the_shortfall_and_at_least_a_lease() {
        let mut lease = Lease::NONE;
        lease.fill(ns(50_000));
        assert_eq!(lease.shortfall(ns(50_000), MOST_LEASE), ns(0));
        assert_eq!(lease.shortfall(ns(50_001), MOST_LEASE), MOST_LEASE);
        assert_eq!(lease.shortfall(ns(5_050_000), MOST_LEASE), ns(5_000_000));
    }
}
