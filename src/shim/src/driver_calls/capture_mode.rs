//! Stream captures of this process, and calls that leave them intact.
//!
//! While a thread captures in global mode, the driver refuses some calls of each thread that is not in relaxed mode. Such a call
//! also invalidates the capture. A call of the library must not invalidate the program's capture. So the library makes such calls
//! within [`relaxed_if_capturing`].
#![allow(
    clippy::disallowed_types,
    reason = "a word of this process alone: `region::sync` is for words shared between processes"
)]

use core::ffi::c_uint;
use core::sync::atomic::{AtomicU32, Ordering};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::status;
use gpuslice_driver::{Symbol, slot};

/// Number of open captures. The count may be too high, but never too low (`hooks::capture`).
static OPEN: AtomicU32 = AtomicU32::new(0);

/// Counts a capture that is about to begin. The hook calls this before the call of the driver.
pub(crate) fn note_begin() {
    OPEN.fetch_add(1, Ordering::Relaxed);
}

/// Stops counting a capture that has ended or did not begin. The hook calls this after the call of the driver.
pub(crate) fn note_end() {
    let less = |count: u32| count.checked_sub(1);
    let _before = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Returns true if a capture may be open. It is one relaxed load.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    // Relaxed: if the program does not order the beginning of a capture before this call, both results are correct.
    OPEN.load(Ordering::Relaxed) != 0
}

/// Makes calls that must not invalidate captures: in relaxed mode while a capture is open. The mode concerns only this thread.
#[inline]
pub(crate) fn relaxed_if_capturing<T>(calls: impl FnOnce() -> T) -> T {
    if is_open() { with_relaxed_capture_mode(calls) } else { calls() }
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(crate) const RELAXED: c_uint = 2;

/// Sets the capture mode of this thread, and returns the mode before.
pub(crate) fn exchange_capture_mode(mode: c_uint) -> Option<c_uint> {
    let mut mode = mode;
    let function =
        slot::real::<real::cuThreadExchangeStreamCaptureMode>(Symbol::cuThreadExchangeStreamCaptureMode)?;
    // SAFETY: the function needs an enumeration that it may read and write: `mode` is on this stack, an integer of that size.
    let code = unsafe { function((&raw mut mode).cast()) };
    (code == status::SUCCESS).then_some(mode)
}

/// Makes calls in relaxed mode. Frequent calls use [`relaxed_if_capturing`], which changes the mode only if a capture is open.
pub(crate) fn with_relaxed_capture_mode<T>(calls: impl FnOnce() -> T) -> T {
    let before = exchange_capture_mode(RELAXED);
    let done = calls();
    if let Some(mode) = before {
        exchange_capture_mode(mode);
    }
    done
}
