//! Contexts: what does one take, and what lived in one that ends?

use super::{Decision, around, charge, reserve};
use crate::arrays::Array;
use crate::driver;
use crate::footprint;
use crate::ledger::{Charge, Owner};
use crate::notice;
use crate::slice::{Place, Slice};
use core::ffi::{c_int, c_uint};
use gpuslice_driver::Symbol;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUcontext, CUctxCreateParams, CUdevice, CUexecAffinityParam, Status, status};
use gpuslice_policy::config::LogLevel;
use gpuslice_policy::units::Bytes;
use once_cell::race::OnceBool;

/// Charges that were taken out of the maps while the driver ends their context: of addresses and of arrays.
type Taken = (Vec<(u64, Charge)>, Vec<(u64, Array)>);

/// `cuCtxDestroy` in both forms.
pub(crate) unsafe fn destroy(real: real::cuCtxDestroy_v2, context: CUcontext) -> Status {
    // SAFETY: the caller's own argument.
    let call = || unsafe { real(context) };
    around(
        |slice| take(slice, context.addr()),
        call,
        |slice, taken, code| {
            end(slice, taken, code == status::SUCCESS);
        },
    )
}

/// `cuCtxDetach`: ends the context with its last use.
pub(crate) unsafe fn detach(real: real::cuCtxDetach, context: CUcontext) -> Status {
    // SAFETY: the caller's own argument.
    let call = || unsafe { real(context) };
    around(
        |slice| take(slice, context.addr()),
        call,
        |slice, taken, code| {
            end(slice, taken, code == status::SUCCESS && !driver::context_is_alive(context));
        },
    )
}

/// What a context is taken for where nobody can say what it takes: less than any that was reported for a GPU of a
/// data centre, so that a quota is rather a little too wide than a program shut out.
const ESTIMATE: u64 = 256 << 20;

/// `cuCtxCreate` in its first two forms.
pub(crate) unsafe fn create(
    real: real::cuCtxCreate_v2,
    output: *mut CUcontext,
    flags: c_uint,
    device: CUdevice,
) -> Status {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { real(output, flags, device) };
    // SAFETY: the caller's output.
    unsafe { created(output, device, || true, call, destroy_now) }
}

/// `cuCtxCreate_v3`.
pub(crate) unsafe fn create_v3(
    real: real::cuCtxCreate_v3,
    output: *mut CUcontext,
    parameters: *mut CUexecAffinityParam,
    count: c_int,
    flags: c_uint,
    device: CUdevice,
) -> Status {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { real(output, parameters, count, flags, device) };
    // SAFETY: the caller's output.
    unsafe { created(output, device, || true, call, destroy_now) }
}

/// `cuCtxCreate_v4`.
pub(crate) unsafe fn create_v4(
    real: real::cuCtxCreate_v4,
    output: *mut CUcontext,
    parameters: *mut CUctxCreateParams,
    flags: c_uint,
    device: CUdevice,
) -> Status {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { real(output, parameters, flags, device) };
    // SAFETY: the caller's output.
    unsafe { created(output, device, || true, call, destroy_now) }
}

/// `cuDevicePrimaryCtxRetain`: makes the context at its first use. The only call that tells a primary context's
/// handle.
pub(crate) unsafe fn primary_retain(
    real: real::cuDevicePrimaryCtxRetain,
    output: *mut CUcontext,
    device: CUdevice,
) -> Status {
    let is_new = || driver::primary_context_is_active(device) == Some(false);
    // SAFETY: the caller's own arguments.
    let call = || unsafe { real(output, device) };
    // SAFETY: the caller's output.
    let code = unsafe { created(output, device, is_new, call, |_| release_now(device)) };
    around(
        |_| (),
        || code,
        |slice, (), code| {
            // SAFETY: the caller's output, which the driver accepted.
            if let Some(context) = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) {
                let mut primaries = slice.primaries.lock();
                primaries.retain(|(_, of)| *of != device);
                primaries.push((context.addr(), device));
            }
        },
    )
}

/// A call that makes a context: what it takes of the device is known only afterwards, so what contexts of the slice
/// took before is reserved first. Where the rest does not fit, `undo` ends the context again.
///
/// The charge is recorded for the context's own handle, in the context: what ends the context gives it back.
///
/// # Safety
/// `output` is null or valid for reads and writes.
unsafe fn created(
    output: *mut CUcontext,
    device: CUdevice,
    is_new: impl FnOnce() -> bool,
    call: impl FnOnce() -> Status,
    undo: impl FnOnce(CUcontext),
) -> Status {
    let decide = |slice: &'static Slice| {
        let place = slice.place(device).filter(|place| slice.has_quota(place.device));
        let Some(place) = place.filter(|_| is_new()) else { return Decision::Forward };
        let likely = slice.context_bytes(place.device).unwrap_or(0);
        let charged = slice.own(place.device);
        let before = Before { slice, place, own: footprint::own(place), charged };
        let reserved = reserve(slice, place.device, likely);
        if matches!(reserved, Decision::Refuse(_)) {
            say_refused(likely);
        }
        reserved.map(|reservation| (before, reservation))
    };
    // SAFETY: by the contract above.
    let old = unsafe { read_in(output) };
    charge(decide, call, |(before, mut reservation), code| {
        // SAFETY: by the contract above.
        let made = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS);
        let Some(context) = made else { return code };
        let took = before.took(reservation.bytes());
        if reservation.settle(took) {
            reservation.record(context.addr() as u64, context.addr());
            return code;
        }
        undo(context);
        before.slice.count_refusal(before.place.device);
        say_refused(took);
        if let Some(old) = old {
            // SAFETY: by the contract above.
            unsafe { write_out(output, old) };
        }
        status::OUT_OF_MEMORY
    })
}

/// What was known before a context was made.
struct Before {
    slice: &'static Slice,
    place: Place,
    /// What NVML attributed to this process; none while it held nothing.
    own: Option<u64>,
    /// What this process was charged.
    charged: u64,
}

impl Before {
    /// What the context took: by how much NVML's figure grew. It tells the truth, and is remembered for the slice,
    /// where nothing else of this process changed meanwhile; otherwise what was seen before does.
    fn took(&self, reserved: u64) -> u64 {
        let now = footprint::own(self.place);
        let charged = self.slice.own(self.place.device).saturating_sub(reserved);
        let known = self.slice.context_bytes(self.place.device);
        // Not listed although there is a context: NVML knows the process by another number.
        let Some(now) = now else { return known.unwrap_or(ESTIMATE) };
        let more = charged.saturating_sub(self.charged);
        let took = now.saturating_sub(self.own.unwrap_or(0)).saturating_sub(more);
        if charged == self.charged {
            self.slice.learn_context_bytes(self.place.device, took);
            return took;
        }
        known.unwrap_or(took)
    }
}

/// Says once that it was a context that did not fit: a status of out of memory would not tell.
fn say_refused(bytes: u64) {
    static SAID: OnceBool = OnceBool::new();
    if SAID.set(true).is_err() {
        return;
    }
    let bytes = Bytes::new(bytes);
    let text = format_args!(
        "gpuslice: a context on this device takes about {bytes}, and the quota has no room for one; raise GPU_MEM_LIMIT."
    );
    notice::say(LogLevel::Warn, &text);
}

fn destroy_now(context: CUcontext) {
    if let Some(destroy) = slot::real::<real::cuCtxDestroy_v2>(Symbol::cuCtxDestroy_v2) {
        // SAFETY: a context that the driver made in this call and nobody has seen.
        unsafe { destroy(context) };
    }
}

fn release_now(device: CUdevice) {
    if let Some(release) =
        slot::real::<real::cuDevicePrimaryCtxRelease_v2>(Symbol::cuDevicePrimaryCtxRelease_v2)
    {
        // SAFETY: takes back the retain of this call.
        unsafe { release(device) };
    }
}

/// `cuDevicePrimaryCtxRelease` in both forms: ends the context with its last use.
pub(crate) unsafe fn primary_release(real: real::cuDevicePrimaryCtxRelease_v2, device: CUdevice) -> Status {
    // SAFETY: the caller's own argument.
    let call = || unsafe { real(device) };
    around(
        |slice| take_primary(slice, device),
        call,
        |slice, taken, code| {
            let ended = driver::primary_context_is_active(device) == Some(false);
            end(slice, taken, code == status::SUCCESS && ended);
        },
    )
}

/// `cuDevicePrimaryCtxReset` in both forms: ends the context whoever uses it.
pub(crate) unsafe fn primary_reset(real: real::cuDevicePrimaryCtxReset_v2, device: CUdevice) -> Status {
    // SAFETY: the caller's own argument.
    let call = || unsafe { real(device) };
    around(
        |slice| take_primary(slice, device),
        call,
        |slice, taken, code| {
            end(slice, taken, code == status::SUCCESS);
        },
    )
}

fn take(slice: &Slice, context: usize) -> Taken {
    (slice.addresses.take_owned(Owner::Context(context)), slice.arrays.take_of(context))
}

fn take_primary(slice: &Slice, device: CUdevice) -> Taken {
    let known = slice.primaries.lock().iter().find(|(_, of)| *of == device).map(|(context, _)| *context);
    known.map_or_else(Taken::default, |context| take(slice, context))
}

/// Gives back what lived in a context that ended, or records it again where the context lives on.
fn end(slice: &Slice, (addresses, arrays): Taken, ended: bool) {
    if ended {
        slice.pools.distrust();
    }
    for (handle, array) in arrays {
        if ended {
            array.end(slice);
        } else {
            slice.arrays.put_back(handle, array);
        }
    }
    for (address, charge) in addresses {
        if ended {
            slice.refund(charge.device, charge.bytes);
        } else {
            slice.addresses.insert(address, charge);
        }
    }
}
