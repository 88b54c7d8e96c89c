//! Ends of streams.
//!
//! A stream also ends with its context or green context (`context`, `green`). A thread's own stream ends with the thread. The
//! library finds its records of such a stream to be stale at the next question about the stream.

use crate::hooks::gpu_time;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUstream, Status};

/// `cuStreamDestroy` in both forms. The driver still runs the work that is queued, so the library marks its end before the call.
pub(crate) unsafe fn destroy(real: real::cuStreamDestroy_v2, stream: CUstream) -> Status {
    gpu_time::stream_ends(stream);
    // SAFETY: `real` requires a valid argument; this one is the caller's, for the same driver function.
    unsafe { real(stream) }
}
