//! Regions of other slices, in the folder of this slice's region.

use super::settings;
use gpuslice_policy::arbiter;
use gpuslice_region::layout::SIZE;
use gpuslice_region::{Monitor, RegionError, Trust};
use std::fs;
use std::path::{Path, PathBuf};

/// Largest number of regions that a process opens.
pub(crate) const MOST_REGIONS: usize = arbiter::MOST_SLICES;
/// Largest number of file names that a process reads.
pub(crate) const MOST_FILES: usize = 20_000;

/// Opens the regions of other slices in the folder of this slice's region. Returns `None` if there are more than
/// [`MOST_REGIONS`], or if the folder cannot be read.
pub(crate) fn beside(own: &Path) -> Option<Vec<Monitor>> {
    let names = fs::read_dir(own.parent()?).ok()?.take(MOST_FILES).flatten().map(|entry| entry.path());
    let mut regions = Vec::new();
    for path in names.filter(|path| path != own) {
        if let OpenedFile::Region(monitor) = open(&path, own) {
            if regions.len() >= MOST_REGIONS {
                return None;
            }
            regions.push(monitor);
        }
    }
    Some(regions)
}

/// Returns the bytes of the largest context that other slices of the folder have measured on a GPU with `total` bytes of memory.
/// GPUs with equally much memory are most likely of one model, and contexts on GPUs of one model take the same.
pub(crate) fn context_bytes(own: &Path, total: u64) -> Option<u64> {
    let of = |slice: Monitor| {
        let alike = slice.devices().into_iter().filter(|device| device.total == total);
        alike.filter_map(|found| slice.context_bytes(found.device)).max()
    };
    beside(own)?.into_iter().filter_map(of).max()
}

/// Kind of a file in the folder.
pub(crate) enum OpenedFile {
    Region(Monitor),
    /// A region that is not initialised yet, or that could not be opened this time.
    NotYet,
    Other,
}

/// Opens a file if it is a region. Regions of other slices must belong to this user or root; the settings name the
/// users that may own this slice's region.
pub(crate) fn open(path: &PathBuf, own: &Path) -> OpenedFile {
    let trust = settings::settings().map_or(Trust::OwnerOnly, |settings| settings.region.trust);
    let trust = if path == own { trust } else { Trust::OwnerOnly };
    // The function does not open a file that cannot be a region, because to open some files has effects. Example: a pipe.
    let size = u64::try_from(SIZE).unwrap_or(0);
    if !path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == size) {
        return OpenedFile::Other;
    }
    match Monitor::open(path, trust) {
        Ok(Some(monitor)) => OpenedFile::Region(monitor),
        Ok(None) => OpenedFile::NotYet,
        Err(RegionError::System { .. }) => OpenedFile::NotYet,
        Err(_) => OpenedFile::Other,
    }
}
