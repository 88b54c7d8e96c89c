//! Which calls end a stream?
//!
//! A stream also ends with its context or green context (`context`, `green`) and, where it is a thread's own, with the
//! thread: what is kept of it is then found to be in vain when it is next asked about.

use crate::hooks::gpu_time;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUstream, Status};

/// `cuStreamDestroy` in both forms. What is queued is still done, so the last chance to mark its end is before.
pub(crate) unsafe fn destroy(real: real::cuStreamDestroy_v2, stream: CUstream) -> Status {
    gpu_time::stream_ends(stream);
    // SAFETY: the caller's own argument.
    unsafe { real(stream) }
}
