//! The place of a slice's region.

use gpuslice_slices::discovery::{FileId, FoundRegion};
use std::ffi::OsString;
use std::path::PathBuf;

/// The place of a region whose slice gets sight of other slices.
#[derive(Debug, Clone)]
pub(crate) struct RegionPlace {
    /// The region's folder. Slices of one folder see each other without the agent.
    pub(crate) folder: FileId,
    /// The path of the region. The file may not exist yet.
    pub(crate) path: PathBuf,
    /// Keeps `path` valid, if only a container has the region.
    pub(crate) _kept: Option<FoundRegion>,
}

impl RegionPlace {
    /// Returns the region's name in its folder.
    pub(super) fn name(&self) -> OsString {
        self.path.file_name().unwrap_or_default().to_owned()
    }
}
