//! How does a region go whose slice has no process left?
//!
//! Whoever joins holds the join lock and looks, under it, whether the path still leads to the file it has open.
//! So a region is removed under that lock, after a look that nobody lives, and no newcomer is left on a file
//! that has lost its name.
//!
//! A region also stays while its slice owes GPU time: `debts`. A later look for regions to remove finds it paid.

use core::time::Duration;
use std::{fs, path::Path};

use crate::{
    file::{
        error::RegionError,
        map::{self, Trust},
    },
    handle::region::Region,
    slots::identity,
    sync::{
        backoff::{Backoff, REMOVING},
        clock,
    },
};

/// What became of a region that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// There is none, or none any more.
    Gone,
    /// So many processes live in it, or one is just joining.
    InUse(usize),
    /// No process lives in it, but the slice has to pay for GPU time that it used, which takes this long on the clock. A new
    /// region would forgive it.
    Owing(Duration),
}

/// Removes the region at `path` unless a process lives in it or the slice owes GPU time.
///
/// # Errors
/// Every [`RegionError`] of a file that is not a region that can be used, and of a directory that nothing can be
/// removed from.
pub fn remove_if_unused(path: &Path, trust: Trust) -> Result<Removal, RegionError> {
    remove(path, trust, DebtPolicy::Kept)
}

/// Removes the region at `path` unless a process lives in it: of a slice that nobody can start again, since its name is used
/// once. Its debts go with it.
///
/// # Errors
/// As [`remove_if_unused`].
pub fn remove_for_good(path: &Path, trust: Trust) -> Result<Removal, RegionError> {
    remove(path, trust, DebtPolicy::Dropped)
}

/// How a removal treats GPU time that the slice owes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DebtPolicy {
    /// The region stays for as long as it is owed.
    Kept,
    /// It goes with the region.
    Dropped,
}

fn remove(path: &Path, trust: Trust, debts: DebtPolicy) -> Result<Removal, RegionError> {
    let path = &map::absolute(path)?;
    let mut patience = Backoff::new(REMOVING);
    loop {
        // Also one that nobody finished making.
        let Some(region) = map::open(path, trust)?.map(Region::new) else { return Ok(Removal::Gone) };
        match try_once(&region, debts) {
            Ok(Some(outcome)) => return Ok(outcome),
            Ok(None) | Err(RegionError::Replaced { .. }) => {}
            Err(error) => return Err(error),
        }
        if !patience.wait() {
            return Ok(Removal::InUse(1));
        }
    }
}

/// `None`: somebody is joining or clearing the dead right now.
fn try_once(region: &Region, debts: DebtPolicy) -> Result<Option<Removal>, RegionError> {
    let (layout, mapped) = (region.layout(), region.mapped());
    let failed = |source| mapped.failed("remove it", source);
    let locks = mapped.locks()?;
    let Some(_lock) = locks.try_join().map_err(failed)? else { return Ok(None) };
    // Only now can nobody change any more which file stands at the path.
    mapped.reopen()?;
    let (_dead, living) = layout.reap_locked(&locks, clock::now()).map_err(failed)?;
    if living > 0 {
        return Ok(Some(Removal::InUse(living)));
    }
    let paid_in = layout.paid_in(identity::boot(), clock::now());
    if paid_in > 0 && debts == DebtPolicy::Kept {
        return Ok(Some(Removal::Owing(Duration::from_nanos(paid_in))));
    }
    fs::remove_file(region.path()).map_err(failed)?;
    Ok(Some(Removal::Gone))
}
