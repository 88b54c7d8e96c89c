//! The delay of threads that record events at the same time.
//!
//! A real driver takes a lock when it records an event. Public reports tell of records by many threads that take ten times as
//! long as records by one thread (cms-patatrack/pixeltrack-standalone#218). One lock does not explain so much, so here the time
//! also grows with the number of threads.

use core::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::os::clock;

/// Counts the threads of this process that are recording an event, and lets one at a time continue.
#[derive(Debug, Default)]
pub(crate) struct EventContention {
    recording: AtomicU64,
    turn: Mutex<()>,
}

impl EventContention {
    /// Delays a record by `each` nanoseconds for each other thread that records an event at the same time. The threads do this
    /// one after another. If `each` is 0, there is no delay and no wait.
    ///
    /// Example: eight threads record events all the time, and `each` is 8 us. Each thread holds the lock for 7 us. So a record
    /// waits seven times 7 us for the others, and then takes 7 us itself: 56 us together.
    pub(crate) fn delay(&self, each: u64) {
        if each == 0 {
            return;
        }
        self.recording.fetch_add(1, Ordering::Relaxed);
        let turn = self.turn.lock();
        let others = self.recording.load(Ordering::Relaxed).saturating_sub(1);
        let all = each.saturating_mul(others);
        let held = all.checked_div(others.saturating_add(1)).unwrap_or(all);
        let end = clock::now().saturating_add(held);
        // This spins, because a sleep would take far longer than a record.
        while clock::now() < end {
            core::hint::spin_loop();
        }
        drop(turn);
        self.recording.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_takes_longer_for_each_other_thread_that_records() {
        let contention = EventContention::default();
        let time = |others: u64| {
            contention.recording.store(others, Ordering::Relaxed);
            let begin = clock::now();
            contention.delay(8 * clock::MS);
            clock::now() - begin
        };
        assert!(time(1) >= 4 * clock::MS, "half of the delay, because the other thread has the other half");
        assert!(time(7) >= 7 * clock::MS);
        // A thread alone is not delayed. A host that is late cannot make this fail: no end is set.
        contention.recording.store(0, Ordering::Relaxed);
        contention.delay(u64::MAX);
    }
}
