//! What lies where in the region file?
//!
//! Fixed-width atomics and nothing else, at offsets that `include/gpuslice.h` mirrors for C and
//! `docs/region.md` explains. A change of anything here is a new [`VERSION`]: an opener that finds another
//! version refuses. The sizes are parameters only so that the models can make a small one; theirs is not aligned
//! either, since it is made on a stack of some kilobytes.

use crate::{
    layout::{
        compute_words::DeviceTime,
        constants::{DEBTS, MAX_DEVICES, MAX_SHARES, MAX_SLOTS},
    },
    sync::atomics::{Gate32, Gate64, HeldWord, Word32, Word64},
};

/// Size of a region file.
#[cfg(not(loom))]
pub const SIZE: usize = size_of::<Layout>();
/// Offset of the byte whose lock joining, reaping and adding devices take.
#[cfg(not(loom))]
pub const JOIN_LOCK_OFFSET: usize = 0;
/// Offset of the byte whose lock those take who change limits.
#[cfg(not(loom))]
pub const LIMITS_LOCK_OFFSET: usize = core::mem::offset_of!(Layout, devices);

/// What is said about the whole region. Read by every reservation, written when processes come.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(4096)))]
pub(crate) struct Header {
    /// [`MAGIC`].
    pub(crate) magic: Word64,
    /// [`VERSION`].
    pub(crate) version: Word32,
    /// [`READY`], written last.
    pub(crate) ready: Gate32,
    /// Size of the file in bytes.
    pub(crate) size: Word64,
    /// How often the region was made anew.
    pub(crate) epoch: Word64,
    /// No slot from here on was ever taken since the region was made anew.
    pub(crate) claimed: Word32,
    /// Entries of the device table.
    pub(crate) device_count: Gate32,
    /// Process that took the join lock last, for the message of those who wait for it.
    pub(crate) joiner: Word32,
    /// No share from here on was ever used since the region was made anew.
    pub(crate) shared: Word32,
    /// How often one share took the charge over from another.
    pub(crate) moves: Gate64,
    /// [`UNPACED`] while launches were not paid for on any device since the region was made anew: of many devices not each is
    /// looked at for every launch. A region that is lost is read as zeroes, and then each is.
    pub(crate) unpaced: Word32,
    /// In which boot of the machine the region was made anew; zero where that was not known.
    pub(crate) boot: [Word64; 2],
    /// Process that clears the dead of a region whose file was removed: its number, and above it when it started; 0: none.
    pub(crate) keeper: Word64,
    /// The slice's debts on its devices, noted when the region is made anew.
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
            claimed: Default::default(),
            device_count: Default::default(),
            joiner: Default::default(),
            shared: Default::default(),
            moves: Default::default(),
            unpaced: Default::default(),
            boot: Default::default(),
            keeper: Default::default(),
            debts: core::array::from_fn(|_| Debt::default()),
        }
    }
}

/// A slice's debt on a device, from the end of its last process until a process uses the device again.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Debt {
    /// The device, as in [`DeviceEntry::uuid`].
    pub(crate) uuid: [Word64; 2],
    /// Until when the slice's GPU time is paid, on the monotonic clock; 0: the entry says nothing.
    pub(crate) paid_until: Word64,
    /// GPU time that could be saved up, in nanoseconds.
    pub(crate) burst: Word64,
    /// The share that pays, of [`WHOLE_SHARE`].
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
    /// Bytes that the slice may hold, or [`NO_LIMIT`].
    pub(crate) memory_limit: Word64,
    /// Share of the device's time, of [`WHOLE_SHARE`].
    pub(crate) cores_permille: Word32,
    /// One more than the most bytes that a context on the device was seen to take; 0 while none was.
    pub(crate) context_bytes: Word64,
    /// GPU time that may be saved up, in nanoseconds.
    pub(crate) burst: Word64,
    /// How the slice shares the device's time with others, in one word because it changes together: `sharing` has the
    /// bits.
    pub(crate) sharing: Word64,
    /// The most bytes that the slice was granted at a time.
    pub(crate) peak: Word64,
    /// Allocations that were refused because of the quota.
    pub(crate) refused: Word64,
    /// Allocations within the quota that the driver had no memory for.
    pub(crate) unmet: Word64,
    /// [`OVERSUBSCRIBED`] if what passes the quota is served from host memory.
    pub(crate) oversubscribe: Word32,
    /// [`HOST_MEMORY`] if the device's memory is the host's.
    pub(crate) host_memory: Word32,
    /// When somebody who held memory of the device was last found dead, on the monotonic clock; 0: never.
    pub(crate) left_at: Word64,
    /// One more than the device's free memory and what the slice held together; 0 while that is not known.
    pub(crate) room: Word64,
    /// When `room` was read, on the monotonic clock.
    pub(crate) room_at: Word64,
}

/// One process of the slice.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct Slot {
    /// [`SLOT_FREE`] or [`SLOT_TAKEN`]. Whether the owner lives, the lock on this word's first byte says.
    pub(crate) state: Gate32,
    /// The owner's process number in its own namespace.
    pub(crate) pid: Word32,
    /// When the owner started, in clock ticks since boot.
    pub(crate) start: Word64,
    /// Inode of the owner's process-number namespace.
    pub(crate) pid_namespace: Word64,
    /// Contexts that the owner is making, and how many it has made: `making` has the bits.
    pub(crate) making: Word64,
}

/// One process's use of memory that other processes can use as well.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(32)))]
pub(crate) struct Share {
    /// Role, device and slot of the process, in one word because they change together: `shares` has the bits.
    pub(crate) state: Gate64,
    /// What memory it is: uses of the same memory have the same number.
    pub(crate) key: Word64,
    /// Its bytes.
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
    /// What is said about the whole region.
    pub(crate) header: Header,
    /// The devices, of which the first [`Header::device_count`] are meant.
    pub(crate) devices: [DeviceEntry; DEVICES],
    /// The processes.
    pub(crate) slots: [Slot; SLOTS],
    /// What each process holds, by device: a reservation reads the words of one row whose slots are below
    /// [`Header::claimed`]. Where a slot's word lies, [`held_at`] says.
    pub(crate) held: [[HeldWord; SLOTS]; DEVICES],
    /// Reservations that were refused, by process: only its owner writes a row.
    pub(crate) refused: [[Word32; DEVICES]; SLOTS],
    /// Who uses memory that several processes can use: a reservation reads them up to [`Header::shared`].
    pub(crate) shares: [Share; SHARES],
    /// The devices' time. Only that of devices in use has space, and may be touched.
    pub(crate) time: [DeviceTime<SLOTS>; DEVICES],
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Slots below which every taken one lies.
    pub(crate) fn claimed(&self) -> usize {
        bounded(self.header.claimed.get(), SLOTS)
    }

    /// Shares below which every one in use lies.
    pub(crate) fn shared(&self) -> usize {
        bounded(self.header.shared.get(), SHARES)
    }

    /// Devices that can be read.
    pub(crate) fn device_count(&self) -> usize {
        bounded(self.header.device_count.observe(), DEVICES)
    }
}

/// Words of a row of [`Layout::held`] that lie in one line of 128 bytes.
const HELD_PER_LINE: usize = 16;

/// Lines of a row of so many words.
pub(crate) const fn held_lines(slots: usize) -> usize {
    if slots < HELD_PER_LINE { slots } else { slots / HELD_PER_LINE }
}

/// Where the word of a slot lies in a row of [`Layout::held`] with so many slots. Slots that follow each other have
/// different lines: up to 64 processes that allocate at once do not take each other's line away with each step.
pub(crate) const fn held_at(slot: usize, slots: usize) -> usize {
    let lines = held_lines(slots);
    match (slot.checked_rem(lines), slots.checked_div(lines), slot.checked_div(lines)) {
        // No overflow: less than `slots` for every slot that there is.
        (Some(line), Some(words), Some(word)) => line.wrapping_mul(words).wrapping_add(word),
        _ => slot,
    }
}

/// A number of the region, checked against what there is room for.
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
