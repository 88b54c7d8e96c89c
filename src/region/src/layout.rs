//! What lies where in the region file?
//!
//! Fixed-width atomics and nothing else, at offsets that `include/gpuslice.h` mirrors for C and
//! `docs/region.md` explains. A change of anything here is a new [`VERSION`]: an opener that finds another
//! version refuses. The sizes are parameters only so that the models can make a small one; theirs is not aligned
//! either, since it is made on a stack of some kilobytes.

#[cfg(not(loom))]
use crate::words::{Moment, Place, ProcessTime};
use crate::{
    sync::{Gate32, Gate64, HeldWord, Word32, Word64},
    words::DeviceTime,
};

/// The first eight bytes of a region, read as a little-endian number: "gpuslice".
pub const MAGIC: u64 = u64::from_le_bytes(*b"gpuslice");
/// The version of this layout.
pub const VERSION: u32 = 12;
/// Processes that can be in one slice.
pub const MAX_SLOTS: usize = 1024;
/// Devices that a slice can have.
pub const MAX_DEVICES: usize = 64;
/// Devices on which a slice without a process can owe time; the models have few.
pub const DEBTS: usize = if cfg!(loom) { 1 } else { MAX_DEVICES };
/// Uses of shared memory that a slice can have at a time.
pub const MAX_SHARES: usize = 4096;
/// Busy intervals that are remembered of a device; the models have few.
pub const PLACES: usize = if cfg!(loom) { 2 } else { 1024 };
/// Seconds that are remembered of a device's use; the models have none.
pub const SECONDS: usize = if cfg!(loom) { 0 } else { 64 };
/// The memory limit that says that there is none. Not zero: a word that was never written must refuse, not grant.
pub const NO_LIMIT: u64 = u64::MAX;
/// What the word for host memory beyond the quota says where that is wanted: "pill", as no word is by chance, since a
/// slice whose region was overwritten must refuse.
pub const OVERSUBSCRIBED: u32 = u32::from_le_bytes(*b"pill");
/// What the word of a device says whose memory is the host's: "host", for the same reason.
pub const HOST_MEMORY: u32 = u32::from_le_bytes(*b"host");
/// What the header's word says while launches are not paid for on any device: "free", for the same reason.
pub const UNPACED: u32 = u32::from_le_bytes(*b"free");
/// The whole of a device's time, in permille.
pub const WHOLE_SHARE: u32 = 1000;
/// The ready word of a region that may be used.
pub const READY: u32 = 1;
/// State of a slot that no process has.
pub const SLOT_FREE: u32 = 0;
/// State of a slot that a process has, alive or dead.
pub const SLOT_TAKEN: u32 = 1;
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

/// Name and value of everything that `include/gpuslice.h` repeats, for the test that compares the two.
#[cfg(not(loom))]
pub const FIGURES: [(&str, usize); 111] = {
    use core::mem::offset_of;
    type Time = DeviceTime<MAX_SLOTS>;
    [
        ("version", VERSION as usize),
        ("size", SIZE),
        ("slots", MAX_SLOTS),
        ("devices", MAX_DEVICES),
        ("shares", MAX_SHARES),
        ("places", PLACES),
        ("oversubscribed", OVERSUBSCRIBED as usize),
        ("unpaced", UNPACED as usize),
        ("host_memory", HOST_MEMORY as usize),
        ("seconds", SECONDS),
        ("header.magic", offset_of!(Layout, header.magic)),
        ("header.version", offset_of!(Layout, header.version)),
        ("header.ready", offset_of!(Layout, header.ready)),
        ("header.size", offset_of!(Layout, header.size)),
        ("header.epoch", offset_of!(Layout, header.epoch)),
        ("header.claimed", offset_of!(Layout, header.claimed)),
        ("header.device_count", offset_of!(Layout, header.device_count)),
        ("header.joiner", offset_of!(Layout, header.joiner)),
        ("header.shared", offset_of!(Layout, header.shared)),
        ("header.moves", offset_of!(Layout, header.moves)),
        ("header.unpaced", offset_of!(Layout, header.unpaced)),
        ("header.boot", offset_of!(Layout, header.boot)),
        ("header.keeper", offset_of!(Layout, header.keeper)),
        ("debts.offset", offset_of!(Layout, header.debts)),
        ("debt.size", size_of::<Debt>()),
        ("debt.uuid", offset_of!(Debt, uuid)),
        ("debt.paid_until", offset_of!(Debt, paid_until)),
        ("debt.burst", offset_of!(Debt, burst)),
        ("debt.cores_permille", offset_of!(Debt, cores_permille)),
        ("devices.offset", offset_of!(Layout, devices)),
        ("device.size", size_of::<DeviceEntry>()),
        ("device.uuid", offset_of!(DeviceEntry, uuid)),
        ("device.total", offset_of!(DeviceEntry, total)),
        ("device.memory_limit", offset_of!(DeviceEntry, memory_limit)),
        ("device.cores_permille", offset_of!(DeviceEntry, cores_permille)),
        ("device.context_bytes", offset_of!(DeviceEntry, context_bytes)),
        ("device.burst", offset_of!(DeviceEntry, burst)),
        ("device.sharing", offset_of!(DeviceEntry, sharing)),
        ("device.peak", offset_of!(DeviceEntry, peak)),
        ("device.refused", offset_of!(DeviceEntry, refused)),
        ("device.unmet", offset_of!(DeviceEntry, unmet)),
        ("device.oversubscribe", offset_of!(DeviceEntry, oversubscribe)),
        ("device.host_memory", offset_of!(DeviceEntry, host_memory)),
        ("device.left_at", offset_of!(DeviceEntry, left_at)),
        ("device.room", offset_of!(DeviceEntry, room)),
        ("device.room_at", offset_of!(DeviceEntry, room_at)),
        ("slots.offset", offset_of!(Layout, slots)),
        ("slot.size", size_of::<Slot>()),
        ("slot.state", offset_of!(Slot, state)),
        ("slot.pid", offset_of!(Slot, pid)),
        ("slot.start", offset_of!(Slot, start)),
        ("slot.pid_namespace", offset_of!(Slot, pid_namespace)),
        ("slot.making", offset_of!(Slot, making)),
        ("held.offset", offset_of!(Layout, held)),
        ("held.lines", held_lines(MAX_SLOTS)),
        ("held.row", size_of::<[HeldWord; MAX_SLOTS]>()),
        ("refused.offset", offset_of!(Layout, refused)),
        ("refused.row", size_of::<[Word32; MAX_DEVICES]>()),
        ("shares.offset", offset_of!(Layout, shares)),
        ("share.size", size_of::<Share>()),
        ("share.state", offset_of!(Share, state)),
        ("share.key", offset_of!(Share, key)),
        ("share.bytes", offset_of!(Share, bytes)),
        ("time.offset", offset_of!(Layout, time)),
        ("time.size", size_of::<Time>()),
        ("time.paid_until", offset_of!(Time, paid.0.until)),
        ("time.free_from", offset_of!(Time, paid.0.free_from)),
        ("time.virtual_time", offset_of!(Time, virtual_time)),
        ("time.bell", offset_of!(Time, bell)),
        ("time.places", offset_of!(Time, places)),
        ("time.overlap", offset_of!(Time, overlap)),
        ("time.factor", offset_of!(Time, readings.0.factor)),
        ("time.meter", offset_of!(Time, readings.0.meter)),
        ("time.told", offset_of!(Time, readings.0.told)),
        ("time.elected", offset_of!(Time, sampler.0.elected)),
        ("time.paid_at", offset_of!(Time, step.0.paid_at)),
        ("time.kept_since", offset_of!(Time, step.0.kept_since)),
        ("time.kept_until", offset_of!(Time, step.0.kept_until)),
        ("time.step_until", offset_of!(Time, step.0.lasts_until)),
        ("time.overdue_at", offset_of!(Time, step.0.overdue_at)),
        ("time.ahead_at", offset_of!(Time, step.0.ahead_at)),
        ("time.ahead_until", offset_of!(Time, step.0.ahead_until)),
        ("time.ring", offset_of!(Time, ring)),
        ("place.size", size_of::<Place>()),
        ("place.ticket", offset_of!(Place, ticket)),
        ("place.start", offset_of!(Place, start)),
        ("place.rest", offset_of!(Place, rest)),
        ("place.check", offset_of!(Place, check)),
        ("time.history", offset_of!(Time, history)),
        ("moment.size", size_of::<Moment>()),
        ("moment.second", offset_of!(Moment, second)),
        ("moment.used", offset_of!(Moment, used)),
        ("moment.throttled", offset_of!(Moment, throttled)),
        ("time.processes", offset_of!(Time, processes)),
        ("process.size", size_of::<ProcessTime>()),
        ("process.served", offset_of!(ProcessTime, served)),
        ("process.wants", offset_of!(ProcessTime, wants)),
        ("process.sleeps_until", offset_of!(ProcessTime, sleeps_until)),
        ("process.outstanding", offset_of!(ProcessTime, outstanding)),
        ("process.settled_at", offset_of!(ProcessTime, settled_at)),
        ("process.queued", offset_of!(ProcessTime, queued)),
        ("process.used", offset_of!(ProcessTime, counts.used)),
        ("process.throttled", offset_of!(ProcessTime, counts.throttled)),
        ("process.copied", offset_of!(ProcessTime, counts.copied)),
        ("process.launches", offset_of!(ProcessTime, counts.launches)),
        ("process.used_before", offset_of!(ProcessTime, before.used)),
        ("process.throttled_before", offset_of!(ProcessTime, before.throttled)),
        ("process.copied_before", offset_of!(ProcessTime, before.copied)),
        ("process.launches_before", offset_of!(ProcessTime, before.launches)),
        ("process.spilled", offset_of!(ProcessTime, spilled)),
        ("process.contexts", offset_of!(ProcessTime, contexts)),
    ]
};

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Layout, header.ready) == 12);
    assert!(offset_of!(Layout, header.size) == 16);
    assert!(offset_of!(Layout, header.claimed) == 32);
    assert!(offset_of!(Layout, header.joiner) == 40);
    assert!(offset_of!(Layout, header.shared) == 44);
    assert!(offset_of!(Layout, header.moves) == 48);
    assert!(offset_of!(Layout, devices) == 4096);
    assert!(offset_of!(DeviceEntry, cores_permille) == 32);
    assert!(offset_of!(DeviceEntry, context_bytes) == 40);
    assert!(offset_of!(Layout, slots) == 12_288);
    assert!(offset_of!(DeviceEntry, room) == 104);
    assert!(offset_of!(Slot, making) == 24);
    assert!(offset_of!(Layout, held) == 143_360);
    assert!(offset_of!(Layout, refused) == 667_648);
    assert!(offset_of!(Layout, shares) == 929_792);
    assert!(size_of::<Share>() == 32);
    assert!(offset_of!(DeviceEntry, burst) == 48);
    assert!(offset_of!(Layout, time) == 1_060_864);
    assert!(offset_of!(ProcessTime, contexts) == 120);
    assert!(size_of::<DeviceTime<MAX_SLOTS>>() == 167_936);
    assert!(SIZE == 11_808_768);
};

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
