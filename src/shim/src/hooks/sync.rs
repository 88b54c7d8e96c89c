//! Calls in which the program waits: have its pools given memory back meanwhile?

use crate::guard::quietly;
use crate::lifecycle::{self, Standing};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUcontext, CUevent, CUstream, Status};

/// `cuCtxSynchronize`.
pub(crate) unsafe fn context(real: real::cuCtxSynchronize) -> Status {
    // SAFETY: no arguments.
    waited(unsafe { real() })
}

/// `cuCtxSynchronize_v2`.
pub(crate) unsafe fn context_v2(real: real::cuCtxSynchronize_v2, context: CUcontext) -> Status {
    // SAFETY: the caller's own argument.
    waited(unsafe { real(context) })
}

/// `cuEventSynchronize`.
pub(crate) unsafe fn event(real: real::cuEventSynchronize, event: CUevent) -> Status {
    // SAFETY: the caller's own argument.
    waited(unsafe { real(event) })
}

/// `cuStreamSynchronize` and its per-thread form.
pub(crate) unsafe fn stream(real: real::cuStreamSynchronize, stream: CUstream) -> Status {
    // SAFETY: the caller's own argument.
    waited(unsafe { real(stream) })
}

/// Brings the pools up to date: what a pool holds above its threshold goes back at such points.
fn waited(code: Status) -> Status {
    if let Standing::Member(slice) = lifecycle::standing()
        && slice.pools.any()
    {
        quietly(|| slice.pools.reconcile_all(slice), ());
    }
    code
}
