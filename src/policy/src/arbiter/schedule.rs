//! The schedule of the arbiter: intervals of its looks, and of reading the directory of slices.
//!
//! To read a directory takes microseconds, or longer if the directory is large or slow. The same thread measures GPU time,
//! so the readings take at most one part in 20 of its time.

use crate::time::{Monotonic, WallTime};

/// Time between two looks of the arbiter while a slice has work: 1 ms.
pub const ARBITER_STEP: WallTime = WallTime::from_millis(1);
/// Time between two looks where a slice of high priority exists: 0.25 ms. A request arrives between two looks, and until
/// the next look the others may start one more launch. After the request has ended, the GPU is idle until the next look.
pub const STEP_BESIDE_HIGH: WallTime = WallTime::from_micros(250);
/// Time between two checks whether the directory has changed.
const LOOK: WallTime = WallTime::from_millis(25);
/// Time after which the whole directory is read even without a change.
const READ: WallTime = WallTime::from_millis(200);
/// The part of the time that reading may take: one in 20.
const SELDOM: u64 = 20;

/// The last check and the last reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadingSchedule {
    looked: Monotonic,
    read: Monotonic,
    /// The earliest instant of the next reading.
    rests_until: Monotonic,
    /// The time of the directory's last change.
    changed: (i64, i64),
}

impl ReadingSchedule {
    /// Returns true if the caller should check the directory for a change now.
    #[must_use]
    pub fn begin_look(&mut self, now: Monotonic) -> bool {
        let is_due = now.since(self.looked) >= LOOK;
        self.looked = if is_due { now } else { self.looked };
        is_due
    }

    /// Returns true if the caller should read the directory, which changed last at `changed`.
    #[must_use]
    pub fn begin_reading(&mut self, changed: (i64, i64), now: Monotonic) -> bool {
        let is_due = changed != self.changed || now.since(self.read) >= READ;
        let is_read = is_due && now >= self.rests_until;
        (self.changed, self.read) = if is_read { (changed, now) } else { (self.changed, self.read) };
        is_read
    }

    /// Records the end of the reading for which [`begin_reading`](Self::begin_reading) returned true.
    pub fn end_reading(&mut self, now: Monotonic) {
        self.rests_until = now.saturating_add(now.since(self.read).saturating_mul(SELDOM));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::ms;

    const NOW: Monotonic = Monotonic::from_nanos(1 << 50);

    /// Returns the number of readings in ten seconds. Each reading takes `takes`, and the directory changes every
    /// `changes`, in milliseconds.
    fn readings(takes: u64, changes: u64) -> u64 {
        let (mut pace, mut now, mut count) = (ReadingSchedule::default(), NOW, 0);
        while now < NOW + ms(10_000) {
            now += ms(1);
            let changed = (0, i64::try_from(now.nanos() / (changes * 1_000_000)).unwrap());
            if pace.begin_look(now) && pace.begin_reading(changed, now) {
                (now, count) = (now + ms(takes), count + 1);
                pace.end_reading(now);
            }
        }
        count
    }

    #[test]
    fn a_change_is_seen_at_the_next_look_and_all_is_read_now_and_then() {
        assert_eq!(readings(0, 1), 400);
        assert_eq!(readings(0, 1_000_000), 50);
    }

    #[test]
    fn reading_takes_a_twentieth_of_the_time_at_most() {
        for (takes, changes) in [(1, 1), (10, 1), (100, 1), (100, 1_000_000), (700, 300)] {
            let count = readings(takes, changes);
            assert!((1..=10_000 / 20 / takes + 1).contains(&count), "{takes} ms: {count}");
        }
    }

    #[test]
    fn a_change_during_the_rest_after_a_reading_is_read_afterwards() {
        let mut pace = ReadingSchedule::default();
        assert!(pace.begin_look(NOW) && pace.begin_reading((0, 1), NOW));
        pace.end_reading(NOW + ms(10));
        assert!(pace.begin_look(NOW + ms(100)) && !pace.begin_reading((0, 2), NOW + ms(100)));
        assert!(pace.begin_look(NOW + ms(210)) && pace.begin_reading((0, 2), NOW + ms(210)));
        assert!(!pace.begin_look(NOW + ms(234)));
    }
}
