//! Signals between the worker thread and the threads that launch. A launching thread wakes the worker; the worker
//! announces that batches have ended.
//!
//! The code of the worker is in the folder `worker`, which may import this folder.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::worker_status::WorkerStatus;
use crate::os::parking::Parking;
use crate::os::time_word::TimeWord;
use crate::os::{clock, futex};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use gpuslice_policy::time::{Monotonic, WallTime};
use parking_lot::Mutex;

/// Words that the worker and the threads that launch share.
#[derive(Debug, Default)]
pub(crate) struct WorkerSignal {
    /// Whether the worker runs.
    pub(crate) status: WorkerStatus,
    /// The worker holds this lock during a tick, in which it may be inside the driver. The exit of the process takes the lock and
    /// keeps it.
    pub(crate) tick_lock: Mutex<()>,
    parking: Parking,
    /// Set once, by the exit of the process.
    ending: AtomicBool,
    /// Number of ticks and polls that found an ended batch, or a stream that waits for something other than the GPU; wraps.
    /// Threads that wait for a batch sleep on this word.
    completions: AtomicU32,
    /// Number of the worker's ticks that have ended; wraps. A waiting thread compares it to learn whether the worker is late.
    ticks: AtomicU32,
    /// Instant until which a waiting thread polls in place of a late worker. If it is the beginning of the clock, no thread does.
    poller_until: TimeWord<Monotonic>,
}

impl WorkerSignal {
    /// Wakes the worker if it sleeps.
    pub(crate) fn wake(&self) {
        self.parking.wake();
    }

    /// Puts the worker to sleep until [`wake`](Self::wake) or for `most`, unless `is_needed` says that there is work.
    pub(crate) fn sleep(&self, is_needed: impl FnOnce() -> bool, most: Option<Duration>) {
        self.parking.sleep(|| is_needed() || self.is_ending(), most);
    }

    /// Returns true if the process is ending. Then no thread polls events any more.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Notes that the process ends. Returns true at the first call. Relaxed: afterwards the exit takes `tick_lock` and the
    /// question lock of the NVML thread, and both threads read the word under their lock.
    pub(crate) fn end(&self) -> bool {
        !self.ending.swap(true, Ordering::Relaxed)
    }

    /// Returns the completions so far. A thread reads them before it checks whether it has to [wait](Self::wait_for_completion),
    /// so that it misses none. Acquire: a thread that sees the number also sees the poll's changes, such as the estimates.
    pub(crate) fn completions(&self) -> u32 {
        self.completions.load(Ordering::Acquire)
    }

    /// Sleeps until there are more completions than `before`, or for `most`.
    pub(crate) fn wait_for_completion(&self, before: u32, most: Duration) {
        futex::wait(&self.completions, before, most);
    }

    /// Wakes all threads that wait for a batch to end.
    pub(crate) fn announce_completion(&self) {
        self.completions.fetch_add(1, Ordering::Release);
        futex::wake(&self.completions, i32::MAX);
    }

    /// Returns the number of ticks that have ended.
    pub(crate) fn ticks(&self) -> u32 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Counts a tick that has ended.
    pub(crate) fn count_tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
    }

    /// Tries to make the calling thread the poller, which replaces a worker that is late by `late`. Returns true for one
    /// thread only, because each completion would wake all pollers.
    ///
    /// The role ends by itself after twice `late`. A poller may never return, for example if a signal handler leaves the wait by
    /// `longjmp`. With a plain lock no thread would become a poller after that.
    pub(crate) fn try_become_poller(&self, late: WallTime) -> bool {
        let now = clock::now();
        let before = self.poller_until.get();
        let until = now.saturating_add(late.saturating_mul(2));
        now >= before && self.poller_until.replace(before, until)
    }

    /// Ends the role of the calling thread. If the role has already ended by time, this may end the role of its successor, and a
    /// third thread may become a poller. That costs only a few wake-ups: the lock of the meter's state lets one thread poll at a
    /// time.
    pub(crate) fn stop_polling(&self) {
        self.poller_until.set(Monotonic::BEGIN);
    }
}
