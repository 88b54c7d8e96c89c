//! Initialization of NVML, by the program and by the library.
//!
//! Initialization takes a third of a second, and other processes of the machine wait meanwhile. So the library initialises NVML
//! once and never shuts it down. If the program has not initialised NVML, its calls must still fail as uninitialised. So the
//! library counts the program's initializations, and answers its calls by that count. A child of `fork` inherits the count and
//! the library's initialization, as it inherits NVML itself.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{Status, status};
use gpuslice_driver::{Api, Symbol, slot};
use once_cell::race::OnceBool;

/// Divisor of the time that questions to NVML may take: a twentieth of all time. All processes of the machine share NVML's lock.
pub(crate) const NVML_PART: u64 = 20;

/// True if the library has initialised NVML.
static OURS: AtomicBool = AtomicBool::new(false);
/// Number of initializations by the program, minus its shutdowns.
static PROGRAMS: AtomicU32 = AtomicU32::new(0);

/// Initialises NVML, and loads it if it is not loaded. Returns false if NVML is missing or fails.
pub(crate) fn initialise() -> bool {
    if OURS.load(Ordering::Relaxed) {
        return true;
    }
    load();
    let Some(init) = slot::real::<real::nvmlInit_v2>(Symbol::nvmlInit_v2) else { return false };
    // SAFETY: the function takes no arguments and requires nothing. NVML counts initializations, so several threads may call it.
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
        // SAFETY: `dlopen` requires a zero-terminated name: the literal is one.
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

/// Shuts NVML down for the program. If only the library initialised NVML, the function returns success without a call, because
/// drivers do so for a shutdown without an initialization.
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

/// Returns true if a call of the program must fail as uninitialised, although the library has initialised NVML.
#[inline]
pub(crate) fn is_hidden_from(symbol: Symbol) -> bool {
    OURS.load(Ordering::Relaxed) && PROGRAMS.load(Ordering::Relaxed) == 0 && !works_before(symbol)
}

/// Removes the jump targets of NVML's entries if the program has not initialised NVML. The program's next calls then look their
/// functions up again, so that [`is_hidden_from`] decides about them.
fn hide_again() {
    if PROGRAMS.load(Ordering::Relaxed) == 0 {
        slot::forget_jump_targets(Api::Nvml);
    }
}

/// Returns true if a function works before NVML is initialised, by NVML's manual.
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
