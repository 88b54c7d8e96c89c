//! The layout of the region file: constants, structs and offsets.
//!
//! The file holds fixed-width atomics only, at offsets that `include/gpuslice.h` repeats for C and `docs/internals/region.md`
//! explains. A change of the bytes needs a new [`VERSION`]. A process that finds a version it does not know refuses the
//! file.

pub(crate) mod compute_words;
pub(crate) mod constants;
#[cfg(not(loom))]
mod figures;
mod structs;

pub use constants::{
    DEBTS, HOST_MEMORY, INTERVALS, MAGIC, MAX_DEVICES, MAX_SHARES, MAX_SLOTS, NO_LIMIT, OVERSUBSCRIBED,
    READY, SECONDS, SLOT_FREE, SLOT_TAKEN, UNLIMITED, VERSION, WHOLE_SHARE,
};
#[cfg(not(loom))]
pub(crate) use structs::Header;
pub(crate) use structs::{Debt, DeviceEntry, Layout, Share, Slot, held_at};
#[cfg(not(loom))]
pub use {
    figures::FIGURES,
    structs::{JOIN_LOCK_OFFSET, LIMITS_LOCK_OFFSET, SIZE},
};
