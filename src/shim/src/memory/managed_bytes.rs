//! Managed memory that this process was charged for.
//!
//! NVML's figure of a process has no managed memory, wherever that memory is (Syllo/nvtop#213, gpuopenanalytics/pynvml#63). So
//! comparisons of that figure with the ledger add it. Blocks of small allocations and pools are not counted here. A process that
//! uses them believes NVML's figure only as far as free memory confirms it.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::driver_calls::devices;
use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicBool, Ordering};
use gpuslice_region::Device;
use parking_lot::Mutex;

/// Bytes of managed memory on each device.
#[derive(Debug, Default)]
pub(crate) struct ManagedBytes {
    all: Mutex<Vec<(Device, u64)>>,
    /// True if this process has ever had managed memory that is not in `all`.
    has_uncounted: AtomicBool,
}

impl ManagedBytes {
    /// Counts an allocation. Returns false if the device keeps all managed memory itself, so that NVML may report it.
    #[cold]
    pub(crate) fn count(&self, slice: &Slice, device: Device, bytes: u64) -> bool {
        let place = slice.place_of_device(device);
        if !place.is_some_and(|place| devices::shares_managed_memory(place.handle)) {
            self.note_uncounted();
            return false;
        }
        let mut all = self.all.lock();
        match all.iter_mut().find(|(of, _)| *of == device) {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => all.push((device, bytes)),
        }
        true
    }

    /// Counts the end of an allocation.
    #[cold]
    pub(crate) fn subtract(&self, device: Device, bytes: u64) {
        if let Some((_, sum)) = self.all.lock().iter_mut().find(|(of, _)| *of == device) {
            *sum = sum.saturating_sub(bytes);
        }
    }

    /// Notes that the process uses managed memory that is not counted.
    #[cold]
    pub(crate) fn note_uncounted(&self) {
        self.has_uncounted.store(true, Ordering::Relaxed);
    }

    /// Returns true if the process has ever used managed memory that is not counted.
    pub(crate) fn has_uncounted(&self) -> bool {
        self.has_uncounted.load(Ordering::Relaxed)
    }

    /// Returns the bytes on a device.
    pub(crate) fn bytes(&self, device: Device) -> u64 {
        self.all.lock().iter().find(|(of, _)| *of == device).map_or(0, |(_, sum)| *sum)
    }
}
