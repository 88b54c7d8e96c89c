//! Ordinary device memory: what does it cost, and who gives it back?

use super::{Decision, around, charge, reserve};
use crate::driver;
use crate::ledger::{Owner, Reservation};
use crate::pools::Pools;
use crate::slice::Slice;
use core::ffi::c_uint;
use gpuslice_driver::Symbol;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUdeviceptr, CUdeviceptr_v1, Status, status};
use gpuslice_policy::pool::holes::FreeFor;

/// What the driver rounds a row of pitched memory up to, at most: `CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT` of every
/// GPU so far. Only a first guess; the pitch that the driver returns is what counts.
const PITCH_GUESS: u64 = 512;

/// `cuMemAlloc_v2`.
pub(crate) unsafe fn alloc(real: real::cuMemAlloc_v2, output: *mut CUdeviceptr, bytes: usize) -> Status {
    // SAFETY: the caller's own arguments.
    linear(bytes as u64, || unsafe { real(output, bytes) }, || unsafe { read_in(output) })
}

/// `cuMemAlloc`, with 32 bits of size and address.
pub(crate) unsafe fn alloc_v1(real: real::cuMemAlloc, output: *mut CUdeviceptr_v1, bytes: c_uint) -> Status {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { real(output, bytes) };
    // SAFETY: the caller's output, which the driver accepted.
    linear(bytes.into(), call, || unsafe { read_in(output) }.map(u64::from))
}

/// `cuMemAllocManaged`: all of it can live on the device at once.
pub(crate) unsafe fn managed(
    real: real::cuMemAllocManaged,
    output: *mut CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> Status {
    // SAFETY: the caller's own arguments.
    linear(bytes as u64, || unsafe { real(output, bytes, flags) }, || unsafe { read_in(output) })
}

/// Memory of a known size at an address that the driver chooses.
fn linear(bytes: u64, call: impl FnOnce() -> Status, address: impl FnOnce() -> Option<u64>) -> Status {
    charge(
        |slice| reserve_here(slice, bytes),
        call,
        |(reservation, context), code| {
            if code == status::SUCCESS
                && let Some(address) = address()
            {
                reservation.record(address, context);
            }
            code
        },
    )
}

/// Reserves on the device of the current context. Without one, and for nothing at all, the driver has its say.
pub(super) fn reserve_here(slice: &'static Slice, bytes: u64) -> Decision<(Reservation, usize)> {
    let place = driver::current_device().and_then(|device| slice.place(device));
    let (Some(context), Some(place)) = (slice.owner_of_current(), place) else { return Decision::Forward };
    if bytes == 0 {
        return Decision::Forward;
    }
    reserve(slice, place.device, bytes).map(|reservation| (reservation, context))
}

/// `cuMemAllocPitch_v2`.
pub(crate) unsafe fn pitch(
    real: real::cuMemAllocPitch_v2,
    output: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> Status {
    // SAFETY: the caller's outputs, both for as long as the call lasts.
    let outputs = unsafe { Outputs::new(output, pitch) };
    pitched(
        (width as u64, height as u64),
        // SAFETY: the caller's own arguments.
        || unsafe { real(output, pitch, width, height, element) },
        &outputs,
    )
}

/// `cuMemAllocPitch`, with 32 bits of size and address.
pub(crate) unsafe fn pitch_v1(
    real: real::cuMemAllocPitch,
    output: *mut CUdeviceptr_v1,
    pitch: *mut c_uint,
    width: c_uint,
    height: c_uint,
    element: c_uint,
) -> Status {
    // SAFETY: the caller's outputs, both for as long as the call lasts.
    let outputs = unsafe { Outputs::new(output, pitch) };
    pitched(
        (width.into(), height.into()),
        // SAFETY: the caller's own arguments.
        || unsafe { real(output, pitch, width, height, element) },
        &outputs,
    )
}

/// Where a call for rows writes address and pitch, and what stood there before.
struct Outputs<A, P> {
    address: *mut A,
    pitch: *mut P,
    before: (Option<A>, Option<P>),
}

impl<A: Copy + TryInto<u64>, P: Copy + TryInto<u64>> Outputs<A, P> {
    /// # Safety
    /// Both are null or valid for reads and writes for as long as this lives.
    unsafe fn new(address: *mut A, pitch: *mut P) -> Self {
        // SAFETY: by the contract above.
        let old_address = unsafe { read_in(address) };
        // SAFETY: by the contract above.
        let old_pitch = unsafe { read_in(pitch) };
        Self { address, pitch, before: (old_address, old_pitch) }
    }

    /// What the driver wrote.
    fn read(&self) -> Option<(u64, u64)> {
        // SAFETY: by the contract of `new`.
        let address = unsafe { read_in(self.address) }?;
        // SAFETY: by the contract of `new`.
        let pitch = unsafe { read_in(self.pitch) }?;
        Some((address.try_into().ok()?, pitch.try_into().ok()?))
    }

    /// As if the call had not been made.
    fn restore(&self) {
        if let Some(address) = self.before.0 {
            // SAFETY: by the contract of `new`.
            unsafe { write_out(self.address, address) };
        }
        if let Some(pitch) = self.before.1 {
            // SAFETY: by the contract of `new`.
            unsafe { write_out(self.pitch, pitch) };
        }
    }
}

/// Rows of memory, each as long as the driver wants it. Where rows turn out longer than there is room for, the
/// memory is freed again.
fn pitched<A: Copy + TryInto<u64>, P: Copy + TryInto<u64>>(
    (width, height): (u64, u64),
    call: impl FnOnce() -> Status,
    outputs: &Outputs<A, P>,
) -> Status {
    // What overflows is more than any quota, and the driver refuses it where there is none.
    let guess = width.checked_next_multiple_of(PITCH_GUESS).and_then(|row| row.checked_mul(height));
    charge(
        |slice| reserve_here(slice, guess.unwrap_or(u64::MAX)),
        call,
        |(mut reservation, context), code| {
            let Some((address, pitch)) = outputs.read().filter(|_| code == status::SUCCESS) else {
                return code;
            };
            if reservation.settle(pitch.saturating_mul(height)) {
                reservation.record(address, context);
                return code;
            }
            free_now(address);
            outputs.restore();
            status::OUT_OF_MEMORY
        },
    )
}

/// Frees memory that the program never got to see.
fn free_now(address: u64) {
    if let Some(free) = slot::real::<real::cuMemFree_v2>(Symbol::cuMemFree_v2) {
        // SAFETY: an address that the driver gave out in this call.
        unsafe { free(address) };
    }
}

/// `cuMemFree_v2`.
pub(crate) unsafe fn free(real: real::cuMemFree_v2, address: CUdeviceptr) -> Status {
    // SAFETY: the caller's own argument.
    freed(address, || FreeFor::All, || unsafe { real(address) })
}

/// `cuMemFree`, with 32 bits of address.
pub(crate) unsafe fn free_v1(real: real::cuMemFree, address: CUdeviceptr_v1) -> Status {
    // SAFETY: the caller's own argument.
    freed(address.into(), || FreeFor::All, || unsafe { real(address) })
}

/// The end of an address, by whichever call. One that nobody charged is none of our business. `free` says for whom
/// it is free now, should it belong to a pool.
pub(super) fn freed(address: u64, free: impl FnOnce() -> FreeFor, call: impl FnOnce() -> Status) -> Status {
    let take = |slice: &'static Slice| {
        // In a box: it is large and hardly ever there, and every free would carry it around.
        let ending = slice.shared.any().then(|| Box::new(slice.shared.take(address)));
        let Some(charge) = slice.addresses.take(address) else { return (ending, None) };
        let Owner::Pool(pool) = charge.owner else { return (ending, Some((charge, None))) };
        let block = slice.pools.leave(slice, pool, address, charge.bytes);
        (ending, Some((charge, Some((block, free())))))
    };
    around(take, call, |slice, (ending, taken), code| {
        let is_freed = code == status::SUCCESS;
        match ending {
            Some(ending) if is_freed => ending.end(slice),
            Some(ending) => slice.shared.put_back(address, *ending),
            None => {}
        }
        let Some((charge, block)) = taken else { return };
        match block {
            Some((block, free)) if is_freed => slice.pools.left(slice, block, free),
            Some((block, _)) => Pools::stay(slice, block),
            None if is_freed => slice.refund(charge.device, charge.bytes),
            None => {}
        }
        if !is_freed {
            slice.addresses.insert(address, charge);
        }
    })
}
