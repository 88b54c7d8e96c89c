//! How does a region go whose slice has no process left?
//!
//! Whoever joins holds the join lock and looks, under it, whether the path still leads to the file it has open.
//! So a region is removed under that lock, after a look that nobody lives, and no newcomer is left on a file
//! that has lost its name.

use std::{fs, path::Path};

use crate::{
    bell,
    error::RegionError,
    map::{self, Trust},
    patience::{Patience, REMOVING},
    region::Region,
};

/// What became of a region that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// There is none, or none any more.
    Gone,
    /// So many processes live in it, or one is just joining.
    InUse(usize),
}

/// Removes the region at `path` unless a process lives in it.
///
/// # Errors
/// Every [`RegionError`] of a file that is not a region that can be used, and of a directory that nothing can be
/// removed from.
pub fn remove_if_unused(path: &Path, trust: Trust) -> Result<Removal, RegionError> {
    let path = &map::absolute(path)?;
    let mut patience = Patience::new(REMOVING);
    loop {
        // Also one that nobody finished making.
        let Some(region) = map::open(path, trust)?.map(Region::new) else { return Ok(Removal::Gone) };
        match try_once(&region) {
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
fn try_once(region: &Region) -> Result<Option<Removal>, RegionError> {
    let (layout, mapped) = (region.layout(), region.mapped());
    let failed = |source| mapped.failed("remove it", source);
    let locks = mapped.locks()?;
    let Some(_lock) = locks.try_join().map_err(failed)? else { return Ok(None) };
    // Only now can nobody change any more which file stands at the path.
    mapped.reopen()?;
    let (_dead, living) = layout.bury(&locks, bell::now()).map_err(failed)?;
    if living > 0 {
        return Ok(Some(Removal::InUse(living)));
    }
    fs::remove_file(region.path()).map_err(failed)?;
    Ok(Some(Removal::Gone))
}
