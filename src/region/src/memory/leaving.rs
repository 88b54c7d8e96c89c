//! Memory that leaves: bytes of dead processes that the device does not have back yet.
//!
//! The driver frees the memory of a killed process some time after its death. Reports say 50 to 500 ms, sometimes more
//! (unslothai/unsloth#5693, sgl-project/sglang#39545). Until then the bytes *leave*: they count as held, so that the ledger
//! grants no memory that the device does not have. An entry in the table of shares holds the bytes. It counts before the
//! word of the dead process is cleared, as the entry of a new payer of shared memory does.
//!
//! The sum of free memory and of the bytes that all slices of the folder hold is the memory *available* to them.
//! Allocations and frees of a slice do not change this sum. While memory leaves, free memory and the bytes of living members
//! are less than that sum by the bytes that leave. When the sum is reached again, the memory is back.
//!
//! During a memory call the ledger and the device disagree. A reservation counts before the driver takes the memory. A
//! context, code, or a chunk of a pool counts after the driver has taken it. A measurement that was too low would later end
//! a wait too early. So the library uses the last measurement during which no other memory call was under way
//! (`handle::calls`).
//!
//! The ledger may have counted a context of the dead process as more than the driver took. Therefore a part of one context
//! may be missing for each dead process ([`MISSING_PART`]). Memory that leaves another slice is missing too, and makes the
//! wait longer. Programs in no slice of the folder change free memory, and no ledger shows the change. So the wait has a
//! bound: after [`LEAVING`] nothing leaves any more. If such a program frees memory, a wait can end too early. Without a
//! measurement all waits last until their bound.

use crate::layout::Layout;
use gpuslice_policy::time::{Monotonic, WallTime};

/// The longest time for which memory of a dead process leaves. Guessed: four times as long as most reports say.
pub const LEAVING: WallTime = WallTime::from_millis(2_000);

/// All memory counts as back although one part in `MISSING_PART` of a context is missing for each dead process. Derived:
/// the size of a context is known within 15 %, and the size of all other memory exactly.
const MISSING_PART: u64 = 8;

/// Tells whether `then` is less than [`LEAVING`] ago. An instant of another boot may lie in the future; it is not recent.
pub(crate) fn is_recent(then: Monotonic, now: Monotonic) -> bool {
    then <= now && now.since(then) < LEAVING
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Makes the bytes of the dead process in `slot` leave. Needs the join lock.
    ///
    /// The caller clears the words of the process afterwards. If it is killed in between, the bytes count twice until they
    /// are back.
    pub(crate) fn begin_leaving(&self, slot: usize, now: Monotonic) {
        for device in 0..self.device_count() {
            let (held, entry) = (self.held_by(device, slot), self.devices.get(device));
            let Some(entry) = entry.filter(|_| held > 0) else { continue };
            entry.holder_died_at.set(now);
            self.enter_left(slot, device, now, held);
        }
    }

    /// Returns the bytes that leave `device`.
    pub(crate) fn leaving(&self, device: usize, now: Monotonic) -> u64 {
        let recent = self.left(device).filter(|entry| is_recent(entry.died_at, now));
        recent.fold(0, |sum, entry| sum.saturating_add(entry.bytes()))
    }

    /// Returns the bytes of all entries of `device`, including those that have left for longer than [`LEAVING`].
    pub(crate) fn all_left(&self, device: usize) -> u64 {
        self.left(device).fold(0, |sum, entry| sum.saturating_add(entry.bytes()))
    }

    /// Ends the entries that are older than [`LEAVING`]. Returns their number.
    pub(crate) fn end_expired(&self, now: Monotonic) -> usize {
        (0..self.device_count()).map(|device| self.end_left_entries(device, |at| !is_recent(at, now))).sum()
    }

    /// Ends the entries that `device` has now, if all their memory is back. `measure` measures the memory available: the
    /// device's free bytes, and the bytes that living processes of all slices of the folder hold. Returns true if any entry
    /// ended.
    ///
    /// The entries are read before the measurement. An entry that is added meanwhile does not end: the measurement may be
    /// older than the death of its process.
    pub(crate) fn end_if_back(&self, device: usize, measure: impl FnOnce() -> Option<u64>) -> bool {
        let noted: Vec<_> = self.left(device).collect();
        let (Some(entry), false) = (self.devices.get(device), noted.is_empty()) else { return false };
        let Some(found) = measure() else { return false };
        let Some(available) = entry.available.get().checked_sub(1) else { return false };
        let context = entry.context_bytes.get().saturating_sub(1);
        // The contexts of dead processes may count this much more in the ledger than the driver took.
        let dead = u64::try_from(noted.len()).unwrap_or(u64::MAX);
        let uncertain = dead.saturating_mul(context / MISSING_PART);
        available.saturating_sub(found) <= uncertain && noted.iter().filter(|entry| entry.end()).count() > 0
    }

    /// Records a measurement of the memory available on `device`, unless some memory is leaving.
    pub(crate) fn note_available(&self, device: usize, available: u64, now: Monotonic) {
        if let Some(entry) = self.devices.get(device).filter(|_| self.leaving(device, now) == 0) {
            entry.available.set(available.saturating_add(1));
        }
    }

    /// Ends all entries of an index in the device table, because another device gets the index.
    pub(crate) fn forget_leaving(&self, device: usize) {
        self.end_left_entries(device, |_| true);
        if let Some(entry) = self.devices.get(device) {
            entry.holder_died_at.clear();
            entry.available.set(0);
        }
    }
}
