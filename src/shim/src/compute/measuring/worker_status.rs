//! Does the meter's thread live?
//!
//! While it does not, those who wait look themselves: also where a mistake of ours has ended it.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::os::reentrancy::shielded;
use core::sync::atomic::{AtomicU8, Ordering};

const NOT_STARTED: u8 = 0;
const STARTED: u8 = 1;
const CANNOT: u8 = 2;

/// What has become of the thread.
#[derive(Debug, Default)]
pub(crate) struct WorkerStatus(AtomicU8);

impl WorkerStatus {
    /// Whether nobody has tried to start it.
    #[inline]
    pub(crate) fn is_to_begin(&self) -> bool {
        self.0.load(Ordering::Acquire) == NOT_STARTED
    }

    /// Whether it runs, or is about to.
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire) == STARTED
    }

    /// Whether the caller is the one who starts it.
    pub(crate) fn begins(&self) -> bool {
        self.0.swap(STARTED, Ordering::AcqRel) == NOT_STARTED
    }

    /// It cannot be started.
    pub(crate) fn cannot_begin(&self) {
        self.0.store(CANNOT, Ordering::Release);
    }

    /// Lives it, in the thread.
    pub(crate) fn live(&self, life: impl FnOnce()) {
        if shielded(life).is_none() {
            self.0.store(CANNOT, Ordering::Release);
        }
    }
}
