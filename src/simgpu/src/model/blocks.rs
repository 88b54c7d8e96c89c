//! Blocks of 2 MiB of device memory that small allocations share.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::regions::Origin;
use crate::hardware::allocation_sizes::{ALIGNMENT, LARGEST_SLOT, PAGE, slot};
use crate::state::layout::MemoryKind;

/// Returns the bytes of the slot for an allocation that can share a block. Returns 0 for an allocation that cannot share one. A
/// slot of managed memory has at least a page.
pub(crate) fn slot_of(size: u64, origin: Origin) -> u64 {
    let least = if origin == Origin::Managed { PAGE } else { ALIGNMENT };
    if size > LARGEST_SLOT { 0 } else { slot(size, least) }
}

/// Slots of one family share blocks. The parts are: the context, true if the memory is managed, true if addresses have 32
/// bits, and the bytes of a slot.
pub(crate) type Family = (u64, bool, bool, u64);

/// A block of 2 MiB in use.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) family: Family,
    pub(crate) device: usize,
    pub(crate) kind: MemoryKind,
    /// Address of the block's bytes in the arena.
    pub(crate) backing: u64,
    /// The first offset in the block that no slot ever used.
    pub(crate) fresh: u64,
    /// Offsets of slots that were used and are now free.
    pub(crate) freed: BTreeSet<u64>,
    pub(crate) live: u64,
    /// Number of slots whose memory is on the device. The other slots are managed memory that is on the host.
    pub(crate) resident: u64,
}

/// The blocks of this process, by address.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) all: HashMap<u64, Block>,
    /// Blocks with at least one free slot.
    pub(crate) open: BTreeMap<Family, BTreeSet<u64>>,
}

/// A slot that an allocation has taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) address: u64,
    pub(crate) backing: u64,
}
