//! Access to single regions: the users whose regions are opened, and the meaning of failures.

use crate::output::failure::Failure;
use crate::system;
use gpuslice_region::names::{self, FOLDER};
use gpuslice_region::{Detached, Monitor, Reader, RegionError, Trust, detached};
use std::io;
use std::path::Path;

/// Returns the slices whose region was removed while processes use it, if the region would be among [`names::all`].
pub(crate) fn removed() -> Vec<Detached> {
    let mut found = detached();
    found.retain(|region| names::is_usual(&region.path));
    found
}

/// Returns the failure to read the folder of regions.
pub(crate) fn unreadable(error: io::Error) -> Failure {
    Failure::new(format!("{FOLDER} cannot be read: {error}; mount a tmpfs there"))
}

/// Returns the trust for regions that commands show: root sees the regions of all users.
pub(crate) fn trust() -> Trust {
    if system::user() == 0 { Trust::AnyOwner } else { Trust::OwnerOnly }
}

/// Opens a region to read it, for which the right to read suffices.
///
/// If this process may also write the region, it reaps the dead members. Others then pay for the memory that they
/// share with them. Without that right, the figures tell the dead members apart.
pub(crate) fn look_at(path: &Path, trust: Trust) -> Result<Option<Reader>, RegionError> {
    let reader = Reader::open(path, trust)?;
    if reader.as_ref().is_some_and(|reader| reader.any_dead().is_ok_and(|any| any)) {
        let _not_now = Monitor::open(path, trust).map(|monitor| monitor.map(|monitor| monitor.reap()));
    }
    Ok(reader)
}

/// Returns true if a region is another user's, so that this user may not read it.
pub(crate) fn is_of_others(error: &RegionError) -> bool {
    match error {
        RegionError::Owner { .. } => true,
        RegionError::System { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
        _ => false,
    }
}
