//! Initialization of NVML, by the program and by the library.
//!
//! Initialization takes a third of a second, and other processes of the machine wait meanwhile. So the library initialises NVML
//! once and never shuts it down. To a program that has not initialised NVML it still seems uninitialised: the program's own count
//! decides how its calls are answered. A child of `fork` inherits both, as it inherits NVML itself.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{Status, status};
use gpuslice_driver::{Api, Symbol, slot};
use once_cell::race::OnceBool;

/// Divisor of the time: questions may take one twentieth of it, because all processes of the machine share NVML's lock.
pub(crate) const NVML_PART: u64 = 20;

/// True if the library has initialised NVML.
static OURS: AtomicBool = AtomicBool::new(false);
/// Number of initializations by the program, less its shutdowns.
static PROGRAMS: AtomicU32 = AtomicU32::new(0);

/// Initialises NVML, and loads it if it is not loaded. False: NVML is missing, or fails.
pub(crate) fn initialise() -> bool {
    if OURS.load(Ordering::Relaxed) {
        return true;
    }
    load();
    let Some(init) = slot::real::<real::nvmlInit_v2>(Symbol::nvmlInit_v2) else { return false };
    // SAFETY: the function takes no arguments. NVML counts initializations, so several threads may call it; the library never
    // shuts NVML down.
    if unsafe { init() } != status::SUCCESS {
        return false;
    }
    OURS.store(true, Ordering::Relaxed);
    hide_again();
    true
}

/// Loads NVML without its initialization, once. Most programs do not load it themselves.
pub(crate) fn load() {
    static LOADED: OnceBool = OnceBool::new();
    let _tried = LOADED.get_or_init(|| {
        // SAFETY: `dlopen` needs a zero-terminated name, which the literal is; the library stays loaded.
        let open =
            || unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        slot::is_driver_loaded(Api::Nvml) || !open().is_null()
    });
}

/// Counts an initialization by the program that ended with the status `code`.
pub(crate) fn count(code: Status) {
    if code == status::SUCCESS {
        PROGRAMS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Shuts NVML down for the program. If only the library initialised NVML, it answers success without a call: for drivers one
/// shutdown too many is no error.
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

/// Returns true if a call of the program finds NVML not initialised although the library has initialised it.
#[inline]
pub(crate) fn is_hidden_from(symbol: Symbol) -> bool {
    OURS.load(Ordering::Relaxed) && PROGRAMS.load(Ordering::Relaxed) == 0 && !works_before(symbol)
}

/// Makes the program's next calls look their functions up again, because NVML may be hidden from them from now on.
fn hide_again() {
    if PROGRAMS.load(Ordering::Relaxed) == 0 {
        slot::forget_jump_targets(Api::Nvml);
    }
}

/// Returns true if a function needs no initialised NVML, by NVML's manual.
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
