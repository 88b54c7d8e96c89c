//! Chooses the file of a region that no setting names. Such a region has sixteen names: `NAME`, and `NAME-2` to `NAME-16`.
//!
//! Example: two containers have one `/dev/shm`. A program of the one has written the text file `/dev/shm/gpuslice-all-66-2305`,
//! which is the region's name in the other. The programs of the other container then use `/dev/shm/gpuslice-all-66-2305-2`.
//!
//! A file under one of the names that is no region of this version is *stale* if no process has a lock in it. It counts as absent:
//! a process that joins removes it if it may, and else takes the next name. A lock may be the life lock of a member, whose region
//! was overwritten or is of another version. A new region would then give the slice its limits twice, so the process is refused.
//!
//! All processes of a slice must come to one file. An existing region therefore comes before a free name. In a region of all
//! users each process may own the files, so more is needed ([`Trust::AllUsers`]):
//!
//! - A region with a lock comes first.
//! - A process that joins takes its life lock. Then it looks for locks in the files under the other names. If there is one, it
//!   gives its own lock back and chooses again. Of two processes that choose two names at the same time, at least one sees the
//!   lock of the other.

use std::{
    io::ErrorKind,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::file::{
    error::RegionError,
    folders::names_of,
    locks,
    map::{self, FileId, Mapped, Trust, id_of},
    regular::Rights,
    stale,
};

/// The file of a region.
pub(crate) enum Choice {
    /// This region.
    Region(Mapped),
    /// There is none. A process that joins makes it under this name.
    Name(PathBuf),
    /// Another process changes the file under a name at this moment. If it does not end, this is the error.
    Changing(RegionError),
}

/// The reason for which a process looks for the region.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To join it. Stale files are removed.
    Joining,
    /// To read it.
    Looking,
}

/// Chooses the file of the region whose first name is `first`, an absolute path.
///
/// # Errors
/// A file under one of the names may be a region in use, and this process cannot use it. Or all names lead to files of other
/// users; then the error is that of the first name.
pub(crate) fn choose(first: &Path, trust: Trust, purpose: Purpose) -> Result<Choice, RegionError> {
    let (mut unused, mut vacant) = (None, Vec::new());
    for path in names_of(first) {
        let error = match map::open_with(&path, trust, Rights::Write) {
            Ok(None) => {
                vacant.push((path, None));
                continue;
            }
            Ok(Some((mapped, _file))) if trust != Trust::AllUsers => return Ok(Choice::Region(mapped)),
            Ok(Some((mapped, file))) => {
                if locks::has_life(&file).map_err(|source| mapped.failed("look for its processes", source))? {
                    return Ok(Choice::Region(mapped));
                }
                unused = unused.or(Some(mapped));
                continue;
            }
            Err(error) => error,
        };
        match path.symlink_metadata() {
            Ok(found) if !trust.allows(found.uid()) => {}
            Ok(found) if !error.is_of_contents() || stale::is_used(&path, id_of(&found)) => {
                // Another process may have replaced a stale file by a region since this process has opened the stale one.
                let is_replaced = error.is_of_contents() && matches!(map::open(&path, trust), Ok(Some(_)));
                return if is_replaced { Ok(Choice::Changing(error)) } else { Err(error) };
            }
            Ok(found) => vacant.push((path, Some((found, error)))),
            Err(gone) if gone.kind() == ErrorKind::NotFound => return Ok(Choice::Changing(error)),
            Err(_) => return Err(error),
        }
    }
    if let Some(mapped) = unused {
        return Ok(Choice::Region(mapped));
    }
    for (path, file) in vacant {
        let Some((found, error)) = file else { return Ok(Choice::Name(path)) };
        if purpose == Purpose::Looking {
            if stale::may_remove(&found) {
                return Ok(Choice::Name(path));
            }
            continue;
        }
        match stale::remove_unlocked(&path, id_of(&found)) {
            Ok(true) => return Ok(Choice::Name(path)),
            Ok(false) => return Ok(Choice::Changing(error)),
            // This process may not remove it.
            Err(_) => {}
        }
    }
    Ok(map::open(first, trust)?.map_or_else(|| Choice::Name(first.to_owned()), Choice::Region))
}

/// Tells whether a process has a life lock in a region.
pub(crate) fn has_life(mapped: &Mapped) -> Result<bool, RegionError> {
    locks::has_life(mapped.locks()?.file()).map_err(|source| mapped.failed("look for its processes", source))
}

/// Returns the file under another name of the region in which a process has a lock. `own` is the file that this process has chosen.
pub(crate) fn other_in_use(first: &Path, own: FileId) -> Option<PathBuf> {
    names_of(first).find(|path| {
        let found = path.symlink_metadata().map(|found| id_of(&found));
        found.is_ok_and(|found| found != own && stale::is_used(path, found))
    })
}
