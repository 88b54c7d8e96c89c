//! Removes the region of a slice without processes.
//!
//! A process that joins holds the join lock, and checks under it that the path still leads to the file that it has
//! opened. A region is removed under the same lock, after a check that no process is alive. So no joining process is
//! left on a file without a name.
//!
//! A region also stays while its slice owes GPU time (`compute::debts`). A later attempt finds the debt paid.
//!
//! A process cannot read a region of another version of the layout, so its debts are lost. Members of every version hold a
//! lock in the file. So the region is removed only while no process holds one.

use core::time::Duration;
use std::{fs, path::Path};

use crate::{
    file::{
        error::RegionError,
        map::{self, Trust},
        stale,
    },
    handle::region::Region,
    slots::identity,
    sync::{
        backoff::{Backoff, BackoffBounds, NO_WAIT, REMOVING},
        clock,
    },
};

/// Result of an attempt to remove a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The region does not exist.
    Gone,
    /// This number of processes of the slice is alive, or a process is just joining.
    InUse(usize),
    /// No process is alive, but the slice owes GPU time. It takes this wall time to pay the debt. A new region would
    /// forgive the debt.
    Owing(Duration),
}

/// Removes the region at `path`, unless a process is alive in it or the slice owes GPU time.
///
/// # Errors
/// Every [`RegionError`] of a file that is not a usable region, and of a directory from which nothing can be removed.
pub fn remove_if_unused(path: &Path, trust: Trust) -> Result<Removal, RegionError> {
    remove(path, trust, DebtPolicy::Kept, REMOVING)
}

/// Does the same as [`remove_if_unused`], but waits for no lock. If another process holds the join lock, the region stays.
///
/// # Errors
/// Those of [`remove_if_unused`].
pub fn remove_if_unused_now(path: &Path, trust: Trust) -> Result<Removal, RegionError> {
    remove(path, trust, DebtPolicy::Kept, NO_WAIT)
}

/// Removes the region at `path` and its debts, unless a process is alive in it. For a slice that cannot start again,
/// because its name is used only once.
///
/// # Errors
/// Those of [`remove_if_unused`].
pub fn remove_for_good(path: &Path, trust: Trust) -> Result<Removal, RegionError> {
    remove(path, trust, DebtPolicy::Dropped, REMOVING)
}

/// The treatment of GPU time that the slice owes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DebtPolicy {
    /// The region is removed only after the debt is paid.
    Kept,
    /// The debt is removed with the region.
    Dropped,
}

/// Tries to remove the region until it succeeds, another outcome is certain, or the waits run out.
fn remove(
    path: &Path,
    trust: Trust,
    debts: DebtPolicy,
    waits: BackoffBounds,
) -> Result<Removal, RegionError> {
    let path = &map::absolute(path)?;
    let mut backoff = Backoff::new(waits);
    loop {
        // The result may be a region that no process has finished initialising.
        let region = match map::open(path, trust) {
            Err(RegionError::Version { .. }) if is_removed_unlocked(path)? => return Ok(Removal::Gone),
            opened => opened?.map(Region::new),
        };
        let Some(region) = region else { return Ok(Removal::Gone) };
        match try_once(&region, debts) {
            Ok(Some(outcome)) => return Ok(outcome),
            Ok(None) | Err(RegionError::Replaced { .. }) => {}
            Err(error) => return Err(error),
        }
        if !backoff.wait() {
            return Ok(Removal::InUse(1));
        }
    }
}

/// Removes a region of another version if no process has a lock in it. `false`: a process has one, or the path leads elsewhere
/// by now.
fn is_removed_unlocked(path: &Path) -> Result<bool, RegionError> {
    let found = path.symlink_metadata();
    found.map_or(Ok(true), |found| stale::remove_unlocked(path, map::id_of(&found)))
}

/// Tries once to remove the region. `None`: another process holds the join lock.
fn try_once(region: &Region, debts: DebtPolicy) -> Result<Option<Removal>, RegionError> {
    let (layout, mapped) = (region.layout(), region.mapped());
    let failed = |source| mapped.failed("remove it", source);
    let locks = mapped.locks()?;
    let Some(_lock) = locks.try_join().map_err(failed)? else { return Ok(None) };
    // From here on no process can replace the file at the path.
    mapped.reopen()?;
    let (_dead, living) = layout.reap_locked(&locks, clock::now()).map_err(failed)?;
    if living > 0 {
        return Ok(Some(Removal::InUse(living)));
    }
    let paid_in = layout.paid_in(identity::boot(), clock::now());
    if !paid_in.is_zero() && debts == DebtPolicy::Kept {
        return Ok(Some(Removal::Owing(paid_in.duration())));
    }
    fs::remove_file(region.path()).map_err(failed)?;
    Ok(Some(Removal::Gone))
}
