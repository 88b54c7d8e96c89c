//! Finds files of the host that may be regions.

use gpuslice_region::names;
use gpuslice_slices::slot::{Name, Places};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Most files of one user of the host at which one search looks. Any user can make files with the names of regions.
pub(super) const MOST_FILES: usize = 4096;

/// Returns paths on the host: the regions in the usual folders, and those of `gpuslice cdi` beside the configuration's slices.
pub(super) fn on_the_host(places: &Places) -> impl Iterator<Item = PathBuf> {
    let of_cdi = Name::all_in(&places.regions).map(|name| places.region(&name));
    of_cdi.chain(some_of_each(names::all().unwrap_or_default(), |path| {
        Some(path.symlink_metadata().ok()?.uid())
    }))
}

/// Returns the paths without those of which their owner has too many. So the files of one user hide no file of another one.
fn some_of_each(paths: Vec<PathBuf>, owner: impl Fn(&Path) -> Option<u32>) -> impl Iterator<Item = PathBuf> {
    let mut counts = BTreeMap::<u32, usize>::new();
    paths.into_iter().filter(move |path| {
        let Some(owner) = owner(path) else { return false };
        let count = counts.entry(owner).or_default();
        *count = count.saturating_add(1);
        *count <= MOST_FILES
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_one_user_hide_no_file_of_another_one() {
        let path = |user: u32, number: usize| PathBuf::from(format!("/dev/shm/gpuslice-{user}-{number}"));
        let mut paths: Vec<PathBuf> = (0..MOST_FILES + 9).map(|number| path(0, number)).collect();
        paths.push(path(1, 0));
        // The first user writes the number of another one into the names.
        let owner = |found: &Path| Some(u32::from(found == path(1, 0)));
        let looked_at: Vec<PathBuf> = some_of_each(paths, owner).collect();
        assert_eq!(looked_at.len(), MOST_FILES + 1);
        assert_eq!(looked_at.last(), Some(&path(1, 0)));
    }
}
