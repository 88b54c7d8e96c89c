//! How do limits change that several processes change at once?
//!
//! Limits are several words. Who changes a part of them keeps the others as it has read them, and would undo what somebody
//! else has written in between: so the reading and the writing are done under a lock, which dies with its holder. Killed
//! in between, a holder leaves some words new and some old, each of them whole and asked for.

use crate::{
    file::error::RegionError,
    handle::{
        limits::Limits,
        region::{DeviceView, Region},
    },
    sync::backoff::{self, CHANGING},
};

/// A device whose limits were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsChange {
    /// The device, with the limits that it had.
    pub before: DeviceView,
    /// What the slice may use of it now.
    pub after: Limits,
}

impl Region {
    /// Has `change` say what the slice may use of each of its devices, by what it may use now; `None` changes nothing. Of
    /// those who change limits at the same time, each sees what the one before it has left. They take effect as with
    /// [`set_limits`](Self::set_limits).
    ///
    /// # Errors
    /// [`RegionError::Changing`] when somebody else does not come to an end, [`RegionError::Replaced`] when the path leads
    /// to another file now, [`RegionError::System`] when it cannot be opened to be written, or locked.
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
