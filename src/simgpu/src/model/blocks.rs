//! Blocks of 2 MiB of device memory that small allocations share.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::regions::Origin;
use crate::hardware::allocation_sizes::{ALIGNMENT, LARGEST_SLOT, PAGE, slot};
use crate::state::layout::MemoryKind;

/// Returns the bytes of the slot of an allocation that can share a block; 0 for one that cannot. Managed memory takes at least a
/// page.
pub(crate) fn slot_of(size: u64, origin: Origin) -> u64 {
    let least = if origin == Origin::Managed { PAGE } else { ALIGNMENT };
    if size > LARGEST_SLOT { 0 } else { slot(size, least) }
}

/// Slots of one family share blocks: context, whether managed, whether addresses have 32 bits, bytes of a slot.
pub(crate) type Family = (u64, bool, bool, u64);

/// A block in use.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) family: Family,
    pub(crate) device: usize,
    pub(crate) kind: MemoryKind,
    /// Address of its bytes in the arena.
    pub(crate) backing: u64,
    /// The first offset that was never used.
    pub(crate) fresh: u64,
    /// Offsets that were used and are free.
    pub(crate) freed: BTreeSet<u64>,
    pub(crate) live: u64,
    /// Number of slots whose memory is on the device. The others are managed and elsewhere.
    pub(crate) resident: u64,
}

/// The blocks of a process, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) all: HashMap<u64, Block>,
    /// Blocks with a free slot.
    pub(crate) open: BTreeMap<Family, BTreeSet<u64>>,
}

/// A taken slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) address: u64,
    pub(crate) backing: u64,
}
