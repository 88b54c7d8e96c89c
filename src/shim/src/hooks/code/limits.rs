//! `cuCtxSetLimit`: memory of heap, stacks, printf buffer and launch queue.
//!
//! The excess over the old value is reserved before the driver is called. Example: a heap of 3 GiB under a quota of 1 GiB never
//! reaches the device. The memory that the driver takes in the call is measured, and the rest goes back. A driver may take it at
//! the next launch instead. Such memory is found at the next measured call, or when the program waits.

use super::measured::{How, Plan, measured};
use crate::driver_calls::{contexts, devices};
use crate::hooks::hooked_call::HookedCall;
use crate::memory::measurement::{CallMeasurement, ChangeBounds};
use crate::memory::overheads::OverheadOwner;
use crate::memory::refusals::RefusedKind;
use crate::os::reentrancy::enter_or;
use crate::process::{self, Enforcement, Process};
use core::ffi::c_uint;
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUdevice, Status, status};

/// `CU_LIMIT_STACK_SIZE`, `CU_LIMIT_PRINTF_FIFO_SIZE`, `CU_LIMIT_MALLOC_HEAP_SIZE`.
const STACK_SIZE: c_uint = 0;
const PRINTF: c_uint = 1;
const HEAP: c_uint = 2;
/// `CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT`.
const PENDING_LAUNCHES: c_uint = 4;
/// Bytes for one pending launch: the most that was reported.
const PENDING_LAUNCH_BYTES: u64 = 16 << 10;
/// Bytes that the driver may add: by rounding up, and for its own use.
const DRIVER_REST: u64 = 64 << 20;

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const PROCESSORS: c_uint = 16;
/// `CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR`.
const THREADS: c_uint = 39;

/// `cuCtxSetLimit`.
pub(crate) fn set(call: &HookedCall<real::cuCtxSetLimit>) -> Status {
    let (limit, value) = call.arguments();
    let is_member = matches!(process::enforcement(), Enforcement::Active(_));
    let old = if is_member { enter_or(|| contexts::context_limit(limit), None) } else { None };
    let undo = || {
        if let Some((set, old)) = slot::real::<real::cuCtxSetLimit>(Symbol::cuCtxSetLimit).zip(old) {
            // SAFETY: `set` requires a limit and a value that the driver accepts: it returned `old` for `limit` itself.
            unsafe { set(limit, old) };
        }
    };
    let code = measured(
        |process| plan(process, limit, value as u64, old.unwrap_or(0) as u64),
        || call.forward(),
        |context| Some((OverheadOwner::Limits, context)),
        undo,
    );
    if code == status::SUCCESS
        && let Enforcement::Active(process) = process::enforcement()
    {
        enter_or(|| look_again(process), ());
    }
    code
}

/// Notes that the driver may take at the next launch the memory that it has not taken now.
pub(crate) fn look_again(process: &Process) {
    let place = process.place_of_current();
    if let Some((place, context)) = place.zip(process.owner_of_current()) {
        process.baselines.note_unmeasured(place.device, context);
    }
}

fn plan(process: &'static Process, limit: c_uint, value: u64, old: u64) -> Option<Plan<'static>> {
    let before = CallMeasurement::begin_exactly(process)?;
    let each = cost(before.place.handle, limit)?;
    let more = value.saturating_sub(old).saturating_mul(each);
    let held = process.overheads.bytes(OverheadOwner::Limits, before.context);
    let most = i64::try_from(more.saturating_add(DRIVER_REST)).unwrap_or(i64::MAX);
    let least = i64::try_from(held).unwrap_or(i64::MAX).saturating_neg();
    let otherwise = i64::try_from(more).unwrap_or(i64::MAX);
    let how = How::InContext(before, ChangeBounds { range: (least, most), otherwise, surely: false }, None);
    Some(Plan { what: RefusedKind::Limit, how, least: more })
}

/// Returns the bytes of device memory for each unit of a limit; `None` for limits that take no memory.
fn cost(device: CUdevice, limit: c_uint) -> Option<u64> {
    match limit {
        STACK_SIZE => devices::device_attribute(device, PROCESSORS)?
            .checked_mul(devices::device_attribute(device, THREADS)?),
        PRINTF | HEAP => Some(1),
        PENDING_LAUNCHES => Some(PENDING_LAUNCH_BYTES),
        _ => None,
    }
}
