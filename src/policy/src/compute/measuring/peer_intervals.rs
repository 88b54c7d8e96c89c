//! Busy intervals of the slice's other processes, read from a shared ring.
//!
//! The union of busy intervals covers all processes of a slice. Without it, two processes get two percentage points too
//! little each, because an interval of one process contains the time slices of the other.
//!
//! Each interval gets a place in a ring, in the order of arrival. A process charges only the part that the intervals at
//! lower places leave uncovered. So no two processes charge the same nanosecond, and no process waits for another.
//!
//! These functions touch no shared memory. The caller takes a place by `fetch_add`, writes the times and then the
//! ticket, and reads them back in the opposite order.

use super::union::BusyUnion;
use crate::time::{MOST_GPU_TIME, Monotonic, WallTime};

/// Time for which a place may stay unwritten before a reader skips it: 2 ms. The process that took the place was killed or
/// suspended before it wrote.
pub const SKIP_UNWRITTEN_AFTER: WallTime = WallTime::from_millis(2);
/// Time by which the end of an interval may lie in the future: 1 s. The clocks of processes differ by less than this.
const PROCESS_CLOCK_SKEW: WallTime = WallTime::from_millis(1_000);

/// Number of contexts of a process that have different numbers. The driver gives each context its own time slices.
const CONTEXT_NUMBERS: u64 = 64;

/// An interval in which a context had work in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interval {
    /// The instant from which the GPU could run the work.
    pub start: Monotonic,
    /// The end of the work, or the latest instant at which it was seen to run.
    pub end: Monotonic,
    /// Number of the context in its slice: [`context`].
    pub context: u16,
    /// True if the work continues.
    pub goes_on: bool,
}

impl Interval {
    /// Returns true if the interval is possible at the instant `now`. Another process may have written anything.
    #[must_use]
    pub fn is_sane(&self, now: Monotonic) -> bool {
        self.start <= self.end
            && self.length() <= MOST_GPU_TIME.wall_if_alone()
            && self.end <= now.saturating_add(PROCESS_CLOCK_SKEW)
    }

    /// Returns the length of the interval.
    #[must_use]
    pub const fn length(&self) -> WallTime {
        self.end.since(self.start)
    }

    /// Returns the number of the process in the slice: its slot, without its high bits.
    #[must_use]
    pub fn process(&self) -> u32 {
        process_of(self.context)
    }
}

/// Returns the number of the process to which a context belongs, within the slice.
fn process_of(context: u16) -> u32 {
    u32::try_from(u64::from(context) / CONTEXT_NUMBERS).unwrap_or(0)
}

/// Returns the number of a context within its slice, from the slot of its process and the context's `number` in the process.
#[must_use]
pub fn context(slot: usize, number: u64) -> u16 {
    let slot = u64::try_from(slot).unwrap_or(0).wrapping_mul(CONTEXT_NUMBERS);
    let number = slot.wrapping_add(number.checked_rem(CONTEXT_NUMBERS).unwrap_or(0));
    u16::try_from(number & u64::from(u16::MAX)).unwrap_or(0)
}

/// Latest ends of the intervals that the contexts of a slice have published.
///
/// An interval that runs beside an interval of another context must be published, because the replay needs all contexts
/// that had work in flight. The other context may belong to the same process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContextEnds {
    /// The context whose intervals end last, and that end.
    last: (u16, Monotonic),
    /// Latest end of all other contexts.
    others: Monotonic,
}

impl ContextEnds {
    /// Adds an interval of any context of the slice.
    pub fn add(&mut self, interval: &Interval) {
        let (last, end) = self.last;
        if interval.context == last {
            self.last.1 = end.max(interval.end);
        } else if interval.end > end {
            *self = Self { last: (interval.context, interval.end), others: end };
        } else {
            self.others = self.others.max(interval.end);
        }
    }

    /// Returns true if an interval of another context ends after the start of this one.
    #[must_use]
    pub fn is_beside(&self, interval: &Interval) -> bool {
        let (last, end) = self.last;
        interval.start < if interval.context == last { self.others } else { end }
    }
}

/// The content of a place of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IntervalEntry {
    /// The number of the place plus 1; 0 is a place that was never written.
    pub ticket: u64,
    /// The published interval.
    pub interval: Interval,
}

impl IntervalEntry {
    /// Makes the content to write at a place.
    #[must_use]
    pub const fn new(place: u64, interval: Interval) -> Self {
        Self { ticket: place.saturating_add(1), interval }
    }

    /// Returns the interval at a place, if the ticket belongs to this place and the interval is valid. A valid interval
    /// ends at most a second after `now`.
    #[must_use]
    pub fn told_at(&self, place: u64, now: Monotonic) -> Option<Interval> {
        let is_there = self.ticket == place.saturating_add(1);
        Some(self.interval).filter(|interval| is_there && interval.is_sane(now))
    }
}

/// The position of a process in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingReader {
    next: u64,
    /// The instant at which the wait for an unwritten place began, and the number of places taken by then.
    waits: Option<(Monotonic, u64)>,
}

impl RingReader {
    /// Makes a reader for a process that joins at this place.
    #[must_use]
    pub const fn new(place: u64) -> Self {
        Self { next: place, waits: None }
    }

    /// Covers the intervals of all places below `to`, in a ring of `slots` places. `entry` reads the content of a
    /// slot.
    ///
    /// Returns false if a place is not written yet. The caller then tries again later and charges nothing until then.
    /// Places that were overwritten a round later are lost. Invalid intervals are ignored.
    pub fn read(
        &mut self,
        (to, slots): (u64, u64),
        now: Monotonic,
        union: &mut BusyUnion,
        mut entry: impl FnMut(u64) -> IntervalEntry,
    ) -> bool {
        if self.next.saturating_sub(to) > slots {
            // No reader is a whole round ahead of the count. So another process has overwritten the count.
            *self = Self::new(to);
        }
        self.next = self.next.max(to.saturating_sub(slots));
        while self.next < to {
            let found = entry(self.next.checked_rem(slots).unwrap_or(0));
            if found.ticket <= self.next && !self.poll_wait(to, now) {
                return false;
            }
            if let Some(told) = found.told_at(self.next, now) {
                union.cover(told.start, told.end);
            }
            self.next = self.next.saturating_add(1);
            self.waits = self.waits.filter(|(_, taken)| self.next < *taken);
        }
        true
    }

    /// Returns true if the wait has ended. All places that were taken before the wait began share one wait.
    fn poll_wait(&mut self, to: u64, now: Monotonic) -> bool {
        let (since, _) = *self.waits.get_or_insert((now, to));
        now.since(since) >= SKIP_UNWRITTEN_AFTER
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "places of a small ring")]
mod tests {
    use super::*;
    use crate::time::literals::ns;

    const SLOTS: u64 = 4;
    const NOW: Monotonic = Monotonic::from_nanos(1 << 40);

    fn told(place: u64, start: u64, end: u64) -> IntervalEntry {
        IntervalEntry::new(place, Interval { start: ns(start), end: ns(end), ..Interval::default() })
    }

    #[derive(Default)]
    struct Ring {
        slots: [IntervalEntry; SLOTS as usize],
        places: u64,
    }

    impl Ring {
        fn publish(&mut self, start: u64, end: u64) {
            self.slots[(self.places % SLOTS) as usize] = told(self.places, start, end);
            self.places += 1;
        }

        fn read(&self, reader: &mut RingReader, now: Monotonic, union: &mut BusyUnion) -> bool {
            reader.read((self.places, SLOTS), now, union, |slot| self.slots[slot as usize])
        }
    }

    #[test]
    fn contexts_of_processes_have_different_numbers_and_say_whose_they_are() {
        let numbers: std::collections::BTreeSet<u16> = (0..1024)
            .flat_map(|slot| (0..CONTEXT_NUMBERS).map(move |number| context(slot, number)))
            .collect();
        assert_eq!(numbers.len(), 1 << 16);
        let of = |slot, number| Interval { context: context(slot, number), ..Interval::default() }.process();
        assert_eq!([of(1023, 63), of(7, u64::MAX), of(7, 63), of(8, 0)], [1023, 7, 7, 8]);
    }

    #[test]
    fn an_interval_is_beside_those_of_other_contexts_and_not_beside_those_of_its_own() {
        let of = |context, start, end| Interval { start: ns(start), end: ns(end), context, goes_on: false };
        let mut ends = ContextEnds::default();
        ends.add(&of(1, 0, 100));
        assert!(!ends.is_beside(&of(1, 50, 200)), "of its own context");
        assert!(ends.is_beside(&of(2, 99, 200)) && !ends.is_beside(&of(2, 100, 200)));
        for (context, end) in [(2, 200), (1, 150), (2, 180)] {
            ends.add(&of(context, 0, end));
        }
        assert!(ends.is_beside(&of(1, 199, 300)) && !ends.is_beside(&of(1, 200, 300)));
        assert!(ends.is_beside(&of(2, 149, 300)) && !ends.is_beside(&of(2, 150, 300)));
        ends.add(&of(1, 0, 250));
        assert!(ends.is_beside(&of(2, 249, 300)) && !ends.is_beside(&of(1, 200, 300)));
    }

    #[test]
    fn time_that_lower_places_cover_is_not_charged_again() {
        let (mut ring, mut reader, mut union) = (Ring::default(), RingReader::default(), BusyUnion::new());
        ring.publish(100, 200);
        ring.publish(300, 400);
        assert!(ring.read(&mut reader, NOW, &mut union));
        assert_eq!(union.cover(ns(150), ns(350)), ns(100));
    }

    #[test]
    fn an_unwritten_place_is_waited_for_and_then_skipped() {
        let (mut ring, mut reader, mut union) = (Ring::default(), RingReader::default(), BusyUnion::new());
        ring.places = 1;
        ring.publish(100, 200);
        assert!(!ring.read(&mut reader, NOW, &mut union));
        assert!(!ring.read(&mut reader, NOW + SKIP_UNWRITTEN_AFTER - ns(1), &mut union));
        assert_eq!(union.cover(ns(100), ns(150)), ns(50));
        assert!(ring.read(&mut reader, NOW + SKIP_UNWRITTEN_AFTER, &mut union));
        assert_eq!(union.cover(ns(150), ns(200)), ns(0));
    }

    #[test]
    fn unwritten_places_are_waited_for_together_and_later_ones_anew() {
        let (mut ring, mut reader, mut union) = (Ring::default(), RingReader::default(), BusyUnion::new());
        ring.places = 3;
        assert!(!ring.read(&mut reader, NOW, &mut union));
        ring.places = 4;
        assert!(!ring.read(&mut reader, NOW + SKIP_UNWRITTEN_AFTER, &mut union));
        assert_eq!(reader.next, 3);
        assert!(ring.read(&mut reader, NOW + 2 * SKIP_UNWRITTEN_AFTER, &mut union));
    }

    #[test]
    fn a_count_that_somebody_has_written_over_is_followed() {
        let (mut ring, mut reader, mut union) = (Ring::default(), RingReader::default(), BusyUnion::new());
        ring.places = u64::MAX;
        assert!(!ring.read(&mut reader, NOW, &mut union));
        assert!(ring.read(&mut reader, NOW + SKIP_UNWRITTEN_AFTER, &mut union));
        ring.places = 0;
        ring.publish(100, 200);
        assert!(ring.read(&mut reader, NOW + SKIP_UNWRITTEN_AFTER, &mut union));
        ring.publish(200, 300);
        assert!(ring.read(&mut reader, NOW + SKIP_UNWRITTEN_AFTER, &mut union));
        assert_eq!(
            union.cover(ns(150), ns(300)),
            ns(50),
            "what it stood before the count was found to be wrong is lost"
        );
    }

    #[test]
    fn a_place_written_in_time_is_read() {
        let (mut ring, mut reader, mut union) = (Ring::default(), RingReader::default(), BusyUnion::new());
        ring.places = 1;
        assert!(!ring.read(&mut reader, NOW, &mut union));
        ring.slots[0] = told(0, 100, 200);
        assert!(ring.read(&mut reader, NOW + ns(1), &mut union));
        assert_eq!(union.cover(ns(100), ns(200)), ns(0));
    }

    #[test]
    fn a_reader_a_round_behind_loses_overwritten_intervals_and_goes_on() {
        let (mut ring, mut reader, mut union) = (Ring::default(), RingReader::default(), BusyUnion::new());
        for at in 0..10 {
            ring.publish(at * 100, at * 100 + 50);
        }
        assert!(ring.read(&mut reader, NOW, &mut union));
        assert_eq!(union.cover(ns(500), ns(550)), ns(50));
        assert_eq!(union.cover(ns(600), ns(950)), ns(150));
    }

    #[test]
    fn insane_intervals_are_ignored() {
        let (mut ring, mut reader, mut union) = (Ring::default(), RingReader::default(), BusyUnion::new());
        ring.publish(200, 100);
        ring.publish(0, u64::MAX);
        ring.publish(0, MOST_GPU_TIME.nanos() + 1);
        assert!(ring.read(&mut reader, NOW, &mut union));
        assert_eq!(union.cover(ns(0), ns(1000)), ns(1000));
        ring.slots = [IntervalEntry { ticket: u64::MAX, ..told(0, 0, 1) }; SLOTS as usize];
        ring.places += 4;
        assert!(ring.read(&mut reader, NOW, &mut union));
    }
}
