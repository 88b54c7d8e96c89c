//! Batches of copies.
//!
//! Only the driver knows where the addresses of a batch are, and a question for each would cost more than the call. So the hook
//! asks for some of them, spread over the batch. Where most of their bytes move within the device, the whole is a copy as in
//! `copies`, with an estimate by bytes and by number. Otherwise it is a copy from or to the host.

use super::copies::copied_together;
use super::launch::{legacy, per_thread};
use crate::driver_calls::memory;
use crate::driver_calls::streams::Stream;
use crate::hooks::gpu_time::{gate, host_copy, is_paced};
use crate::hooks::hooked_call::HookedCall;
use crate::os::reentrancy::enter_or;
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{BoxCopy, BoxEnd, CUDA_MEMCPY3D_BATCH_OP, CUdeviceptr, Status};

/// Most copies of a batch for which the hook asks the driver.
const ASKED: usize = 16;

/// Declares the hooks of batches of byte runs. In some forms the driver tells the program which copy fails.
macro_rules! runs {
    ($( $(#[$about:meta])* $on:ident $name:ident: $real:ident; )*) => { $(
        $(#[$about])*
        pub(crate) fn $name(call: &HookedCall<real::$real>) -> Status {
            let (to, from, sizes, count, .., stream) = call.arguments();
            if to.is_null() || from.is_null() || sizes.is_null() {
                return call.forward();
            }
            // SAFETY: `read_in` requires a readable entry. The program's lists have `count` entries, and `batch` asks for no
            // others.
            let bytes = |at: usize| unsafe { read_in(sizes.wrapping_add(at)) }.unwrap_or(0) as u64;
            let is_on_device = |list: *mut CUdeviceptr, at: usize| {
                // SAFETY: `read_in` requires a readable entry. The program's lists have `count` entries, and `batch` asks for no
                // others.
                unsafe { read_in(list.wrapping_add(at)) }.is_some_and(memory::is_on_device)
            };
            let is_within = |at: usize| is_on_device(to, at) && is_on_device(from, at);
            batch($on(stream), count, bytes, is_within, || call.forward())
        }
    )* };
}

runs! {
    /// `cuMemcpyBatchAsync`.
    legacy runs: cuMemcpyBatchAsync;
    /// `cuMemcpyBatchAsync_ptsz`.
    per_thread runs_per_thread: cuMemcpyBatchAsync_ptsz;
    /// `cuMemcpyBatchAsync_v2`.
    legacy runs_v2: cuMemcpyBatchAsync_v2;
    /// `cuMemcpyBatchAsync_v2_ptsz`.
    per_thread runs_v2_per_thread: cuMemcpyBatchAsync_v2_ptsz;
}

/// Declares the hooks of batches of boxes of bytes. In some forms the driver tells the program which copy fails.
macro_rules! boxes {
    ($( $(#[$about:meta])* $on:ident $name:ident: $real:ident; )*) => { $(
        $(#[$about])*
        pub(crate) fn $name(call: &HookedCall<real::$real>) -> Status {
            let (count, list, .., stream) = call.arguments();
            // SAFETY: `boxes_on` requires null or `count` entries at `list`, and so does the driver.
            unsafe { boxes_on($on(stream), list, count, || call.forward()) }
        }
    )* };
}

boxes! {
    /// `cuMemcpy3DBatchAsync`.
    legacy boxes: cuMemcpy3DBatchAsync;
    /// `cuMemcpy3DBatchAsync_ptsz`.
    per_thread boxes_per_thread: cuMemcpy3DBatchAsync_ptsz;
    /// `cuMemcpy3DBatchAsync_v2`.
    legacy boxes_v2: cuMemcpy3DBatchAsync_v2;
    /// `cuMemcpy3DBatchAsync_v2_ptsz`.
    per_thread boxes_v2_per_thread: cuMemcpy3DBatchAsync_v2_ptsz;
}

/// `cuMemcpy3DWithAttributesAsync`: one box.
pub(crate) fn one_box(call: &HookedCall<real::cuMemcpy3DWithAttributesAsync>) -> Status {
    let (copy, _, stream) = call.arguments();
    // SAFETY: `boxes_on` requires null or one entry at `copy`, and so does the driver.
    unsafe { boxes_on(legacy(stream), copy, 1, || call.forward()) }
}

/// `cuMemcpy3DWithAttributesAsync_ptsz`.
pub(crate) fn one_box_per_thread(call: &HookedCall<real::cuMemcpy3DWithAttributesAsync_ptsz>) -> Status {
    let (copy, _, stream) = call.arguments();
    // SAFETY: `boxes_on` requires null or one entry at `copy`, and so does the driver.
    unsafe { boxes_on(per_thread(stream), copy, 1, || call.forward()) }
}

/// Makes a call that copies boxes of bytes.
///
/// # Safety
/// `list` is null or has `count` entries.
unsafe fn boxes_on(
    stream: Stream,
    list: *const CUDA_MEMCPY3D_BATCH_OP,
    count: usize,
    call: impl FnOnce() -> Status,
) -> Status {
    if list.is_null() {
        return call();
    }
    let list: *const BoxCopy = list.cast();
    // SAFETY: by this function's contract the entry is readable. `BoxCopy` is the same structure with integers for enumerations.
    let copy = |at: usize| unsafe { read_in(list.wrapping_add(at)) };
    let bytes = |at: usize| {
        let area = |copy: BoxCopy| {
            (copy.width as u64).saturating_mul(copy.height as u64).saturating_mul(copy.depth as u64)
        };
        copy(at).map_or(0, area)
    };
    let is_on_device = |end: &BoxEnd| end.kind == BoxEnd::ARRAY || memory::is_on_device(end.place);
    let is_within =
        |at: usize| copy(at).is_some_and(|copy| is_on_device(&copy.to) && is_on_device(&copy.from));
    batch(stream, count, bytes, is_within, call)
}

/// Makes a call of `count` copies. `bytes` tells how large each copy is, and `is_within` whether it moves within the device.
fn batch(
    stream: Stream,
    count: usize,
    bytes: impl Fn(usize) -> u64,
    is_within: impl Fn(usize) -> bool,
    call: impl FnOnce() -> Status,
) -> Status {
    if !is_paced() {
        return call();
    }
    let sum = |places: &mut dyn Iterator<Item = usize>| {
        places.fold(0_u64, |sum, place| sum.saturating_add(bytes(place)))
    };
    let looked_at = || {
        let some = || (0..count).step_by(count.div_ceil(ASKED).max(1));
        let within = sum(&mut some().filter(|place| is_within(*place)));
        (sum(&mut (0..count)), within > sum(&mut some()) / 2)
    };
    match enter_or(looked_at, (0, false)) {
        (all, true) => gate(|| copied_together(all, count, stream), call),
        (all, false) => host_copy(stream, all, false, call),
    }
}
