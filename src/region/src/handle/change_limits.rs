//! Changes limits while other processes may change them too.
//!
//! The limits of a device are several words. A process that changes one of them writes back the others as it has read them.
//! It could undo the change of another process. It therefore reads and writes them under a file lock. If the process is
//! killed in between, some words are new and some old, and each is a value that a process has set.

use crate::{
    file::error::RegionError,
    handle::{
        limits::Limits,
        region::{DeviceView, Region},
    },
    sync::backoff::{self, CHANGING},
};

/// A device with changed limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsChange {
    /// The device with its former limits.
    pub before: DeviceView,
    /// The limits now.
    pub after: Limits,
}

impl Region {
    /// Calls `change` with each device of the slice, and writes the limits that it returns. `None` leaves a device
    /// unchanged. If two processes change limits, the second one gets the result of the first. The limits take effect as
    /// with [`set_limits`](Self::set_limits).
    ///
    /// # Errors
    /// [`RegionError::Changing`] if another process holds the lock and does not finish. [`RegionError::Replaced`] if
    /// the path leads to another file. [`RegionError::System`] if the file cannot be opened for writing, or locked.
    pub fn change_limits(
        &self,
        mut change: impl FnMut(&DeviceView) -> Option<Limits>,
    ) -> Result<Vec<LimitsChange>, RegionError> {
        let locks = self.mapped().locks()?;
        let attempt = || locks.try_limits().map_err(|source| self.mapped().failed("lock it", source));
        let late = |waited| RegionError::Changing { path: self.path().to_owned(), waited };
        let _lock = backoff::retry_until(CHANGING, attempt, late)?;
        Ok(self.change_tried(&mut change))
    }

    /// Does the same as [`change_limits`](Self::change_limits), but never waits. A process of the slice could hold the lock
    /// for as long as it lives. So this function tries the lock once, and writes the limits with or without it. Without the
    /// lock, another process that changes limits at the same moment may undo the change, so the caller looks again later.
    ///
    /// # Errors
    /// [`RegionError::Replaced`] if the path leads to another file. [`RegionError::System`] if the file cannot be opened for
    /// writing, or locked.
    pub fn impose_limits(
        &self,
        mut change: impl FnMut(&DeviceView) -> Option<Limits>,
    ) -> Result<Vec<LimitsChange>, RegionError> {
        if self.devices().iter().all(|device| change(device).is_none()) {
            return Ok(Vec::new());
        }
        let locks = self.mapped().locks()?;
        let _lock = locks.try_limits().map_err(|source| self.mapped().failed("lock it", source))?;
        Ok(self.change_tried(&mut change))
    }

    /// Changes limits for a caller that has tried to lock them.
    fn change_tried(&self, change: &mut impl FnMut(&DeviceView) -> Option<Limits>) -> Vec<LimitsChange> {
        let mut changes = Vec::new();
        for before in self.devices() {
            let Some(after) = change(&before).map(Limits::bounded) else { continue };
            self.set_limits(before.device, after);
            changes.push(LimitsChange { before, after });
        }
        changes
    }
}
