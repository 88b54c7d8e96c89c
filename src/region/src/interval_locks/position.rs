//! Byte ranges that stand for slices and their busy intervals.
//!
//! A lock has a position of 63 bits and a length. Here both are only numbers: the library has no bytes at these positions,
//! and a lock needs none. A position consists of these fields, from the highest bit on:
//!
//! | bits | directory | interval |
//! |---|---|---|
//! | 10 | the GPU | the GPU |
//! | 6 | [`DIRECTORY`] | the lane of the slice |
//! | 8 | the lane | the interval's number |
//! | 39 | the slice | context, 16; the work continues, 1; end in microseconds, 21 |
//!
//! The length is one more than the rest of the GPU's UUID, or than the length of the interval in microseconds. No range
//! reaches the next number, so ranges of different intervals never overlap. The kernel would join overlapping locks of one
//! process.

use core::ops::Range;

use gpuslice_policy::compute::measuring::peer_intervals::Interval;
use gpuslice_policy::time::Monotonic;

/// The lanes of a GPU. A slice has one lane while it publishes.
pub(super) const LANES: u64 = DIRECTORY;
/// The lane in which all slices of the GPU have an entry.
const DIRECTORY: u64 = 63;
/// The interval numbers of a lane. A slice uses them in turn.
pub(super) const INTERVAL_NUMBERS: u64 = 256;

const NUMBER_BITS: u32 = 39;
const LANE_BITS: u32 = NUMBER_BITS + INTERVAL_NUMBERS.trailing_zeros();
const GPU_BITS: u32 = LANE_BITS + 6;

/// Bits of a slice in a directory entry.
const SLICE: u64 = (1 << 38) - 1;
/// Place of a lane's second range in the directory. No entry of a slice reaches it: see [`GpuRanges::programs`].
const PROGRAMS: u64 = 3 << 37;
/// Bits of the UUID in the length of a directory entry. The bits above them have the version of this encoding.
const UUID_BITS: u64 = (1 << 32) - 1;
/// Version of this encoding. Slices of different versions do not see each other.
const ENCODING_VERSION: u64 = 1;

const CONTEXT_BIT: u32 = 22;
const LOCK_GOES_ON: u64 = 1 << 21;
/// Period, in microseconds, after which ends have the same bits again: 2.1 s.
const END_PERIOD: u64 = 1 << 21;
/// The longest interval, in microseconds: 0.26 s. The replay has passed all older time.
const LONGEST_INTERVAL: u64 = (1 << 18) - 1;
const NANOS: u64 = 1000;

/// A range of bytes.
pub(super) type Bytes = Range<u64>;

/// The byte ranges of a GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct GpuRanges {
    base: u64,
    rest: u64,
}

impl GpuRanges {
    /// Returns the ranges of the GPU with this UUID.
    pub(super) fn new(uuid: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = uuid;
        let word = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        // A position is a signed number, so the highest bit stays free.
        Self { base: (word >> (GPU_BITS + 1)) << GPU_BITS, rest: word & UUID_BITS }
    }

    const fn lane_start(self, lane: u64) -> u64 {
        self.base | (lane << LANE_BITS)
    }

    /// Returns the range of all entries of the directory.
    pub(super) const fn directory(self) -> Bytes {
        let start = self.lane_start(DIRECTORY);
        start..start.saturating_add(1 << LANE_BITS)
    }

    /// Returns the range of a lane's entry in the directory, whichever slice has the lane.
    pub(super) const fn entry_of(self, lane: u64) -> Bytes {
        let start = self.lane_start(DIRECTORY) | (lane << NUMBER_BITS);
        start..start.saturating_add(1 << NUMBER_BITS)
    }

    /// Returns the range of the entry of a slice that has a lane.
    pub(super) const fn entry(self, lane: u64, slice: u64) -> Bytes {
        self.in_directory(self.entry_of(lane).start | (slice & SLICE))
    }

    /// Returns the range by which the slice in a lane tells that programs which publish nothing use the GPU.
    pub(super) const fn programs(self, lane: u64) -> Bytes {
        self.in_directory(self.entry_of(lane).start | PROGRAMS)
    }

    /// Returns a range of the directory. Its length contains the rest of the GPU's UUID, and the version.
    const fn in_directory(self, start: u64) -> Bytes {
        start
            ..start.saturating_add(1).saturating_add((ENCODING_VERSION << UUID_BITS.count_ones()) | self.rest)
    }

    /// Returns the lane and the slice of an entry. `None`: the entry belongs to another GPU or another version.
    pub(super) fn slice_at(self, entry: &Bytes) -> Option<(u64, u64)> {
        let lane = (entry.start >> NUMBER_BITS) & (INTERVAL_NUMBERS - 1);
        let slice = entry.start & SLICE;
        (lane < LANES && *entry == self.entry(lane, slice)).then_some((lane, slice))
    }

    /// Returns the range of these numbers of a lane.
    pub(super) fn numbers(self, lane: u64, numbers: Range<u64>) -> Bytes {
        let start = self.lane_start(lane);
        let at = |number: u64| start.saturating_add(number << NUMBER_BITS);
        at(numbers.start)..at(numbers.end)
    }

    /// Returns the range of an interval.
    pub(super) fn interval(self, lane: u64, number: u64, interval: &Interval) -> Bytes {
        let (start, end) = (interval.start.nanos() / NANOS, interval.end.nanos() / NANOS);
        let flag = if interval.goes_on { LOCK_GOES_ON } else { 0 };
        let low = (u64::from(interval.context) << CONTEXT_BIT) | flag | (end % END_PERIOD);
        let start_of_range = self.numbers(lane, number..number).start | low;
        let length = end.saturating_sub(start).min(LONGEST_INTERVAL);
        start_of_range..start_of_range.saturating_add(1).saturating_add(length)
    }
}

/// Returns the number of an interval's range.
pub(super) const fn number_of(range: &Bytes) -> u64 {
    (range.start >> NUMBER_BITS) & (INTERVAL_NUMBERS - 1)
}

/// Returns the interval of a range. Several ends have the same bits. The result has the one nearest to `now`, the monotonic
/// clock.
pub(super) fn interval_of(range: &Bytes, now: Monotonic) -> Interval {
    let low = range.start & ((1 << NUMBER_BITS) - 1);
    let latest = (now.nanos() / NANOS).saturating_add(END_PERIOD / 2);
    let age = latest.wrapping_sub(low) % END_PERIOD;
    let end = latest.saturating_sub(age);
    let length = range.end.saturating_sub(range.start).saturating_sub(1).min(LONGEST_INTERVAL);
    let at = |unit: u64| Monotonic::from_nanos(unit.saturating_mul(NANOS));
    Interval {
        start: at(end.saturating_sub(length)),
        end: at(end),
        context: u16::try_from((low >> CONTEXT_BIT) & u64::from(u16::MAX)).unwrap_or(0),
        goes_on: low & LOCK_GOES_ON != 0,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
mod tests {
    use super::*;
    use gpuslice_policy::time::literals::ns;
    use proptest::prelude::*;

    const MICRO: u64 = NANOS;

    proptest! {
        #[test]
        fn an_interval_is_read_as_it_was_written(
            uuid in any::<[u8; 16]>(),
            lane in 0..LANES,
            number in 0..INTERVAL_NUMBERS,
            (context, goes_on) in any::<(u16, bool)>(),
            now in 10_000_000_u64..1 << 50,
            age in 0..1_000_000_u64,
            length in 0..=LONGEST_INTERVAL,
        ) {
            let (gpu, end) = (GpuRanges::new(uuid), now - age);
            let interval =
                Interval { start: ns((end - length) * MICRO), end: ns(end * MICRO), context, goes_on };
            let range = gpu.interval(lane, number, &interval);
            prop_assert!(i64::try_from(range.end).is_ok());
            let whole = gpu.numbers(lane, number..number + 1);
            prop_assert!(whole.start <= range.start && range.end <= whole.end);
            prop_assert_eq!(number_of(&range), number);
            prop_assert_eq!(interval_of(&range, ns(now * MICRO + 7)), interval);
        }

        #[test]
        fn an_entry_names_the_slice_and_is_of_one_gpu(
            (uuid, other) in any::<([u8; 16], [u8; 16])>(),
            lane in 0..LANES,
            slice in any::<u64>(),
        ) {
            prop_assume!(uuid[..8] != other[..8]);
            let gpu = GpuRanges::new(uuid);
            let entry = gpu.entry(lane, slice);
            prop_assert!(i64::try_from(entry.end).is_ok());
            prop_assert_eq!(gpu.slice_at(&entry), Some((lane, slice & SLICE)));
            let (whole, all) = (gpu.entry_of(lane), gpu.directory());
            prop_assert!(whole.start <= entry.start && entry.end <= whole.end);
            prop_assert!(all.start <= whole.start && whole.end <= all.end);
            let programs = gpu.programs(lane);
            prop_assert!(entry.end < programs.start && programs.end <= whole.end);
            prop_assert!(gpu.slice_at(&programs).is_none());
            let is_other = (GpuRanges::new(other).base, GpuRanges::new(other).rest) != (gpu.base, gpu.rest);
            prop_assert!(!is_other || GpuRanges::new(other).slice_at(&entry).is_none());
        }
    }

    #[test]
    fn an_interval_that_is_too_long_keeps_its_end() {
        let interval = Interval { start: ns(5_000_000), end: ns(9_000_000_000), context: 3, goes_on: true };
        let range = GpuRanges::new([9; 16]).interval(5, 255, &interval);
        let read = interval_of(&range, ns(9_000_000_000));
        assert_eq!(read, Interval { start: ns(9_000_000_000 - LONGEST_INTERVAL * MICRO), ..interval });
    }
}
