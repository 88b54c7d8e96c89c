//! Ends of streams.
//!
//! A stream also ends with its context or green context (`context`, `green`). A thread's own stream ends with the thread. Records
//! of such a stream are found to be stale at the next question about it.

use crate::hooks::gpu_time;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUstream, Status};

/// `cuStreamDestroy` in both forms. What is queued is still done, so the last chance to mark its end is before.
pub(crate) unsafe fn destroy(real: real::cuStreamDestroy_v2, stream: CUstream) -> Status {
    gpu_time::stream_ends(stream);
    // SAFETY: the caller's own argument.
    unsafe { real(stream) }
}
