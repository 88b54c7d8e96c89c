//! Functions about device memory.
//!
//! They read the same words as `cuMemGetInfo`. Used memory is the memory of all processes together, and contains that of their
//! contexts. The driver keeps nothing for itself.

use gpuslice_driver::types::{nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t};

use super::entry::NvmlCall;
use super::layouts::{Bar1Memory, version};
use super::statuses;
use crate::os::clock;
use crate::status::Outcome;

impl NvmlCall {
    fn figures(&self, device: nvmlDevice_t) -> Result<nvmlMemory_t, u32> {
        let (state, subject) = self.on(device)?;
        let devices = || subject.devices(&state.settings);
        let total = devices().map(|device| state.settings.capacity(device)).sum();
        let free = devices().map(|device| state.reported_free(device, clock::now())).sum();
        Ok(nvmlMemory_t { total, free, used: total - free })
    }

    pub(super) fn memory(&self, device: nvmlDevice_t, to: *mut nvmlMemory_t) -> Outcome {
        self.write(to, self.figures(device)?)
    }

    pub(super) fn memory_v2(&self, device: nvmlDevice_t, to: *mut nvmlMemory_v2_t) -> Outcome {
        let figures = self.figures(device)?;
        let asked: u32 = self.read(to.cast())?;
        if asked != version::<nvmlMemory_v2_t>(2) {
            return Err(statuses::ARGUMENT_VERSION_MISMATCH);
        }
        let nvmlMemory_t { total, free, used } = figures;
        self.write(to, nvmlMemory_v2_t { version: asked, total, reserved: 0, free, used })
    }

    /// Reports the window through which the host accesses device memory. It covers all memory, and no part of it is in use.
    pub(super) fn bar1(&self, device: nvmlDevice_t, to: *mut Bar1Memory) -> Outcome {
        let total = self.figures(device)?.total.checked_next_power_of_two().unwrap_or(u64::MAX);
        self.write(to, Bar1Memory { total, free: total, used: 0 })
    }
}
