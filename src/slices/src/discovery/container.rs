//! Containers of this machine, and the files in them that may be regions.

use super::engine;
use super::opening::{file_below, open_root, open_within};
use crate::mounts::{is_local, source_of};
use crate::process::{read, read_mounts};
use gpuslice_policy::config::{Config, FIXED_FILE, FileRead, OperatorFiles};
use gpuslice_region::names::{FILE_PREFIX, FOLDER, MOUNTED};
use gpuslice_region::operator::Contents;
use rustix::fs::{self as kernel, AtFlags, CWD, Dir, FileType, OFlags};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most files of one folder at which the search looks.
const MOST_FILES: usize = 4096;
/// Most regions of one container at which the search looks. A container has one region, or one for each of its users.
pub(super) const MOST_REGIONS: usize = 32;
/// Most processes whose root directories the search tries for one container. It skips processes that have ended.
const WITNESSES: usize = 4;
/// Folders of a container in which regions may be. In the mounted folder, the region has the name `region`.
const FOLDERS: [&str; 3] = [FOLDER, "/tmp", MOUNTED];

/// Identifies a file under all of its names, by device and inode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Returns the identity of the file at a path. A link is not followed.
    ///
    /// # Errors
    /// There is no such file, or this process may not look at it.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&kernel::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?))
    }
}

impl From<&kernel::Stat> for FileId {
    fn from(found: &kernel::Stat) -> Self {
        Self { device: found.st_dev, inode: found.st_ino }
    }
}

/// A region of a container. A path of this process leads to it as long as this value is kept.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The region's identity.
    pub file: FileId,
    /// The region's path in the container.
    pub inside: PathBuf,
    name: PathBuf,
    folder: Arc<OwnedFd>,
}

impl Candidate {
    /// Returns the identity of its folder.
    ///
    /// # Errors
    /// This process may not look at the folder.
    pub fn folder(&self) -> io::Result<FileId> {
        Ok(FileId::from(&kernel::fstat(&self.folder)?))
    }

    /// Returns a path by which this process can open the region, as long as `self` is kept.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.folder.as_raw_fd().to_string()).join(&self.name)
    }
}

/// The names of a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerIdentity {
    /// Inode of the mount namespace.
    pub mounts: u64,
    /// The number that the engine gave to the container: 64 hexadecimal digits. None if no known engine made it.
    pub id: Option<String>,
    /// The name that the engine gave to the container. None if the engine does not tell.
    pub name: Option<String>,
}

impl ContainerIdentity {
    /// Returns the first digits of the container's number, as engines show it. Without a number, returns the inode of its mount
    /// namespace.
    #[must_use]
    pub fn short(&self) -> String {
        /// Digits of a number that engines show.
        const DIGITS: usize = 12;
        match &self.id {
            Some(id) => id.chars().take(DIGITS).collect(),
            None => self.mounts.to_string(),
        }
    }

    /// Returns true if a text is the container's name, the beginning of its number, or the inode of its mount namespace.
    #[must_use]
    pub fn is_called(&self, text: &str) -> bool {
        let begins = |id: &String| !text.is_empty() && id.starts_with(text);
        self.name.as_deref() == Some(text)
            || self.id.as_ref().is_some_and(begins)
            || self.mounts.to_string() == text
    }
}

/// The folder that a node agent has mounted for a container's region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountedFolder {
    /// No folder is mounted.
    Nothing,
    /// The folder has this identity.
    Folder(FileId),
    /// This process cannot look at the folder without waiting. The folder has this name on the host.
    Named(String),
    /// This process cannot look at the container's mounts.
    Unknown,
}

/// A container: processes that have a mount namespace of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The container's names.
    pub identity: ContainerIdentity,
    /// Some of its processes.
    pub witnesses: Vec<u32>,
}

impl Container {
    /// Describes the container with these processes.
    pub(super) fn of(mounts: u64, pids: &[u32]) -> Self {
        let witnesses: Vec<u32> = pids.iter().copied().take(WITNESSES).collect();
        let found = witnesses.iter().find_map(|pid| Some((*pid, engine::container_of(*pid)?)));
        let name = found.as_ref().and_then(|(pid, id)| engine::name_of(id, *pid));
        let identity = ContainerIdentity { mounts, id: found.map(|(_, id)| id), name };
        Self { identity, witnesses }
    }

    /// Returns true if one of its known processes still lives.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.witnesses
            .iter()
            .any(|pid| namespace(*pid, "mnt").is_ok_and(|mounts| mounts == self.identity.mounts))
    }

    /// Returns the folder that a node agent has mounted for the container's region.
    #[must_use]
    pub fn mounted(&self) -> MountedFolder {
        let mounts = |pid: &u32| Some((read_mounts(*pid)?, self.root(*pid)?));
        let Some((mounts, root)) = self.witnesses.iter().find_map(mounts) else {
            // A shorter list has all processes of the container.
            let has_ended = self.witnesses.len() < WITNESSES && !self.lives();
            return if has_ended { MountedFolder::Nothing } else { MountedFolder::Unknown };
        };
        let look = || {
            let folder = open_within(&root, MOUNTED, OFlags::PATH | OFlags::DIRECTORY).ok()?;
            Some(FileId::from(&kernel::fstat(folder).ok()?))
        };
        if let Some(folder) = is_local(&mounts, MOUNTED).then(look).flatten() {
            return MountedFolder::Folder(folder);
        }
        let name = |source: &str| source.rsplit('/').next().unwrap_or_default().to_owned();
        source_of(&mounts, MOUNTED)
            .map_or(MountedFolder::Nothing, |source| MountedFolder::Named(name(source)))
    }

    /// Returns the files that may be regions, judged by name and kind alone.
    #[must_use]
    pub fn regions(&self) -> Vec<Candidate> {
        let named = self.named();
        let named: Vec<(&str, &str)> = named.iter().filter_map(|path| parts_of(path)).collect();
        let folders: Vec<&str> = FOLDERS.into_iter().chain(named.iter().map(|(folder, _)| *folder)).collect();
        let Some((root, local)) = self.root_with(&folders) else { return Vec::new() };
        let usual = FOLDERS.into_iter().filter(|folder| local.contains(folder));
        let named = named.iter().filter(|(folder, _)| local.contains(folder));
        let mut found: Vec<Candidate> = usual.flat_map(|folder| usual_regions_in(&root, folder)).collect();
        found.extend(named.flat_map(|(folder, file)| region_at(&root, folder, file)));
        let mut seen = BTreeSet::new();
        found.retain(|candidate| seen.insert(candidate.file));
        found.truncate(MOST_REGIONS);
        found
    }

    /// Returns the paths that the container's settings name for a region. The settings are the operator's file and the
    /// variables of its processes.
    fn named(&self) -> BTreeSet<PathBuf> {
        let fixed = self.file(FIXED_FILE);
        let files = OperatorFiles { named: FileRead::Absent, fixed: fixed.as_read() };
        let of_process = |pid: &u32| {
            let variables = read(&format!("/proc/{pid}/environ"))?;
            let value = |name: &str| value_of(&variables, name);
            Config::from_sources(&value, &files).ok()?.region
        };
        self.witnesses.iter().filter_map(of_process).collect()
    }

    /// Reads a short file of the container. Follows no link, and opens regular files only.
    #[must_use]
    pub fn file(&self, path: &'static str) -> Contents {
        let Some((root, _)) = self.root_with(&[path]) else { return Contents::Absent };
        file_below(&root, path)
    }

    /// Returns the root directory, and those of `folders` at which this process can look without waiting. Returns none if it
    /// can look at none of them.
    fn root_with<'a>(&self, folders: &[&'a str]) -> Option<(OwnedFd, Vec<&'a str>)> {
        self.witnesses.iter().find_map(|pid| {
            let mounts = read_mounts(*pid)?;
            let local: Vec<_> = folders.iter().copied().filter(|folder| is_local(&mounts, folder)).collect();
            if local.is_empty() { None } else { Some((self.root(*pid)?, local)) }
        })
    }

    /// Returns the root directory of one of its processes.
    fn root(&self, pid: u32) -> Option<OwnedFd> {
        let root = open_root(Path::new(&format!("/proc/{pid}/root"))).ok()?;
        // The check follows the opening: the kernel may have given the number to another process before it.
        namespace(pid, "mnt").is_ok_and(|mounts| mounts == self.identity.mounts).then_some(root)
    }
}

/// Returns the value of a variable in the contents of `/proc/PID/environ`.
fn value_of(variables: &str, name: &str) -> Option<Vec<u8>> {
    let mut values = variables.split('\0').filter_map(|item| item.split_once('='));
    values.find(|(key, _)| *key == name).map(|(_, value)| value.into())
}

/// Returns the folder and the file name of a path that a container names.
///
/// Returns none if the list of mounts may write that path in another form. Then [`is_local`] cannot find its mounts, and a
/// look at the path may wait for another machine.
fn parts_of(path: &Path) -> Option<(&str, &str)> {
    let text = path.to_str().filter(|text| !text.contains([' ', '\t', '\n', '\\', '#']))?;
    let (folder, file) = text.rsplit_once('/')?;
    let mut parts = folder.strip_prefix('/')?.split('/').chain([file]);
    parts.all(|part| !["", ".", ".."].contains(&part)).then_some((folder, file))
}

/// Returns the files in one of [`FOLDERS`] below a root that may be regions.
pub(super) fn usual_regions_in(root: &OwnedFd, folder: &str) -> Vec<Candidate> {
    if folder == MOUNTED {
        return region_at(root, folder, "region");
    }
    let Some(opened) = open_folder(root, folder) else { return Vec::new() };
    let Ok(entries) = Dir::read_from(&*opened) else { return Vec::new() };
    let entries = entries.take(MOST_FILES).filter_map(Result::ok);
    let names: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_bytes().starts_with(FILE_PREFIX.as_bytes()))
        .map(|entry| PathBuf::from(OsStr::from_bytes(entry.file_name().to_bytes())))
        .take(MOST_REGIONS)
        .collect();
    names.into_iter().filter_map(|name| candidate(&opened, folder, name)).collect()
}

/// Returns the file of this name in a folder below a root, if it is a regular file.
fn region_at(root: &OwnedFd, folder: &str, name: &str) -> Vec<Candidate> {
    let opened = open_folder(root, folder);
    opened.and_then(|opened| candidate(&opened, folder, name.into())).into_iter().collect()
}

fn open_folder(root: &OwnedFd, folder: &str) -> Option<Arc<OwnedFd>> {
    open_within(root, folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK).ok().map(Arc::new)
}

fn candidate(opened: &Arc<OwnedFd>, folder: &str, name: PathBuf) -> Option<Candidate> {
    let found = kernel::statat(&**opened, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_file = FileType::from_raw_mode(found.st_mode).is_file();
    let (file, inside) = (FileId::from(&found), Path::new(folder).join(&name));
    is_file.then(|| Candidate { file, inside, name, folder: Arc::clone(opened) })
}

/// Returns the inode of a namespace of a process.
pub(super) fn namespace(pid: u32, kind: &str) -> io::Result<u64> {
    number_in(&fs::read_link(format!("/proc/{pid}/ns/{kind}"))?)
}

/// Returns the inode of the mount namespace of a process, or none if this process may not look at it.
#[must_use]
pub fn mounts_of(pid: u32) -> Option<u64> {
    namespace(pid, "mnt").ok()
}

/// Returns the inode of a namespace of this process.
pub(super) fn namespace_of_self(kind: &str) -> io::Result<u64> {
    number_in(&fs::read_link(format!("/proc/self/ns/{kind}"))?)
}

/// Returns the number in `mnt:[4026531841]`.
fn number_in(link: &Path) -> io::Result<u64> {
    let number = || link.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok();
    number().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::super::opening::below;
    use super::*;
    use rustix::fs::Mode;
    use std::os::unix::fs::symlink;

    /// Returns the files that the search finds below `root`, as if it were the root of a container.
    fn found_below(root: &Path) -> Vec<PathBuf> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root = kernel::open(root, flags, Mode::empty()).unwrap();
        let mut found: Vec<_> =
            FOLDERS.iter().flat_map(|folder| usual_regions_in(&root, folder)).map(|one| one.inside).collect();
        found.sort();
        found
    }

    #[test]
    fn a_container_is_called_by_its_name_its_number_or_its_namespace() {
        let (id, name) = (Some("6bf76cd5ca6d".repeat(6)), Some("train".to_owned()));
        let named = ContainerIdentity { mounts: 4_026_532_177, id, name };
        for text in ["train", "6bf76cd5ca6d", "6b", "4026532177"] {
            assert!(named.is_called(text), "{text}");
        }
        for text in ["", "trai", "bf7", "402653217"] {
            assert!(!named.is_called(text), "{text}");
        }
        assert_eq!(named.short(), "6bf76cd5ca6d");
        assert_eq!(ContainerIdentity { id: None, ..named }.short(), "4026532177");
    }

    #[test]
    fn only_files_with_a_regions_name_are_candidates() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("dev/shm/gpuslice-folder")).unwrap();
        fs::create_dir_all(at("run/gpuslice/region")).unwrap();
        fs::write(at("dev/shm/gpuslice-0-1"), "").unwrap();
        fs::write(at("dev/shm/other"), "").unwrap();
        fs::write(at("run/gpuslice/region/region"), "").unwrap();
        fs::write(at("run/gpuslice/region/gpuslice-0-1"), "").unwrap();
        symlink("/etc/passwd", at("dev/shm/gpuslice-0-link")).unwrap();
        kernel::mknodat(CWD, at("dev/shm/gpuslice-0-pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let expected = ["/dev/shm/gpuslice-0-1", "/run/gpuslice/region/region"].map(PathBuf::from);
        assert_eq!(found_below(root.path()), expected);
    }

    #[test]
    fn no_link_leads_out_of_a_container() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("gpuslice-0-secret"), "").unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("dev")).unwrap();
        for target in [
            outside.path().to_owned(),
            PathBuf::from("../../..").join(outside.path().strip_prefix("/").unwrap()),
        ] {
            let link = root.path().join("dev/shm");
            symlink(target, &link).unwrap();
            assert_eq!(found_below(root.path()), Vec::<PathBuf>::new());
            fs::remove_file(link).unwrap();
        }
    }

    #[test]
    fn a_container_whose_mounts_cannot_be_read_is_not_one_without_a_mounted_folder() {
        let own = |witnesses| {
            let identity =
                ContainerIdentity { mounts: namespace_of_self("mnt").unwrap(), id: None, name: None };
            Container { identity, witnesses }.mounted()
        };
        assert_eq!(own(vec![std::process::id()]), MountedFolder::Nothing);
        assert_eq!(own(vec![u32::MAX]), MountedFolder::Nothing, "its only process has ended");
        assert_eq!(own(vec![u32::MAX; WITNESSES]), MountedFolder::Unknown, "it may have other processes");
    }

    #[test]
    fn a_path_that_the_list_of_mounts_writes_in_another_form_is_no_place_of_a_region() {
        let parts = |path: &'static str| parts_of(Path::new(path));
        assert_eq!(parts("/srv/team/region-1"), Some(("/srv/team", "region-1")));
        for path in [
            "region",
            "/region",
            "srv/region",
            "/srv//region",
            "/srv/../region",
            "/srv/./region",
            "/srv/..",
            "/srv/",
            "/a b/region",
            "/a\\040b/region",
        ] {
            assert_eq!(parts(path), None, "{path}");
        }
    }

    #[test]
    fn the_first_of_two_values_of_a_variable_counts() {
        let variables = "PATH=/bin\0GPUSLICE_REGION=/a=b\0GPUSLICE_REGION=/c\0odd\0";
        assert_eq!(value_of(variables, "GPUSLICE_REGION"), Some(b"/a=b".to_vec()));
        assert_eq!([value_of(variables, "odd"), value_of(variables, "PAT")], [None, None]);
    }

    #[test]
    fn a_folder_full_of_names_costs_a_bounded_number_of_looks() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("dev/shm")).unwrap();
        for number in 0..MOST_REGIONS + 10 {
            fs::write(root.path().join(format!("dev/shm/gpuslice-0-{number}")), "").unwrap();
        }
        assert_eq!(found_below(root.path()).len(), MOST_REGIONS);
    }

    #[test]
    fn a_region_of_a_known_name_is_found_among_any_number_of_files() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let folder = root.path().join(below(MOUNTED));
        fs::create_dir_all(&folder).unwrap();
        let others = |first: usize| {
            for number in first..first + MOST_FILES {
                fs::write(folder.join(number.to_string()), "").unwrap();
            }
        };
        // Some file systems list the oldest file first, others the newest.
        others(0);
        fs::write(folder.join("region"), "").unwrap();
        others(MOST_FILES);
        assert_eq!(found_below(root.path()), [Path::new(MOUNTED).join("region")]);
    }

    #[test]
    fn a_candidate_is_opened_by_the_folder_that_it_was_found_in() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("dev/shm")).unwrap();
        fs::write(root.path().join("dev/shm/gpuslice-0-1"), "this one").unwrap();
        let opened = kernel::open(root.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let found = usual_regions_in(&opened, FOLDER);
        fs::rename(root.path().join("dev"), root.path().join("moved")).unwrap();
        assert_eq!(fs::read_to_string(found[0].path()).unwrap(), "this one");
        assert_eq!(FileId::of(&found[0].path()).unwrap(), found[0].file);
    }
}
