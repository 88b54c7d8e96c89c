//! Calls in which the program waits.
//!
//! While the program waits, the driver may release memory of pools. Afterwards the library finds code that a launch has loaded,
//! and the streams are empty.

use super::launch::{legacy, per_thread};
use crate::compute::{Waits, waits};
use crate::hooks::hooked_call::HookedCall;
use crate::hooks::memory::pool::releasing;
use crate::memory::measurement;
use crate::os::reentrancy::enter_or;
use crate::process::{self, Enforcement};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::Status;

/// `cuCtxSynchronize`.
pub(crate) fn context(call: &HookedCall<real::cuCtxSynchronize>) -> Status {
    waiting(Waits::Context, || call.forward())
}

/// `cuCtxSynchronize_v2`.
pub(crate) fn context_v2(call: &HookedCall<real::cuCtxSynchronize_v2>) -> Status {
    waiting(Waits::Other, || call.forward())
}

/// `cuEventSynchronize`.
pub(crate) fn event(call: &HookedCall<real::cuEventSynchronize>) -> Status {
    waiting(Waits::Other, || call.forward())
}

/// `cuStreamSynchronize`.
pub(crate) fn stream(call: &HookedCall<real::cuStreamSynchronize>) -> Status {
    let (stream,) = call.arguments();
    waiting(Waits::Stream(legacy(stream)), || call.forward())
}

/// `cuStreamSynchronize_ptsz`.
pub(crate) fn stream_per_thread(call: &HookedCall<real::cuStreamSynchronize_ptsz>) -> Status {
    let (stream,) = call.arguments();
    waiting(Waits::Stream(per_thread(stream)), || call.forward())
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
