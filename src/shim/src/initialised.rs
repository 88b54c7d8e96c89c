//! Who has initialised NVML: the program, or we?
//!
//! To initialise it takes a third of a second, and other processes of the machine wait meanwhile. So what we have
//! initialised once stays so. A program that has not done it still finds it undone: its calls are answered by its own
//! count. A child of `fork` inherits both, as it inherits NVML itself.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{Status, status};
use gpuslice_driver::{Api, Symbol, slot};
use once_cell::race::OnceBool;

/// Whether we have initialised it.
static OURS: AtomicBool = AtomicBool::new(false);
/// How often the program has, less how often it has shut it down.
static PROGRAMS: AtomicU32 = AtomicU32::new(0);

/// Initialises NVML, which is loaded if it was not. False: it is missing, or fails.
pub(crate) fn initialise() -> bool {
    if OURS.load(Ordering::Relaxed) {
        return true;
    }
    if !slot::is_driver_loaded(Api::Nvml) {
        load();
    }
    let Some(init) = slot::real::<real::nvmlInit_v2>(Symbol::nvmlInit_v2) else { return false };
    // SAFETY: no arguments. Of threads that do it at once each is counted by NVML; nobody takes it back.
    if unsafe { init() } != status::SUCCESS {
        return false;
    }
    OURS.store(true, Ordering::Relaxed);
    hide_again();
    true
}

/// Loads NVML, once: a program that computes has no reason to.
fn load() {
    static LOADED: OnceBool = OnceBool::new();
    let _tried = LOADED.get_or_init(|| {
        // SAFETY: the name is zero-terminated; the library stays loaded.
        !unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null()
    });
}

/// The program has called an `nvmlInit`, with this status.
pub(crate) fn count(code: Status) {
    if code == status::SUCCESS {
        PROGRAMS.fetch_add(1, Ordering::Relaxed);
    }
}

/// The program shuts NVML down. It cannot end an NVML that only we initialised: for drivers one shutdown too many is no
/// error.
pub(crate) fn shut_down(real: impl FnOnce() -> Status) -> Status {
    let less = |times: u32| times.checked_sub(1);
    let times = PROGRAMS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    if times.is_err() && OURS.load(Ordering::Relaxed) {
        return status::SUCCESS;
    }
    let code = real();
    hide_again();
    code
}

/// Whether a call of the program's is to find NVML not initialised although it is.
#[inline]
pub(crate) fn is_hidden_from(symbol: Symbol) -> bool {
    OURS.load(Ordering::Relaxed) && PROGRAMS.load(Ordering::Relaxed) == 0 && !works_before(symbol)
}

/// Has the program's next calls looked up anew: from now on NVML may be hidden from them.
fn hide_again() {
    if PROGRAMS.load(Ordering::Relaxed) == 0 {
        slot::forget_doors(Api::Nvml);
    }
}

/// Whether a function needs no initialised NVML, by NVML's manual.
const fn works_before(symbol: Symbol) -> bool {
    matches!(
        symbol,
        Symbol::nvmlInit
            | Symbol::nvmlInit_v2
            | Symbol::nvmlInitWithFlags
            | Symbol::nvmlShutdown
            | Symbol::nvmlErrorString
            | Symbol::nvmlInternalGetExportTable
            | Symbol::nvmlSystemGetNVMLVersion
            | Symbol::nvmlSystemGetCudaDriverVersion
            | Symbol::nvmlSystemGetCudaDriverVersion_v2
    )
}
