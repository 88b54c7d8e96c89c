//! Contexts: the current context, and calls within another context.

use super::capture_mode::{relaxed_if_capturing, with_relaxed_capture_mode};
use core::ffi::{c_int, c_uint};
use core::ptr;
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUcontext, CUdevice, CUgreenCtx, status};

/// Returns the context that is current on this thread, as a number; `None` if no context is current.
pub(crate) fn current_context() -> Option<usize> {
    let context: CUcontext = ask!(cuCtxGetCurrent, CUcontext)?;
    (!context.is_null()).then(|| context.expose_provenance())
}

/// Returns the device of the context that is current on this thread.
pub(crate) fn current_device() -> Option<CUdevice> {
    ask!(cuCtxGetDevice, CUdevice)
}

/// Returns a limit of the current context.
pub(crate) fn context_limit(limit: c_uint) -> Option<usize> {
    with_relaxed_capture_mode(|| ask!(cuCtxGetLimit, usize, limit))
}

/// Returns true if a device's primary context exists; `None` if the driver does not answer.
pub(crate) fn primary_context_is_active(device: CUdevice) -> Option<bool> {
    let function = slot::real::<real::cuDevicePrimaryCtxGetState>(Symbol::cuDevicePrimaryCtxGetState)?;
    let (mut flags, mut active): (c_uint, c_int) = (0, 0);
    // SAFETY: the function needs outputs that are valid for writes: `flags` and `active` are on this stack.
    let code = with_relaxed_capture_mode(|| unsafe { function(device, &raw mut flags, &raw mut active) });
    (code == status::SUCCESS).then_some(active != 0)
}

/// Returns true if a context still exists.
pub(crate) fn context_is_alive(context: CUcontext) -> bool {
    let mut version: c_uint = 0;
    let function = slot::real::<real::cuCtxGetApiVersion>(Symbol::cuCtxGetApiVersion);
    // SAFETY: the function needs an output that is valid for writes: `version` is on this stack. The driver checks the handle.
    function.is_some_and(|function| unsafe { function(context, &raw mut version) } == status::SUCCESS)
}

/// Returns the handle by which a green context is used as a context.
pub(crate) fn context_handle_of(green: CUgreenCtx) -> Option<usize> {
    let function = slot::real::<real::cuCtxFromGreenCtx>(Symbol::cuCtxFromGreenCtx)?;
    let mut context_handle: CUcontext = ptr::null_mut();
    // SAFETY: the function needs an output that is valid for writes: `context_handle` is on this stack. The driver checks the
    // handle.
    let code = relaxed_if_capturing(|| unsafe { function(&raw mut context_handle, green) });
    (code == status::SUCCESS && !context_handle.is_null()).then(|| context_handle.expose_provenance())
}

/// Returns the device of a context that need not be current.
pub(crate) fn context_device(context: usize) -> Option<CUdevice> {
    within(context, current_device)?
}

/// Makes `context` current, runs `calls`, and restores the former context. Returns `None` if the context cannot be made current.
pub(crate) fn within<T>(context: usize, calls: impl FnOnce() -> T) -> Option<T> {
    if current_context() == Some(context) {
        return Some(calls());
    }
    let push = slot::real::<real::cuCtxPushCurrent_v2>(Symbol::cuCtxPushCurrent_v2)?;
    let pop = slot::real::<real::cuCtxPopCurrent_v2>(Symbol::cuCtxPopCurrent_v2)?;
    // SAFETY: `cuCtxPushCurrent` requires a context: the driver returned this handle. `pop` below removes it again.
    let code = unsafe { push(ptr::with_exposed_provenance_mut(context)) };
    if code != status::SUCCESS {
        return None;
    }
    let done = calls();
    let mut popped: CUcontext = ptr::null_mut();
    // SAFETY: `cuCtxPopCurrent` requires an output that is valid for writes: `popped` is on this stack. It removes the context
    // that `push` has made current above.
    unsafe { pop(&raw mut popped) };
    Some(done)
}
