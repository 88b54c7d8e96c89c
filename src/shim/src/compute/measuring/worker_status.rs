//! Status of a thread of the library: of the worker, or of the thread that asks NVML. If the worker does not run, threads that
//! wait for a launch poll the timing events themselves. If the other thread does not run, the worker asks NVML.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::os::reentrancy::catch_panic;
use core::sync::atomic::{AtomicU8, Ordering};

const NOT_STARTED: u8 = 0;
const STARTED: u8 = 1;
const FAILED: u8 = 2;

/// Status of a thread of the library.
#[derive(Debug, Default)]
pub(crate) struct WorkerStatus(AtomicU8);

impl WorkerStatus {
    /// Returns true if no caller has tried to start the thread.
    #[inline]
    pub(crate) fn is_unstarted(&self) -> bool {
        self.0.load(Ordering::Acquire) == NOT_STARTED
    }

    /// Returns true if the thread runs, or is about to run.
    pub(crate) fn is_running(&self) -> bool {
        self.0.load(Ordering::Acquire) == STARTED
    }

    /// Returns true if the caller is the first, and has to start the thread. A later caller does not change the status, because
    /// the first caller may have [failed](Self::set_failed) meanwhile.
    pub(crate) fn try_start(&self) -> bool {
        self.0.compare_exchange(NOT_STARTED, STARTED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Notes that the thread cannot be started.
    pub(crate) fn set_failed(&self) {
        self.0.store(FAILED, Ordering::Release);
    }

    /// Runs the body of the thread. A panic in the body is a defect of the library, and counts as a failure. Other threads then
    /// do the work of this thread.
    pub(crate) fn run(&self, body: impl FnOnce()) {
        if catch_panic(body).is_none() {
            self.set_failed();
        }
    }
}
