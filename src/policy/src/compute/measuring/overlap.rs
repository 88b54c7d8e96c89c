//! The average part of busy intervals that is newly covered.

use crate::time::WallTime;

/// The part of recent busy intervals that was newly covered, averaged over the slice.
///
/// Of two intervals that overlap, the one that is measured first is charged. So a single charge is no measure of a cost: a
/// process that is always measured second would learn that its kernels cost nothing. Therefore an estimate learns its own
/// duration times this average. The sum of all learned times is the sum of all charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    measured: WallTime,
    covered: WallTime,
}

impl Default for Overlap {
    /// Starts without observations: nothing overlaps.
    fn default() -> Self {
        Self { measured: OVERLAP_WINDOW, covered: OVERLAP_WINDOW }
    }
}

/// Busy time of the average: 20 ms, ten batches. Processes that start together overlap only in their first work. With a
/// longer average they would take too much for a longer time.
const OVERLAP_WINDOW: WallTime = WallTime::from_millis(20);
/// Bits of one sum in a word: a sum is at most [`OVERLAP_WINDOW`], in nanoseconds.
const HALF: u32 = 32;

impl Overlap {
    /// Returns both sums in one word, so that the processes that share the word always read both of one instant.
    #[must_use]
    pub const fn word(&self) -> u64 {
        self.measured.nanos() << HALF | self.covered.nanos()
    }

    /// Reads a word. A word of 0 stands for no observations. Any other value gives a part of at most the whole.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        if word == 0 {
            return Self::default();
        }
        let measured = WallTime::from_nanos(word >> HALF).min(OVERLAP_WINDOW);
        Self { measured, covered: WallTime::from_nanos(word & u64::MAX >> HALF).min(measured) }
    }

    /// Adds a measured interval of any process of the slice: its length, and the part of it that was newly
    /// covered.
    pub fn add(&mut self, length: WallTime, covered: WallTime) {
        self.measured = self.measured.saturating_add(length);
        self.covered = self.covered.saturating_add(covered.min(length));
        while self.measured > OVERLAP_WINDOW {
            // Both sums lose the same fraction, so that their ratio stays.
            let lost = self
                .measured
                .saturating_sub(OVERLAP_WINDOW)
                .min(self.measured.part(4))
                .max(WallTime::NANOSECOND);
            let part = self.covered.scaled(lost.nanos(), self.measured.nanos());
            self.covered = self.covered.saturating_sub(part.unwrap_or_default());
            self.measured = self.measured.saturating_sub(lost);
        }
    }

    /// Returns the part of `length` that is newly covered on average. Without observations this is all of it.
    #[must_use]
    pub fn part(&self, length: WallTime) -> WallTime {
        length.scaled(self.covered.nanos(), self.measured.nanos()).unwrap_or(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::{ms, ns};
    use proptest::prelude::*;

    #[test]
    fn of_half_covered_intervals_half_is_charged() {
        let mut overlap = Overlap::from_word(0);
        assert_eq!(overlap.part(ns(7)), ns(7), "nothing is known");
        for _ in 0..1000 {
            overlap.add(ns(1_000_000), ns(500_000));
        }
        assert!(overlap.part(ms(1)).nanos().abs_diff(500_000) <= 1_000);
    }

    #[test]
    fn new_overlap_outweighs_old_after_twenty_milliseconds() {
        let mut overlap = Overlap::default();
        (0..1000).for_each(|_| overlap.add(ms(1), ns(0)));
        assert_eq!(overlap.measured, OVERLAP_WINDOW);
        assert!(overlap.part(ms(1)) <= ns(1), "{}", overlap.part(ms(1)));
        overlap.add(OVERLAP_WINDOW.part(2), OVERLAP_WINDOW.part(2));
        assert_eq!(overlap.measured, OVERLAP_WINDOW);
        assert!(overlap.part(ms(1)).nanos().abs_diff(1_000_000 / 3) <= 2, "{}", overlap.part(ms(1)));
        overlap.add(ns(u64::MAX), ns(0));
        assert!(
            overlap.measured == OVERLAP_WINDOW && overlap.part(ms(1)) <= ns(1),
            "{}",
            overlap.part(ms(1))
        );
    }

    proptest! {
        #[test]
        fn a_word_returns_its_overlap_and_the_part_is_no_more_than_the_whole(
            intervals in prop::collection::vec((0..2 * OVERLAP_WINDOW.nanos(), any::<u64>()), 0..20),
            word in any::<u64>(),
            length in any::<u64>(),
        ) {
            prop_assert!(Overlap::from_word(word).part(ns(length)) <= ns(length));
            let mut overlap = Overlap::default();
            for (length, covered) in intervals {
                overlap.add(ns(length), ns(covered));
                prop_assert_eq!(Overlap::from_word(overlap.word()), overlap);
                prop_assert!(overlap.part(ns(length)) <= ns(length));
            }
        }
    }
}
