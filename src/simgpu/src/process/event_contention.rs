//! Contention of threads that record events at the same time.
//!
//! A real driver takes a lock for a record. Public reports have records of many threads that take ten times as long as
//! those of one (cms-patatrack/pixeltrack-standalone#218). A lock alone does not explain that, so the time grows with
//! the number of threads.

use core::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::os::clock;

/// The threads of this process that record an event now.
#[derive(Debug, Default)]
pub(crate) struct EventContention {
    recording: AtomicU64,
    turn: Mutex<()>,
}

impl EventContention {
    /// Delays a record by `each` nanoseconds for each other thread that records an event at the same time. The threads
    /// wait for each other. 0: no delay, and no wait.
    ///
    /// Example: eight threads record all the time, at 8 us for each other thread. Each holds the lock for 7 us, so a
    /// record waits for seven times 7 us and takes 7 us itself: 56 us together.
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
        // A sleep takes far longer than a record.
        while clock::now() < end {
            core::hint::spin_loop();
        }
        drop(turn);
        self.recording.fetch_sub(1, Ordering::Relaxed);
    }
}
