//! Changes limits while other processes may change them too.
//!
//! The limits of a device are several words. A process that changes one of them writes back the others as it has read
//! them, and could undo the change of another process. Reading and writing are therefore done under a file lock. If its
//! holder is killed in between, some words are new and some old, and each is a value that a process has set.

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
    /// Calls `change` with each device of the slice, and writes the limits that it returns; `None` leaves a device
    /// unchanged. Of two processes that change limits, the second sees the result of the first. The limits take effect
    /// as with [`set_limits`](Self::set_limits).
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
        let mut changes = Vec::new();
        for before in self.devices() {
            let Some(after) = change(&before).map(Limits::bounded) else { continue };
            self.set_limits(before.device, after);
            changes.push(LimitsChange { before, after });
        }
        Ok(changes)
    }
}
