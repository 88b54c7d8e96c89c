//! Signals between the worker and the thread that asks NVML.
//!
//! The code of the thread is in the folder `worker`, which may import this folder.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::worker_status::WorkerStatus;
use crate::os::parking::Parking;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use parking_lot::Mutex;

/// Words that the worker and the thread share.
#[derive(Debug, Default)]
pub(crate) struct NvmlSignal {
    /// Whether the thread runs.
    pub(crate) status: WorkerStatus,
    /// The thread holds this lock while it may be inside NVML. The exit of the process takes the lock and keeps it.
    pub(crate) question_lock: Mutex<()>,
    /// Set by a tick, and cleared by the thread before it asks.
    wanted: AtomicBool,
    parking: Parking,
}

impl NvmlSignal {
    /// Notes that the worker wants answers, and wakes the thread if it sleeps. The wake executes a full fence after the store. So
    /// either the thread sees the word before it sleeps, or this call sees that the thread sleeps.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
        self.parking.wake();
    }

    /// Returns true if the worker has wanted answers since the last call. The caller clears the word before its question. So a
    /// request during the question leads to another question.
    pub(crate) fn take_want(&self) -> bool {
        self.wanted.swap(false, Ordering::Relaxed)
    }

    /// Puts the thread to sleep until the worker wants answers, or for `most`. Returns true if the worker wants answers.
    pub(crate) fn sleep_until_wanted(&self, most: Option<Duration>) -> bool {
        let is_wanted = || self.wanted.load(Ordering::Relaxed);
        self.parking.sleep(is_wanted, most);
        is_wanted()
    }
}
