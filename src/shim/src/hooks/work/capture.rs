//! Stream captures, which the library counts.
//!
//! While a capture may be open, launches ask the driver about their stream, and the library's own calls are made in relaxed mode
//! (`driver_calls::capture_mode`). The count may be too high, which costs a question for each launch. It is never too low. A
//! capture counts before the driver opens it, and ends only where the driver's answer says that this call ended it. A capture
//! that no call ends counts for good: its thread has ended, its stream or context was destroyed, or the process has forked.

use crate::driver_calls::capture_mode;
use crate::hooks::gpu_time;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphRecaptureCallback, CUstream, CUstreamCigCaptureParams,
    Status, c_uint, c_void, status,
};

/// `cuStreamBeginCapture` and its per-thread form.
pub(crate) unsafe fn begin(real: real::cuStreamBeginCapture, stream: CUstream) -> Status {
    // SAFETY: `real` requires a valid argument; this one is the caller's, for the same driver function.
    begin_counted(stream, || unsafe { real(stream) })
}

/// `cuStreamBeginCapture_v2` and its per-thread form.
pub(crate) unsafe fn begin_v2(real: real::cuStreamBeginCapture_v2, stream: CUstream, mode: c_uint) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    begin_counted(stream, || unsafe { real(stream, mode) })
}

/// `cuStreamBeginCaptureToGraph` and its per-thread form.
pub(crate) unsafe fn begin_to_graph(
    real: real::cuStreamBeginCaptureToGraph,
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    mode: c_uint,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    begin_counted(stream, || unsafe { real(stream, graph, dependencies, edges, count, mode) })
}

/// `cuStreamBeginRecaptureToGraph` and its per-thread form.
pub(crate) unsafe fn begin_again(
    real: real::cuStreamBeginRecaptureToGraph,
    stream: CUstream,
    mode: c_uint,
    graph: CUgraph,
    callback: CUgraphRecaptureCallback,
    data: *mut c_void,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    begin_counted(stream, || unsafe { real(stream, mode, graph, callback, data) })
}

/// `cuStreamBeginCaptureToCig` and its per-thread form.
pub(crate) unsafe fn begin_to_graphics(
    real: real::cuStreamBeginCaptureToCig,
    stream: CUstream,
    parameters: *mut CUstreamCigCaptureParams,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    begin_counted(stream, || unsafe { real(stream, parameters) })
}

/// `cuStreamEndCapture` and its per-thread form.
pub(crate) unsafe fn end(real: real::cuStreamEndCapture, stream: CUstream, graph: *mut CUgraph) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    ends(|| unsafe { real(stream, graph) })
}

/// `cuStreamEndCaptureToCig` and its per-thread form.
pub(crate) unsafe fn end_to_graphics(real: real::cuStreamEndCaptureToCig, stream: CUstream) -> Status {
    // SAFETY: `real` requires a valid argument; this one is the caller's, for the same driver function.
    ends(|| unsafe { real(stream) })
}

fn begin_counted(stream: CUstream, call: impl FnOnce() -> Status) -> Status {
    capture_mode::note_begin();
    gpu_time::capture_begins(stream);
    let code = call();
    if code != status::SUCCESS {
        capture_mode::note_end();
    }
    code
}

/// Makes a call that ends a capture. The capture ends even if no graph comes of it. Every other status (the stream does not
/// capture, another stream or thread began it, the context is broken) may leave it open.
fn ends(call: impl FnOnce() -> Status) -> Status {
    let code = call();
    if matches!(code, status::SUCCESS | status::CAPTURE_INVALIDATED | status::CAPTURE_UNJOINED) {
        capture_mode::note_end();
    }
    code
}
