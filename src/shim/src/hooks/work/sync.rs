//! Calls in which the program waits.
//!
//! The driver may release memory of pools meanwhile, code that a launch has loaded is found, and the streams are empty
//! afterwards.

use super::launch::{legacy, per_thread};
use crate::compute::{Waits, waits};
use crate::hooks::memory::pool::releasing;
use crate::memory::measurement;
use crate::os::reentrancy::quietly;
use crate::process::{self, Standing};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUcontext, CUevent, CUstream, Status};

/// `cuCtxSynchronize`.
pub(crate) unsafe fn context(real: real::cuCtxSynchronize) -> Status {
    // SAFETY: no arguments.
    waiting(Waits::Context, || unsafe { real() })
}

/// `cuCtxSynchronize_v2`.
pub(crate) unsafe fn context_v2(real: real::cuCtxSynchronize_v2, context: CUcontext) -> Status {
    // SAFETY: the caller's own argument.
    waiting(Waits::Other, || unsafe { real(context) })
}

/// `cuEventSynchronize`.
pub(crate) unsafe fn event(real: real::cuEventSynchronize, event: CUevent) -> Status {
    // SAFETY: the caller's own argument.
    waiting(Waits::Other, || unsafe { real(event) })
}

/// `cuStreamSynchronize`.
pub(crate) unsafe fn stream(real: real::cuStreamSynchronize, stream: CUstream) -> Status {
    // SAFETY: the caller's own argument.
    waiting(Waits::Stream(legacy(stream)), || unsafe { real(stream) })
}

/// `cuStreamSynchronize_ptsz`.
pub(crate) unsafe fn stream_per_thread(real: real::cuStreamSynchronize_ptsz, stream: CUstream) -> Status {
    // SAFETY: the caller's own argument.
    waiting(Waits::Stream(per_thread(stream)), || unsafe { real(stream) })
}

/// What a pool holds above its threshold goes back at such points.
fn waiting(what: Waits, call: impl FnOnce() -> Status) -> Status {
    let Standing::Member(process) = process::standing() else { return call() };
    let call = || waits(&process.compute, what, call);
    let code = if process.pools.any() { releasing(|process| process.pools.all(), call) } else { call() };
    if process.witness.is_unsettled() {
        quietly(|| measurement::settle_here(process, 0), false);
    }
    code
}
