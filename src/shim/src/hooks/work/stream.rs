//! Ends of streams.
//!
//! A stream also ends with its context or green context (`context`, `green`). A thread's own stream ends with the thread. The
//! library finds its records of such a stream to be stale at the next question about the stream.

use crate::hooks::gpu_time;
use crate::hooks::hooked_call::HookedCall;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::Status;

/// `cuStreamDestroy` in both forms. The driver still runs the work that is queued, so the library marks its end before the call.
pub(crate) fn destroy(call: &HookedCall<real::cuStreamDestroy_v2>) -> Status {
    let (stream,) = call.arguments();
    gpu_time::stream_ends(stream);
    call.forward()
}
