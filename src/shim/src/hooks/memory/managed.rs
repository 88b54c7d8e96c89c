//! Managed memory beyond the quota, which stays with the host.
//!
//! Advice and prefetches that would bring spilled memory to the device go to the driver with the host in the device's place. The
//! driver then checks the rest and answers as usual. All other calls go on as they are.

use crate::driver_calls::memory::{HOST, HOST_PLACE, PREFER};
use crate::hooks::hooked_call::HookedCall;
use crate::os::reentrancy::enter_or;
use crate::process;
use core::ffi::c_uint;
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUdeviceptr, CUmemLocation, Status};

/// `CUmem_advise`: advice that could bring memory to a device, or that lets a use of the memory bring it there.
const READ_MOSTLY: c_uint = 1;
const NO_PREFERENCE: c_uint = 4;
const NO_ACCESS: c_uint = 6;

/// Returns true if any byte of a range is spilled.
fn is_spilled(address: CUdeviceptr, bytes: usize) -> bool {
    let touched = || process::joined().is_some_and(|process| process.spilled_touches(address, bytes as u64));
    enter_or(touched, false)
}

/// Returns true if advice about spilled memory lets the memory move.
fn lets_move(advice: c_uint) -> bool {
    matches!(advice, READ_MOSTLY | PREFER | NO_PREFERENCE | NO_ACCESS)
}

/// `cuMemAdvise`.
pub(crate) fn advise(call: &HookedCall<real::cuMemAdvise>) -> Status {
    let (address, bytes, advice, _) = call.arguments();
    if lets_move(advice) && is_spilled(address, bytes) {
        // SAFETY: the function requires valid arguments. These are the program's, and the host, which every driver knows.
        return unsafe { call.function()(address, bytes, PREFER, HOST) };
    }
    call.forward()
}

/// `cuMemAdvise_v2`.
pub(crate) fn advise_v2(call: &HookedCall<real::cuMemAdvise_v2>) -> Status {
    let (address, bytes, advice, _) = call.arguments();
    if lets_move(advice) && is_spilled(address, bytes) {
        // SAFETY: the function requires valid arguments. These are the program's, and the host, which every driver knows.
        return unsafe { call.function()(address, bytes, PREFER, HOST_PLACE) };
    }
    call.forward()
}

/// `cuMemPrefetchAsync` in both forms.
pub(crate) fn prefetch(call: &HookedCall<real::cuMemPrefetchAsync>) -> Status {
    let (address, bytes, _, stream) = call.arguments();
    if is_spilled(address, bytes) {
        // SAFETY: the function requires valid arguments. These are the program's, and the host, which every driver knows.
        return unsafe { call.function()(address, bytes, HOST, stream) };
    }
    call.forward()
}

/// `cuMemPrefetchAsync_v2` in both forms.
pub(crate) fn prefetch_v2(call: &HookedCall<real::cuMemPrefetchAsync_v2>) -> Status {
    let (address, bytes, _, flags, stream) = call.arguments();
    if is_spilled(address, bytes) {
        // SAFETY: the function requires valid arguments. These are the program's, and the host, which every driver knows.
        return unsafe { call.function()(address, bytes, HOST_PLACE, flags, stream) };
    }
    call.forward()
}

/// `cuMemPrefetchBatchAsync` and `cuMemDiscardAndPrefetchBatchAsync` in both forms.
pub(crate) fn prefetch_batch(call: &HookedCall<real::cuMemPrefetchBatchAsync>) -> Status {
    let (addresses, sizes, count, places, starts, number, flags, stream) = call.arguments();
    // SAFETY: `redirected` requires null or arrays of as many entries as the numbers say, and so does the driver.
    let ours = enter_or(|| unsafe { redirected((addresses, sizes, count), (places, starts, number)) }, None);
    let Some((mut places, mut starts)) = ours else {
        return call.forward();
    };
    let (places, starts) = (places.as_mut_ptr(), starts.as_mut_ptr());
    // SAFETY: the function requires valid arguments. These are the program's, and arrays with an entry for each range.
    unsafe { call.function()(addresses, sizes, count, places, starts, count, flags, stream) }
}

/// Returns a place for each range of a batch: the host for ranges that are spilled. Returns `None` if no range is, or if an array
/// is missing or empty, about which the driver has its own error.
///
/// # Safety
/// The arrays are null, or valid for reads of as many entries as the numbers say.
unsafe fn redirected(
    (addresses, sizes, count): (*mut CUdeviceptr, *mut usize, usize),
    (places, starts, number): (*mut CUmemLocation, *mut usize, usize),
) -> Option<(Vec<CUmemLocation>, Vec<usize>)> {
    let process = process::joined().filter(|process| process.spilled.any())?;
    if starts.is_null() || number == 0 {
        return None;
    }
    let (mut current, mut any) = (0_usize, false);
    let mut all = Vec::new();
    for range in 0..count {
        // SAFETY: by this function's contract the array has `count` entries, and `range` is below that number.
        let address = unsafe { read_in(addresses.wrapping_add(range)) }?;
        // SAFETY: by this function's contract the array has `count` entries, and `range` is below that number.
        let bytes = unsafe { read_in(sizes.wrapping_add(range)) }?;
        while let Some(next) = current.checked_add(1).filter(|next| *next < number) {
            // SAFETY: by this function's contract the array has `number` entries, and `next` is below that number.
            if unsafe { read_in(starts.wrapping_add(next)) }? > range {
                break;
            }
            current = next;
        }
        let spilled = process.spilled_touches(address, bytes as u64);
        any |= spilled;
        // SAFETY: by this function's contract the array has `number` entries, and `current` is one of their indices.
        let place = unsafe { read_in(places.wrapping_add(current)) }?;
        all.push(if spilled { HOST_PLACE } else { place });
    }
    any.then(|| (all, (0..count).collect()))
}
