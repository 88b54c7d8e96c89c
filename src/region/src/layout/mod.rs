//! The layout of the region file.

pub(crate) mod compute_words;
pub(crate) mod constants;
#[cfg(not(loom))]
mod figures;
mod structs;

pub use constants::{
    DEBTS, HOST_MEMORY, MAGIC, MAX_DEVICES, MAX_SHARES, MAX_SLOTS, NO_LIMIT, OVERSUBSCRIBED, PLACES, READY,
    SECONDS, SLOT_FREE, SLOT_TAKEN, UNPACED, VERSION, WHOLE_SHARE,
};
pub(crate) use structs::{Debt, DeviceEntry, Layout, Share, held_at};
#[cfg(not(loom))]
pub(crate) use structs::{Header, Slot};
#[cfg(not(loom))]
pub use {
    figures::FIGURES,
    structs::{JOIN_LOCK_OFFSET, LIMITS_LOCK_OFFSET, SIZE},
};
