//! Which region does the name of a slice mean, and which regions are there?

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf, absolute},
};

/// Where regions are unless they are named.
pub const FOLDER: &str = "/dev/shm";
/// How the file names of such regions begin; the number of their user follows.
pub const PREFIX: &str = "gpuslice-";
/// What stands behind the user's number in the regions of `gpuslice run`.
pub const RUN: &str = "run-";

/// What a name may mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// This region. Where a path was given, nobody has looked whether it is there.
    One(PathBuf),
    /// No region.
    Nothing,
    /// Any of these.
    Several(Vec<PathBuf>),
}

/// What a slice is called: what stands behind user and `run` in its region's name, or that name.
#[must_use]
pub fn name_of(region: &Path) -> String {
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
///
/// # Errors
/// The folder cannot be read.
pub fn all() -> io::Result<Vec<PathBuf>> {
    let mut regions = Vec::new();
    for entry in fs::read_dir(FOLDER)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            regions.push(entry.path());
        }
    }
    regions.sort();
    Ok(regions)
}

/// The region that a slice's name or path means. What has a slash is a path; of several slices with one name, this
/// user's is meant.
///
/// # Errors
/// The folder, or where this process is, cannot be read.
pub fn find(slice: &OsStr) -> io::Result<Found> {
    let text = slice.to_string_lossy();
    if text.contains('/') {
        return absolute(slice).map(Found::One);
    }
    let means = |path: &PathBuf| name_of(path) == text || path.file_name() == Some(slice);
    let mut found: Vec<PathBuf> = all()?.into_iter().filter(means).collect();
    let own: Vec<PathBuf> = found.iter().filter(|path| is_own(path)).cloned().collect();
    if let [one] = own.as_slice() {
        return Ok(Found::One(one.clone()));
    }
    Ok(match found.len() {
        0 => Found::Nothing,
        1 => Found::One(found.remove(0)),
        _ => Found::Several(found),
    })
}

fn is_own(path: &Path) -> bool {
    // SAFETY: the call has no arguments and cannot fail.
    let ours = unsafe { libc::geteuid() };
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() == ours)
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
