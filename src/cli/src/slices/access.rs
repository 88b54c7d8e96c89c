//! Access to single regions: the users whose regions are opened, and the meanings of failures.

use crate::output::failure::Failure;
use crate::system;
use gpuslice_region::names::{self, FOLDER};
use gpuslice_region::{Detached, Monitor, Reader, RegionError, Trust, detached};
use std::io;
use std::path::Path;

/// Returns the slices whose regions were removed while processes use them, if the regions would be among [`names::all`].
pub(crate) fn removed() -> Vec<Detached> {
    let mut found = detached();
    found.retain(|region| names::is_usual(&region.path));
    found
}

/// Returns the failure to read the folder of regions.
pub(crate) fn unreadable(error: io::Error) -> Failure {
    Failure::new(format!("{FOLDER} cannot be read: {error}; mount a tmpfs there"))
}

/// Returns the owners whose regions commands open. Root opens the regions of all users.
pub(crate) fn trust() -> Trust {
    if system::user() == 0 { Trust::AnyOwner } else { Trust::OwnerOnly }
}

/// Opens a region for reading. The right to read is enough.
///
/// If this process may also write the region, it reaps the dead members. Living members then pay for memory that the dead ones
/// shared with them. Without that right, the figures show the memory of dead members separately.
pub(crate) fn look_at(path: &Path, trust: Trust) -> Result<Option<Reader>, RegionError> {
    let reader = Reader::open(path, trust)?;
    if reader.as_ref().is_some_and(|reader| reader.any_dead().is_ok_and(|any| any)) {
        let _not_now = Monitor::open(path, trust).map(|monitor| monitor.map(|monitor| monitor.reap()));
    }
    Ok(reader)
}

/// Returns true if a region belongs to another user, and this user may not read it.
pub(crate) fn is_of_others(error: &RegionError) -> bool {
    match error {
        RegionError::Owner { .. } => true,
        RegionError::System { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
        _ => false,
    }
}
