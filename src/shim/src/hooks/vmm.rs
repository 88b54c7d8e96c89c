//! Physical memory apart from addresses: it goes back with its last handle and its last mapping.
//!
//! Handles and mappings are counted before the driver is called where a call adds one, and after it where a call
//! takes one away, so that memory is never given back while the driver still holds it.

use super::{Decision, around, charge, reserve};
use crate::ledger::Reservation;
use crate::slice::Slice;
use core::ffi::{c_int, c_void};
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    AllocationProperties, CUdeviceptr, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation,
    Status, status,
};
use gpuslice_region::Device;
use std::collections::{BTreeMap, HashMap};

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN`: a part of a device, whose number is the low byte.
const ON_PART_OF_DEVICE: u32 = 6;

/// Our number for a piece of physical memory: the driver may use a handle's value again while the memory that it
/// named is still mapped.
pub(crate) type Number = u64;

/// A piece of physical memory.
#[derive(Debug, Clone, Copy)]
struct Piece {
    device: Device,
    bytes: u64,
    handles: u64,
    mappings: u64,
}

/// All physical memory that this process was charged for.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    next: Number,
    pieces: HashMap<Number, Piece>,
    handles: HashMap<CUmemGenericAllocationHandle, Number>,
    /// By address: size and piece.
    mappings: BTreeMap<CUdeviceptr, (u64, Number)>,
}

impl Tables {
    fn add(&mut self, handle: CUmemGenericAllocationHandle, device: Device, bytes: u64) {
        self.next = self.next.wrapping_add(1);
        self.pieces.insert(self.next, Piece { device, bytes, handles: 1, mappings: 0 });
        self.handles.insert(handle, self.next);
    }

    fn change(&mut self, number: Number, change: impl FnOnce(&mut Piece)) {
        if let Some(piece) = self.pieces.get_mut(&number) {
            change(piece);
        }
    }

    /// Takes a piece out if nothing holds it any more.
    fn ended(&mut self, number: Number) -> Option<Piece> {
        let piece = self.pieces.get(&number)?;
        if piece.handles > 0 || piece.mappings > 0 {
            return None;
        }
        self.pieces.remove(&number)
    }

    /// The piece that is mapped at an address.
    fn mapped_at(&self, address: CUdeviceptr) -> Option<Number> {
        let (start, (bytes, number)) = self.mappings.range(..=address).next_back()?;
        (address.wrapping_sub(*start) < *bytes).then_some(*number)
    }
}

/// The device that a location is on, by CUDA's handle; none for the host.
pub(super) fn device_of(location: CUmemLocation) -> Option<c_int> {
    match location.kind {
        ON_DEVICE => Some(location.id),
        ON_PART_OF_DEVICE => Some(location.id & 0xff),
        _ => None,
    }
}

/// `cuMemCreate`. Needs no context: the location says whose memory it is.
pub(crate) unsafe fn create(
    real: real::cuMemCreate,
    output: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    properties: *const CUmemAllocationProp,
    flags: u64,
) -> Status {
    let decide = |slice: &'static Slice| -> Decision<(&'static Slice, Reservation)> {
        // SAFETY: the caller's own argument; the type reads the same bytes with integers for enumerations.
        let wanted = unsafe { read_in(properties.cast::<AllocationProperties>()) };
        let device = wanted.and_then(|wanted| device_of(wanted.location));
        let Some(place) = device.and_then(|device| slice.place(device)) else { return Decision::Forward };
        reserve(slice, place.device, bytes as u64).map(|reservation| (slice, reservation))
    };
    charge(
        decide,
        // SAFETY: the caller's own arguments.
        || unsafe { real(output, bytes, properties, flags) },
        |(slice, reservation), code| {
            // SAFETY: the caller's output, which the driver accepted.
            if let Some(handle) = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) {
                slice.physical.lock().add(handle, reservation.device(), reservation.bytes());
                reservation.keep();
            }
            code
        },
    )
}

/// `cuMemRelease`.
pub(crate) unsafe fn release(real: real::cuMemRelease, handle: CUmemGenericAllocationHandle) -> Status {
    let forget = |slice: &'static Slice| {
        let mut tables = slice.physical.lock();
        let number = tables.handles.get(&handle).copied()?;
        if tables.pieces.get(&number).is_some_and(|piece| piece.handles == 1) {
            tables.handles.remove(&handle);
        }
        Some(number)
    };
    // SAFETY: the caller's own argument.
    around(
        forget,
        || unsafe { real(handle) },
        |slice, number, code| {
            let Some(number) = number else { return };
            let mut tables = slice.physical.lock();
            if code == status::SUCCESS {
                tables.change(number, |piece| piece.handles = piece.handles.saturating_sub(1));
                let ended = tables.ended(number);
                drop(tables);
                give_back(slice, ended);
            } else {
                tables.handles.entry(handle).or_insert(number);
            }
        },
    )
}

/// `cuMemRetainAllocationHandle`: a further handle of what is mapped at an address.
pub(crate) unsafe fn retain(
    real: real::cuMemRetainAllocationHandle,
    output: *mut CUmemGenericAllocationHandle,
    address: *mut c_void,
) -> Status {
    let pin = |slice: &'static Slice| {
        let mut tables = slice.physical.lock();
        let number = tables.mapped_at(address.addr() as u64)?;
        tables.change(number, |piece| piece.handles = piece.handles.saturating_add(1));
        Some(number)
    };
    // SAFETY: the caller's own arguments.
    around(
        pin,
        || unsafe { real(output, address) },
        |slice, number, code| {
            let Some(number) = number else { return };
            let mut tables = slice.physical.lock();
            // SAFETY: the caller's output, which the driver accepted.
            if let Some(handle) = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) {
                tables.handles.insert(handle, number);
                return;
            }
            tables.change(number, |piece| piece.handles = piece.handles.saturating_sub(1));
            let ended = tables.ended(number);
            drop(tables);
            give_back(slice, ended);
        },
    )
}

/// `cuMemMap`.
pub(crate) unsafe fn map(
    real: real::cuMemMap,
    address: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> Status {
    // SAFETY: the caller's own arguments.
    around(
        |slice| pin(slice, handle),
        || unsafe { real(address, bytes, offset, handle, flags) },
        |slice, number, code| {
            let Some(number) = number else { return };
            let mut tables = slice.physical.lock();
            if code == status::SUCCESS {
                tables.mappings.insert(address, (bytes as u64, number));
            } else {
                unmapped(slice, tables, number);
            }
        },
    )
}

/// `cuMemUnmap`: all mappings within a range.
pub(crate) unsafe fn unmap(real: real::cuMemUnmap, address: CUdeviceptr, bytes: usize) -> Status {
    let forget = |slice: &'static Slice| {
        let mut tables = slice.physical.lock();
        let range = address..address.saturating_add(bytes as u64);
        tables.mappings.extract_if(range, |_, _| true).collect::<Vec<_>>()
    };
    // SAFETY: the caller's own arguments.
    around(
        forget,
        || unsafe { real(address, bytes) },
        |slice, gone, code| {
            for (start, (bytes, number)) in gone {
                let mut tables = slice.physical.lock();
                if code == status::SUCCESS {
                    unmapped(slice, tables, number);
                } else {
                    tables.mappings.insert(start, (bytes, number));
                }
            }
        },
    )
}

/// One more mapping of what a handle names; none where that was not charged.
pub(super) fn pin(slice: &Slice, handle: CUmemGenericAllocationHandle) -> Option<Number> {
    let mut tables = slice.physical.lock();
    let number = tables.handles.get(&handle).copied()?;
    tables.change(number, |piece| piece.mappings = piece.mappings.saturating_add(1));
    Some(number)
}

/// One mapping less.
pub(crate) fn unpin(slice: &Slice, number: Number) {
    unmapped(slice, slice.physical.lock(), number);
}

/// One mapping of a piece is gone.
fn unmapped(slice: &Slice, mut tables: parking_lot::MutexGuard<'_, Tables>, number: Number) {
    tables.change(number, |piece| piece.mappings = piece.mappings.saturating_sub(1));
    let ended = tables.ended(number);
    drop(tables);
    give_back(slice, ended);
}

fn give_back(slice: &Slice, ended: Option<Piece>) {
    if let Some(piece) = ended {
        slice.refund(piece.device, piece.bytes);
    }
}
