//! Contexts: their memory, and the end of their contents.

use super::library_first_use;
use super::measured::{How, Plan, measured};
use crate::compute;
use crate::driver_calls::{code, contexts, devices};
use crate::hooks::gpu_time;
use crate::hooks::protocol::{around, noted};
use crate::memory::context_measurement::Making;
use crate::memory::leaving;
use crate::memory::overheads::Holder;
use crate::memory::pools::Releasing;
use crate::memory::refusals::What;
use crate::os::reentrancy::{quietly, shielded};
use crate::process::{self, Process, Standing};
use core::cell::Cell;
use core::ffi::{c_int, c_uint};
use gpuslice_driver::Symbol;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{
    CUcontext, CUctxCreateParams, CUdevice, CUexecAffinityParam, Status, VdpDevice, VdpGetProcAddress, status,
};
use gpuslice_policy::sizes::context::estimate;
use gpuslice_region::Device;

/// What stands still while the driver ends a context.
#[derive(Default)]
pub(crate) struct Taken {
    /// What lived in it, by its number in [`Endings`](crate::memory::context_teardown::Endings).
    lived: Option<u64>,
    /// The device whose primary context it is.
    primary_of: Option<CUdevice>,
    /// Our number for it, if GPU time is measured in it.
    measured: Option<u64>,
    /// Pools, out of which the driver may take memory as it ends a context.
    pools: Releasing,
}

/// `cuCtxDestroy` in both forms.
pub(crate) unsafe fn destroy(real: real::cuCtxDestroy_v2, context: CUcontext) -> Status {
    // SAFETY: the caller's own argument.
    let call = || unsafe { real(context) };
    around(
        |process| take(process, context.addr()),
        call,
        |process, taken, code| {
            end(process, taken, code == status::SUCCESS);
        },
    )
}

/// `cuCtxDetach`: ends the context with its last use.
pub(crate) unsafe fn detach(real: real::cuCtxDetach, context: CUcontext) -> Status {
    // SAFETY: the caller's own argument.
    let call = || unsafe { real(context) };
    around(
        |process| take(process, context.addr()),
        call,
        |process, taken, code| {
            end(process, taken, code == status::SUCCESS && !contexts::context_is_alive(context));
        },
    )
}

/// `cuCtxCreate` in its first two forms, `cuGLCtxCreate` in both.
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
    let is_new = || contexts::primary_context_is_active(device) == Some(false);
    // SAFETY: the caller's own arguments.
    let call = || unsafe { real(output, device) };
    in_turn(device, || {
        // SAFETY: the caller's output.
        let code = unsafe { created(output, device, is_new, call, |_| release_now(device)) };
        noted(code, |process| {
            // SAFETY: the caller's output, which the driver accepted.
            if let Some(context) = unsafe { read_in(output) } {
                process.primaries.retained(context.addr(), device);
            }
        })
    })
}

/// `cuVDPAUCtxCreate` in both forms.
pub(crate) unsafe fn create_vdpau(
    real: real::cuVDPAUCtxCreate_v2,
    output: *mut CUcontext,
    flags: c_uint,
    device: CUdevice,
    vdp_device: VdpDevice,
    vdp_get_proc_address: *mut VdpGetProcAddress,
) -> Status {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { real(output, flags, device, vdp_device, vdp_get_proc_address) };
    // SAFETY: the caller's output.
    unsafe { created(output, device, || true, call, destroy_now) }
}

/// A call that makes a context: what it takes of the device is known only afterwards, so what contexts of the slice
/// took before is reserved first, and the variables of all libraries that come with it. Where the rest does not fit,
/// `undo` ends the context again.
///
/// # Safety
/// `output` is null or valid for reads and writes.
unsafe fn created(
    output: *mut CUcontext,
    device: CUdevice,
    is_new: impl FnOnce() -> bool,
    call: impl FnMut() -> Status,
    undo: impl Fn(CUcontext),
) -> Status {
    let with = Cell::new(With::default());
    let plan = |process: &'static Process| {
        let place = process.place(device).filter(|_| is_new())?;
        let libraries = With::new(process, place.device);
        let variables = libraries.variables();
        let known = process.context_bytes(place.device).map(|bytes| bytes.saturating_add(variables));
        let least = known.unwrap_or(variables);
        let estimate = estimate(devices::multiprocessors(device)).saturating_add(variables);
        // Before the first reading of free memory.
        leaving::wait_for_a_context(process, place.device, known, estimate);
        let making = if libraries.loaded.is_empty() {
            Making::read(process, place)
        } else {
            Making::beside(process, place)
        };
        with.set(libraries);
        Some(Plan { what: What::Context, how: How::Making(making, estimate), least })
    };
    // SAFETY: by the contract above.
    let old = unsafe { read_in(output) };
    // SAFETY: by the contract above.
    let made = |_| unsafe { read_in(output) }.map(|context: CUcontext| (Holder::Context, context.addr()));
    let undo = &|| {
        // SAFETY: by the contract above.
        if let Some(context) = unsafe { read_in(output) } {
            undo(context);
        }
        if let Some(old) = old {
            // SAFETY: by the contract above.
            unsafe { write_out(output, old) };
        }
    };
    let code = measured(plan, call, made, undo);
    // SAFETY: by the contract above.
    let Some(context) = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) else { return code };
    if !with.take().come_into(context.addr()) {
        let end = || {
            undo();
            status::SUCCESS
        };
        around(
            |process| take(process, context.addr()),
            end,
            |process, taken, _| self::end(process, taken, true),
        );
        return status::OUT_OF_MEMORY;
    }
    gpu_time::context_seen(context.addr());
    code
}

/// The libraries that come with a new context, with the bytes of their variables.
#[derive(Default)]
struct With {
    /// The driver loads them in the call that makes the context.
    loaded: Vec<(usize, u64)>,
    /// They are loaded after it.
    later: Vec<(usize, u64)>,
}

impl With {
    fn new(process: &Process, device: Device) -> Self {
        let all = process.libraries.all();
        if !all.is_empty() && code::loads_eagerly() {
            return Self { loaded: all, later: Vec::new() };
        }
        // Without a quota nothing is refused, so the driver may load at the launch.
        let later = if process.has_quota(device) { process.libraries.launchable() } else { Vec::new() };
        Self { loaded: Vec::new(), later }
    }

    fn variables(&self) -> u64 {
        self.loaded.iter().chain(&self.later).map(|(_, bytes)| *bytes).fold(0, u64::saturating_add)
    }

    /// The context was made. False: the quota has no room for one of them.
    fn come_into(self, context: usize) -> bool {
        let Standing::Member(process) = process::standing() else { return true };
        let note = || {
            for (library, bytes) in &self.loaded {
                // Charged with the context, and given back with the library as well.
                let (from, to) = (Holder::Context, Holder::Library(*library));
                process.holdings.pass(process, (from, context), (to, context), *bytes);
                process.libraries.claim(*library, context);
            }
        };
        quietly(note, ());
        self.later.iter().all(|(library, _)| library_first_use::load_into(process, *library, context))
    }
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
    let take = |process: &'static Process| {
        let may_be_last = process.primaries.releases(device);
        if may_be_last { take_primary(process, device) } else { take_nothing(process) }
    };
    let release = || {
        around(take, call, |process, taken, code| {
            if code != status::SUCCESS {
                process.primaries.keeps(device);
            }
            primary_left(process, taken, device, code == status::SUCCESS);
        })
    };
    in_turn(device, release)
}

/// The caller's turn to make or end the primary context of a device. To wait for it and to end it may need the kernel,
/// whose answers do not concern the program.
fn in_turn(device: CUdevice, calls: impl FnOnce() -> Status) -> Status {
    let Standing::Member(process) = process::standing() else { return calls() };
    let turn = shielded(|| process.primaries.turn(device)).flatten();
    let code = calls();
    shielded(|| drop(turn));
    code
}

/// What lives in a device's primary context, where a call may end it that is no release of the program's own.
pub(crate) fn take_primary_unless_held(process: &'static Process, device: CUdevice) -> Taken {
    if process.primaries.is_held(device) { take_nothing(process) } else { take_primary(process, device) }
}

/// After a call that may have ended a device's primary context.
pub(crate) fn primary_left(process: &'static Process, taken: Taken, device: CUdevice, succeeded: bool) {
    let ended = succeeded && contexts::primary_context_is_active(device) == Some(false);
    let is_early = taken.primary_of.is_some();
    end(process, taken, ended);
    // It was released more often than was seen.
    if ended && !is_early {
        end(process, take_primary(process, device), true);
    }
}

/// `cuDevicePrimaryCtxReset` in both forms: ends the context whoever uses it.
pub(crate) unsafe fn primary_reset(real: real::cuDevicePrimaryCtxReset_v2, device: CUdevice) -> Status {
    // SAFETY: the caller's own argument.
    let call = || unsafe { real(device) };
    let reset = || {
        around(
            |process| take_primary(process, device),
            call,
            |process, taken, code| {
                end(process, taken, code == status::SUCCESS);
            },
        )
    };
    in_turn(device, reset)
}

fn take(process: &'static Process, context: usize) -> Taken {
    let measured = compute::context_ends(&process.compute, context);
    Taken {
        measured,
        lived: Some(process.begin_teardown(context)),
        primary_of: None,
        pools: releasing(process),
    }
}

/// What lived in no context that is known: only pools may change.
fn take_nothing(process: &'static Process) -> Taken {
    Taken { pools: releasing(process), ..Taken::default() }
}

fn releasing(process: &'static Process) -> Releasing {
    Releasing::begin(process, process.pools.all())
}

/// What lives in a device's primary context. The handle is not known before the program has it.
pub(crate) fn take_primary(process: &'static Process, device: CUdevice) -> Taken {
    process.primaries.of(device).map_or_else(
        || take_nothing(process),
        |context| Taken { primary_of: Some(device), ..take(process, context) },
    )
}

/// The driver is back: what lived in the context has ended with it, or lives on.
pub(crate) fn end(process: &'static Process, taken: Taken, ended: bool) {
    if let Some(pool) = taken.measured {
        compute::context_left(&process.compute, pool, ended);
    }
    if ended {
        process.pools.distrust();
        process.look_ups.forget();
    }
    taken.pools.end(process);
    if let Some(number) = taken.lived {
        process.end_teardown(number, ended);
    }
    if let Some(device) = taken.primary_of.filter(|_| ended) {
        process.greens.forget_of(device);
    }
}
