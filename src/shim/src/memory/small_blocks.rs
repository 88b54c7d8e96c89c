//! Blocks of device memory that small allocations share.

use crate::os::spin_lock::SpinLocked;
use crate::slice::handle::Slice;
use gpuslice_policy::sizes::blocks::{BLOCK, Blocks, Change};
use gpuslice_region::Device;

/// Blocks that small allocations of this process share.
#[derive(Debug, Default)]
pub(crate) struct Small(pub(super) SpinLocked<Blocks>);

impl Small {
    /// Notes that the driver is about to free an address that was charged by its block.
    pub(crate) fn begin_free(&self, address: u64) {
        self.0.lock().begin_free(address);
    }

    /// Notes whether the driver has freed the address.
    pub(crate) fn end_free(&self, slice: &Slice, device: Device, address: u64, is_freed: bool) {
        let mut blocks = self.0.lock();
        let change = if is_freed { blocks.finish_free(address) } else { blocks.cancel_free(address) };
        drop(blocks);
        apply(slice, device, change);
    }

    /// Notes that the address ended with its context.
    pub(crate) fn ended(&self, slice: &Slice, device: Device, address: u64) {
        let change = self.0.lock().ended(address);
        apply(slice, device, change);
    }
}

/// Applies a change to the slice's charge: charges the new blocks, and refunds the blocks that ended.
pub(super) fn apply(slice: &Slice, device: Device, change: Change) {
    if change.charge > 0 {
        slice.charge(device, change.charge.saturating_mul(BLOCK));
    }
    if change.back > 0 {
        slice.refund(device, change.back.saturating_mul(BLOCK));
    }
}
