//! Calls in which the program waits.
//!
//! While the program waits, the driver may release memory of pools. Afterwards the library finds code that a launch has loaded,
//! and the streams are empty.

use super::launch::{legacy, per_thread};
use crate::compute::{Waits, waits};
use crate::hooks::memory::pool::releasing;
use crate::memory::measurement;
use crate::os::reentrancy::enter_or;
use crate::process::{self, Enforcement};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUcontext, CUevent, CUstream, Status};

/// `cuCtxSynchronize`.
pub(crate) unsafe fn context(real: real::cuCtxSynchronize) -> Status {
    // SAFETY: `real` takes no arguments.
    waiting(Waits::Context, || unsafe { real() })
}

/// `cuCtxSynchronize_v2`.
pub(crate) unsafe fn context_v2(real: real::cuCtxSynchronize_v2, context: CUcontext) -> Status {
    // SAFETY: `real` requires a valid argument; this one is the caller's, for the same driver function.
    waiting(Waits::Other, || unsafe { real(context) })
}

/// `cuEventSynchronize`.
pub(crate) unsafe fn event(real: real::cuEventSynchronize, event: CUevent) -> Status {
    // SAFETY: `real` requires a valid argument; this one is the caller's, for the same driver function.
    waiting(Waits::Other, || unsafe { real(event) })
}

/// `cuStreamSynchronize`.
pub(crate) unsafe fn stream(real: real::cuStreamSynchronize, stream: CUstream) -> Status {
    // SAFETY: `real` requires a valid argument; this one is the caller's, for the same driver function.
    waiting(Waits::Stream(legacy(stream)), || unsafe { real(stream) })
}

/// `cuStreamSynchronize_ptsz`.
pub(crate) unsafe fn stream_per_thread(real: real::cuStreamSynchronize_ptsz, stream: CUstream) -> Status {
    // SAFETY: `real` requires a valid argument; this one is the caller's, for the same driver function.
    waiting(Waits::Stream(per_thread(stream)), || unsafe { real(stream) })
}

/// Makes a call in which the program waits. At such points a pool gives back the memory that it holds above its threshold.
fn waiting(what: Waits, call: impl FnOnce() -> Status) -> Status {
    let Enforcement::Active(process) = process::enforcement() else { return call() };
    let call = || waits(&process.compute, what, call);
    let code = if process.pools.any() { releasing(|process| process.pools.all(), call) } else { call() };
    if process.baselines.has_unmeasured() {
        enter_or(|| measurement::reconcile_here(process, 0), false);
    }
    code
}
