//! Physical memory of this process (`cuMemCreate`), which exists apart from addresses.
//!
//! The table has pieces that this process made, pieces that came from other processes, and objects that bind memory of several
//! devices. Each entry has its handles and mappings, and the uses of it that the region records for other members.

use super::share_keys;
use crate::slice::handle::Slice;
use gpuslice_driver::types::{CUdeviceptr, CUmemGenericAllocationHandle};
use gpuslice_region::{Device, SharedUse};
use std::collections::{BTreeMap, HashMap};

/// The library's number for a piece of physical memory. A handle does not identify the piece: the driver may use the handle's
/// value again while the memory is still mapped.
pub(crate) type AllocationId = u64;

/// Piece of physical memory, or object to which several pieces are bound.
#[derive(Debug, Default)]
pub(crate) struct Allocation {
    /// Device and bytes that were charged; `None` for a piece that this process did not make.
    pub(crate) charged: Option<(Device, u64)>,
    handles: u64,
    mappings: u64,
    /// Keys by which other processes recognise the piece.
    keys: Vec<u64>,
    /// Uses of the piece that other members know of.
    pub(crate) uses: Vec<SharedUse>,
    /// Memory that is bound to an object; empty for a piece.
    pub(crate) bound: Vec<Bound>,
}

/// Memory that is bound to an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) memory: AllocationId,
}

/// Physical memory that this process made, or got from another process.
#[derive(Debug, Default)]
pub(crate) struct AllocationTable {
    next: AllocationId,
    pieces: HashMap<AllocationId, Allocation>,
    /// Piece that each handle names, and the number of times that the driver gave the handle out.
    handles: HashMap<CUmemGenericAllocationHandle, (AllocationId, u64)>,
    /// Size and piece of each mapping, by address.
    mappings: BTreeMap<CUdeviceptr, (u64, AllocationId)>,
}

impl Allocation {
    /// Returns a piece that this process made and was charged for.
    pub(crate) fn made(device: Device, bytes: u64) -> Self {
        Self { charged: Some((device, bytes)), ..Self::default() }
    }

    /// Returns a piece that a member of the slice pays for.
    pub(crate) fn borrowed(key: u64, used: SharedUse) -> Self {
        Self { keys: vec![key], uses: vec![used], ..Self::default() }
    }
}

impl AllocationTable {
    /// Adds a new piece with its first handle.
    pub(crate) fn add(&mut self, handle: CUmemGenericAllocationHandle, piece: Allocation) {
        self.next = self.next.wrapping_add(1);
        self.pieces.insert(self.next, Allocation { handles: 1, ..piece });
        self.handles.insert(handle, (self.next, 1));
    }

    /// Adds a new piece that is charged nothing.
    pub(crate) fn add_free(&mut self, handle: CUmemGenericAllocationHandle) {
        self.add(handle, Allocation::default());
    }

    /// Returns the piece that a handle names.
    pub(crate) fn number_of(&self, handle: CUmemGenericAllocationHandle) -> Option<AllocationId> {
        self.handles.get(&handle).map(|(number, _)| *number)
    }

    /// Notes that the driver gave out a handle of a piece, for the first time or once more. The piece already counts the handle.
    pub(crate) fn note(&mut self, handle: CUmemGenericAllocationHandle, number: AllocationId) {
        let known = self.handles.entry(handle).or_insert((number, 0));
        let times = if known.0 == number { known.1.saturating_add(1) } else { 1 };
        *known = (number, times);
    }

    /// Takes back one use of a handle. The piece still counts the handle, until [`release`](Self::release).
    pub(crate) fn forget(&mut self, handle: CUmemGenericAllocationHandle) -> Option<AllocationId> {
        let (number, times) = self.handles.get_mut(&handle)?;
        let number = *number;
        *times = times.saturating_sub(1);
        if *times == 0 {
            self.handles.remove(&handle);
        }
        Some(number)
    }

    /// Takes one handle from a piece.
    pub(crate) fn release(&mut self, number: AllocationId) {
        self.change(number, |piece| piece.handles = piece.handles.saturating_sub(1));
    }

    /// Adds one mapping to a piece. Memory that is bound to an object counts as mapped.
    pub(crate) fn pin(&mut self, number: AllocationId) {
        self.change(number, |piece| piece.mappings = piece.mappings.saturating_add(1));
    }

    /// Takes one mapping from a piece.
    pub(crate) fn unpin(&mut self, number: AllocationId) {
        self.change(number, |piece| piece.mappings = piece.mappings.saturating_sub(1));
    }

    /// Notes that a piece was mapped at an address.
    pub(crate) fn map(&mut self, address: CUdeviceptr, bytes: u64, number: AllocationId) {
        self.mappings.insert(address, (bytes, number));
    }

    /// Takes out all mappings within a range: address, size and piece of each.
    pub(crate) fn take_mappings(
        &mut self,
        address: CUdeviceptr,
        bytes: u64,
    ) -> Vec<(CUdeviceptr, (u64, AllocationId))> {
        let range = address..address.saturating_add(bytes);
        self.mappings.extract_if(range, |_, _| true).collect()
    }

    fn change(&mut self, number: AllocationId, change: impl FnOnce(&mut Allocation)) {
        if let Some(piece) = self.pieces.get_mut(&number) {
            change(piece);
        }
    }

    /// Adds one handle to a piece.
    pub(crate) fn retain(&mut self, number: AllocationId) {
        self.change(number, |piece| piece.handles = piece.handles.saturating_add(1));
    }

    /// Takes out a piece if it has neither handles nor mappings any more.
    pub(crate) fn ended(&mut self, number: AllocationId) -> Option<Allocation> {
        let piece = self.pieces.get(&number)?;
        if piece.handles > 0 || piece.mappings > 0 {
            return None;
        }
        self.pieces.remove(&number)
    }

    /// Returns the piece that is mapped at an address.
    pub(crate) fn mapped_at(&self, address: CUdeviceptr) -> Option<AllocationId> {
        let (start, (bytes, number)) = self.mappings.range(..=address).next_back()?;
        (address.wrapping_sub(*start) < *bytes).then_some(*number)
    }

    /// Returns the piece that other processes know by a key.
    pub(crate) fn by_key(&self, key: u64) -> Option<AllocationId> {
        let known =
            |(number, piece): (&AllocationId, &Allocation)| piece.keys.contains(&key).then_some(*number);
        self.pieces.iter().find_map(known)
    }

    /// Returns the key that the library has set on the file descriptors of a piece.
    pub(crate) fn descriptor_key(&self, number: AllocationId) -> Option<u64> {
        self.pieces.get(&number)?.keys.iter().copied().find(|key| share_keys::is_of_descriptor(*key))
    }

    /// Notes that other processes can use a piece by `key`. A piece of another process has its use in the region already, by the
    /// key with which this process got it.
    pub(crate) fn lend(&mut self, slice: &Slice, number: AllocationId, key: u64) {
        self.change(number, |piece| {
            if piece.keys.contains(&key) {
                return;
            }
            piece.keys.push(key);
            if let Some((device, bytes)) = piece.charged {
                piece.uses.extend(slice.lend(device, key, bytes));
            }
        });
    }

    /// Binds memory to an object. Returns false if the object is not known.
    pub(crate) fn bind(&mut self, object: CUmemGenericAllocationHandle, bound: Bound) -> bool {
        let Some(object) = self.number_of(object).and_then(|number| self.pieces.get_mut(&number)) else {
            return false;
        };
        object.bound.push(bound);
        true
    }

    /// Takes out the memory of a device that is bound to an object in a range, or of all devices if `device` is `None`. It takes
    /// out memory of an unknown device too.
    pub(crate) fn unbind(
        &mut self,
        object: CUmemGenericAllocationHandle,
        device: Option<Device>,
        offset: u64,
        bytes: u64,
    ) -> Vec<AllocationId> {
        let of_device = |pieces: &HashMap<AllocationId, Allocation>, bound: &Bound| {
            let owner = pieces.get(&bound.memory).and_then(|piece| piece.charged).map(|(device, _)| device);
            owner.is_none() || device.is_none() || owner == device
        };
        let Some(number) = self.number_of(object) else { return Vec::new() };
        let Some(mut all) = self.pieces.get_mut(&number).map(|piece| core::mem::take(&mut piece.bound))
        else {
            return Vec::new();
        };
        let end = offset.saturating_add(bytes);
        let inside = |bound: &mut Bound| {
            offset <= bound.offset
                && bound.offset.saturating_add(bound.bytes) <= end
                && of_device(&self.pieces, bound)
        };
        let gone = all.extract_if(.., inside).map(|bound| bound.memory).collect();
        self.change(number, |piece| piece.bound = all);
        gone
    }
}
