//! Structs of the region file, except the structs of the compute ledger, which are in `compute_words`.
//!
//! The array sizes are type parameters so that the loom models can use small ones. The models build the layout on a
//! stack of a few kilobytes, so their structs have no alignment either.

use crate::{
    layout::{
        compute_words::DeviceTime,
        constants::{DEBTS, MAX_DEVICES, MAX_SHARES, MAX_SLOTS},
    },
    sync::atomics::{HeldWord, Published32, Published64, Word32, Word64},
};
use gpuslice_policy::time::{GpuTime, Monotonic};

/// Size of a region file, in bytes.
#[cfg(not(loom))]
pub const SIZE: usize = size_of::<Layout>();
/// Offset of the byte whose lock serialises joining, reaping and adding devices.
#[cfg(not(loom))]
pub const JOIN_LOCK_OFFSET: usize = 0;
/// Offset of the byte whose lock serialises changes of limits.
#[cfg(not(loom))]
pub const LIMITS_LOCK_OFFSET: usize = core::mem::offset_of!(Layout, devices);

/// Facts about the whole region. Every reservation reads them. A process that joins writes them.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(4096)))]
pub(crate) struct Header {
    /// `MAGIC`.
    pub(crate) magic: Word64,
    /// `VERSION`.
    pub(crate) version: Word32,
    /// `READY`, written last.
    pub(crate) ready: Published32,
    /// Size of the file in bytes.
    pub(crate) size: Word64,
    /// Number of initialisations of the region. If a region has no living process, the next process that joins initialises
    /// it again.
    pub(crate) epoch: Word64,
    /// Every slot that was taken in this epoch has a smaller index.
    pub(crate) slot_high_water: Word32,
    /// Number of valid entries in the device table.
    pub(crate) device_count: Published32,
    /// Process number of the last owner of the join lock, for error messages.
    pub(crate) last_joiner_pid: Word32,
    /// Every share that was used in this epoch has a smaller index.
    pub(crate) share_high_water: Word32,
    /// Number of times that a charge moved from one share to another. A reader of the sum compares it before and after.
    pub(crate) transfer_seq: Published64,
    /// `UNLIMITED` while no device had a share to pay for in this epoch. A launch reads this word before it reads the
    /// entry of its device. A lost region reads as zeroes, and then each launch reads the entry.
    pub(crate) unlimited_hint: Word32,
    /// The boot of the machine in which the region was initialised; zero if the process could not tell.
    pub(crate) boot: [Word64; 2],
    /// The member that reaps a region whose file was removed: process number in the low half, start time in the high
    /// half; 0: none.
    pub(crate) reaper: Word64,
    /// GPU time that the slice owes on each device, written when the region is initialised.
    pub(crate) debts: [Debt; DEBTS],
}

impl Default for Header {
    fn default() -> Self {
        Self {
            magic: Default::default(),
            version: Default::default(),
            ready: Default::default(),
            size: Default::default(),
            epoch: Default::default(),
            slot_high_water: Default::default(),
            device_count: Default::default(),
            last_joiner_pid: Default::default(),
            share_high_water: Default::default(),
            transfer_seq: Default::default(),
            unlimited_hint: Default::default(),
            boot: Default::default(),
            reaper: Default::default(),
            debts: core::array::from_fn(|_| Debt::default()),
        }
    }
}

/// GPU time that a slice owes on a device, from the end of its last process until a process uses the device again.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Debt {
    /// The device, as in [`DeviceEntry::uuid`].
    pub(crate) uuid: [Word64; 2],
    /// The instant up to which the slice's GPU time is paid, on the monotonic clock; 0: the entry is empty.
    pub(crate) paid_until: Word64<Monotonic>,
    /// GPU time that the slice could save up, in nanoseconds.
    pub(crate) burst: Word64<GpuTime>,
    /// The share that pays the debt, in permille.
    pub(crate) cores_permille: Word32,
}

/// One device of the slice.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct DeviceEntry {
    /// The device's UUID, first byte lowest.
    pub(crate) uuid: [Word64; 2],
    /// Bytes of memory that the device has.
    pub(crate) total: Word64,
    /// Bytes that the slice may hold, or `NO_LIMIT`.
    pub(crate) memory_limit: Word64,
    /// Share of the device's time, in permille.
    pub(crate) cores_permille: Word32,
    /// One more than the largest size of a context that a member measured on the device; 0: none was measured.
    pub(crate) context_bytes: Word64,
    /// GPU time that the slice may save up, in nanoseconds.
    pub(crate) burst: Word64<GpuTime>,
    /// Policy, priority and weight, in one word because they change together. `handle::limits::Sharing` has the bits.
    pub(crate) sharing: Word64,
    /// The most bytes that the slice was granted at a time.
    pub(crate) peak: Word64,
    /// Allocations that were denied because of the quota.
    pub(crate) quota_denials: Word64,
    /// Allocations within the quota for which the driver had no memory.
    pub(crate) device_denials: Word64,
    /// `OVERSUBSCRIBED` if allocations beyond the quota are served from host memory.
    pub(crate) oversubscribe: Word32,
    /// `HOST_MEMORY` if the device's memory is the host's.
    pub(crate) host_memory: Word32,
    /// The time at which a dead process that held memory of the device was last reaped, on the monotonic clock; 0: never.
    pub(crate) holder_died_at: Word64<Monotonic>,
    /// One more than the sum of the device's free memory and the bytes that the slice held; 0: not known.
    pub(crate) available: Word64,
}

/// One process of the slice.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct Slot {
    /// `SLOT_FREE` or `SLOT_TAKEN`. The owner is alive while it holds a lock on the first byte of this word.
    pub(crate) state: Published32,
    /// The owner's process number in its own namespace.
    pub(crate) pid: Word32,
    /// Time of the owner's start, in clock ticks since boot.
    pub(crate) start: Word64,
    /// Inode of the owner's process-number namespace.
    pub(crate) pid_namespace: Word64,
    /// Contexts that the owner is creating. `handle::calls` has the bits.
    pub(crate) context_creations: Published64,
    /// Calls of the owner that take memory or give it back. `handle::calls` has the bits.
    pub(crate) memory_calls: Published64,
}

/// One process's use of memory that other processes can use as well.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(32)))]
pub(crate) struct Share {
    /// Role, device and slot of the use, in one word because they change together. `memory::shared_memory` has the
    /// bits.
    pub(crate) state: Published64,
    /// Identifies the memory: all uses of one allocation have the same key.
    pub(crate) key: Word64,
    /// Size of the memory in bytes.
    pub(crate) bytes: Word64,
}

/// The region file.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Layout<
    const DEVICES: usize = MAX_DEVICES,
    const SLOTS: usize = MAX_SLOTS,
    const SHARES: usize = MAX_SHARES,
> {
    /// Facts about the whole region.
    pub(crate) header: Header,
    /// The devices. The first `device_count` entries are valid.
    pub(crate) devices: [DeviceEntry; DEVICES],
    /// The processes.
    pub(crate) slots: [Slot; SLOTS],
    /// The bytes that each process holds, a row for each device. A reservation reads the words of one row whose slots
    /// are below `slot_high_water`. [`held_at`] maps a slot to its word.
    pub(crate) held: [[HeldWord; SLOTS]; DEVICES],
    /// Denied reservations, a row for each process. Only the owner of the slot writes its row.
    pub(crate) quota_denials: [[Word32; DEVICES]; SLOTS],
    /// Uses of shared memory. A reservation reads them up to `share_high_water`.
    pub(crate) shares: [Share; SHARES],
    /// The compute ledger of each device. Only the ledgers of valid devices have space in the file. No process may touch
    /// the others.
    pub(crate) time: [DeviceTime<SLOTS>; DEVICES],
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Returns the number of slots to look at: every taken slot has a smaller index.
    pub(crate) fn slot_high_water(&self) -> usize {
        bounded(self.header.slot_high_water.get(), SLOTS)
    }

    /// Returns the number of shares to look at: every used share has a smaller index.
    pub(crate) fn share_high_water(&self) -> usize {
        bounded(self.header.share_high_water.get(), SHARES)
    }

    /// Returns the number of valid devices.
    pub(crate) fn device_count(&self) -> usize {
        bounded(self.header.device_count.observe(), DEVICES)
    }
}

/// Words of a row of [`Layout::held`] that share a line of 128 bytes.
const HELD_PER_LINE: usize = 16;

/// Returns the lines in a row of `slots` words.
pub(crate) const fn held_lines(slots: usize) -> usize {
    if slots < HELD_PER_LINE { slots } else { slots / HELD_PER_LINE }
}

/// Returns the index of a slot's word in a row of [`Layout::held`] with `slots` words. Slots 0 and 1 have words in different
/// lines, and so have any 64 slots in sequence. Up to 64 processes that allocate at the same time therefore do not take a cache
/// line from each other.
pub(crate) const fn held_at(slot: usize, slots: usize) -> usize {
    let lines = held_lines(slots);
    match (slot.checked_rem(lines), slots.checked_div(lines), slot.checked_div(lines)) {
        // No overflow: the result is less than `slots` for every valid slot.
        (Some(line), Some(words), Some(word)) => line.wrapping_mul(words).wrapping_add(word),
        _ => slot,
    }
}

/// Returns a count read from the region, limited to the room that there is for it.
fn bounded(number: u32, most: usize) -> usize {
    usize::try_from(number).map_or(most, |number| number.min(most))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_slot_has_a_word_and_sixty_four_that_follow_each_other_lie_in_different_lines() {
        for slots in [2, 3, MAX_SLOTS] {
            let places: BTreeSet<_> = (0..slots).map(|slot| held_at(slot, slots)).collect();
            assert_eq!(places, (0..slots).collect());
        }
        for first in [0, 64, 500] {
            let lines: BTreeSet<_> =
                (first..first + 64).map(|slot| held_at(slot, MAX_SLOTS) / HELD_PER_LINE).collect();
            assert_eq!(lines.len(), 64);
        }
    }
}
