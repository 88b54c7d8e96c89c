//! Sizes in which the driver allocates device memory.

/// Alignment of every allocation, in bytes.
pub(crate) const ALIGNMENT: u64 = 512;
/// Unit of mappings, in bytes.
pub(crate) const PAGE: u64 = 64 << 10;
/// Unit in which the driver takes memory from the device, in bytes.
pub(crate) const DEVICE_BLOCK_BYTES: u64 = 2 << 20;
/// Largest allocation that shares a block, in bytes.
pub(crate) const LARGEST_SLOT: u64 = 1 << 20;

/// Returns the bytes of the device that an allocation of `size` needs without sharing a block. `None`: more than can exist.
pub(crate) fn whole(size: u64) -> Option<u64> {
    if size > LARGEST_SLOT {
        size.checked_next_multiple_of(DEVICE_BLOCK_BYTES)
    } else {
        Some(slot(size, ALIGNMENT))
    }
}

pub(crate) fn slot(size: u64, least: u64) -> u64 {
    size.next_power_of_two().max(least)
}
