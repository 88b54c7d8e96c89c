//! Managed memory that this process was charged for.
//!
//! NVML's figure of a process has no managed memory, wherever that memory is (Syllo/nvtop#213, gpuopenanalytics/pynvml#63). So
//! comparisons of that figure with the ledger add it. Blocks of small allocations and pools are left out.

use gpuslice_region::Device;
use parking_lot::Mutex;

/// Bytes of managed memory on each device.
#[derive(Debug, Default)]
pub(crate) struct ManagedBytes(Mutex<Vec<(Device, u64)>>);

impl ManagedBytes {
    /// Counts an allocation.
    #[cold]
    pub(crate) fn add(&self, device: Device, bytes: u64) {
        let mut all = self.0.lock();
        match all.iter_mut().find(|(of, _)| *of == device) {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => all.push((device, bytes)),
        }
    }

    /// Counts the end of an allocation.
    #[cold]
    pub(crate) fn subtract(&self, device: Device, bytes: u64) {
        if let Some((_, sum)) = self.0.lock().iter_mut().find(|(of, _)| *of == device) {
            *sum = sum.saturating_sub(bytes);
        }
    }

    /// Returns the bytes on a device.
    pub(crate) fn bytes(&self, device: Device) -> u64 {
        self.0.lock().iter().find(|(of, _)| *of == device).map_or(0, |(_, sum)| *sum)
    }
}
