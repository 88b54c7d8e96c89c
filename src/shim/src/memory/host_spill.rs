//! Host memory of this process beyond the quota.
//!
//! It is managed memory that prefers the host: the device reaches it over the bus, and no page of it moves to the device. The
//! library counts it as spilled before the call that makes it, and until after its free. It never moves back to the device.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicBool, Ordering};
use gpuslice_region::Device;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Extent of spilled memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostBlock {
    pub(super) device: Device,
    pub(super) bytes: u64,
    pub(super) context: usize,
}

/// Spilled memory of this process, by its first address.
#[derive(Debug, Default)]
pub(crate) struct Spilled {
    any: AtomicBool,
    live: Mutex<BTreeMap<u64, HostBlock>>,
}

impl Spilled {
    /// Returns true if this process ever had spilled memory. Every free calls this, so it is one relaxed load.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        // Relaxed: a thread that frees an address got it from the thread that has stored true before it returned the address.
        self.any.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, address: u64, block: HostBlock) {
        self.any.store(true, Ordering::Relaxed);
        self.live.lock().insert(address, block);
    }

    /// Returns true if spilled memory begins at an address.
    pub(crate) fn begins_at(&self, address: u64) -> bool {
        self.any() && self.live.lock().contains_key(&address)
    }

    /// Returns true if any byte of a range is spilled.
    pub(crate) fn touches(&self, address: u64, bytes: u64) -> bool {
        self.any() && HostBlock::touch(&self.live.lock(), address, bytes)
    }

    /// Takes out spilled memory that is about to be freed.
    pub(crate) fn take(&self, address: u64) -> Option<HostBlock> {
        if self.any() { self.live.lock().remove(&address) } else { None }
    }

    /// Takes out the spilled memory that ends with a context.
    pub(crate) fn take_of(&self, context: usize) -> Vec<(u64, HostBlock)> {
        if !self.any() {
            return Vec::new();
        }
        self.live.lock().extract_if(.., |_, block| block.context == context).collect()
    }

    /// Puts back spilled memory that the driver has not freed.
    pub(crate) fn put_back(&self, address: u64, block: HostBlock) {
        self.add(address, block);
    }
}

impl HostBlock {
    /// Returns true if any byte of a range is in one of the blocks `all`.
    pub(crate) fn touch(all: &BTreeMap<u64, Self>, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        let last = all.range(..end).next_back();
        last.is_some_and(|(start, block)| start.saturating_add(block.bytes) > address)
    }

    /// Stops counting spilled memory that the driver has freed.
    pub(crate) fn end(self, slice: &Slice) {
        slice.member().unspill(self.device, self.bytes);
    }
}
