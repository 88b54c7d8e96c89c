//! Modules: memory of their code and variables.
//!
//! Loading a module is measured and can be undone. Code that is loaded late takes memory when the program asks for a function.
//! That call is measured as well, but its memory stays: only the end of the module or library gives it back. A launch is not
//! measured. The code that it loaded is found at the next measured call, or when the program waits.

use super::image::{data, file};
use super::measured::{How, Plan, force, measured};
use crate::driver_calls::{capture_mode, code, devices};
use crate::hooks::gpu_time::while_code_loads;
use crate::hooks::hooked_call::HookedCall;
use crate::hooks::protocol::around;
use crate::memory::loaded_symbols::LookUpKey;
use crate::memory::measurement::{CallMeasurement, ChangeBounds};
use crate::memory::overheads::{Overhead, OverheadOwner};
use crate::memory::refusals::RefusedKind;
use crate::os::reentrancy::enter_or;
use crate::process::Process;
use core::cell::Cell;
use core::ffi::c_char;
use gpuslice_driver::Symbol;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUmodule, Status, status};
use gpuslice_policy::sizes::code::CodeImage;

/// Most bytes that a call can take by loading code late, of a module or library that the driver already has.
pub(crate) const LATE_MOST: i64 = 256 << 20;

/// `cuModuleLoad`.
pub(crate) fn load(call: &HookedCall<real::cuModuleLoad>) -> Status {
    let (output, name) = call.arguments();
    // SAFETY: `module` requires that `output` is null or valid, and so does the driver.
    unsafe { module(output, || file(name), || call.forward()) }
}

/// `cuModuleLoadData`, `cuModuleLoadFatBinary`.
pub(crate) fn load_data(call: &HookedCall<real::cuModuleLoadData>) -> Status {
    let (output, image) = call.arguments();
    // SAFETY: `module` requires that `output` is null or valid, and so does the driver.
    unsafe { module(output, || data(image), || call.forward()) }
}

/// `cuModuleLoadDataEx`.
pub(crate) fn load_data_ex(call: &HookedCall<real::cuModuleLoadDataEx>) -> Status {
    let (output, image, ..) = call.arguments();
    // SAFETY: `module` requires that `output` is null or valid, and so does the driver.
    unsafe { module(output, || data(image), || call.forward()) }
}

/// Makes a call that loads a module, and charges the memory that it takes.
///
/// # Safety
/// `output` is null or valid for reads and writes.
unsafe fn module(
    output: *mut CUmodule,
    image: impl FnOnce() -> Option<CodeImage>,
    call: impl Fn() -> Status,
) -> Status {
    let undo = |module| {
        if let Some(unload) = slot::real::<real::cuModuleUnload>(Symbol::cuModuleUnload) {
            // SAFETY: `unload` requires a loaded module. The driver made it in this call, and the program has not got it yet.
            unsafe { unload(module) };
        }
    };
    // SAFETY: by this function's contract `output` is null or valid.
    unsafe { loaded(output, image, call, |module: CUmodule| OverheadOwner::Module(module.addr()), undo) }
}

/// Makes a call that loads an image into the current context. If the device loses more than the image shows, the hook undoes the
/// call and repeats it. A compressed image may have large variables, or a neighbour may have taken memory meanwhile. If the image
/// shows all memory that the load takes, and loads have spent their time for measuring, the hook charges that and measures
/// nothing.
///
/// # Safety
/// `output` is null or valid for reads and writes.
pub(crate) unsafe fn loaded<T: Copy>(
    output: *mut T,
    image: impl FnOnce() -> Option<CodeImage>,
    call: impl Fn() -> Status,
    holder: impl FnOnce(T) -> OverheadOwner,
    undo: impl Fn(T),
) -> Status {
    // SAFETY: by this function's contract `output` is null or valid.
    let old = unsafe { read_in(output) };
    let (shown, proof) = (Cell::new(None), Cell::new(0));
    let plan = |process: &'static Process| {
        let image = image()?;
        // The driver is asked last: while there is time for measuring, its answer decides nothing.
        let is_unmeasured =
            process.baselines.free_memory_of_loads.is_spent() && image.shows_all() && code::loads_lazily();
        if is_unmeasured
            && let Some((device, context)) = CallMeasurement::leave_load_to_nvml(process, image.least())
        {
            let how = How::LeftToNvml(device, context);
            return Some(Plan { what: RefusedKind::Code, how, least: image.least() });
        }
        let before = CallMeasurement::begin_load(process)?;
        let is_proved = process.has_quota(before.place.device) && !before.place.shares_host_memory;
        shown.set(Some((process, image.most())).filter(|_| is_proved));
        let bytes = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        let likely = ChangeBounds {
            range: (0, bytes(image.most())),
            otherwise: bytes(image.likely()),
            surely: image.least() > 0 || (image.bytes > 0 && code::loads_eagerly()),
        };
        Some(Plan {
            what: RefusedKind::Code,
            how: How::InContext(before, likely, Some(&proof)),
            least: image.least(),
        })
    };
    // SAFETY: by this function's contract `output` is null or valid.
    let made = || unsafe { read_in(output) };
    let undo = || {
        made().map(&undo);
        if let Some(old) = old {
            // SAFETY: by this function's contract `output` is null or valid.
            unsafe { write_out(output, old) };
        }
    };
    let call = || match shown.get() {
        Some((process, shown)) => proved(process, &call, undo, shown, &proof),
        None => call(),
    };
    let call = || while_code_loads(call);
    measured(plan, call, |context| Some((holder(made()?), context)), undo)
}

/// Loads, and undoes and repeats the load if the device lost more than `shown` bytes by it. The load took as much as the device
/// lost at the load and got back at the undo: `proof` gets that number.
fn proved(
    process: &Process,
    load: impl Fn() -> Status,
    undo: impl Fn(),
    shown: u64,
    proof: &Cell<u64>,
) -> Status {
    let free = || enter_or(|| process.baselines.free_memory_of_loads.pay(devices::device_free), None);
    let before = free();
    let code = load();
    let (Some(before), Some(after)) = (before, free()) else { return code };
    let lost = before.saturating_sub(after);
    if code != status::SUCCESS || lost <= shown {
        return code;
    }
    capture_mode::with_relaxed_capture_mode(undo);
    proof.set(lost.min(free().unwrap_or(0).saturating_sub(after)));
    load()
}

/// `cuModuleUnload`.
pub(crate) fn unload(call: &HookedCall<real::cuModuleUnload>) -> Status {
    let (module,) = call.arguments();
    unloaded(OverheadOwner::Module(module.addr()), || call.forward())
}

/// Makes a call that ends code. The driver keeps the memory that it does not give back at once, for other code of the context.
pub(crate) fn unloaded(holder: OverheadOwner, call: impl FnOnce() -> Status) -> Status {
    let take = |process: &'static Process| {
        let before = CallMeasurement::begin_exactly(process);
        (process.take_held(holder), before)
    };
    around(take, call, |process, (held, before), code| {
        if code != status::SUCCESS {
            return process.overheads.put_back(held);
        }
        process.loaded_symbols.forget();
        let current = before.as_ref().map(|before| before.context);
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|overhead| Some(overhead.context()) == current);
        elsewhere.into_iter().for_each(|overhead| overhead.end(process));
        if let Some(before) = before {
            give_back(process, &before, here.iter().map(Overhead::bytes).sum());
        }
    })
}

/// Gives back the memory that the device got. It is part of the `bytes` bytes that some code held, and of the bytes that older
/// code or launches left behind.
fn give_back(process: &'static Process, before: &CallMeasurement, bytes: u64) {
    let (device, context) = (before.place.device, before.context);
    let rest = process.overheads.bytes(OverheadOwner::Rest, context);
    process.overheads.add(process, OverheadOwner::Rest, context, device, bytes);
    let negative = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX).saturating_neg();
    let range = (negative(bytes.saturating_add(rest)), 0);
    let gave = before.change(0, ChangeBounds { range, otherwise: negative(bytes), surely: bytes > 0 });
    process.overheads.shrink(process, OverheadOwner::Rest, context, gave.min(0).unsigned_abs());
}

/// Kind of the object that a program asks a module for. A function and a variable may have the same name.
#[derive(Clone, Copy)]
enum Named {
    Function,
    Variable,
}

/// Makes a call that looks for a name in a module. The driver may load code in it.
///
/// # Safety
/// `name` is null or a string that ends in zero.
unsafe fn found_in(
    module: CUmodule,
    what: Named,
    name: *const c_char,
    call: impl FnOnce() -> Status,
) -> Status {
    // SAFETY: `of_name` requires null or a text that ends in zero. By this function's contract `name` is one.
    let key = || unsafe { LookUpKey::new(module.addr(), what as usize).of_name(name) };
    late(key, |process| of_module(process, module.addr()), call)
}

/// `cuModuleGetFunction`.
pub(crate) fn function(call: &HookedCall<real::cuModuleGetFunction>) -> Status {
    let (_, module, name) = call.arguments();
    // SAFETY: `found_in` requires null or a text that ends in zero, and so does the driver.
    unsafe { found_in(module, Named::Function, name, || call.forward()) }
}

/// `cuModuleGetGlobal_v2`.
pub(crate) fn variable(call: &HookedCall<real::cuModuleGetGlobal_v2>) -> Status {
    let (_, _, module, name) = call.arguments();
    // SAFETY: `found_in` requires null or a text that ends in zero, and so does the driver.
    unsafe { found_in(module, Named::Variable, name, || call.forward()) }
}

/// `cuModuleGetGlobal`, with 32 bits of size and address.
pub(crate) fn variable_v1(call: &HookedCall<real::cuModuleGetGlobal>) -> Status {
    let (_, _, module, name) = call.arguments();
    // SAFETY: `found_in` requires null or a text that ends in zero, and so does the driver.
    unsafe { found_in(module, Named::Variable, name, || call.forward()) }
}

/// `cuFuncLoad`.
pub(crate) fn load_function(call: &HookedCall<real::cuFuncLoad>) -> Status {
    let (function,) = call.arguments();
    let holder =
        |process: &Process| code::module_of_function(function).and_then(|module| of_module(process, module));
    late(|| LookUpKey::new(function.addr(), 0), holder, || call.forward())
}

/// Returns the holder of the memory that a module takes: the library that it came out of, or the module itself.
#[allow(clippy::unnecessary_wraps, reason = "one of several")]
fn of_module(process: &Process, module: usize) -> Option<OverheadOwner> {
    Some(process.libraries.of(module).map_or(OverheadOwner::Module(module), OverheadOwner::Library))
}

/// Makes a call that may load code of a module or library that the driver already has. The call cannot be undone, so the memory
/// that it took is charged. A second look-up of the same key loads nothing, and is not measured.
pub(crate) fn late(
    key: impl FnOnce() -> LookUpKey,
    holder: impl FnOnce(&Process) -> Option<OverheadOwner>,
    call: impl FnOnce() -> Status,
) -> Status {
    let is_first = Cell::new(false);
    let begin = |process: &'static Process| {
        let key = key();
        is_first.set(!process.loaded_symbols.contain(key));
        if !is_first.get() {
            return None;
        }
        Some((key, CallMeasurement::begin_look_up(process)?))
    };
    let call = || if is_first.get() { while_code_loads(call) } else { call() };
    around(begin, call, |process, begun, code| {
        let Some((key, before)) = begun else { return };
        if code == status::SUCCESS {
            process.loaded_symbols.add(key);
        }
        let took = before.change(0, ChangeBounds { range: (0, LATE_MOST), otherwise: 0, surely: false });
        if took > 0 {
            let holder = holder(process).unwrap_or(OverheadOwner::Rest);
            force(process, before.place.device, took.unsigned_abs(), (holder, before.context));
        }
    })
}
