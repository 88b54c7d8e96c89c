//! Memory of a process of the slice that has just died, until the device has it back.
//!
//! The region counts the memory as held until then (`gpuslice_region`, `leaving`). A request that does not fit beside it waits.
//! A request for which the driver has no memory shortly after a death waits too. A thread that makes a context waits if the
//! context does not fit beside that memory. If the slice has measured no context yet, the estimate decides. The wait comes before
//! the measurement of the context, because memory that comes back meanwhile would hide the size. All waits end after [`LEAVING`].
//! A waiting thread holds no lock and delays no other request.

use super::memory_call::Waiting;
use super::reading::Reading;
use crate::os::clock::now;
use crate::os::reentrancy::{self, enter_or};
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use core::time::Duration;
use gpuslice_policy::time::Monotonic;
use gpuslice_region::{Device, LEAVING, pause};

/// Pause between two checks of a waiting thread. Guessed: a tenth of the time after which, by most reports, the device has the
/// memory of a dead process back.
const LEAVING_PAUSE: Duration = Duration::from_millis(50);

/// Waits until `bytes` may fit, because the device has back the memory of dead processes. The driver has already given `given` of
/// these bytes. Returns false if there is no such memory, or if the bytes do not fit even without it.
#[cold]
pub(crate) fn wait(slice: &Slice, device: Device, bytes: u64, given: u64) -> bool {
    if slice.region().leaving(device) == 0 || !slice.fits_without(device, bytes, 0) {
        return false;
    }
    until_back(slice, device, given);
    true
}

/// Checks whether the device has back the memory of dead processes. If so, that memory does not count any more.
pub(crate) fn look(slice: &Slice, place: SliceDevice) {
    if slice.has_quota(place.device) && slice.region().leaving(place.device) > 0 {
        let _is_back = is_back(slice, place, 0);
    }
}

/// Returns true if the device has back the memory of dead processes. Then that memory does not count any more. `given`: bytes
/// that the driver has given and that no ledger has yet.
///
/// A memory call under way makes a reading too high. Its bytes are in the ledger before the driver takes them, and after the
/// driver has them back. So only a reading without such calls says that memory is back.
fn is_back(slice: &Slice, place: SliceDevice, given: u64) -> bool {
    slice.member().end_leaving(place.device, || {
        let reading = Reading::take(slice, place, 0).filter(|reading| reading.is_exact(0))?;
        Some(reading.room().saturating_add(given))
    })
}

/// Waits, within a memory call, until the memory is back or [`LEAVING`] has passed.
fn until_back(slice: &Slice, device: Device, given: u64) {
    let Some(place) = slice.place_of_device(device) else { return };
    let _waiting = Waiting::within_call(slice.member());
    let end = now().saturating_add(LEAVING);
    while slice.region().leaving(device) > 0 && !is_back(slice, place, given) && now() < end {
        reentrancy::leave_during(|| pause(LEAVING_PAUSE));
    }
    // Memory that has left for long enough still counts until the region looks for it.
    let _ended = slice.region().reap();
}

/// Waits before a context is made, if a context has no room beside the memory of dead processes. `known`: bytes of a context, if
/// the slice has measured one. If these do not fit even without that memory, the function does not wait, and the caller refuses.
pub(crate) fn wait_for_a_context(slice: &Slice, device: Device, known: Option<u64>, estimate: u64) {
    let region = slice.region();
    let Some(limit) = region.memory_limit(device) else { return };
    let _cleared = region.reap();
    let leaving = region.leaving(device);
    let room = limit.saturating_sub(region.held(device));
    let is_beside = room.saturating_sub(leaving) >= known.unwrap_or(estimate);
    if leaving > 0 && !is_beside && known.is_none_or(|known| known <= room) {
        until_back(slice, device, 0);
    }
}

/// Decides whether the hook repeats a call for which the quota has room and the driver had no memory. If a process of the slice
/// has died lately, the call may succeed later. Then the thread pauses, and the function returns the instant until which the hook
/// repeats the call. `None`: the hook does not repeat it. `until` is the result of the previous call of this function.
#[cold]
pub(crate) fn retry(slice: &Slice, device: Device, until: Option<Monotonic>) -> Option<Monotonic> {
    let may_help = || {
        let _cleared = slice.region().reap();
        slice.has_quota(device) && slice.region().has_recent_death(device)
    };
    let now = now();
    let until = until.unwrap_or_else(|| now.saturating_add(LEAVING));
    if now >= until || !enter_or(may_help, false) {
        return None;
    }
    enter_or(|| reentrancy::leave_during(|| pause(LEAVING_PAUSE)), ());
    Some(until)
}
