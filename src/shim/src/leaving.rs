//! Memory of a process of the slice that has just died: when does the device have it back?
//!
//! The region keeps it as held until then (`gpuslice_region`, `leaving`). A request that has room but for it waits, and so does
//! one for which the driver itself has no memory shortly after a death. A context waits before its size is measured, since
//! what comes back meanwhile would hide it; the first one of a slice, whose size nobody knows, where its estimate has no room
//! beside it. All waits end after [`LEAVING`], hold no lock, and concern no other request.

use crate::compute::now;
use crate::guard::{outside, quietly};
use crate::reading::Reading;
use crate::slice::Slice;
use core::time::Duration;
use gpuslice_region::{Device, LEAVING, pause};

/// How long a wait rests before it looks again. Guessed: no call of a driver's takes so long, also where its thread loses the
/// processor meanwhile.
const STEP: Duration = Duration::from_millis(50);

impl Slice {
    /// Looks whether memory that left a device is back, and ends its leaving if so. Takes [`STEP`] where memory leaves.
    pub(crate) fn look_for_leaving(&self, device: Device) {
        let until = now().saturating_add(u64::try_from(STEP.as_nanos()).unwrap_or(0));
        until_back(self, device, 0, until);
    }
}

/// Waits until so many bytes may fit, because memory that leaves the device is back. `given`: so many of them the driver has
/// given already. False: nothing has left, or the bytes do not fit even then.
#[cold]
pub(crate) fn wait(slice: &Slice, device: Device, bytes: u64, given: u64) -> bool {
    let region = slice.region();
    let fits = |limit| region.held(device).saturating_add(bytes) <= limit;
    if region.leaving(device) == 0 || !region.memory_limit(device).is_some_and(fits) {
        return false;
    }
    until_back(slice, device, given, now().saturating_add(LEAVING));
    // What has left for long enough still counts until it is looked for.
    let _ended = region.reap();
    true
}

/// Waits until memory that left a device is back, but no longer than until an instant. `given`: so many bytes the driver has
/// given that no ledger has yet.
///
/// A call under way makes a reading too high: its bytes are in the ledger while the driver does not have them yet, or has them
/// back already. So two readings that follow each other must be the same.
fn until_back(slice: &Slice, device: Device, given: u64, until: u64) {
    let Some(place) = slice.places().iter().find(|place| place.device == device).copied() else { return };
    let mut before = None;
    while slice.region().leaving(device) > 0 {
        let reading = Reading::take(slice, place, 0);
        let still = reading.filter(|_| reading == before);
        let is_back = |still: Reading| slice.member().is_back(device, still.outside().saturating_add(given));
        if still.is_some_and(is_back) || now() >= until {
            break;
        }
        before = reading;
        outside(|| pause(STEP));
    }
}

/// Waits before a context is made: until what leaves the device is back, if a context has no room beside it. `known`: what one
/// takes, if one was seen; where that does not fit even then it is refused without a wait.
pub(crate) fn wait_for_a_context(slice: &Slice, device: Device, known: Option<u64>, estimate: u64) {
    let region = slice.region();
    let Some(limit) = region.memory_limit(device) else { return };
    let _cleared = region.reap();
    let leaving = region.leaving(device);
    let room = limit.saturating_sub(region.held(device));
    let is_beside = room.saturating_sub(leaving) >= known.unwrap_or(estimate);
    if leaving > 0 && !is_beside && known.is_none_or(|known| known <= room) {
        until_back(slice, device, 0, now().saturating_add(LEAVING));
        let _ended = region.reap();
    }
}

/// The driver had no memory for what the quota has room for. Where a process of the slice has died lately the call may
/// succeed later: waits a little, and returns until when it is made again. None: it is not made again. `until` is the answer
/// of the last time.
#[cold]
pub(crate) fn retry(slice: &Slice, device: Device, until: Option<u64>) -> Option<u64> {
    let may_help = || {
        let _cleared = slice.region().reap();
        slice.has_quota(device) && slice.region().has_lost_lately(device)
    };
    let now = now();
    let until = until.unwrap_or_else(|| now.saturating_add(LEAVING));
    if now >= until || !quietly(may_help, false) {
        return None;
    }
    quietly(|| outside(|| pause(STEP)), ());
    Some(until)
}
