//! Requests for which the quota has room and the device has no memory. A message says that others hold the device's memory.

use crate::driver_calls::nvml::memory;
use crate::driver_calls::{contexts, devices};
use crate::os::clock::now;
use crate::os::messages::{self, MESSAGE_PAUSE};
use crate::slice::handle::Slice;
use core::fmt;
use gpuslice_policy::config::{LogLevel, gpu_uuid_text};
use gpuslice_policy::time::Monotonic;
use gpuslice_policy::units::Bytes;
use gpuslice_region::Device;
use parking_lot::Mutex;

/// Instant of the last message, for each device.
#[derive(Debug, Default)]
pub(crate) struct DeviceFullMessages(Mutex<Vec<(Device, Monotonic)>>);

impl DeviceFullMessages {
    /// Returns true if a message about a device is due. After that, no message is due for [`MESSAGE_PAUSE`].
    fn claim_message(&self, device: Device, now: Monotonic) -> bool {
        let mut said = self.0.lock();
        match said.iter_mut().find(|(of, _)| *of == device) {
            Some((_, at)) if now.since(*at) < MESSAGE_PAUSE => return false,
            Some((_, at)) => *at = now,
            None => said.push((device, now)),
        }
        true
    }
}

/// Figures of a message.
struct Message {
    name: String,
    asked: u64,
    held: u64,
    quota: Option<u64>,
    free: Option<u64>,
    total: u64,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = Bytes::new;
        write!(f, "gpuslice: {}: the device has no memory for ", self.name)?;
        if self.asked > 0 {
            write!(f, "{} that the quota has room for: ", bytes(self.asked))?;
        } else {
            f.write_str("what the quota has room for: ")?;
        }
        write!(f, "this slice holds {} of ", bytes(self.held))?;
        match self.quota {
            Some(quota) => write!(f, "{}", bytes(quota))?,
            None => f.write_str("no quota")?,
        }
        if let Some(free) = self.free {
            write!(f, ", and {} of the device's {} are free", bytes(free), bytes(self.total))?;
        }
        f.write_str(".")?;
        // The driver keeps some memory of every device for itself. So up to an eighth may be missing although no other program
        // holds memory.
        match self.free {
            Some(free) if free.saturating_add(self.held) >= self.total / 8 * 7 => Ok(()),
            _ => f.write_str(" Others hold the rest."),
        }
    }
}

/// Notes that the driver had no memory for a request that the ledger had granted. The ledger still counts `granted` bytes of the
/// request as held.
#[cold]
pub(crate) fn note(device_full_messages: &DeviceFullMessages, slice: &Slice, device: Device, granted: u64) {
    // Without a quota gpuslice promises no memory, so a full device is an ordinary error of the driver.
    if !slice.has_quota(device) {
        return;
    }
    slice.member().count_device_denial(device);
    let Some(place) = slice.place_of_device(device) else { return };
    if !device_full_messages.claim_message(device, now()) {
        return;
    }
    let here = contexts::current_device() == Some(place.handle);
    let free = if here { devices::device_free() } else { None };
    let message = Message {
        name: gpu_uuid_text(&place.uuid),
        asked: granted,
        held: slice.region().held(device).saturating_sub(granted),
        quota: slice.region().memory_limit(device),
        free: free.or_else(|| memory::Session::open(&place.uuid)?.free()),
        total: place.total,
    };
    messages::say(LogLevel::Warn, &message);
}
