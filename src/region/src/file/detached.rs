//! Finds regions with a removed file that members still use.
//!
//! Example: a clean-up job removes `/dev/shm/gpuslice-1000-run-train` while the training runs. The members share the memory
//! that they have mapped, so quota and share hold among them as before. A process that joins finds no file. A new file
//! would give the slice its limits twice. The process therefore looks for members of the old file first, and does not join
//! if it finds one.
//!
//! The search reads `/proc/PID/maps`. A member has two mappings of the file: the region, and the page that keeps its life
//! lock. A child that a member has forked has only the first one. Processes of other users and of other process-number
//! namespaces are not visible. If the search sees no member for this reason, the process makes a new region.
//!
//! With 2000 processes of 500 mappings the search takes half a second. It therefore reads `/proc/locks` first, which lists
//! the life locks of all processes. If each locked file has a name in a folder of regions, no region was removed, and the
//! search ends. [`detached`] looks at all file systems. So it reads `maps` on machines where containers with their own
//! folders have slices.

use core::fmt;
use std::{
    collections::HashSet,
    fs,
    os::unix::fs::{DirEntryExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use crate::{
    file::{error::listed, folders, map::FileId},
    layout::SIZE,
};

/// The kernel appends this to the path of a removed file.
const REMOVED: &str = " (deleted)";

/// A region without a file, and its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// The former path of the file, as this process would name it.
    pub path: PathBuf,
    /// The members that this process can see, by process number; at least one.
    pub members: Vec<u32>,
    file: ProcFileId,
}

/// Device and inode of a file, as `/proc` writes them.
type ProcFileId = (String, u64);

impl fmt::Display for Detached {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, members, .. } = self;
        write!(
            out,
            "{} was removed while in use by {}: members keep to the slice's limits, `gpuslice status` and `set` do not reach \
             them, and new ones are refused until they end",
            path.display(),
            listed(members)
        )
    }
}

/// Returns all regions without a file that have members visible to this process. Reads the mappings of all processes only
/// if some locked file has no name in the folders of regions.
#[must_use]
pub fn detached() -> Vec<Detached> {
    let is_named = locked().is_some_and(|locked| unnamed(locked, folders::folders()).is_empty());
    if is_named { Vec::new() } else { search() }
}

/// Looks through the mappings of all processes.
fn search() -> Vec<Detached> {
    let mut found: Vec<Detached> = Vec::new();
    for process in processes() {
        // Other files that the process maps may have names that are not UTF-8.
        let maps = fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
        for (file, path) in of(&String::from_utf8_lossy(&maps)) {
            match found.iter_mut().find(|region| region.file == file) {
                Some(region) => region.members.push(process),
                None => found.push(Detached { path, members: vec![process], file }),
            }
        }
    }
    found
}

/// Tells whether some process has a lock in a file that this process cannot open. `true` if the kernel does not list locks.
pub(crate) fn is_locked(file: FileId) -> bool {
    locked().is_none_or(|locked| locked.contains(&(device_name(file.device), file.inode)))
}

/// Returns the members of removed regions whose former path is one of `paths`, except this process. All paths have one folder.
pub(crate) fn members_of(paths: &[PathBuf]) -> Vec<u32> {
    // Containers may have the same path for different files, so the file system must match too.
    let folder = paths.first().and_then(|path| path.parent());
    let file_system =
        folder.and_then(|folder| folder.metadata().ok()).map(|folder| device_name(folder.dev()));
    let here = locked().map(|mut locked| {
        locked.retain(|(device, _)| Some(device) == file_system.as_ref());
        unnamed(locked, folder)
    });
    if here.is_some_and(|here| here.is_empty()) {
        return Vec::new();
    }
    // The kernel shows a path without links.
    let shown = folder.and_then(|folder| folder.canonicalize().ok());
    let as_shown = |path: &PathBuf| {
        let shown = shown.as_ref().zip(path.file_name());
        shown.map_or_else(|| path.clone(), |(folder, name)| folder.join(name))
    };
    let shown: Vec<PathBuf> = paths.iter().map(as_shown).collect();
    let is_here =
        |region: &Detached| shown.contains(&region.path) && Some(&region.file.0) == file_system.as_ref();
    let regions = search().into_iter().filter(is_here);
    let mut members: Vec<u32> = regions.flat_map(|region| region.members).collect();
    members.retain(|member| *member != std::process::id());
    members
}

/// Returns the files in which some process, of any user and namespace, has a lock like a life lock. `None`: the kernel does not
/// list locks.
fn locked() -> Option<HashSet<ProcFileId>> {
    fs::read_to_string("/proc/locks").ok().map(|locks| locks.lines().filter_map(locked_by).collect())
}

/// Returns the file of a line of `/proc/locks`, `1: OFDLCK ADVISORY  WRITE -1 00:1a:77 128 128`.
fn locked_by(line: &str) -> Option<ProcFileId> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    // A process that removes a file locks the whole file.
    if fields.next()? != "OFDLCK" || line.ends_with(" 0 EOF") {
        return None;
    }
    let (device, inode) = fields.nth(3)?.rsplit_once(':')?;
    Some((device.to_owned(), inode.parse().ok()?))
}

/// Returns the files of `files` that have no name in any of the folders.
fn unnamed(
    mut files: HashSet<ProcFileId>,
    folders: impl IntoIterator<Item = impl AsRef<Path>>,
) -> HashSet<ProcFileId> {
    for folder in folders {
        let Ok(device) = folder.as_ref().metadata().map(|folder| device_name(folder.dev())) else { continue };
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.for_each(|entry| {
            files.remove(&(device.clone(), entry.ino()));
        });
    }
    files
}

/// Returns the numbers of the processes in `/proc`.
fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the device of a file system as `/proc` writes it.
fn device_name(device: u64) -> String {
    format!("{:02x}:{:02x}", libc::major(device), libc::minor(device))
}

/// Returns the removed regions of which a process is a member, by the text of its `maps`.
fn of(maps: &str) -> Vec<(ProcFileId, PathBuf)> {
    let (mut regions, mut lives) = (Vec::new(), Vec::new());
    for (mapping, path) in maps.lines().filter_map(|line| Some((MapsLine::of(line)?, line))) {
        let Some(path) = path.split_once('/').and_then(|(_, path)| path.strip_suffix(REMOVED)) else {
            continue;
        };
        match mapping {
            MapsLine { rights: "rw-s", bytes, file } if bytes == SIZE => {
                regions.push((file, PathBuf::from(format!("/{path}"))));
            }
            MapsLine { rights: "---s", file, .. } => lives.push(file),
            _ => {}
        }
    }
    regions.retain(|(file, _)| lives.contains(file));
    regions
}

/// A line of `maps`: rights and length of a mapping, and its file.
struct MapsLine<'line> {
    rights: &'line str,
    bytes: usize,
    file: ProcFileId,
}

impl<'line> MapsLine<'line> {
    fn of(line: &'line str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (rights, _offset, device, inode) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let address = |text| usize::from_str_radix(text, 16).ok();
        let bytes = address(end)?.checked_sub(address(start)?)?;
        Some(Self { rights, bytes, file: (device.to_owned(), inode.parse().ok()?) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_a_removed_region_is_told_from_a_child_that_was_forked() {
        let whole =
            format!("{:x}-{:x} rw-s 00000000 00:1a 77   /dev/shm/a b (deleted)", 0x1000, 0x1000 + SIZE);
        let life = "7000-8000 ---s 00000000 00:1a 77   /dev/shm/a b (deleted)";
        let named = whole.replace(" (deleted)", "");
        let other = life.replace("00:1a 77", "00:1a 78");
        let expected = vec![(("00:1a".to_owned(), 77), PathBuf::from("/dev/shm/a b"))];
        assert_eq!(of(&format!("{whole}\n{life}\n")), expected);
        for maps in [
            whole.clone(),
            format!("{named}\n{life}"),
            format!("{whole}\n{other}"),
            format!("{life}\nnonsense"),
        ] {
            assert_eq!(of(&maps), [], "{maps}");
        }
        assert_eq!(of(&whole.replace("rw-s", "r--s")), []);
    }

    #[test]
    fn locked_files_are_told_by_their_lines_and_by_their_names() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("region");
        let file = fs::File::create(&path).unwrap();
        let id = (device_name(file.metadata().unwrap().dev()), file.metadata().unwrap().ino());
        let line = |kind: &str| format!("7: {kind} ADVISORY  WRITE -1 {}:{} 128 128", id.0, id.1);
        assert_eq!(locked_by(&line("OFDLCK")), Some(id.clone()));
        let whole = line("OFDLCK").replace("128 128", "0 EOF");
        for other in [&whole, &line("POSIX"), "7: -> OFDLCK ADVISORY WRITE -1 00:1a:77 0 0", "7: OFDLCK", ""]
        {
            assert_eq!(locked_by(other), None, "{other}");
        }
        let files = HashSet::from([id]);
        let left = || unnamed(files.clone(), [Path::new("/nowhere"), folder.path()]).len();
        assert_eq!(left(), 0);
        fs::remove_file(&path).unwrap();
        assert_eq!(left(), 1);
    }

    #[test]
    fn a_file_system_is_named_as_maps_names_it() {
        let file = fs::File::open("/proc/self/exe").unwrap();
        let name = device_name(file.metadata().unwrap().dev());
        assert!(
            name.split_once(':').is_some_and(|(major, minor)| major.len() >= 2 && minor.len() >= 2),
            "{name}"
        );
    }
}
