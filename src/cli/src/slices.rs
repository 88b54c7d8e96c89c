//! Which region does the name of a slice mean, and which slices are there?

use crate::arguments::SliceName;
use crate::failure::Failure;
use crate::system;
use gpuslice_region::{Monitor, RegionError, Trust};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf, absolute};

/// Where regions are unless they are named.
const FOLDER: &str = "/dev/shm";
/// How the file names of such regions begin.
const PREFIX: &str = "gpuslice-";
/// What stands behind the user's number in the regions of `run`.
const RUN: &str = "run-";
/// Inode of the process-number namespace that the machine starts with.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The region of a slice that `run` starts under a name.
pub(crate) fn named(name: &SliceName) -> PathBuf {
    in_folder(&name.0)
}

/// A region that no living process uses, for a slice without a name.
pub(crate) fn fresh() -> Result<PathBuf, Failure> {
    let name = own_number();
    let first = in_folder(&name);
    let others = (2..100).map(|number| in_folder(&format!("{name}-{number}")));
    [first.clone()].into_iter().chain(others).find(|path| is_unused(path)).ok_or_else(|| {
        Failure::new(format!("{} and its successors are in use; name the slice with --name", first.display()))
    })
}

/// The region of a slice of this process's demo.
pub(crate) fn of_demo(name: &str) -> PathBuf {
    in_folder(&format!("demo-{}-{name}", own_number()))
}

/// This process's number. In a container, whose numbers others have too, with that of its namespace: containers
/// may share [`FOLDER`].
pub(crate) fn own_number() -> String {
    let number = std::process::id();
    match fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino()) {
        FIRST_PID_NAMESPACE => number.to_string(),
        namespace => format!("{number}-{namespace}"),
    }
}

fn in_folder(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{PREFIX}{}-{RUN}{name}", system::user()))
}

/// Whether no living process uses a region; one that cannot be read counts as used.
fn is_unused(path: &Path) -> bool {
    match Monitor::open(path, Trust::OwnerOnly) {
        Ok(None) => true,
        Ok(Some(monitor)) => monitor.reap().is_ok() && monitor.processes().is_empty(),
        Err(_) => false,
    }
}

/// What a slice is called: what stands behind user and `run` in its region's name, or that name.
pub(crate) fn name_of(region: &Path) -> String {
    let file = region.file_name().unwrap_or(region.as_os_str()).to_string_lossy().into_owned();
    let Some((user, rest)) = file.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')) else {
        return file;
    };
    if user.is_empty()
        || !user.bytes().all(|byte| byte.is_ascii_digit())
        || region.parent() != Some(Path::new(FOLDER))
    {
        return file;
    }
    rest.strip_prefix(RUN).unwrap_or(rest).to_owned()
}

/// Every path that may be a region, in the folder where they are unless they are named.
pub(crate) fn all() -> Result<Vec<PathBuf>, Failure> {
    let failed =
        |error: io::Error| Failure::new(format!("{FOLDER} cannot be read: {error}; mount a tmpfs there"));
    let mut regions = Vec::new();
    for entry in fs::read_dir(FOLDER).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            regions.push(entry.path());
        }
    }
    regions.sort();
    Ok(regions)
}

/// The region that a slice's name or path means.
pub(crate) fn find(slice: &OsStr) -> Result<PathBuf, Failure> {
    let text = slice.to_string_lossy();
    if text.contains('/') {
        return absolute(slice)
            .map_err(|error| Failure::new(format!("{text}: {error}; give an absolute path")));
    }
    let means = |path: &PathBuf| name_of(path) == text || path.file_name() == Some(slice);
    let found: Vec<PathBuf> = all()?.into_iter().filter(means).collect();
    let own: Vec<PathBuf> = found.iter().filter(|path| is_own(path)).cloned().collect();
    match (own.as_slice(), found.as_slice()) {
        ([one], _) | ([], [one]) => Ok(one.clone()),
        ([], []) => Err(missing(&text)),
        _ => {
            let paths: Vec<String> = found.iter().map(|path| path.display().to_string()).collect();
            Err(Failure::new(format!(
                "{text:?} means several slices; give the path of one: {}",
                paths.join(", ")
            )))
        }
    }
}

fn missing(slice: &str) -> Failure {
    Failure::new(format!(
        "there is no slice {slice:?}; `gpuslice list` shows those there are, or give a region's path"
    ))
}

fn is_own(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() == system::user())
}

/// Opens the region of a slice that was named on purpose.
pub(crate) fn open(slice: &OsStr) -> Result<Monitor, Failure> {
    let path = find(slice)?;
    Monitor::open(&path, Trust::AnyOwner)?.ok_or_else(|| missing(&slice.to_string_lossy()))
}

/// Opens every region there is, and says of each that cannot be opened why. Root is shown everybody's.
pub(crate) fn open_all() -> Result<Vec<Monitor>, Failure> {
    let trust = if system::user() == 0 { Trust::AnyOwner } else { Trust::OwnerOnly };
    let mut monitors = Vec::new();
    let mut others: u32 = 0;
    for path in all()? {
        match Monitor::open(&path, trust) {
            Ok(Some(monitor)) => monitors.push(monitor),
            Ok(None) => {}
            Err(error) if is_of_others(&error) => others = others.saturating_add(1),
            Err(error) => crate::failure::note(&error.to_string()),
        }
    }
    if others > 0 {
        crate::failure::note(&format!("regions of other users are not shown ({others}); root sees all"));
    }
    Ok(monitors)
}

fn is_of_others(error: &RegionError) -> bool {
    match error {
        RegionError::Owner { .. } => true,
        RegionError::System { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_called_what_follows_its_user() {
        for (path, name) in [
            ("/dev/shm/gpuslice-1000-run-red", "red"),
            ("/dev/shm/gpuslice-1000-4026531841", "4026531841"),
            ("/dev/shm/gpuslice-else", "gpuslice-else"),
            ("/srv/gpuslice-1000-run-red", "gpuslice-1000-run-red"),
            ("/srv/region", "region"),
        ] {
            assert_eq!(name_of(Path::new(path)), name);
        }
    }
}
