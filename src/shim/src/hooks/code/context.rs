//! Contexts: their memory, and the end of their contents.

use super::library_first_use;
use super::measured::{How, Plan, measured};
use crate::compute;
use crate::driver_calls::{code, contexts, devices};
use crate::hooks::gpu_time;
use crate::hooks::hooked_call::HookedCall;
use crate::hooks::protocol::{around, noted};
use crate::memory::context_measurement::ContextMeasurement;
use crate::memory::leaving;
use crate::memory::overheads::OverheadOwner;
use crate::memory::pools::Releasing;
use crate::memory::refusals::RefusedKind;
use crate::os::reentrancy::{catch_panic, enter_or};
use crate::process::{self, Enforcement, Process};
use core::cell::Cell;
use gpuslice_driver::Symbol;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUcontext, CUdevice, Status, status};
use gpuslice_policy::sizes::context::estimate;
use gpuslice_region::Device;

/// Records that the hook has taken out of their tables while the driver ends a context.
#[derive(Default)]
pub(crate) struct TakenRecords {
    /// Contents of the context, by their number in [`EndingContexts`](crate::memory::ending_contexts::EndingContexts).
    contents: Option<u64>,
    /// Device, if it is the primary context of one.
    primary_of: Option<CUdevice>,
    /// Number of the context's pool of timing events, if GPU time is measured in it.
    measured: Option<u64>,
    /// Pools from which the driver may release memory while it ends a context.
    pools: Releasing,
}

/// `cuCtxDestroy` in both forms.
pub(crate) fn destroy(call: &HookedCall<real::cuCtxDestroy_v2>) -> Status {
    let (context,) = call.arguments();
    around(
        |process| take(process, context.addr()),
        || call.forward(),
        |process, taken, code| {
            end(process, taken, code == status::SUCCESS);
        },
    )
}

/// `cuCtxDetach`: ends the context with its last use.
pub(crate) fn detach(call: &HookedCall<real::cuCtxDetach>) -> Status {
    let (context,) = call.arguments();
    around(
        |process| take(process, context.addr()),
        || call.forward(),
        |process, taken, code| {
            end(process, taken, code == status::SUCCESS && !contexts::context_is_alive(context));
        },
    )
}

/// `cuCtxCreate` in its first two forms, `cuGLCtxCreate` in both.
pub(crate) fn create(call: &HookedCall<real::cuCtxCreate_v2>) -> Status {
    let (output, _, device) = call.arguments();
    // SAFETY: `created` requires that `output` is null or valid, and so does the driver.
    unsafe { created(output, device, || true, || call.forward(), destroy_now) }
}

/// `cuCtxCreate_v3`.
pub(crate) fn create_v3(call: &HookedCall<real::cuCtxCreate_v3>) -> Status {
    let (output, _, _, _, device) = call.arguments();
    // SAFETY: `created` requires that `output` is null or valid, and so does the driver.
    unsafe { created(output, device, || true, || call.forward(), destroy_now) }
}

/// `cuCtxCreate_v4`.
pub(crate) fn create_v4(call: &HookedCall<real::cuCtxCreate_v4>) -> Status {
    let (output, _, _, device) = call.arguments();
    // SAFETY: `created` requires that `output` is null or valid, and so does the driver.
    unsafe { created(output, device, || true, || call.forward(), destroy_now) }
}

/// `cuDevicePrimaryCtxRetain`: makes the context at its first use. Only this call tells the handle of a primary context.
pub(crate) fn primary_retain(call: &HookedCall<real::cuDevicePrimaryCtxRetain>) -> Status {
    let (output, device) = call.arguments();
    let is_new = || contexts::primary_context_is_active(device) == Some(false);
    with_primary_locked(device, || {
        // SAFETY: `created` requires that `output` is null or valid, and so does the driver.
        let code = unsafe { created(output, device, is_new, || call.forward(), |_| release_now(device)) };
        noted(code, |process| {
            // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
            if let Some(context) = unsafe { read_in(output) } {
                process.primary_contexts.retained(context.addr(), device);
            }
        })
    })
}

/// `cuVDPAUCtxCreate` in both forms.
pub(crate) fn create_vdpau(call: &HookedCall<real::cuVDPAUCtxCreate_v2>) -> Status {
    let (output, _, device, ..) = call.arguments();
    // SAFETY: `created` requires that `output` is null or valid, and so does the driver.
    unsafe { created(output, device, || true, || call.forward(), destroy_now) }
}

/// Makes a context. The memory that it takes of the device is known only afterwards. So the hook first reserves as much as
/// contexts of the slice took before, and the variables of all libraries that come with it. If the rest does not fit, `undo` ends
/// the context again.
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
    let with = Cell::new(ContextLibraries::default());
    let plan = |process: &'static Process| {
        let place = process.place(device).filter(|_| is_new())?;
        let libraries = ContextLibraries::new(process, place.device);
        let variables = libraries.variables();
        let known = process.context_bytes(place).map(|bytes| bytes.saturating_add(variables));
        let least = known.unwrap_or(variables);
        let estimate = estimate(devices::multiprocessors(device)).saturating_add(variables);
        // The wait comes before the first reading of free memory.
        leaving::wait_for_a_context(process, place.device, known, estimate);
        let making = if libraries.loaded.is_empty() {
            ContextMeasurement::read(process, place)
        } else {
            ContextMeasurement::beside(process, place)
        };
        with.set(libraries);
        Some(Plan { what: RefusedKind::Context, how: How::Making(making, estimate), least })
    };
    // SAFETY: by this function's contract `output` is null or valid.
    let old = unsafe { read_in(output) };
    // SAFETY: by this function's contract `output` is null or valid.
    let made =
        |_| unsafe { read_in(output) }.map(|context: CUcontext| (OverheadOwner::Context, context.addr()));
    let undo = &|| {
        // SAFETY: by this function's contract `output` is null or valid.
        if let Some(context) = unsafe { read_in(output) } {
            undo(context);
        }
        if let Some(old) = old {
            // SAFETY: by this function's contract `output` is null or valid.
            unsafe { write_out(output, old) };
        }
    };
    let code = measured(plan, call, made, undo);
    // SAFETY: by this function's contract `output` is null or valid.
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

/// Libraries that come with a new context, with the bytes of their variables.
#[derive(Default)]
struct ContextLibraries {
    /// Libraries that the driver loads in the call that makes the context.
    loaded: Vec<(usize, u64)>,
    /// Libraries that the hook loads after that call.
    later: Vec<(usize, u64)>,
}

impl ContextLibraries {
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

    /// Charges the libraries to the new `context`, and loads those that the driver did not. Returns false if the quota has no
    /// room for one of them.
    fn come_into(self, context: usize) -> bool {
        let Enforcement::Active(process) = process::enforcement() else { return true };
        let note = || {
            for (library, bytes) in &self.loaded {
                // The context's charge includes these bytes. From now on they are given back with the context or with the
                // library.
                let (from, to) = (OverheadOwner::Context, OverheadOwner::Library(*library));
                process.overheads.pass(process, (from, context), (to, context), *bytes);
                process.libraries.claim(*library, context);
            }
        };
        enter_or(note, ());
        self.later.iter().all(|(library, _)| library_first_use::load_into(process, *library, context))
    }
}

fn destroy_now(context: CUcontext) {
    if let Some(destroy) = slot::real::<real::cuCtxDestroy_v2>(Symbol::cuCtxDestroy_v2) {
        // SAFETY: `destroy` requires a live context. The driver made it in this call, and the program has not got it yet.
        unsafe { destroy(context) };
    }
}

fn release_now(device: CUdevice) {
    if let Some(release) =
        slot::real::<real::cuDevicePrimaryCtxRelease_v2>(Symbol::cuDevicePrimaryCtxRelease_v2)
    {
        // SAFETY: `release` requires a retained context. It takes back the retain of this call.
        unsafe { release(device) };
    }
}

/// `cuDevicePrimaryCtxRelease` in both forms: ends the context with its last use.
pub(crate) fn primary_release(call: &HookedCall<real::cuDevicePrimaryCtxRelease_v2>) -> Status {
    let (device,) = call.arguments();
    let take = |process: &'static Process| {
        let may_be_last = process.primary_contexts.releases(device);
        if may_be_last { take_primary(process, device) } else { take_nothing(process) }
    };
    let release = || {
        let forward = || call.forward();
        around(take, forward, |process, taken, code| {
            if code != status::SUCCESS {
                process.primary_contexts.keeps(device);
            }
            primary_left(process, taken, device, code == status::SUCCESS);
        })
    };
    with_primary_locked(device, release)
}

/// Runs `calls` while this thread holds the lock of the primary context of `device`. To take and to release the lock may set
/// `errno`, which the program must not see: so both are shielded.
fn with_primary_locked(device: CUdevice, calls: impl FnOnce() -> Status) -> Status {
    let Enforcement::Active(process) = process::enforcement() else { return calls() };
    let guard = catch_panic(|| process.primary_contexts.lock(device)).flatten();
    let code = calls();
    catch_panic(|| drop(guard));
    code
}

/// Takes out the contents of a device's primary context, for a call that may end it and is no release of the program's. While the
/// program retains the context, the call cannot end it.
pub(crate) fn take_primary_unless_held(process: &'static Process, device: CUdevice) -> TakenRecords {
    if process.primary_contexts.is_held(device) {
        take_nothing(process)
    } else {
        take_primary(process, device)
    }
}

/// Settles a call that may have ended the primary context of `device`.
pub(crate) fn primary_left(
    process: &'static Process,
    taken: TakenRecords,
    device: CUdevice,
    succeeded: bool,
) {
    let ended = succeeded && contexts::primary_context_is_active(device) == Some(false);
    let is_early = taken.primary_of.is_some();
    end(process, taken, ended);
    // The library has not seen every release, and so has taken out nothing before the call.
    if ended && !is_early {
        end(process, take_primary(process, device), true);
    }
}

/// `cuDevicePrimaryCtxReset` in both forms: ends the context even if it is in use.
pub(crate) fn primary_reset(call: &HookedCall<real::cuDevicePrimaryCtxReset_v2>) -> Status {
    let (device,) = call.arguments();
    let reset = || {
        around(
            |process| take_primary(process, device),
            || call.forward(),
            |process, taken, code| {
                end(process, taken, code == status::SUCCESS);
            },
        )
    };
    with_primary_locked(device, reset)
}

fn take(process: &'static Process, context: usize) -> TakenRecords {
    let measured = compute::context_ends(&process.compute, context);
    TakenRecords {
        measured,
        contents: Some(process.begin_teardown(context)),
        primary_of: None,
        pools: releasing(process),
    }
}

/// Takes out nothing but the pools, whose memory may change, because no known context ends.
fn take_nothing(process: &'static Process) -> TakenRecords {
    TakenRecords { pools: releasing(process), ..TakenRecords::default() }
}

fn releasing(process: &'static Process) -> Releasing {
    Releasing::begin(process, process.pools.all())
}

/// Takes out the contents of a device's primary context. The library knows them by the context's handle, which only the program's
/// retain tells.
pub(crate) fn take_primary(process: &'static Process, device: CUdevice) -> TakenRecords {
    process.primary_contexts.of(device).map_or_else(
        || take_nothing(process),
        |context| TakenRecords { primary_of: Some(device), ..take(process, context) },
    )
}

/// Settles the contents of a context after the driver's call. If `ended`, they have ended with it; otherwise they live on.
pub(crate) fn end(process: &'static Process, taken: TakenRecords, ended: bool) {
    if let Some(pool) = taken.measured {
        compute::context_left(&process.compute, pool, ended);
    }
    if ended {
        process.pools.distrust();
        process.loaded_symbols.forget();
    }
    taken.pools.end(process);
    if let Some(number) = taken.contents {
        process.end_teardown(number, ended);
    }
    if let Some(device) = taken.primary_of.filter(|_| ended) {
        process.greens.forget_of(device);
    }
}
