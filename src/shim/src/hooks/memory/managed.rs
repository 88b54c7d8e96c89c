//! Managed memory beyond the quota: it stays with the host.
//!
//! Advice and prefetches that would bring spilled memory to the device go to the driver with the host in the device's place. The
//! driver then checks the rest and answers as usual. All other calls go on as they are.

use crate::driver_calls::memory::{HOST, HOST_PLACE, PREFER};
use crate::os::reentrancy::quietly;
use crate::process;
use core::ffi::{c_uint, c_ulonglong};
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUdevice, CUdeviceptr, CUmemLocation, CUstream, Status};

/// `CUmem_advise`: what could bring memory to a device, or let a use of it do so.
const READ_MOSTLY: c_uint = 1;
const NO_PREFERENCE: c_uint = 4;
const NO_ACCESS: c_uint = 6;

/// Returns true if any byte of a range is spilled.
fn is_spilled(address: CUdeviceptr, bytes: usize) -> bool {
    let touched = || process::joined().is_some_and(|process| process.spilled_touches(address, bytes as u64));
    quietly(touched, false)
}

/// Returns true if advice about spilled memory is one that lets it move.
fn lets_move(advice: c_uint) -> bool {
    matches!(advice, READ_MOSTLY | PREFER | NO_PREFERENCE | NO_ACCESS)
}

/// `cuMemAdvise`.
pub(crate) unsafe fn advise(
    real: real::cuMemAdvise,
    address: CUdeviceptr,
    bytes: usize,
    advice: c_uint,
    device: CUdevice,
) -> Status {
    if lets_move(advice) && is_spilled(address, bytes) {
        // SAFETY: the caller's own arguments, but for a place that every driver knows.
        return unsafe { real(address, bytes, PREFER, HOST) };
    }
    // SAFETY: the caller's own arguments.
    unsafe { real(address, bytes, advice, device) }
}

/// `cuMemAdvise_v2`.
pub(crate) unsafe fn advise_v2(
    real: real::cuMemAdvise_v2,
    address: CUdeviceptr,
    bytes: usize,
    advice: c_uint,
    place: CUmemLocation,
) -> Status {
    if lets_move(advice) && is_spilled(address, bytes) {
        // SAFETY: the caller's own arguments, but for a place that every driver knows.
        return unsafe { real(address, bytes, PREFER, HOST_PLACE) };
    }
    // SAFETY: the caller's own arguments.
    unsafe { real(address, bytes, advice, place) }
}

/// `cuMemPrefetchAsync` in both forms.
pub(crate) unsafe fn prefetch(
    real: real::cuMemPrefetchAsync,
    address: CUdeviceptr,
    bytes: usize,
    device: CUdevice,
    stream: CUstream,
) -> Status {
    let device = if is_spilled(address, bytes) { HOST } else { device };
    // SAFETY: the caller's own arguments, or a place that every driver knows.
    unsafe { real(address, bytes, device, stream) }
}

/// `cuMemPrefetchAsync_v2` in both forms.
pub(crate) unsafe fn prefetch_v2(
    real: real::cuMemPrefetchAsync_v2,
    address: CUdeviceptr,
    bytes: usize,
    place: CUmemLocation,
    flags: c_uint,
    stream: CUstream,
) -> Status {
    let place = if is_spilled(address, bytes) { HOST_PLACE } else { place };
    // SAFETY: the caller's own arguments, or a place that every driver knows.
    unsafe { real(address, bytes, place, flags, stream) }
}

/// `cuMemPrefetchBatchAsync` and `cuMemDiscardAndPrefetchBatchAsync` in both forms.
#[allow(clippy::too_many_arguments, reason = "the driver's own")]
pub(crate) unsafe fn prefetch_batch(
    real: real::cuMemPrefetchBatchAsync,
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    places: *mut CUmemLocation,
    starts: *mut usize,
    number: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Status {
    // SAFETY: the caller's own arguments; the driver reads as many.
    let ours = quietly(|| unsafe { redirected((addresses, sizes, count), (places, starts, number)) }, None);
    let Some((mut places, mut starts)) = ours else {
        // SAFETY: the caller's own arguments.
        return unsafe { real(addresses, sizes, count, places, starts, number, flags, stream) };
    };
    // SAFETY: the caller's own arguments, with a place for each range.
    unsafe { real(addresses, sizes, count, places.as_mut_ptr(), starts.as_mut_ptr(), count, flags, stream) }
}

/// A place for each range of a batch, the host for those that are spilled; none where none is, or where the driver has
/// its own objections.
///
/// # Safety
/// The arrays are null, or valid for reads of as many entries as the numbers say.
unsafe fn redirected(
    (addresses, sizes, count): (*mut CUdeviceptr, *mut usize, usize),
    (places, starts, number): (*mut CUmemLocation, *mut usize, usize),
) -> Option<(Vec<CUmemLocation>, Vec<usize>)> {
    let process = process::joined().filter(|process| process.spilled.any())?;
    if starts.is_null() {
        return None;
    }
    let (mut current, mut any) = (0_usize, false);
    let mut all = Vec::new();
    for range in 0..count {
        // SAFETY: within the array.
        let address = unsafe { read_in(addresses.wrapping_add(range)) }?;
        // SAFETY: as above.
        let bytes = unsafe { read_in(sizes.wrapping_add(range)) }?;
        while let Some(next) = current.checked_add(1).filter(|next| *next < number) {
            // SAFETY: as above.
            if unsafe { read_in(starts.wrapping_add(next)) }? > range {
                break;
            }
            current = next;
        }
        let spilled = process.spilled_touches(address, bytes as u64);
        any |= spilled;
        // SAFETY: as above.
        let place = unsafe { read_in(places.wrapping_add(current)) }?;
        all.push(if spilled { HOST_PLACE } else { place });
    }
    any.then(|| (all, (0..count).collect()))
}
