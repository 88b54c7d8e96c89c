//! Streams: their names, contexts and captures.

use super::capture_mode::relaxed_if_capturing;
use super::contexts::current_context;
use core::ffi::{c_uint, c_void};
use core::ptr;
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUcontext, CUstream, Status, status};

/// `CU_STREAM_CAPTURE_STATUS_NONE`.
const NOT_CAPTURING: c_uint = 0;

/// A stream, as a call names it by its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Handle; null is a default stream.
    pub(crate) handle: CUstream,
    /// True if it is the thread's own default stream; false for every other stream.
    pub(crate) per_thread: bool,
}

// SAFETY: `Send` requires that another thread may use the handle. The library never reads or writes through it, and the driver
// accepts it from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// Returns the stream of a handle. `per_thread`: null names the thread's own default stream. Different names of the same
    /// stream give equal values.
    #[inline]
    pub(crate) fn named(handle: CUstream, per_thread: bool) -> Self {
        match handle.addr() {
            0 => Self { handle, per_thread },
            1 => Self { handle: ptr::null_mut(), per_thread: false },
            2 => Self { handle: ptr::null_mut(), per_thread: true },
            _ => Self { handle, per_thread: false },
        }
    }

    /// Returns true if the stream is a default stream.
    #[inline]
    pub(crate) fn is_default(self) -> bool {
        self.handle.is_null()
    }

    /// Returns true if a call that names this handle may mean this stream.
    pub(crate) fn is_named(self, handle: CUstream) -> bool {
        self == Self::named(handle, false) || self == Self::named(handle, true)
    }

    /// Returns true if the stream is the legacy default stream. That stream and the other streams of its context wait for each
    /// other, except streams that were made non-blocking.
    pub(crate) fn is_legacy(self) -> bool {
        self.handle.is_null() && !self.per_thread
    }

    /// Returns true if the stream may capture: it then records its calls instead of running them.
    pub(crate) fn may_capture(self) -> bool {
        may_capture(self.handle, self.per_thread)
    }
}

/// Waits until all work of a stream has ended.
pub(crate) fn wait_for(stream: CUstream) -> Status {
    slot::real::<real::cuStreamSynchronize>(Symbol::cuStreamSynchronize).map_or(
        status::NOT_SUPPORTED,
        |wait| {
            // SAFETY: `cuStreamSynchronize` requires an existing stream: the program passes `stream` to the hooked call, so it
            // keeps the stream until that call returns.
            unsafe { wait(stream) }
        },
    )
}

/// Asks the driver to call `function` with `number`, on a thread of the driver, when a stream has ended the work that is queued
/// now. Returns false if the driver refuses.
pub(crate) fn call_when_reached(
    stream: CUstream,
    function: unsafe extern "C" fn(*mut c_void),
    number: usize,
) -> bool {
    let Some(launch) = slot::real::<real::cuLaunchHostFunc>(Symbol::cuLaunchHostFunc) else { return false };
    // SAFETY: `cuLaunchHostFunc` requires an existing stream: the program passes `stream` to the hooked call. `function` takes
    // any number.
    let code = unsafe { launch(stream, Some(function), ptr::without_provenance_mut(number)) };
    code == status::SUCCESS
}

/// Returns the context of a stream; the current context for the default streams.
pub(crate) fn stream_context(stream: CUstream) -> Option<usize> {
    // 0 is the default stream, 1 the legacy one, 2 the thread's own.
    if stream.addr() <= 2 {
        return current_context();
    }
    let function = slot::real::<real::cuStreamGetCtx>(Symbol::cuStreamGetCtx)?;
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: the function needs an output that is valid for writes: `context` is on this stack. The driver checks the handle.
    let code = relaxed_if_capturing(|| unsafe { function(stream, &raw mut context) });
    (code == status::SUCCESS && !context.is_null()).then(|| context.expose_provenance())
}

/// Returns true if a stream and the legacy default stream wait for each other, or if the driver does not report it.
pub(crate) fn waits_for_legacy(stream: CUstream) -> bool {
    const NON_BLOCKING: u32 = 1;
    let Some(function) = slot::real::<real::cuStreamGetFlags>(Symbol::cuStreamGetFlags) else { return true };
    let mut flags = 0;
    // SAFETY: the function needs an output that is valid for writes: `flags` is on this stack. The driver checks the handle.
    let code = relaxed_if_capturing(|| unsafe { function(stream, &raw mut flags) });
    code != status::SUCCESS || flags & NON_BLOCKING == 0
}

/// Returns true if a stream captures: it records its calls instead of running them.
pub(crate) fn is_capturing(stream: CUstream) -> bool {
    slot::real::<real::cuStreamIsCapturing>(Symbol::cuStreamIsCapturing)
        .is_some_and(|function| capture_state(function, stream).is_some_and(|state| state != NOT_CAPTURING))
}

/// Returns true if a stream may capture. It also returns true if the driver does not answer, because then another capture forbids
/// the question.
pub(crate) fn may_capture(stream: CUstream, per_thread: bool) -> bool {
    let function = if per_thread {
        slot::real::<real::cuStreamIsCapturing_ptsz>(Symbol::cuStreamIsCapturing_ptsz)
    } else {
        slot::real::<real::cuStreamIsCapturing>(Symbol::cuStreamIsCapturing)
    };
    function.is_some_and(|function| capture_state(function, stream) != Some(NOT_CAPTURING))
}

fn capture_state(function: real::cuStreamIsCapturing, stream: CUstream) -> Option<c_uint> {
    let mut state: c_uint = NOT_CAPTURING;
    // SAFETY: the function needs an output of the size of an enumeration: `state` is on this stack, an integer of that size. The
    // driver checks the handle.
    let code = unsafe { function(stream, (&raw mut state).cast()) };
    (code == status::SUCCESS).then_some(state)
}
