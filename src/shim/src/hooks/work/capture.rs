//! Stream captures, which the library counts.
//!
//! While a capture may be open, launches ask the driver about their stream, and the library's own calls are made in relaxed mode
//! (`driver_calls::capture_mode`). The count may be too high, which costs a question for each launch. It is never too low. A
//! capture counts before the driver opens it, and ends only where the driver's answer says that this call ended it. A capture
//! that no call ends counts for good: its thread has ended, its stream or context was destroyed, or the process has forked.

use crate::driver_calls::capture_mode;
use crate::hooks::gpu_time;
use crate::hooks::hooked_call::HookedCall;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUstream, Status, status};

/// `cuStreamBeginCapture` and its per-thread form.
pub(crate) fn begin(call: &HookedCall<real::cuStreamBeginCapture>) -> Status {
    let (stream,) = call.arguments();
    begin_counted(stream, || call.forward())
}

/// `cuStreamBeginCapture_v2` and its per-thread form.
pub(crate) fn begin_v2(call: &HookedCall<real::cuStreamBeginCapture_v2>) -> Status {
    let (stream, _) = call.arguments();
    begin_counted(stream, || call.forward())
}

/// `cuStreamBeginCaptureToGraph` and its per-thread form.
pub(crate) fn begin_to_graph(call: &HookedCall<real::cuStreamBeginCaptureToGraph>) -> Status {
    let (stream, ..) = call.arguments();
    begin_counted(stream, || call.forward())
}

/// `cuStreamBeginRecaptureToGraph` and its per-thread form.
pub(crate) fn begin_again(call: &HookedCall<real::cuStreamBeginRecaptureToGraph>) -> Status {
    let (stream, ..) = call.arguments();
    begin_counted(stream, || call.forward())
}

/// `cuStreamBeginCaptureToCig` and its per-thread form.
pub(crate) fn begin_to_graphics(call: &HookedCall<real::cuStreamBeginCaptureToCig>) -> Status {
    let (stream, _) = call.arguments();
    begin_counted(stream, || call.forward())
}

/// `cuStreamEndCapture` and its per-thread form.
pub(crate) fn end(call: &HookedCall<real::cuStreamEndCapture>) -> Status {
    ends(|| call.forward())
}

/// `cuStreamEndCaptureToCig` and its per-thread form.
pub(crate) fn end_to_graphics(call: &HookedCall<real::cuStreamEndCaptureToCig>) -> Status {
    ends(|| call.forward())
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
