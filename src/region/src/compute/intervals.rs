//! Rings of intervals in which the GPU was busy.
//!
//! One ring has the slice's own intervals: its processes publish and read them. The node agent writes the other ring. That
//! ring has the intervals of slices whose regions lie in other directories, which the slice cannot read itself.
//!
//! A process takes a slot of the ring by an atomic addition, writes the times, and then the ticket with the slot's number.
//! No process waits for another. While a process is suspended during the write, others may come around to the same slot.
//! Therefore each slot has a checksum over its words. Words of two intervals match only once in 2^64 cases.

use gpuslice_policy::compute::measuring::peer_intervals::{Interval, IntervalEntry};
use gpuslice_policy::time::{Monotonic, WallTime};

#[cfg(all(test, loom))]
use crate::sync::atomics::broken::{self, Break};
use crate::{
    layout::Layout,
    layout::compute_words::{IntervalRing, IntervalSlot},
    layout::constants::INTERVALS,
};

/// Slots of a ring of busy intervals of a device.
pub const INTERVAL_SLOTS: u64 = INTERVALS as u64;
/// The bit of a packed word for work that goes on.
const PACKED_GOES_ON: u64 = 1 << 63;
/// Lowest bit of the context in a packed word. The bits below it hold the length: up to 39 hours.
const CONTEXT: u32 = 47;
const LENGTH: u64 = (1 << CONTEXT) - 1;

impl IntervalSlot {
    /// Writes an interval. A reader accepts it when all words match.
    pub(crate) fn write(&self, entry: &IntervalEntry) {
        self.start.set(entry.interval.start);
        self.packed.set(packed_of(&entry.interval));
        self.checksum.set(checksum(entry));
        // A reader that sees the ticket sees the times.
        self.ticket.publish(entry.ticket);
    }

    /// Returns the entry in the slot. Returns an empty entry if the words do not match.
    pub(crate) fn read(&self) -> IntervalEntry {
        let ticket = self.ticket.observe();
        let entry = IntervalEntry { ticket, interval: interval_of(self.start.get(), self.packed.get()) };
        let matches = self.checksum.get() == checksum(&entry);
        #[cfg(all(test, loom))]
        let matches = matches || broken::is(Break::TornBelieved);
        if matches { entry } else { IntervalEntry::default() }
    }
}

/// Returns the length, context and flag of an interval in one word.
fn packed_of(interval: &Interval) -> u64 {
    let length = interval.length().nanos().min(LENGTH);
    let flag = if interval.goes_on { PACKED_GOES_ON } else { 0 };
    flag | (u64::from(interval.context) << CONTEXT) | length
}

/// Returns the interval that these two words hold.
fn interval_of(start: Monotonic, packed: u64) -> Interval {
    let context = u16::try_from((packed & !PACKED_GOES_ON) >> CONTEXT).unwrap_or(0);
    let end = start.saturating_add(WallTime::from_nanos(packed & LENGTH));
    Interval { start, end, context, goes_on: packed & PACKED_GOES_ON != 0 }
}

/// Returns a word made of all bits of the other three words. The factors are odd, so that no bit is lost. They are from the
/// golden ratio and from splitmix64.
fn checksum(entry: &IntervalEntry) -> u64 {
    let mixed = entry.interval.start.nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    let mixed = (mixed ^ packed_of(&entry.interval)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(29);
    (mixed ^ entry.ticket).wrapping_mul(0x94d0_49bb_1331_11eb)
}

impl IntervalRing {
    /// Publishes an interval and returns its number.
    pub(crate) fn publish(&self, interval: Interval) -> u64 {
        let place = self.head.0.add(1);
        if let Some(words) = self.slots.get(index(place)) {
            words.write(&IntervalEntry::new(place, interval));
        }
        place
    }

    /// Returns the entry with this number, or the later entry in its slot.
    pub(crate) fn at(&self, place: u64) -> IntervalEntry {
        self.slots.get(index(place)).map_or_else(IntervalEntry::default, IntervalSlot::read)
    }

    /// Empties the ring.
    pub(crate) fn clear(&self) {
        self.head.0.set(0);
        self.slots.iter().for_each(|place| place.ticket.publish(0));
    }
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Publishes an interval and returns its number; 0 for a device that does not exist.
    pub(crate) fn publish(&self, device: usize, interval: Interval) -> u64 {
        self.time(device).map_or(0, |time| time.intervals.publish(interval))
    }
}

/// Returns the slot of the ring for an interval's number.
fn index(place: u64) -> usize {
    usize::try_from(place).unwrap_or(0).checked_rem(INTERVALS).unwrap_or(0)
}
