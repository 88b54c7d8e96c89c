//! Tells whether a process lives in a file that is no region of this version, and removes such a file without processes.
//!
//! Example: version 15 of the layout has left `/dev/shm/gpuslice-1000-4026531841`. Processes of every version prove life by locks
//! of the region's file, so the locks of the file show whether one lives there. The same locks remain if a program overwrites or
//! shortens a region in use.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use crate::file::{
    detached,
    error::RegionError,
    folders, locks,
    map::{self, FileId},
    regular::Rights,
};

/// Tells whether a process has a lock in the file at `path`, which is the file `id`, so that the file may be a region in use.
///
/// A file that this process may not read cannot be asked. Then the kernel's list of all locks tells. Without that list the file
/// counts as used.
pub(crate) fn is_used(path: &Path, id: FileId) -> bool {
    match map::open_file(path, Rights::Read) {
        Ok(Some(file)) => locks::has_life(&file).unwrap_or(true),
        // No process has a lock in a link, a directory or a pipe.
        Ok(None) | Err(RegionError::NotAFile { .. }) => false,
        Err(_) => detached::is_locked(id),
    }
}

/// Removes the file `id` at `path` if no process has a lock in it. `false`: a process has one, or the path leads elsewhere by now.
pub(crate) fn remove_unlocked(path: &Path, id: FileId) -> Result<bool, RegionError> {
    let failed = map::system(path, "remove it");
    let Some(file) = map::open_file(path, Rights::Write)? else { return Ok(true) };
    if !locks::try_whole(&file).map_err(&failed)? {
        return Ok(false);
    }
    // From here on no process can join it. Processes that wait for the join lock then find that the path leads elsewhere.
    let opened = map::id_of(&file.metadata().map_err(&failed)?);
    let is_it = opened == id && path.symlink_metadata().is_ok_and(|found| map::id_of(&found) == id);
    if is_it {
        fs::remove_file(path).map_err(&failed)?;
    }
    Ok(is_it)
}

/// Tells whether this process removes such a file from a folder in which all users may create files. It removes no link, folder
/// or pipe.
pub(crate) fn may_remove(found: &fs::Metadata) -> bool {
    let user = folders::user();
    found.is_file() && (user == 0 || found.uid() == user)
}
