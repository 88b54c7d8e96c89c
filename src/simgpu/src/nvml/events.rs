//! Event sets. A program can make them and wait for them, but no event ever comes.

use gpuslice_driver::types::{nvmlDevice_t, nvmlEventSet_t};
use parking_lot::Mutex;

use super::entry::NvmlCall;
use super::statuses;
use crate::os::clock;
use crate::status::Outcome;

/// Event types that a program can register: errors, changes of the performance state, and changes of clocks.
pub(super) const TYPES: u64 = 0x1c;

/// Handles of the sets that exist.
static SETS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn exists(set: nvmlEventSet_t) -> Outcome {
    if SETS.lock().contains(&set.addr()) { Ok(()) } else { Err(statuses::INVALID_ARGUMENT) }
}

impl NvmlCall {
    pub(super) fn new_event_set(&self, to: *mut nvmlEventSet_t) -> Outcome {
        let mut sets = SETS.lock();
        // The new handle differs from all handles that exist, and is aligned like an address.
        let handle = sets.iter().max().map_or(0x1000, |last| last + 16);
        self.write(to, core::ptr::without_provenance_mut(handle))?;
        sets.push(handle);
        Ok(())
    }

    pub(super) fn free_event_set(&self, set: nvmlEventSet_t) -> Outcome {
        exists(set)?;
        SETS.lock().retain(|other| *other != set.addr());
        Ok(())
    }

    pub(super) fn register(&self, device: nvmlDevice_t, types: u64, set: nvmlEventSet_t) -> Outcome {
        self.on(device)?;
        exists(set)?;
        if types & !TYPES != 0 { Err(statuses::NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Waits as long as the caller's timeout says, because no event comes.
    pub(super) fn wait<T>(&self, set: nvmlEventSet_t, data: *mut T, timeout_ms: u32) -> Outcome {
        exists(set)?;
        if data.is_null() {
            return Err(statuses::INVALID_ARGUMENT);
        }
        clock::sleep_until(clock::now().saturating_add(u64::from(timeout_ms) * 1_000_000));
        Err(statuses::TIMEOUT)
    }
}
