//! The truth about device memory: how many bytes of each device each process holds.
//!
//! A process changes these figures only while it holds the lock of the file. So held bytes and peaks are exact, for each device,
//! for each process and for each group.

use super::layout::{Level, MemoryKind, State, Usage};

/// The error of a charge: the device has not enough memory left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl Level {
    fn grow(&mut self, bytes: u64) {
        self.held = self.held.saturating_add(bytes);
        self.peak = self.peak.max(self.held);
    }
}

impl State {
    /// Returns the figures of a process on a device.
    pub fn usage(&mut self, process: usize, device: usize) -> Option<&mut Usage> {
        self.processes.get_mut(process)?.usage.get_mut(device)
    }

    /// Returns the bytes of a device that are neither held by a process nor leaving.
    #[must_use]
    pub fn free(&self, device: usize) -> u64 {
        let held = self.levels.get(device).map_or(0, |level| level.held);
        self.settings.capacity(device).saturating_sub(held)
    }

    /// Returns the bytes of dead processes that a device does not have back yet.
    #[must_use]
    pub fn leaving(&self, device: usize) -> u64 {
        let here = self.leaving.iter().filter(|left| left.device as usize == device);
        here.fold(0, |sum, left| sum.saturating_add(left.bytes))
    }

    /// Returns the bytes that a device reports as free. If the device uses the host's memory, other programs use some of it. So
    /// the number then changes by up to 1 GiB from one millisecond to the next.
    #[must_use]
    pub(crate) fn reported_free(&self, device: usize, now: u64) -> u64 {
        const STEP: u64 = 16 << 20;
        let others = if self.settings.integrated > 0 { now / 1_000_000 * 37 % 64 * STEP } else { 0 };
        self.free(device).saturating_sub(others)
    }

    /// Charges a process for `bytes` of a device.
    ///
    /// # Errors
    /// The device has not enough memory left. Then the process is charged nothing.
    pub fn charge(
        &mut self,
        process: usize,
        device: usize,
        kind: MemoryKind,
        bytes: u64,
    ) -> Result<(), Full> {
        if bytes > self.free(device) {
            if let Some(usage) = self.usage(process, device) {
                usage.refusals = usage.refusals.saturating_add(1);
            }
            return Err(Full);
        }
        let group = self.processes.get(process).map_or(0, |process| process.group as usize);
        if let Some(usage) = self.usage(process, device) {
            if let Some(held) = usage.held.get_mut(kind as usize) {
                *held = held.saturating_add(bytes);
            }
            usage.peak = usage.peak.max(usage.total());
        }
        if let Some(level) = self.levels.get_mut(device) {
            level.grow(bytes);
        }
        if let Some(level) = self.groups.get_mut(group).and_then(|group| group.levels.get_mut(device)) {
            level.grow(bytes);
        }
        Ok(())
    }

    /// Counts an allocation.
    pub fn count(&mut self, process: usize, device: usize) {
        if let Some(usage) = self.usage(process, device) {
            usage.allocations = usage.allocations.saturating_add(1);
            usage.live = usage.live.saturating_add(1);
        }
    }

    /// Counts the end of an allocation.
    pub fn uncount(&mut self, process: usize, device: usize) {
        if let Some(usage) = self.usage(process, device) {
            usage.live = usage.live.saturating_sub(1);
        }
    }

    /// Refunds `bytes` of a device to a process. It cannot get back more than it holds of this kind.
    pub fn refund(&mut self, process: usize, device: usize, kind: MemoryKind, bytes: u64) {
        let group = self.processes.get(process).map_or(0, |process| process.group as usize);
        let Some(held) = self.usage(process, device).and_then(|usage| usage.held.get_mut(kind as usize))
        else {
            return;
        };
        let bytes = bytes.min(*held);
        *held -= bytes;
        if let Some(level) = self.levels.get_mut(device) {
            level.held = level.held.saturating_sub(bytes);
        }
        if let Some(level) = self.groups.get_mut(group).and_then(|group| group.levels.get_mut(device)) {
            level.held = level.held.saturating_sub(bytes);
        }
    }
}
