//! The place of a slice's region.

use gpuslice_slices::discovery::{FileId, FoundRegion};
use std::ffi::OsString;
use std::path::PathBuf;

/// A region that takes part.
#[derive(Debug, Clone)]
pub(crate) struct RegionPlace {
    /// The region's folder. Slices of one folder see each other without the agent.
    pub(crate) folder: FileId,
    /// The path of the region, which need not be there yet.
    pub(crate) path: PathBuf,
    /// Keeps the path valid, if the region was found only in a container.
    pub(crate) _kept: Option<FoundRegion>,
}

impl RegionPlace {
    /// Returns the region's name in its folder.
    pub(super) fn name(&self) -> OsString {
        self.path.file_name().unwrap_or_default().to_owned()
    }
}
