//! Regions of other slices, in the folder of this slice's region.

use super::settings;
use gpuslice_policy::arbiter;
use gpuslice_region::layout::SIZE;
use gpuslice_region::{Monitor, RegionError, Trust};
use std::fs;
use std::path::{Path, PathBuf};

/// Regions that are looked at.
pub(crate) const MOST: usize = arbiter::MOST_SLICES;
/// Names that are read at the most.
pub(crate) const NAMES: usize = 20_000;

/// The regions of other slices in the folder of this one's. None: there are more than are looked at, or the folder cannot be
/// read.
pub(crate) fn beside(own: &Path) -> Option<Vec<Monitor>> {
    let names = fs::read_dir(own.parent()?).ok()?.take(NAMES).flatten().map(|entry| entry.path());
    let mut regions = Vec::new();
    for path in names.filter(|path| path != own) {
        if let Opened::Region(monitor) = open(&path, own) {
            if regions.len() >= MOST {
                return None;
            }
            regions.push(monitor);
        }
    }
    Some(regions)
}

/// What a file of the directory is.
pub(crate) enum Opened {
    Region(Monitor),
    /// A region that nobody has finished making, or that could not be opened this time.
    NotYet,
    Other,
}

/// Others' regions must be this user's or root's; whose this slice's own may be, its path says.
pub(crate) fn open(path: &PathBuf, own: &Path) -> Opened {
    let trust = settings::settings().map_or(Trust::OwnerOnly, |settings| settings.trust);
    let trust = if path == own { trust } else { Trust::OwnerOnly };
    // What is no region is not even opened: that may do something, to a pipe for example.
    let size = u64::try_from(SIZE).unwrap_or(0);
    if !path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == size) {
        return Opened::Other;
    }
    match Monitor::open(path, trust) {
        Ok(Some(monitor)) => Opened::Region(monitor),
        Ok(None) => Opened::NotYet,
        Err(RegionError::System { .. }) => Opened::NotYet,
        Err(_) => Opened::Other,
    }
}
