//! The correction: the slice's own part of the time between events, as a factor of its charges.
//!
//! Under time slicing, the interval between two events contains the time slices of others. Example: beside one busy
//! neighbour, about half of the interval is the slice's own. Charges are multiplied by the factor in force ([`apply`]).
//!
//! The [replay](super::slicing) of the charged time comes later, and shows the slice's true part. [`Split`] learns the next
//! factor from it, and settles the error of the factor that was in force before.

use std::collections::VecDeque;

use super::slicing::{REPLAY_DELAY, ReplayedPart};
use crate::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};

/// A factor of one. Factors are given in millionths.
pub const WHOLE_FACTOR: u32 = 1_000_000;
/// Smallest factor: 2 %. Example: a slice with time slices of 1 ms waits for seven co-tenants with 2 ms each. A fifteenth of
/// the time between its events is then its own. A factor below a fiftieth is taken for an error.
const LEAST_FACTOR: u32 = WHOLE_FACTOR / 50;

/// Time between two steps of the replay: 20 ms.
pub const REPLAY_STEP: WallTime = WallTime::from_millis(20);

/// Time after which locks publish all work, too. It is one step more than [`REPLAY_DELAY`], because a worker may be late by
/// one.
pub const LOCKED_DELAY: WallTime = REPLAY_DELAY.saturating_add(REPLAY_STEP);

/// Time from the publication of work to its charge: one tick of the worker.
const CHARGED_AFTER: WallTime = WallTime::from_millis(1);

/// Tenths of the sums that remain after a step. A half is left after a seventh of a second. With a longer memory, errors
/// would be settled late.
const LEFT_TENTHS: u64 = 9;

/// Number of remembered factors. They span the time between two steps and the delay of the replay.
const FACTORS: usize = 8;

/// Reads the factor in a shared word. A word that was never written is one; no factor is below the smallest.
#[must_use]
pub fn factor_of(word: u32) -> u32 {
    if word == 0 { WHOLE_FACTOR } else { word.clamp(LEAST_FACTOR, WHOLE_FACTOR) }
}

/// Returns the GPU time of `covered` wall time of which a part, `factor` in parts of [`WHOLE_FACTOR`], is the slice's own.
#[must_use]
pub fn apply(covered: WallTime, factor: u32) -> GpuTime {
    covered.gpu_if_alone().scaled(u64::from(factor), u64::from(WHOLE_FACTOR)).unwrap_or(GpuTime::MAX)
}

/// The sums behind the factor, and the factors that were in force.
#[derive(Debug, Clone)]
pub struct Split {
    own: GpuTime,
    covered: WallTime,
    /// Each factor with the instant from which it is in force.
    factors: VecDeque<(Monotonic, u32)>,
}

impl Default for Split {
    fn default() -> Self {
        Self {
            own: GpuTime::ZERO,
            covered: WallTime::ZERO,
            factors: VecDeque::from([(Monotonic::BEGIN, WHOLE_FACTOR)]),
        }
    }
}

impl From<u32> for Split {
    /// Starts with this factor in force.
    fn from(factor: u32) -> Self {
        Self { factors: VecDeque::from([(Monotonic::BEGIN, factor)]), ..Self::default() }
    }
}

impl Split {
    /// Learns from the replay of the time up to `to`. Returns two values:
    ///
    /// - the factor from `now` on, in parts of [`WHOLE_FACTOR`];
    /// - the slice's own time less the time charged, which the caller settles.
    ///
    /// `is_alone`: no co-tenant published. Then all later charges are the slice's own, and the factor is one. Without
    /// evidence, the last factor stays in force.
    pub fn learn(
        &mut self,
        part: &ReplayedPart,
        to: Monotonic,
        now: Monotonic,
        is_alone: bool,
    ) -> (u32, GpuTimeChange) {
        let charged = apply(part.covered, self.in_force(to.saturating_sub(REPLAY_STEP.part(2))));
        self.own = self.own.saturating_mul(LEFT_TENTHS).part(10).changed_by(part.own);
        self.covered = self.covered.saturating_mul(LEFT_TENTHS).part(10).saturating_add(part.covered);
        let parts = self.own.scaled(WHOLE_FACTOR.into(), self.covered.nanos());
        let parts = parts.and_then(|parts| u32::try_from(parts.nanos()).ok());
        let last = self.factors.back().map_or(WHOLE_FACTOR, |(_, factor)| *factor);
        let factor = if is_alone { WHOLE_FACTOR } else { parts.map_or(last, factor_of) };
        if is_alone {
            // The factor for co-tenants that come later is learned from the beginning.
            (self.own, self.covered) = (GpuTime::ZERO, WallTime::ZERO);
        }
        if self.factors.len() >= FACTORS {
            self.factors.pop_front();
        }
        self.factors.push_back((now, factor));
        (factor, part.own.saturating_add(GpuTimeChange::refund(charged)))
    }

    /// Returns true if a slice without co-tenants has no charge of the remembered time to settle.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.factors.iter().all(|(_, factor)| *factor == WHOLE_FACTOR)
    }

    /// Returns the factor by which work was charged that was published at the instant `at`.
    fn in_force(&self, at: Monotonic) -> u32 {
        let at = at.saturating_add(CHARGED_AFTER);
        let known =
            self.factors.iter().rev().find(|(since, _)| *since <= at).or_else(|| self.factors.front());
        known.map_or(WHOLE_FACTOR, |(_, factor)| *factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::{ms, ns};
    use crate::time::testing::charge;

    const START: Monotonic = Monotonic::from_nanos(1 << 40);

    #[test]
    fn a_factor_is_a_part() {
        assert_eq!(apply(ns(2_000), 500_000), ns(1_000));
        assert_eq!(apply(ns(u64::MAX), WHOLE_FACTOR), ns(u64::MAX));
    }

    #[test]
    fn a_word_is_a_factor_between_a_fiftieth_and_one_whatever_it_is() {
        assert_eq!(
            [0, 1, WHOLE_FACTOR / 2, WHOLE_FACTOR, u32::MAX].map(factor_of),
            [WHOLE_FACTOR, LEAST_FACTOR, WHOLE_FACTOR / 2, WHOLE_FACTOR, WHOLE_FACTOR]
        );
    }

    #[test]
    fn a_charge_by_another_factor_than_the_replay_finds_is_settled() {
        let mut split = Split::default();
        let part = ReplayedPart { covered: ms(10), own: charge(4_000_000) };
        assert_eq!(split.learn(&part, START, START + REPLAY_DELAY, false), (400_000, charge(-6_000_000)));
        // The new factor was not in force yet when this work was published.
        assert_eq!(
            split.learn(&part, START + REPLAY_STEP, START + REPLAY_DELAY + REPLAY_STEP, false).1,
            charge(-6_000_000)
        );
        assert_eq!(
            split.learn(&part, START + 4 * REPLAY_STEP, START + REPLAY_DELAY + 4 * REPLAY_STEP, false).1,
            charge(0)
        );
        let none = Split::from(300_000).learn(&ReplayedPart::default(), START, START, false);
        assert_eq!(none, (300_000, charge(0)), "the last one, without evidence");
    }

    #[test]
    fn without_cotenants_the_charges_by_the_last_factor_are_settled_and_then_nothing() {
        let mut split = Split::from(WHOLE_FACTOR / 2);
        let part = ReplayedPart { covered: ms(10), own: charge(10_000_000) };
        let step = |number: u64| START + number * REPLAY_STEP;
        assert!(!split.is_whole());
        // All of the time was the slice's own, and half of it was charged.
        let learned =
            [0, 1, 4].map(|number| split.learn(&part, step(number), step(number) + REPLAY_DELAY, true));
        assert_eq!(
            learned,
            [charge(5_000_000), charge(5_000_000), charge(0)].map(|change| (WHOLE_FACTOR, change))
        );
        let steps = (5..).take_while(|number| {
            let _none = split.learn(&part, step(*number), step(*number) + REPLAY_DELAY, true);
            !split.is_whole()
        });
        assert!(steps.count() <= FACTORS);
        // The factor for co-tenants that come later is learned from the beginning.
        let half = ReplayedPart { covered: ms(10), own: charge(5_000_000) };
        assert_eq!(split.learn(&half, step(20), step(20) + REPLAY_DELAY, false).0, WHOLE_FACTOR / 2);
    }
}
