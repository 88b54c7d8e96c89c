//! How does a region go whose slice has no process left?
//!
//! Whoever joins holds the join lock and looks, under it, whether the path still leads to the file it has open.
//! So a region is removed under that lock, after a look that nobody lives, and no newcomer is left on a file
//! that has lost its name.

use crate::failure::Failure;
use crate::system;
use gpuslice_region::{Monitor, Reaped, RegionError, Trust, layout};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// How often it is tried while somebody joins.
const TRIES: u32 = 50;
/// How long it is waited between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// What became of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There is none, or none any more.
    Gone,
    /// So many processes live in it.
    InUse(usize),
}

/// Removes a region unless a process lives in it.
pub(crate) fn remove_if_unused(path: &Path) -> Result<Outcome, Failure> {
    let mut living = 0;
    for _ in 0..TRIES {
        let Some(monitor) = Monitor::open(path, Trust::AnyOwner)? else { return Ok(Outcome::Gone) };
        match monitor.reap() {
            Ok(Reaped::UnderWay) | Err(RegionError::Replaced { .. }) => {}
            Ok(Reaped::Nobody | Reaped::Dead(_)) => {
                living = monitor.processes().len();
                if living > 0 {
                    return Ok(Outcome::InUse(living));
                }
                if remove_locked(&monitor).map_err(|error| failed(path, &error))? {
                    return Ok(Outcome::Gone);
                }
            }
            Err(error) => return Err(error.into()),
        }
        thread::sleep(PAUSE);
    }
    Ok(Outcome::InUse(living.max(1)))
}

/// Removes the region, unless somebody joins or has joined. `false`: then it is to be looked at again.
fn remove_locked(monitor: &Monitor) -> io::Result<bool> {
    let path = monitor.path();
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    if !system::lock_byte(&file, layout::JOIN_LOCK_OFFSET)? || !is_at(&file, path) {
        return Ok(false);
    }
    if !monitor.processes().is_empty() {
        return Ok(false);
    }
    fs::remove_file(path).map(|()| true)
}

/// Whether a path leads to a file that is open.
fn is_at(file: &File, path: &Path) -> bool {
    let Ok(opened) = file.metadata() else { return false };
    fs::symlink_metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino()))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{} cannot be removed: {error}; remove it when its slice has ended", path.display()))
}
