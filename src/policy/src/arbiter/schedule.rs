//! When does the arbiter look who has come and gone?
//!
//! Reading a directory takes microseconds, or, where it is large or slow, as long as it takes. The thread that does it
//! measures as well, so it may take one part in 20 of its time.

/// How often the arbiter looks while a slice has work, in nanoseconds: 1 ms.
pub const STEP: u64 = 1_000_000;
/// How often where a slice of high priority is there, in nanoseconds: 0.25 ms. Until the look after a request comes, others
/// may let one launch more go, and until the one after its end the GPU is idle.
pub const STEP_BESIDE_HIGH: u64 = 250_000;
/// How often it is looked whether the directory has changed, and how often all of it is read anyway, in nanoseconds.
const LOOK: u64 = 25_000_000;
const READ: u64 = 200_000_000;
/// The part of the time that reading may take: one in so many.
const SELDOM: u64 = 20;

/// When it was looked and read last. Instants are of the monotonic clock, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    looked: u64,
    read: u64,
    /// Not before this instant.
    rests_until: u64,
    /// When the directory had changed last.
    changed: (i64, i64),
}

impl Pace {
    /// Whether to look if the directory has changed.
    #[must_use]
    pub fn looks(&mut self, now: u64) -> bool {
        let is_due = now.saturating_sub(self.looked) >= LOOK;
        self.looked = if is_due { now } else { self.looked };
        is_due
    }

    /// Whether to read a directory that has changed then.
    #[must_use]
    pub fn reads(&mut self, changed: (i64, i64), now: u64) -> bool {
        let is_due = changed != self.changed || now.saturating_sub(self.read) >= READ;
        let is_read = is_due && now >= self.rests_until;
        (self.changed, self.read) = if is_read { (changed, now) } else { (self.changed, self.read) };
        is_read
    }

    /// It has been read since [`reads`](Self::reads) said so.
    pub fn has_read(&mut self, now: u64) {
        self.rests_until = now.saturating_add(now.saturating_sub(self.read).saturating_mul(SELDOM));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const NOW: u64 = 1 << 50;

    /// How often it is read in ten seconds, where that takes so long and the directory changes so often, in milliseconds.
    fn readings(takes: u64, changes: u64) -> u64 {
        let (mut pace, mut now, mut count) = (Pace::default(), NOW, 0);
        while now < NOW + 10_000 * MS {
            now += MS;
            let changed = (0, i64::try_from(now / (changes * MS)).unwrap());
            if pace.looks(now) && pace.reads(changed, now) {
                (now, count) = (now + takes * MS, count + 1);
                pace.has_read(now);
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
    fn what_changed_while_nobody_could_look_is_read_afterwards() {
        let mut pace = Pace::default();
        assert!(pace.looks(NOW) && pace.reads((0, 1), NOW));
        pace.has_read(NOW + 10 * MS);
        assert!(pace.looks(NOW + 100 * MS) && !pace.reads((0, 2), NOW + 100 * MS));
        assert!(pace.looks(NOW + 210 * MS) && pace.reads((0, 2), NOW + 210 * MS));
        assert!(!pace.looks(NOW + 234 * MS));
    }
}
