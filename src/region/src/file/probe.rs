//! Could a region be made in a folder, and would its locks prove life there?
//!
//! Tried with a file that has no name: whenever the trial ends, nothing is left of it.

use std::{fs::OpenOptions, os::fd::AsRawFd as _, path::Path};

use crate::{
    file::error::RegionError,
    file::locks::{LifeLock, LockFile},
    file::map,
    slots::roster::Liveness as _,
};

/// Makes what a region at `path` would be, all but its name, and looks whether its locks are kept. A file that is at
/// `path` is not looked at.
///
/// # Errors
/// [`RegionError::System`] where the folder, its rights, its file system or its room do not allow a region, and
/// [`RegionError::LockNotKept`].
pub fn probe_path(path: &Path) -> Result<(), RegionError> {
    let file = map::unnamed(path)?;
    let failed = |doing| move |source| RegionError::System { path: path.into(), doing, source };
    map::fill(&file).map_err(failed("make it"))?;
    // Only an opening of its own has locks of its own.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let again = OpenOptions::new().read(true).write(true).open(name).map_err(failed("open it"))?;
    let life = LifeLock::begin(&again, 0..1).map_err(failed("lock a slot"))?;
    drop(again);
    let kept = LockFile::new(file).is_alive(0).map_err(failed("lock a slot"));
    if let Some(life) = life {
        life.end();
    }
    if kept? { Ok(()) } else { Err(RegionError::LockNotKept { path: path.into() }) }
}
