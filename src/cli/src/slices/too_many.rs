//! Warns of folders with more slices than an arbiter can divide a GPU among.

use super::survey::OpenRegion;
use crate::output::failure;
use gpuslice_policy::arbiter::MOST_SLICES;
use gpuslice_region::layout::SIZE;
use gpuslice_region::{Reader, Trust};
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Warns of each folder in which a user has more than [`MOST_SLICES`] of these slices. The regions do not tell which
/// of them the arbiter leaves out.
pub(crate) fn note(open: &[OpenRegion]) {
    // In a container, only the tenant has more than one region in a folder.
    let of_host = open.iter().filter(|open| open.region.private_to().is_none());
    let place = |open: &OpenRegion| {
        let path = &open.region.path;
        Some((path.parent()?.to_owned(), fs::symlink_metadata(path).ok()?.uid()))
    };
    let places: BTreeSet<(PathBuf, u32)> = of_host.filter_map(place).collect();
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

/// Counts the living slices of `owner` in a folder, if one of them divides a GPU. Otherwise returns 0, because then no arbiter
/// reads the folder. An arbiter cannot open the regions of other users.
fn count(folder: &Path, owner: u32) -> usize {
    let is_region = |found: &Metadata| {
        found.is_file() && usize::try_from(found.len()) == Ok(SIZE) && found.uid() == owner
    };
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = files
        .filter(|file| file.metadata().is_ok_and(|found| is_region(&found)))
        .map(|file| file.path())
        .collect();
    // Most folders have at most this many regions. In such a folder, no region is opened.
    if paths.len() <= MOST_SLICES {
        return 0;
    }
    // Returns, for a living slice, whether it divides a GPU.
    let living = |path: &PathBuf| {
        let reader = Reader::open(path, Trust::AnyOwner).ok().flatten()?;
        let devices =
            reader.devices().ok().filter(|_| reader.process_count().is_ok_and(|count| count > 0))?;
        Some(devices.iter().any(|device| device.limits.sharing.divides()))
    };
    let divides: Vec<bool> = paths.iter().filter_map(living).collect();
    if divides.contains(&true) { divides.len() } else { 0 }
}
