//! Green contexts: their memory beside the primary context, which they keep alive.
//!
//! If the primary context does not exist, the driver makes it for a green one. So that each is charged by itself, the hook first
//! retains the primary context. Once the green context keeps the primary one alive, the hook releases it.
//!
//! Memory that is allocated while a green context is current lives in the primary one, and so do its charges.

use super::context;
use super::measured::{How, Plan, measured};
use crate::compute;
use crate::driver_calls::capture_mode::with_relaxed_capture_mode;
use crate::driver_calls::contexts;
use crate::hooks::hooked_call::HookedCall;
use crate::hooks::protocol::{around, noted};
use crate::memory::context_measurement::ContextMeasurement;
use crate::memory::overheads::OverheadOwner;
use crate::memory::refusals::RefusedKind;
use crate::process::{self, Enforcement, Process};
use crate::slice::green_contexts::Green;
use core::ptr;
use gpuslice_driver::Symbol;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUcontext, CUdevice, CUgreenCtx, Status, status};

/// Estimate for a green context that nothing measures: work queues and a stream.
const ESTIMATE: u64 = 4 << 20;

/// `cuGreenCtxCreate`.
pub(crate) fn create(call: &HookedCall<real::cuGreenCtxCreate>) -> Status {
    let (output, _, device, _) = call.arguments();
    if !is_concerned(device) {
        let code = call.forward();
        // SAFETY: `note` requires that `output` is null or valid, and so does the driver.
        unsafe { note(output, device, code) };
        return code;
    }
    let Some(retain) = slot::real::<real::cuDevicePrimaryCtxRetain>(Symbol::cuDevicePrimaryCtxRetain) else {
        return call.forward();
    };
    let mut primary: CUcontext = ptr::null_mut();
    // SAFETY: `cuDevicePrimaryCtxRetain` requires an output that is valid for writes: the local `primary`.
    let retain = unsafe { HookedCall::new(retain, (&raw mut primary, device)) };
    let code = with_relaxed_capture_mode(|| context::primary_retain(&retain));
    if code != status::SUCCESS {
        return code;
    }
    // SAFETY: `create_in` requires that `output` is null or valid, and so does the driver.
    let code = unsafe { create_in(output, (primary.addr(), device), || call.forward()) };
    if let Some(release) =
        slot::real::<real::cuDevicePrimaryCtxRelease_v2>(Symbol::cuDevicePrimaryCtxRelease_v2)
    {
        // SAFETY: `cuDevicePrimaryCtxRelease` requires a context that is retained. This call has retained it.
        let release = unsafe { HookedCall::new(release, (device,)) };
        with_relaxed_capture_mode(|| context::primary_release(&release));
    }
    code
}

/// Returns true if the device is one of the slice's.
fn is_concerned(device: CUdevice) -> bool {
    let Enforcement::Active(process) = process::enforcement() else { return false };
    process.place(device).is_some()
}

/// Makes a call that makes a green context beside an existing primary one, and charges it.
///
/// # Safety
/// `output` is null or valid for reads and writes.
unsafe fn create_in(
    output: *mut CUgreenCtx,
    (primary, device): (usize, CUdevice),
    call: impl FnMut() -> Status,
) -> Status {
    // SAFETY: by this function's contract `output` is null or valid.
    let old = unsafe { read_in(output) };
    let plan = |process: &'static Process| {
        let how = How::Making(ContextMeasurement::beside(process, process.place(device)?), ESTIMATE);
        Some(Plan { what: RefusedKind::Context, how, least: 0 })
    };
    // SAFETY: by this function's contract `output` is null or valid.
    let made =
        |_| unsafe { read_in(output) }.map(|green: CUgreenCtx| (OverheadOwner::Green(green.addr()), primary));
    let undo = || {
        // SAFETY: by this function's contract `output` is null or valid.
        let green = unsafe { read_in(output) };
        if let Some((destroy, green)) =
            slot::real::<real::cuGreenCtxDestroy>(Symbol::cuGreenCtxDestroy).zip(green)
        {
            // SAFETY: `destroy` requires a live green context. The driver made it in this call, and the program has not got it
            // yet.
            unsafe { destroy(green) };
        }
        if let Some(old) = old {
            // SAFETY: by this function's contract `output` is null or valid.
            unsafe { write_out(output, old) };
        }
    };
    let code = measured(plan, call, made, undo);
    // SAFETY: by this function's contract `output` is null or valid.
    unsafe { note(output, device, code) }
}

/// Records the green context that the driver made, with or without a quota.
///
/// # Safety
/// `output` is null or valid for reads.
unsafe fn note(output: *mut CUgreenCtx, device: CUdevice, code: Status) -> Status {
    noted(code, |process| {
        // SAFETY: by this function's contract `output` is null or valid.
        if let Some(green) = unsafe { read_in(output) } {
            // The driver names the context of its streams by this handle, whether or not the program has asked for it.
            let context_handle = contexts::context_handle_of(green).unwrap_or(0);
            process.greens.add(Green { handle: green.addr(), context_handle, device });
        }
    })
}

/// `cuGreenCtxDestroy`: ends the primary context with its last use.
pub(crate) fn destroy(call: &HookedCall<real::cuGreenCtxDestroy>) -> Status {
    let (green,) = call.arguments();
    let take = |process: &'static Process| {
        let known = process.greens.take(green.addr())?;
        let guard = process.primary_contexts.lock(known.device);
        // The green context's records are taken out before the contents that end with the primary context.
        let own = process.take_held(OverheadOwner::Green(green.addr()));
        let measured = compute::green_handle_ends(&process.compute, known.context_handle);
        Some((guard, known, own, measured, context::take_primary_unless_held(process, known.device)))
    };
    let forward = || call.forward();
    around(take, forward, |process, taken, code| {
        let Some((_guard, known, own, measured, primary)) = taken else { return };
        if let Some(pool) = measured {
            compute::context_left(&process.compute, pool, code == status::SUCCESS);
        }
        if code == status::SUCCESS {
            own.into_iter().for_each(|overhead| overhead.end(process));
        } else {
            process.greens.add(known);
            process.overheads.put_back(own);
        }
        context::primary_left(process, primary, known.device, code == status::SUCCESS);
    })
}

/// `cuCtxFromGreenCtx`: returns the handle by which a green context is made current. It means the primary context.
pub(crate) fn as_context(call: &HookedCall<real::cuCtxFromGreenCtx>) -> Status {
    let (output, green) = call.arguments();
    around(
        |_| (),
        || call.forward(),
        |process, (), code| {
            // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
            if let Some(context_handle) = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) {
                compute::context_seen(&process.compute, context_handle.addr());
                process.greens.set_context_handle(green.addr(), context_handle.addr());
            }
        },
    )
}
