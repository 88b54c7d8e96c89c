//! How much GPU time does a thread hold in advance?
//!
//! A thread takes a small credit from the slice's word and spends it alone, so that the usual launch touches neither
//! the shared word nor a clock.

use super::super::cost::estimate::Estimate;
use super::queue_bound;
use super::token_bucket::Terms;

/// The most that a lease is, in nanoseconds of GPU time: 0.2 ms.
///
/// Where whoever comes first is served, leases of 2 ms break the fairness among eight processes (Jain index 0.95). Turns
/// ([`super::fair_queue`]) are fair with any, but a small one keeps little from the others.
pub const MOST: u64 = 200_000;

/// The most where nobody else uses the slice, in nanoseconds of GPU time: 1 ms, and the time on the clock that it stands for.
///
/// A thread waits after each lease, and closes its run before. Two events, and what a run is measured too long at its ends, are
/// two to four microseconds: 2 % of 0.2 ms, and of a kernel of 0.1 ms that is all that 0.2 ms have room for.
/// A killed thread keeps it from its own process only.
const MOST_ALONE: u64 = 1_000_000;

const SPAN_ALONE: u64 = 12_000_000;

/// The most that a turn is, in nanoseconds of GPU time, and the time on the clock that it stands for.
const TURN: u64 = 4_000_000;

const TURN_SPAN: u64 = 60_000_000;

/// The least, in nanoseconds of GPU time: 20 us.
pub const LEAST: u64 = 20_000;

/// How much time on the clock a lease may stand for, in nanoseconds: what a killed thread keeps from its slice.
const SPAN: u64 = 4_000_000;

/// How much a thread leases at a time, in nanoseconds of GPU time: 0.2 ms, less at shares below 5 %.
#[must_use]
pub fn size(terms: Terms) -> u64 {
    terms.gpu(SPAN).clamp(LEAST, MOST)
}

/// The same where no other process uses the slice: 1 ms, less at shares below 8 %.
#[must_use]
pub fn alone(terms: Terms) -> u64 {
    terms.gpu(SPAN_ALONE).clamp(LEAST, MOST_ALONE)
}

/// How much a process takes in its turn while others wait for theirs, or neighbours are there, in nanoseconds of GPU
/// time: 4 ms, less below a share of 7 %.
///
/// The GPU changes from process to process in its time, 20 to 100 us: with leases of 0.2 ms two processes would lose a
/// fifth of what they are due. At 5 % a turn is longer than a run ([`super::super::measuring::when_alone::FULL`]): if each run began with a change, the
/// slice would get 3 % less.
#[must_use]
pub fn turn(terms: Terms) -> u64 {
    terms.gpu(TURN_SPAN).clamp(size(terms), TURN)
}

/// A round of all processes that ask, in nanoseconds of GPU time: 24 ms. Of eight each has three.
const ROUND: u64 = 24_000_000;

/// How much a process takes in its turn where so many ask, with itself, in nanoseconds of GPU time: a [`turn`], or its part of a
/// round, so that a launch waits as long beside many as beside six.
///
/// With rounds of 16 ms eight processes take as much as one run is ([`super::super::measuring::when_alone::FULL`]). Each run then contains the GPU's way
/// from another process, and the slice gets 2 % less than its share.
#[must_use]
pub fn turn_among(terms: Terms, processes: usize) -> u64 {
    let part = ROUND.checked_div(u64::try_from(processes).unwrap_or(u64::MAX)).unwrap_or(ROUND);
    turn(terms).min(part).max(size(terms))
}

/// The most that is taken beside others who must not wait for it long, in nanoseconds of GPU time: 1 ms.
const MOST_BESIDE: u64 = 1_000_000;

/// So much, or less where other slices leave less `room` for queued work than usual, in nanoseconds: credit is spent after they
/// have come.
#[must_use]
pub const fn beside(size: u64, room: u64) -> u64 {
    if room < queue_bound::LEAST && size > MOST_BESIDE { MOST_BESIDE } else { size }
}

/// How much to take at least, in nanoseconds of GPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Least {
    /// So much.
    pub time: u64,
    /// Whether no other process of the slice uses the device.
    pub is_alone: bool,
}

/// The most that is taken for launches that are to overlap, in nanoseconds of GPU time: a window of a second moves by 1.6
/// points at most.
const MOST_TOGETHER: u64 = 16_000_000;

/// How many launches, one after the other, are let go together. At both ends of such a group streams are empty while others
/// are not yet, or still, busy: a hundredth or two of it.
const ROUNDS: u64 = 10;

/// Whether launches like this one run beside others: they are charged for less than three quarters of their time.
#[must_use]
pub(super) const fn overlaps(estimate: &Estimate) -> bool {
    estimate.charged < estimate.plain.saturating_mul(3) / 4
}

/// How much to take for launches like this one where there are several streams, in nanoseconds of GPU time: so much that
/// launches that overlap on the GPU can go together. None where they do not; `is_try` finds out.
///
/// Without it each would wait for the GPU time that it takes alone, would so run alone, and would go on to be charged as
/// one that runs alone: eight small kernels side by side would get an eighth of what their share can do.
#[must_use]
pub fn together(estimate: &Estimate, is_try: bool) -> Option<u64> {
    // Of whole rounds, so that the last one leaves little of the GPU empty.
    let round = match (overlaps(estimate), is_try) {
        (true, _) => estimate.plain,
        (false, true) => estimate.charged,
        (false, false) => return None,
    };
    Some(round.saturating_mul(MOST_TOGETHER.checked_div(round).unwrap_or(0).min(ROUNDS)))
}

/// A thread's credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lease {
    credit: u64,
}

impl Lease {
    /// No credit.
    pub const NONE: Self = Self { credit: 0 };

    /// What is left, in nanoseconds of GPU time.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.credit
    }

    /// Pays `cost` nanoseconds of GPU time from the credit. Returns false, and pays nothing, if the credit does not suffice.
    #[inline]
    #[must_use]
    pub const fn spend(&mut self, cost: u64) -> bool {
        match self.credit.checked_sub(cost) {
            Some(left) => {
                self.credit = left;
                true
            }
            None => false,
        }
    }

    /// How much to take from the slice's word, so that `cost` can be paid: at least a lease of this [`size`].
    #[must_use]
    pub const fn lacks(&self, cost: u64, size: u64) -> u64 {
        match cost.saturating_sub(self.credit) {
            0 => 0,
            lacking if lacking > size => lacking,
            _ => size,
        }
    }

    /// Takes up to so much out of it, for another.
    pub const fn share(&mut self, most: u64) -> u64 {
        let part = if most < self.credit { most } else { self.credit };
        self.credit = self.credit.saturating_sub(part);
        part
    }

    /// Adds what was taken from the slice's word.
    pub const fn fill(&mut self, amount: u64) {
        self.credit = self.credit.saturating_add(amount);
    }

    /// Gives up what is left, which the caller refunds: the thread ends or will not launch for long.
    pub const fn end(&mut self) -> u64 {
        core::mem::replace(&mut self.credit, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Nanos, Permille};

    fn terms(thousandths: u16) -> Terms {
        Terms::new(Permille::new(thousandths).unwrap(), Nanos::from_millis(20))
    }

    #[test]
    fn a_lease_is_a_fifth_of_a_millisecond_and_less_at_small_shares() {
        assert_eq!(size(terms(950)), MOST);
        assert_eq!(size(terms(50)), MOST);
        assert_eq!(size(terms(10)), 40_000);
        assert_eq!(size(terms(0)), LEAST);
        assert_eq!([950, 50, 0].map(|share| alone(terms(share))), [MOST_ALONE, 600_000, LEAST]);
    }

    #[test]
    fn a_turn_is_four_milliseconds_and_less_at_small_shares() {
        assert_eq!(turn(terms(300)), TURN);
        assert_eq!(turn(terms(50)), 3_000_000);
        assert_eq!(turn(terms(10)), 600_000);
    }

    #[test]
    fn a_turn_is_the_part_of_a_round_where_many_ask() {
        assert_eq!(
            [0, 2, 6, 8, 24, 1000].map(|processes| turn_among(terms(300), processes)),
            [TURN, TURN, TURN, 3_000_000, 1_000_000, MOST]
        );
        assert_eq!(turn_among(terms(10), 8), 600_000, "less at small shares");
    }

    #[test]
    fn beside_others_who_must_not_wait_it_is_a_millisecond_at_most() {
        assert_eq!([TURN, MOST].map(|size| beside(size, 3_000_000)), [1_000_000, MOST]);
        assert_eq!(beside(TURN, u64::MAX), TURN);
    }

    #[test]
    fn launches_that_overlap_go_together_and_others_are_tried_now_and_then() {
        let of = |charged, plain| {
            let mut estimate = Estimate::NONE;
            (estimate.charged, estimate.plain) = (charged, plain);
            estimate
        };
        assert_eq!(together(&of(19_000, 150_000), false), Some(1_500_000));
        assert_eq!(together(&of(1_500_000, 1_500_000), false), None);
        assert_eq!(together(&of(75_000, 100_000), false), None);
        assert!(together(&of(74_999, 100_000), false).is_some());
        assert_eq!(together(&of(100_000, 100_000), true), Some(1_000_000));
        assert_eq!(together(&of(3_000_000, 3_000_000), true), Some(15_000_000));
        assert_eq!(together(&of(50_000_000, 50_000_000), true), Some(0));
    }

    #[test]
    fn a_credit_is_spent_whole_or_not_at_all() {
        let mut lease = Lease::NONE;
        lease.fill(100);
        assert!(lease.spend(60));
        assert!(!lease.spend(41));
        assert_eq!(lease.left(), 40);
        assert_eq!(lease.end(), 40);
        assert_eq!(lease, Lease::NONE);
    }

    #[test]
    fn another_gets_as_much_of_a_credit_as_it_asks_for_and_there_is() {
        let mut lease = Lease { credit: 100 };
        assert_eq!([lease.share(60), lease.share(60), lease.share(60)], [60, 40, 0]);
        assert_eq!(lease, Lease::NONE);
    }

    #[test]
    fn what_is_taken_is_what_lacks_and_at_least_a_lease() {
        let mut lease = Lease::NONE;
        lease.fill(50_000);
        assert_eq!(lease.lacks(50_000, MOST), 0);
        assert_eq!(lease.lacks(50_001, MOST), MOST);
        assert_eq!(lease.lacks(5_050_000, MOST), 5_000_000);
    }
}
