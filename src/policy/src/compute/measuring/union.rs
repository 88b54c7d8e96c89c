//! Union of busy intervals: the time that is charged. Work of overlapping streams is charged once.

use crate::time::{Monotonic, WallTime};

/// The most intervals that are kept apart. Example: work of 1 ms between gaps needs a hundred, if a kernel of 0.1 s beside
/// it is seen to end later.
const APART: usize = 128;

/// A union of intervals in bounded memory.
///
/// It is a set of disjoint intervals and not a high-water mark. Measurements of several streams arrive out of order. With a
/// mark, intervals below it would not be charged.
#[derive(Debug, Clone, Default)]
pub struct BusyUnion {
    /// Disjoint intervals, in order, with gaps between them.
    busy: Vec<(Monotonic, Monotonic)>,
    /// All time before this instant counts as covered.
    floor: Monotonic,
}

impl BusyUnion {
    /// Makes an empty union. It allocates its memory once.
    #[must_use]
    pub fn new() -> Self {
        Self { busy: Vec::with_capacity(APART.saturating_add(1)), floor: Monotonic::BEGIN }
    }

    /// Covers an interval. Returns the time that was not covered before.
    pub fn cover(&mut self, start: Monotonic, end: Monotonic) -> WallTime {
        let start = start.max(self.floor);
        if start >= end {
            return WallTime::ZERO;
        }
        let first = self.busy.partition_point(|(_, until)| *until < start);
        let (mut at, mut covered, mut after) = (start, WallTime::ZERO, first);
        let (mut from, mut to) = (start, end);
        while let Some((busy, until)) = self.busy.get(after).copied().filter(|(busy, _)| *busy <= end) {
            if at < busy {
                covered = covered.saturating_add(busy.since(at));
            }
            (at, from, to) = (at.max(until), from.min(busy), to.max(until));
            after = after.saturating_add(1);
        }
        if at < end {
            covered = covered.saturating_add(end.since(at));
        }
        self.replace(first, after, (from, to));
        covered
    }

    /// Returns true if the whole interval is covered. Such an interval is neither charged nor published.
    #[must_use]
    pub fn is_covered(&self, start: Monotonic, end: Monotonic) -> bool {
        let start = start.max(self.floor);
        let first = self.busy.partition_point(|(_, until)| *until < start);
        start >= end || self.busy.get(first).is_some_and(|(from, until)| *from <= start && end <= *until)
    }

    fn replace(&mut self, first: usize, after: usize, with: (Monotonic, Monotonic)) {
        match self.busy.get_mut(first).filter(|_| after > first) {
            Some(kept) => {
                *kept = with;
                self.busy.drain(first.saturating_add(1)..after);
            }
            None => self.busy.insert(first, with),
        }
        if self.busy.len() > APART {
            let (_, end) = self.busy.remove(0);
            self.floor = self.floor.max(end);
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::*;
    use crate::time::literals::ns;
    use proptest::prelude::*;

    fn covered(union: &mut BusyUnion, start: u64, end: u64) -> u64 {
        union.cover(ns(start), ns(end)).nanos()
    }

    #[test]
    fn only_uncovered_time_counts_in_any_order_of_arrival() {
        let mut union = BusyUnion::new();
        assert_eq!(covered(&mut union, 100, 200), 100);
        assert_eq!(covered(&mut union, 150, 250), 50);
        assert_eq!(covered(&mut union, 0, 50), 50, "earlier, but not covered");
        assert_eq!(covered(&mut union, 40, 260), 60);
        assert_eq!(covered(&mut union, 0, 260), 0);
        assert_eq!(covered(&mut union, 7, 7), 0);
        assert_eq!(covered(&mut union, 9, 3), 0);
    }

    #[test]
    fn an_interval_is_covered_when_all_of_it_is() {
        let mut union = BusyUnion::new();
        covered(&mut union, 100, 200);
        covered(&mut union, 300, 400);
        for (start, end) in [(100, 200), (120, 150), (300, 400), (500, 500), (9, 3)] {
            assert!(union.is_covered(ns(start), ns(end)), "{start} to {end}");
        }
        for (start, end) in [(99, 150), (150, 201), (200, 300), (150, 350), (250, 260), (400, 401), (0, 500)]
        {
            assert!(!union.is_covered(ns(start), ns(end)), "{start} to {end}");
        }
        union.floor = ns(50);
        assert!(union.is_covered(ns(0), ns(50)) && union.is_covered(ns(7), ns(9)));
        assert!(!union.is_covered(ns(0), ns(51)));
    }

    #[test]
    fn memory_is_bounded_and_forgotten_time_counts_as_covered() {
        let mut union = BusyUnion::new();
        for at in 0..1000 {
            assert_eq!(covered(&mut union, at * 10, at * 10 + 5), 5);
        }
        assert_eq!(union.busy.len(), APART);
        assert_eq!(covered(&mut union, 0, 20), 0);
        assert_eq!(covered(&mut union, 9990, 10_000), 5);
    }

    proptest! {
        #[test]
        fn the_union_covers_each_nanosecond_once(
            intervals in prop::collection::vec((0_u64..300, 0_u64..40), 1..100)
        ) {
            let (mut union, mut seen) = (BusyUnion::new(), [false; 400]);
            for (start, length) in intervals {
                let fresh = seen[start as usize..(start + length) as usize].iter_mut();
                let fresh = fresh.map(|cell| u64::from(!core::mem::replace(cell, true))).sum::<u64>();
                prop_assert_eq!(covered(&mut union, start, start + length), fresh);
                prop_assert!(union.busy.windows(2).all(|pair| pair[0].1 < pair[1].0));
            }
        }
    }
}
