//! Libraries: memory of their code and variables, by context.
//!
//! Where the driver loads lazily, a library is loaded into a context at its first use there. Memory for its variables is reserved
//! first, and a use that does not fit is refused. A launch is such a use and is never refused. So the look-up of a kernel loads
//! the library into all contexts of the process. Later contexts get it when they are made.
//!
//! Variables of less than 2 MiB are charged once they are measured. An image that is compressed or of an unknown kind does not
//! tell its variables. Under a quota such a library is loaded into the current context at once, where its size is measured and
//! can still be refused.

use super::image::{data, file};
use super::limits::look_again;
use super::measured::{force, likely};
use super::module::{LATE_MOST, late, loaded, unloaded};
use crate::driver_calls::{capture_mode, code, contexts};
use crate::hooks::protocol::{Decision, Granted, around, charge, reserve_for};
use crate::memory::loaded_symbols::Key;
use crate::memory::measurement::{Before, Likely};
use crate::memory::memory_call::MemoryCall;
use crate::memory::nvml_baseline::signed;
use crate::memory::overheads::Holder;
use crate::memory::refusals::What;
use crate::os::reentrancy::quietly;
use crate::process::{self, Process, Standing};
use crate::slice::handle::Reservation;
use core::cell::Cell;
use core::ffi::{c_char, c_uint, c_void};
use gpuslice_driver::Symbol;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{
    CUdeviceptr, CUfunction, CUjit_option, CUkernel, CUlibrary, CUlibraryOption, CUmodule, Status, status,
};
use gpuslice_policy::sizes::code::Image;
use gpuslice_region::Device;
use std::ptr;

/// Hooks of the calls that load a library: all that differs is where its image is.
macro_rules! loads {
    ($( $(#[$about:meta])* $name:ident: $real:ident, $source:ty => $read:ident; )*) => { $(
        $(#[$about])*
        #[allow(clippy::too_many_arguments, reason = "the driver's own")]
        pub(crate) unsafe fn $name(
            real: real::$real,
            output: *mut CUlibrary,
            source: $source,
            options: *mut CUjit_option,
            values: *mut *mut c_void,
            count: c_uint,
            library_options: *mut CUlibraryOption,
            library_values: *mut *mut c_void,
            library_count: c_uint,
        ) -> Status {
            // SAFETY: the caller's own arguments.
            let call = || unsafe {
                real(output, source, options, values, count, library_options, library_values, library_count)
            };
            // SAFETY: the caller's own arguments.
            unsafe { load(output, || $read(source), call) }
        }
    )* };
}

loads! {
    /// `cuLibraryLoadData`.
    load_data: cuLibraryLoadData, *const c_void => data;
    /// `cuLibraryLoadFromFile`.
    load_file: cuLibraryLoadFromFile, *const c_char => file;
}

/// The contexts of this process, where the driver is about to load a library into all of them at once.
#[derive(Default)]
struct Eagerly {
    /// Those of the device on which the call is measured.
    here: Vec<usize>,
    /// Those of other devices, with what was reserved there.
    elsewhere: Vec<(usize, Reservation)>,
}

impl Eagerly {
    /// None: a quota has no room.
    fn reserve(process: &'static Process, variables: u64) -> Option<Self> {
        let mut all = Self::default();
        let current = contexts::current_device().and_then(|device| process.place(device));
        for (context, device) in process.holdings.contexts_made() {
            if current.is_some_and(|place| place.device == device) {
                all.here.push(context);
            } else if variables > 0 {
                let Decision::Go(reservation) = reserve_for(process, device, What::Code, variables) else {
                    return None;
                };
                all.elsewhere.push((context, reservation));
            }
        }
        Some(all)
    }

    /// The driver has loaded it.
    fn keep(self, process: &Process, library: usize, variables: u64) {
        let holder = Holder::Library(library);
        let measured_in = process.owner_of_current();
        for context in self.here.iter().filter(|context| Some(**context) != measured_in) {
            // All of it was charged where it was measured, and each context ends with its own part.
            let from = (holder, measured_in.unwrap_or(0));
            process.holdings.pass(process, from, (holder, *context), variables);
        }
        let elsewhere = self.elsewhere.iter().map(|(context, _)| *context);
        let contexts = self.here.iter().copied().chain(elsewhere).collect();
        process.libraries.add(library, variables, contexts);
        for (context, reservation) in self.elsewhere {
            process.holdings.add(process, holder, context, reservation.device(), reservation.bytes());
            process.witness.unsettle(reservation.device(), context);
            reservation.keep();
        }
    }
}

/// # Safety
/// `output` is null or valid for reads and writes.
unsafe fn load(
    output: *mut CUlibrary,
    image: impl FnOnce() -> Option<Image>,
    call: impl Fn() -> Status,
) -> Status {
    let undo = |library| {
        if let Some(unload) = slot::real::<real::cuLibraryUnload>(Symbol::cuLibraryUnload) {
            // SAFETY: a library that the driver made in this call and nobody has seen.
            unsafe { unload(library) };
        }
    };
    let holder = |library: CUlibrary| Holder::Library(library.addr());
    let Standing::Member(process) = process::standing() else {
        // SAFETY: by the contract above.
        return unsafe { loaded(output, || None, call, holder, undo) };
    };
    let image = quietly(image, None).unwrap_or_else(|| Image { unread: true, ..Image::default() });
    let variables = image.least();
    let eagerly = if quietly(code::loads_eagerly, false) {
        let reserve = || {
            let _call = MemoryCall::begin(process.member());
            Eagerly::reserve(process, variables)
        };
        let Some(eagerly) = quietly(reserve, None) else {
            return status::OUT_OF_MEMORY;
        };
        Some(eagerly)
    } else {
        None
    };
    let is_tried = image.unread && eagerly.is_none() && quietly(|| has_quota_here(process), false);
    // Loaded lazily, its variables take nothing yet.
    let contexts = eagerly.as_ref().map_or_else(|| u64::from(is_tried), |eagerly| eagerly.here.len() as u64);
    let call = || {
        // SAFETY: by the contract above.
        let old = unsafe { read_in(output) };
        let code = call();
        // SAFETY: by the contract above.
        if is_tried && code == status::SUCCESS { unsafe { try_out(output, old, undo) } } else { code }
    };
    let now = Image {
        bytes: image.bytes.saturating_mul(contexts.max(1)),
        variables: image.variables.saturating_mul(contexts),
        ..image
    };
    // SAFETY: by the contract above.
    let code = unsafe { loaded(output, || Some(now), call, holder, undo) };
    // SAFETY: by the contract above.
    let made = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS);
    let learn = || match (made, eagerly) {
        (Some(library), Some(eagerly)) => eagerly.keep(process, library.addr(), variables),
        (Some(library), None) if is_tried => learn_size(process, library.addr(), variables),
        (Some(library), None) => process.libraries.add(library.addr(), variables, Vec::new()),
        (None, _) => {}
    };
    quietly(learn, ());
    code
}

/// Whether the device of the current context has a quota.
fn has_quota_here(process: &Process) -> bool {
    let place = contexts::current_device().and_then(|device| process.place(device));
    place.is_some_and(|place| process.has_quota(place.device))
}

/// Notes how much a library took in the current context. It takes as much in each other one, and so much is reserved before
/// it is loaded there.
fn learn_size(process: &Process, library: usize, variables: u64) {
    let Some(context) = process.owner_of_current() else { return };
    let took = process.holdings.bytes(Holder::Library(library), context);
    let size = Image { variables: took, ..Image::default() }.least().max(variables);
    process.libraries.add(library, size, vec![context]);
}

/// Loads a new library into the current context. Where the device has no memory for it, the library ends again, and
/// the output is as before. The driver's other objections show at its first use, as without us.
///
/// # Safety
/// `output` is null or valid for reads and writes.
unsafe fn try_out(output: *mut CUlibrary, old: Option<CUlibrary>, undo: impl Fn(CUlibrary)) -> Status {
    // SAFETY: by the contract above.
    let Some(library) = (unsafe { read_in(output) }) else { return status::SUCCESS };
    if load_here(library) != status::OUT_OF_MEMORY {
        return status::SUCCESS;
    }
    undo(library);
    if let Some(old) = old {
        // SAFETY: by the contract above.
        unsafe { write_out(output, old) };
    }
    status::OUT_OF_MEMORY
}

/// Loads a library into the current context.
fn load_here(library: CUlibrary) -> Status {
    let Some(get) = slot::real::<real::cuLibraryGetModule>(Symbol::cuLibraryGetModule) else {
        return status::NOT_SUPPORTED;
    };
    let mut module: CUmodule = ptr::null_mut();
    // SAFETY: the output is valid for writes; the driver checks the handle.
    capture_mode::beside_captures(|| unsafe { get(&raw mut module, library) })
}

/// `cuLibraryUnload`.
pub(crate) unsafe fn unload(real: real::cuLibraryUnload, library: CUlibrary) -> Status {
    // SAFETY: the caller's own argument.
    let code = unloaded(Holder::Library(library.addr()), || unsafe { real(library) });
    around(
        |_| (),
        || code,
        |process, (), code| {
            if code == status::SUCCESS {
                process.libraries.forget(library.addr());
            }
        },
    )
}

/// `cuLibraryGetGlobal`, `cuLibraryGetManaged`.
pub(crate) unsafe fn variable(
    real: real::cuLibraryGetGlobal,
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> Status {
    // SAFETY: the caller's own arguments.
    let key = || unsafe { Key::new(library.addr(), context()).of_name(name) };
    // SAFETY: the caller's own arguments.
    used(|_| Some(library.addr()), key, || unsafe { real(address, bytes, library, name) })
}

/// `cuLibraryGetUnifiedFunction`.
pub(crate) unsafe fn unified_function(
    real: real::cuLibraryGetUnifiedFunction,
    output: *mut *mut c_void,
    library: CUlibrary,
    name: *const c_char,
) -> Status {
    // SAFETY: the caller's own arguments.
    let key = || unsafe { Key::new(library.addr(), context()).of_name(name) };
    // SAFETY: the caller's own arguments.
    used(|_| Some(library.addr()), key, || unsafe { real(output, library, name) })
}

/// `cuLibraryGetModule`.
pub(crate) unsafe fn get_module(
    real: real::cuLibraryGetModule,
    output: *mut CUmodule,
    library: CUlibrary,
) -> Status {
    let key = || Key::new(library.addr(), context());
    // SAFETY: the caller's own arguments.
    let code = used(|_| Some(library.addr()), key, || unsafe { real(output, library) });
    // SAFETY: the caller's output, which the driver accepted.
    came_out(code, library, || unsafe { read_in(output) }.map(|module: CUmodule| module.addr()))
}

/// `cuKernelGetFunction`.
pub(crate) unsafe fn kernel_function(
    real: real::cuKernelGetFunction,
    output: *mut CUfunction,
    kernel: CUkernel,
) -> Status {
    let library =
        |process: &Process| code::library_of_kernel(kernel).or_else(|| process.libraries.of(kernel.addr()));
    // SAFETY: the caller's own arguments.
    used(library, || Key::new(kernel.addr(), context()), || unsafe { real(output, kernel) })
}

/// `cuLibraryGetKernel`: the driver loads at the first launch.
pub(crate) unsafe fn kernel(
    real: real::cuLibraryGetKernel,
    output: *mut CUkernel,
    library: CUlibrary,
    name: *const c_char,
) -> Status {
    if !load_for_launches(library) {
        return status::OUT_OF_MEMORY;
    }
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(output, library, name) };
    // SAFETY: the caller's output, which the driver accepted.
    came_out(code, library, || unsafe { read_in(output) }.map(|kernel: CUkernel| kernel.addr()))
}

/// `cuLibraryEnumerateKernels`: as [`kernel`].
pub(crate) unsafe fn kernels(
    real: real::cuLibraryEnumerateKernels,
    output: *mut CUkernel,
    count: c_uint,
    library: CUlibrary,
) -> Status {
    if !load_for_launches(library) {
        return status::OUT_OF_MEMORY;
    }
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(output, count, library) };
    // SAFETY: the caller's output, whose first place the driver filled.
    came_out(code, library, || unsafe { read_in(output) }.map(|kernel: CUkernel| kernel.addr()))
}

/// A handle came out of a library, and from now on a launch may load what is behind it.
fn came_out(code: Status, library: CUlibrary, handle: impl FnOnce() -> Option<usize>) -> Status {
    around(
        |_| (),
        || code,
        |process, (), code| {
            let Some(handle) = handle().filter(|_| code == status::SUCCESS) else { return };
            process.libraries.note_origin(handle, library.addr());
            look_again(process);
        },
    )
}

/// The context that a library or kernel is loaded into now.
fn context() -> usize {
    contexts::current_context().unwrap_or(0)
}

/// A use of a library in the current context: the first one loads its variables.
fn used(
    library: impl Fn(&Process) -> Option<usize>,
    key: impl FnOnce() -> Key,
    call: impl FnMut() -> Status,
) -> Status {
    let claim = || {
        let Standing::Member(process) = process::standing() else { return None };
        if !process.libraries.any() {
            return None;
        }
        Claim::take(process, library(process)?, process.owner_of_current()?)
    };
    match quietly(claim, None) {
        Some(claim) => claim.load(call).0,
        None => late(key, |process| library(process).map(Holder::Library), call),
    }
}

/// Before the program gets something that it can launch. False: a quota has no room.
fn load_for_launches(library: CUlibrary) -> bool {
    let Standing::Member(process) = process::standing() else { return true };
    let contexts = || {
        if !process.libraries.becomes_launchable(library.addr()) {
            return Vec::new();
        }
        // Without a quota nothing is refused, so the driver may load at the launch.
        let made = process.holdings.contexts_made().into_iter();
        made.filter(|(_, device)| process.has_quota(*device)).map(|(context, _)| context).collect()
    };
    quietly(contexts, Vec::new()).into_iter().all(|context| load_into(process, library.addr(), context))
}

/// Loads a library into a context, if it is not. False: a quota has no room. The driver's own objections show at the
/// launch, as without us.
pub(crate) fn load_into(process: &'static Process, library: usize, context: usize) -> bool {
    let Some(claim) = quietly(|| Claim::take(process, library, context), None) else { return true };
    let load = || load_here(ptr::with_exposed_provenance_mut(library));
    let refused = contexts::within(context, || claim.load(load).1);
    refused != Some(true)
}

/// The first use of a library in a context, whose variables it loads.
struct Claim {
    process: &'static Process,
    library: usize,
    context: usize,
    /// Bytes of the variables.
    variables: u64,
    /// Whether the library is loaded into the context.
    loaded: Cell<bool>,
}

impl Claim {
    /// None: there are no variables, or they are loaded already.
    fn take(process: &'static Process, library: usize, context: usize) -> Option<Self> {
        let variables = process.libraries.claim(library, context)?;
        Some(Self { process, library, context, variables, loaded: Cell::new(false) })
    }

    /// The call that loads them into the current context, unless they are refused: its status, and whether they are.
    fn load(self, call: impl FnMut() -> Status) -> (Status, bool) {
        let refused = Cell::new(false);
        let decide = |process: &'static Process| {
            let Some(before) = Before::begin_exactly(process) else { return Decision::Forward };
            let reserved = likely(process, before.place.device, What::Code, self.variables);
            if matches!(reserved, Decision::Refuse(_)) {
                refused.set(true);
            }
            reserved.map(|reservation| (before, reservation))
        };
        let settle = |(before, mut reservation): (Before, Reservation), code| {
            if code != status::SUCCESS {
                return code;
            }
            self.loaded.set(true);
            let likely = Likely {
                range: (0, LATE_MOST.saturating_add(signed(self.variables))),
                otherwise: signed(self.variables),
                surely: true,
            };
            let took = before.change(reservation.bytes(), likely).max(0).unsigned_abs();
            let holder = (Holder::Library(self.library), before.context);
            let kept = took.min(reservation.bytes());
            // Never more than there is, so it fits.
            let _fits = reservation.settle(kept);
            self.process.holdings.add(self.process, holder.0, holder.1, reservation.device(), kept);
            reservation.keep();
            force(self.process, before.place.device, took.saturating_sub(kept), holder);
            code
        };
        let code = charge(decide, call, settle);
        (code, refused.get())
    }
}

impl Granted for (Before, Reservation) {
    fn granted(&self) -> Option<(Device, u64)> {
        self.1.granted()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.loaded.get() {
            self.process.libraries.unclaim(self.library, self.context);
        }
    }
}
