//! Are there more slices than those who divide GPUs look at?

use crate::failure;
use gpuslice_policy::arbiter::MOST_SLICES;
use gpuslice_region::layout::SIZE;
use gpuslice_region::{Reader, Trust};
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Says so of the folders and users of these slices. Which of them are left out, their regions do not tell.
pub(crate) fn note(readers: &[Reader]) {
    let place = |reader: &Reader| {
        let owner = fs::symlink_metadata(reader.path()).ok()?.uid();
        Some((reader.path().parent()?.to_owned(), owner))
    };
    let places: BTreeSet<(PathBuf, u32)> = readers.iter().filter_map(place).collect();
    for (folder, owner) in places {
        let count = count(&folder, owner);
        if count > MOST_SLICES {
            failure::note(&format!(
                "{count} slices of user {owner} have their regions in {}: GPUs are divided among {MOST_SLICES} of them, \
                 the others keep their own limits and are lent nothing; put some elsewhere with --region",
                folder.display()
            ));
        }
    }
}

/// Slices of a user that live in a folder, if any of them divides a GPU: only then somebody looks at them. Others' cannot be
/// opened by who looks.
fn count(folder: &Path, owner: u32) -> usize {
    let is_region = |found: &Metadata| {
        found.is_file() && usize::try_from(found.len()) == Ok(SIZE) && found.uid() == owner
    };
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = files
        .filter(|file| file.metadata().is_ok_and(|found| is_region(&found)))
        .map(|file| file.path())
        .collect();
    // Most folders have fewer, and none is opened there.
    if paths.len() <= MOST_SLICES {
        return 0;
    }
    // Whether each that lives divides.
    let living = |path: &PathBuf| {
        let reader = Reader::open(path, Trust::AnyOwner).ok().flatten()?;
        let devices =
            reader.devices().ok().filter(|_| reader.process_count().is_ok_and(|count| count > 0))?;
        Some(devices.iter().any(|device| device.limits.sharing.divides()))
    };
    let divides: Vec<bool> = paths.iter().filter_map(living).collect();
    if divides.contains(&true) { divides.len() } else { 0 }
}
