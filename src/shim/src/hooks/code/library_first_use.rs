//! First use of a library in a context, where the driver loads its code and variables.
//!
//! Memory for the variables is reserved first, and a use that does not fit is refused. A launch is such a use and is never
//! refused. So the look-up of a kernel loads the library into all contexts of the process that a quota limits. Later contexts get
//! it when they are made.

use super::measured::{force, likely};
use super::module::{LATE_MOST, late};
use crate::driver_calls::{capture_mode, contexts};
use crate::hooks::protocol::{Decision, Granted, charge};
use crate::memory::loaded_symbols::LookUpKey;
use crate::memory::measurement::{CallMeasurement, ChangeBounds};
use crate::memory::nvml_baseline::signed;
use crate::memory::overheads::OverheadOwner;
use crate::memory::refusals::RefusedKind;
use crate::os::reentrancy::enter_or;
use crate::process::{self, Enforcement, Process};
use crate::slice::handle::Reservation;
use core::cell::Cell;
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUlibrary, CUmodule, Status, status};
use gpuslice_region::Device;
use std::ptr;

/// Loads a library into the current context.
pub(super) fn load_here(library: CUlibrary) -> Status {
    let Some(get) = slot::real::<real::cuLibraryGetModule>(Symbol::cuLibraryGetModule) else {
        return status::NOT_SUPPORTED;
    };
    let mut module: CUmodule = ptr::null_mut();
    // SAFETY: `get` requires an output that is valid for writes: the local `module`. The driver checks the handle.
    capture_mode::with_relaxed_capture_mode(|| unsafe { get(&raw mut module, library) })
}

/// Makes a call that uses a library in the current context. The first such call loads the library's variables.
pub(super) fn used(
    library: impl Fn(&Process) -> Option<usize>,
    key: impl FnOnce() -> LookUpKey,
    call: impl FnMut() -> Status,
) -> Status {
    let first_use = || {
        let Enforcement::Active(process) = process::enforcement() else { return None };
        if !process.libraries.any() {
            return None;
        }
        FirstUse::take(process, library(process)?, process.owner_of_current()?)
    };
    match enter_or(first_use, None) {
        Some(first_use) => first_use.load(call).0,
        None => late(key, |process| library(process).map(OverheadOwner::Library), call),
    }
}

/// Loads `library` into all contexts that a quota limits, before the program gets a handle that it can launch. Returns false if a
/// quota has no room.
pub(super) fn load_for_launches(library: CUlibrary) -> bool {
    let Enforcement::Active(process) = process::enforcement() else { return true };
    let contexts = || {
        if !process.libraries.becomes_launchable(library.addr()) {
            return Vec::new();
        }
        // Without a quota nothing is refused, so the driver may load at the launch.
        let made = process.overheads.contexts_made().into_iter();
        made.filter(|(_, device)| process.has_quota(*device)).map(|(context, _)| context).collect()
    };
    enter_or(contexts, Vec::new()).into_iter().all(|context| load_into(process, library.addr(), context))
}

/// Loads a library into a context, unless it is loaded there. Returns false if a quota has no room. The driver's other errors
/// show at the launch, as without gpuslice.
pub(crate) fn load_into(process: &'static Process, library: usize, context: usize) -> bool {
    let Some(first_use) = enter_or(|| FirstUse::take(process, library, context), None) else { return true };
    let load = || load_here(ptr::with_exposed_provenance_mut(library));
    let refused = contexts::within(context, || first_use.load(load).1);
    refused != Some(true)
}

/// First use of a library in a context, which loads the variables.
struct FirstUse {
    process: &'static Process,
    library: usize,
    context: usize,
    /// Bytes of the variables.
    variables: u64,
    /// Whether the library is loaded into the context.
    loaded: Cell<bool>,
}

impl FirstUse {
    /// Claims the first use of `library` in `context`. Returns `None` if there are no variables, or if they are loaded already.
    fn take(process: &'static Process, library: usize, context: usize) -> Option<Self> {
        let variables = process.libraries.claim(library, context)?;
        Some(Self { process, library, context, variables, loaded: Cell::new(false) })
    }

    /// Makes the call that loads the variables into the current context, unless the quota has no room for them. Returns the
    /// status, and whether the variables were refused.
    fn load(self, call: impl FnMut() -> Status) -> (Status, bool) {
        let refused = Cell::new(false);
        let decide = |process: &'static Process| {
            let Some(before) = CallMeasurement::begin_exactly(process) else { return Decision::Forward };
            let reserved = likely(process, before.place.device, RefusedKind::Code, self.variables);
            if matches!(reserved, Decision::Refuse(_)) {
                refused.set(true);
            }
            reserved.map(|reservation| (before, reservation))
        };
        let settle = |(before, mut reservation): (CallMeasurement, Reservation), code| {
            if code != status::SUCCESS {
                return code;
            }
            self.loaded.set(true);
            let likely = ChangeBounds {
                range: (0, LATE_MOST.saturating_add(signed(self.variables))),
                otherwise: signed(self.variables),
                surely: true,
            };
            let took = before.change(reservation.bytes(), likely).max(0).unsigned_abs();
            let holder = (OverheadOwner::Library(self.library), before.context);
            let kept = took.min(reservation.bytes());
            // `kept` is no more than the reserved bytes, so it fits.
            let _fits = reservation.settle(kept);
            self.process.overheads.add(self.process, holder.0, holder.1, reservation.device(), kept);
            reservation.keep();
            force(self.process, before.place.device, took.saturating_sub(kept), holder);
            code
        };
        let code = charge(decide, call, settle);
        (code, refused.get())
    }
}

impl Granted for (CallMeasurement, Reservation) {
    fn granted(&self) -> Option<(Device, u64)> {
        self.1.granted()
    }
}

impl Drop for FirstUse {
    fn drop(&mut self) {
        if !self.loaded.get() {
            self.process.libraries.unclaim(self.library, self.context);
        }
    }
}
