//! Tries whether a folder can hold a region, and whether life locks work there.
//!
//! The probe uses a file without a name, so nothing is left of it, even if the process is killed.

use std::{fs::OpenOptions, os::fd::AsRawFd as _, path::Path};

use crate::{
    file::error::RegionError,
    file::locks::{LifeLock, LockFile},
    file::map,
    slots::roster::Liveness as _,
};

/// Makes a region at `path` in all but its name, and checks that its life lock survives the closing of the descriptor.
/// Does not look at a file at `path`.
///
/// # Errors
/// [`RegionError::System`] if the folder, its permissions, its file system or its free space do not allow a region.
/// [`RegionError::LockNotKept`] if the lock is lost.
pub fn probe_path(path: &Path) -> Result<(), RegionError> {
    let file = map::unnamed(path)?;
    let failed = |doing| move |source| RegionError::System { path: path.into(), doing, source };
    map::fill(&file).map_err(failed("make it"))?;
    // Locks belong to one opening, so the check needs a second one.
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
