//! Calls that load and unload a library: memory of its code and variables, by context.
//!
//! Where the driver loads lazily, a library takes memory in a context at its first use there
//! ([`library_first_use`](super::library_first_use)). Variables of less than 2 MiB are charged once they are measured. An image
//! that is compressed or of an unknown kind does not tell its variables. Under a quota such a library is loaded into the current
//! context at once, where its size is measured and can still be refused.

use super::image::{data, file};
use super::library_first_use::load_here;
use super::module::{loaded, unloaded};
use crate::driver_calls::code;
use crate::hooks::hooked_call::HookedCall;
use crate::hooks::protocol::{Decision, noted, reserve_for};
use crate::memory::memory_call::MemoryCall;
use crate::memory::overheads::OverheadOwner;
use crate::memory::refusals::RefusedKind;
use crate::os::reentrancy::enter_or;
use crate::process::{self, Enforcement, Process};
use crate::slice::handle::Reservation;
use gpuslice_driver::Symbol;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUlibrary, Status, status};
use gpuslice_policy::sizes::code::CodeImage;

/// Declares the hooks of the calls that load a library. They differ only in where the image is.
macro_rules! loads {
    ($( $(#[$about:meta])* $name:ident: $real:ident => $read:ident; )*) => { $(
        $(#[$about])*
        pub(crate) fn $name(call: &HookedCall<real::$real>) -> Status {
            let (output, source, ..) = call.arguments();
            // SAFETY: `load` requires that `output` is null or valid, and so does the driver.
            unsafe { load(output, || $read(source), || call.forward()) }
        }
    )* };
}

loads! {
    /// `cuLibraryLoadData`.
    load_data: cuLibraryLoadData => data;
    /// `cuLibraryLoadFromFile`.
    load_file: cuLibraryLoadFromFile => file;
}

/// Contexts of this process, where the driver is about to load a library into all of them at once.
#[derive(Default)]
struct Eagerly {
    /// Contexts on the device on which the call is measured.
    here: Vec<usize>,
    /// Contexts on other devices, with the reservation for each.
    elsewhere: Vec<(usize, Reservation)>,
}

impl Eagerly {
    /// Reserves `variables` bytes for each context on another device. Returns `None` if a quota has no room.
    fn reserve(process: &'static Process, variables: u64) -> Option<Self> {
        let mut all = Self::default();
        let current = process.place_of_current();
        for (context, device) in process.overheads.contexts_made() {
            if current.is_some_and(|place| place.device == device) {
                all.here.push(context);
            } else if variables > 0 {
                let Decision::Go(reservation) = reserve_for(process, device, RefusedKind::Code, variables)
                else {
                    return None;
                };
                all.elsewhere.push((context, reservation));
            }
        }
        Some(all)
    }

    /// Records and charges the library once the driver has loaded it.
    fn keep(self, process: &Process, library: usize, variables: u64) {
        let holder = OverheadOwner::Library(library);
        let measured_in = process.owner_of_current();
        for context in self.here.iter().filter(|context| Some(**context) != measured_in) {
            // The measurement charged the whole to one context, but each context ends with its own part.
            let from = (holder, measured_in.unwrap_or(0));
            process.overheads.pass(process, from, (holder, *context), variables);
        }
        let elsewhere = self.elsewhere.iter().map(|(context, _)| *context);
        let contexts = self.here.iter().copied().chain(elsewhere).collect();
        process.libraries.add(library, variables, contexts);
        for (context, reservation) in self.elsewhere {
            process.overheads.add(process, holder, context, reservation.device(), reservation.bytes());
            process.baselines.note_unmeasured(reservation.device(), context);
            reservation.keep();
        }
    }
}

/// Makes a call that loads a library, and charges the memory that the library takes in each context.
///
/// # Safety
/// `output` is null or valid for reads and writes.
unsafe fn load(
    output: *mut CUlibrary,
    image: impl FnOnce() -> Option<CodeImage>,
    call: impl Fn() -> Status,
) -> Status {
    let undo = |library| {
        if let Some(unload) = slot::real::<real::cuLibraryUnload>(Symbol::cuLibraryUnload) {
            // SAFETY: `unload` requires a loaded library. The driver made it in this call, and the program has not got it yet.
            unsafe { unload(library) };
        }
    };
    let holder = |library: CUlibrary| OverheadOwner::Library(library.addr());
    let Enforcement::Active(process) = process::enforcement() else {
        // SAFETY: by this function's contract `output` is null or valid.
        return unsafe { loaded(output, || None, call, holder, undo) };
    };
    let image = enter_or(image, None).unwrap_or_else(|| CodeImage { unread: true, ..CodeImage::default() });
    let variables = image.least();
    let eagerly = if enter_or(code::loads_eagerly, false) {
        let reserve = || {
            let _call = MemoryCall::begin(process.member());
            Eagerly::reserve(process, variables)
        };
        let Some(eagerly) = enter_or(reserve, None) else {
            return status::OUT_OF_MEMORY;
        };
        Some(eagerly)
    } else {
        None
    };
    let is_tried = image.unread && eagerly.is_none() && enter_or(|| has_quota_here(process), false);
    // The driver loads code and variables into each context at once. Or it loads lazily: variables only if the hook tries.
    let (images, copies) = match eagerly.as_ref().map(|eagerly| eagerly.here.len() as u64) {
        Some(contexts) => (contexts, contexts),
        None => (1, u64::from(is_tried)),
    };
    let call = || {
        // SAFETY: by this function's contract `output` is null or valid.
        let old = unsafe { read_in(output) };
        let code = call();
        // SAFETY: by this function's contract `output` is null or valid.
        if is_tried && code == status::SUCCESS { unsafe { try_out(output, old, undo) } } else { code }
    };
    let now = CodeImage {
        bytes: image.bytes.saturating_mul(images),
        variables: image.variables.saturating_mul(copies),
        ..image
    };
    // SAFETY: by this function's contract `output` is null or valid.
    let code = unsafe { loaded(output, || Some(now), call, holder, undo) };
    // SAFETY: by this function's contract `output` is null or valid.
    let made = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS);
    let learn = || match (made, eagerly) {
        (Some(library), Some(eagerly)) => eagerly.keep(process, library.addr(), variables),
        (Some(library), None) if is_tried => learn_size(process, library.addr(), variables),
        (Some(library), None) => process.libraries.add(library.addr(), variables, Vec::new()),
        (None, _) => {}
    };
    enter_or(learn, ());
    code
}

/// Returns true if the device of the current context has a quota.
fn has_quota_here(process: &Process) -> bool {
    let place = process.place_of_current();
    place.is_some_and(|place| process.has_quota(place.device))
}

/// Records how many bytes a library took in the current context. It takes as many in every other context, and its first use there
/// reserves them.
fn learn_size(process: &Process, library: usize, variables: u64) {
    let Some(context) = process.owner_of_current() else { return };
    let took = process.overheads.bytes(OverheadOwner::Library(library), context);
    let size = CodeImage { variables: took, ..CodeImage::default() }.least().max(variables);
    process.libraries.add(library, size, vec![context]);
}

/// Loads a new library into the current context. If the device has no memory for it, the library ends again, and the output is as
/// before. All other errors of the driver show at the library's first use, as without gpuslice.
///
/// # Safety
/// `output` is null or valid for reads and writes.
unsafe fn try_out(output: *mut CUlibrary, old: Option<CUlibrary>, undo: impl Fn(CUlibrary)) -> Status {
    // SAFETY: by this function's contract `output` is null or valid.
    let Some(library) = (unsafe { read_in(output) }) else { return status::SUCCESS };
    if load_here(library) != status::OUT_OF_MEMORY {
        return status::SUCCESS;
    }
    undo(library);
    if let Some(old) = old {
        // SAFETY: by this function's contract `output` is null or valid.
        unsafe { write_out(output, old) };
    }
    status::OUT_OF_MEMORY
}

/// `cuLibraryUnload`.
pub(crate) fn unload(call: &HookedCall<real::cuLibraryUnload>) -> Status {
    let (library,) = call.arguments();
    let code = unloaded(OverheadOwner::Library(library.addr()), || call.forward());
    noted(code, |process| process.libraries.forget(library.addr()))
}
