//! Handles and mappings of physical memory, which is given back with the last of them.

use super::physical::{Number, Piece, Tables};
use super::state::Memory;
use gpuslice_driver::types::{CUdeviceptr, CUmemGenericAllocationHandle};

/// One more mapping of what a handle names; none where that was not charged.
pub(crate) fn pin(memory: &Memory, handle: CUmemGenericAllocationHandle) -> Option<Number> {
    let mut tables = memory.physical.lock();
    let number = tables.number_of(handle)?;
    tables.pin(number);
    Some(number)
}

/// One more use of what is mapped at an address, as a mapping is one.
pub(crate) fn pin_mapped(memory: &Memory, address: CUdeviceptr) -> Option<Number> {
    let mut tables = memory.physical.lock();
    let number = tables.mapped_at(address)?;
    tables.pin(number);
    Some(number)
}

/// One mapping less.
pub(crate) fn unpin(memory: &Memory, number: Number) {
    unmapped(memory, memory.physical.lock(), number);
}

/// One handle of a piece is gone.
pub(crate) fn released(memory: &Memory, mut tables: parking_lot::MutexGuard<'_, Tables>, number: Number) {
    tables.release(number);
    let ended = tables.ended(number);
    drop(tables);
    give_back(memory, ended);
}

/// One mapping of a piece is gone.
pub(crate) fn unmapped(memory: &Memory, mut tables: parking_lot::MutexGuard<'_, Tables>, number: Number) {
    tables.unpin(number);
    let ended = tables.ended(number);
    drop(tables);
    give_back(memory, ended);
}

fn give_back(memory: &Memory, ended: Option<Piece>) {
    let Some(piece) = ended else { return };
    // Whoever uses it as well is charged before this process stops to be.
    piece.uses.into_iter().for_each(|used| memory.end_use(used, true));
    if let Some((device, bytes)) = piece.charged {
        memory.refund(device, bytes);
    }
    piece.bound.into_iter().for_each(|bound| unpin(memory, bound.memory));
}
