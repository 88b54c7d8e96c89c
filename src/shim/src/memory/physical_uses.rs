//! Handles and mappings of physical memory. The charge of a piece ends with its last handle or mapping.

use super::physical::{Allocation, AllocationId, AllocationTable};
use super::state::Memory;
use gpuslice_driver::types::{CUdeviceptr, CUmemGenericAllocationHandle};

/// Adds one mapping to the piece that a handle names. `None`: the library does not know the handle.
pub(crate) fn pin(memory: &Memory, handle: CUmemGenericAllocationHandle) -> Option<AllocationId> {
    let mut tables = memory.physical.lock();
    let number = tables.number_of(handle)?;
    tables.pin(number);
    Some(number)
}

/// Adds one use to the piece that is mapped at an address. The use counts as a mapping.
pub(crate) fn pin_mapped(memory: &Memory, address: CUdeviceptr) -> Option<AllocationId> {
    let mut tables = memory.physical.lock();
    let number = tables.mapped_at(address)?;
    tables.pin(number);
    Some(number)
}

/// Takes one mapping from a piece, and gives the piece back if that was the last use.
pub(crate) fn unpin(memory: &Memory, number: AllocationId) {
    unmapped(memory, memory.physical.lock(), number);
}

/// Takes one handle from a piece, and gives the piece back if that was the last use.
pub(crate) fn released(
    memory: &Memory,
    mut tables: parking_lot::MutexGuard<'_, AllocationTable>,
    number: AllocationId,
) {
    tables.release(number);
    let ended = tables.ended(number);
    drop(tables);
    give_back(memory, ended);
}

/// Takes one mapping from a piece, and gives the piece back if that was the last use.
pub(crate) fn unmapped(
    memory: &Memory,
    mut tables: parking_lot::MutexGuard<'_, AllocationTable>,
    number: AllocationId,
) {
    tables.unpin(number);
    let ended = tables.ended(number);
    drop(tables);
    give_back(memory, ended);
}

fn give_back(memory: &Memory, ended: Option<Allocation>) {
    let Some(piece) = ended else { return };
    // Another user of the piece is charged before this process stops being charged.
    piece.uses.into_iter().for_each(|used| memory.end_use(used, true));
    if let Some((device, bytes)) = piece.charged {
        memory.refund(device, bytes);
    }
    piece.bound.into_iter().for_each(|bound| unpin(memory, bound.memory));
}
