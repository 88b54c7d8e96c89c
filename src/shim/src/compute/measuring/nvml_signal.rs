//! Signals between the worker and the thread that asks NVML.
//!
//! The thread itself is in `worker`, which imports all folders below it.
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
    /// Locked by the thread while it may be inside NVML.
    pub(crate) question_lock: Mutex<()>,
    wanted: AtomicBool,
    parking: Parking,
}

impl NvmlSignal {
    /// Notes that the worker wants answers, and wakes the thread if it sleeps.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
        self.parking.wake();
    }

    /// Returns true if the worker has wanted answers since the last call.
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
