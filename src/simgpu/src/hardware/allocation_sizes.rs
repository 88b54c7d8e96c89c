//! Sizes in which the device's memory is allocated.

/// Alignment of every allocation.
pub(crate) const ALIGNMENT: u64 = 512;
/// What is mapped by itself is a multiple of this.
pub(crate) const PAGE: u64 = 64 << 10;
/// What the device's memory is taken in.
pub(crate) const BLOCK: u64 = 2 << 20;
/// The largest size that shares a block.
pub(crate) const LARGEST_SLOT: u64 = 1 << 20;

/// What memory of a size takes of the device where it does not share a block.
pub(crate) fn whole(size: u64) -> Option<u64> {
    if size > LARGEST_SLOT { size.checked_next_multiple_of(BLOCK) } else { Some(slot(size, ALIGNMENT)) }
}

pub(crate) fn slot(size: u64, least: u64) -> u64 {
    size.next_power_of_two().max(least)
}
