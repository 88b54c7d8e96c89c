//! Blocks of 2 MiB of device memory that small allocations share.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::regions::Origin;
use crate::hardware::allocation_sizes::{ALIGNMENT, LARGEST_SLOT, PAGE, slot};
use crate::state::layout::MemoryKind;

/// The slot for a size that can share a block; 0 for one that cannot. Managed memory comes in pages of the host's.
pub(crate) fn slot_of(size: u64, origin: Origin) -> u64 {
    let least = if origin == Origin::Managed { PAGE } else { ALIGNMENT };
    if size > LARGEST_SLOT { 0 } else { slot(size, least) }
}

/// Which slots share a block: context, whether they are managed, whether their addresses have 32 bits, bytes.
pub(crate) type Family = (u64, bool, bool, u64);

/// A block in use.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) family: Family,
    pub(crate) device: usize,
    pub(crate) kind: MemoryKind,
    /// Where its bytes are.
    pub(crate) backing: u64,
    /// Offsets from here on were never used.
    pub(crate) fresh: u64,
    /// Offsets that were used and are free.
    pub(crate) freed: BTreeSet<u64>,
    pub(crate) live: u64,
    /// Slots whose memory is on the device; the others are managed and elsewhere.
    pub(crate) resident: u64,
}

/// The blocks of a process, by where they begin.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) all: HashMap<u64, Block>,
    /// Those that have a free slot.
    pub(crate) open: BTreeMap<Family, BTreeSet<u64>>,
}

/// A slot that was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) address: u64,
    pub(crate) backing: u64,
}
