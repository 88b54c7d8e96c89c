//! Finds the region of a slice by the slice's name, and lists all regions.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStringExt, fs::MetadataExt as _},
    path::{Path, PathBuf, absolute},
};

use gpuslice_policy::config::{Config, FIXED_FILE, keys};

use crate::file::{
    choice::{self, Choice, Purpose},
    folders::{self, user},
    map::{self, Trust},
    operator::{Contents, Operator},
};

pub use folders::{FOLDER, ends_with_session, folder};

/// Start of the file names of regions that no setting names. The user's number follows, or `all`.
pub const FILE_PREFIX: &str = "gpuslice-";
/// Takes the place of the user's number in the region of all users of a container.
const ALL_USERS: &str = "all";
/// Follows the user's number in the regions of `gpuslice run`.
pub const RUN: &str = "run-";
/// The folder that a node agent mounts into a container for its region.
pub const MOUNTED: &str = "/run/gpuslice/region";
/// The folder in which a node agent, or `gpuslice cdi`, makes a folder for each slice of the host.
pub const SLOTS: &str = "/run/gpuslice/slots";
/// The region's name in the folder of a slice.
pub const REGION_FILE: &str = "region";

/// Regions that a name matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameMatch {
    /// The name matches this region. A path from the user is not checked for existence.
    One(PathBuf),
    /// The name matches no region.
    Nothing,
    /// The name matches each of these regions.
    Several(Vec<PathBuf>),
}

/// The region of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRegion {
    /// Its path. If [`has_more_names`](Self::has_more_names), the first one.
    pub path: PathBuf,
    /// The owners that it may have.
    pub trust: Trust,
    /// No setting names the region, and no folder is mounted for it. It may then have one of sixteen names (`file::choice`).
    pub has_more_names: bool,
}

impl ProgramRegion {
    /// Returns the path of the region's file: of the region that there is, or else the one that a process makes.
    #[must_use]
    pub fn path_now(&self) -> PathBuf {
        if !self.has_more_names {
            return self.path.clone();
        }
        let chosen =
            map::absolute(&self.path).and_then(|path| choice::choose(&path, self.trust, Purpose::Looking));
        match chosen {
            Ok(Choice::Region(region)) => region.path().to_owned(),
            Ok(Choice::Name(path)) => path,
            Ok(Choice::Changing(_)) | Err(_) => self.path.clone(),
        }
    }
}

/// Returns the user's number in a region's name, or [`ALL_USERS`], and the rest of the name after it.
fn parts(region: &Path) -> Option<(&str, &str)> {
    let (user, rest) = region.file_name()?.to_str()?.strip_prefix(FILE_PREFIX)?.split_once('-')?;
    let is_number = !user.is_empty() && user.bytes().all(|byte| byte.is_ascii_digit());
    let is_usual = (is_number || user == ALL_USERS) && region.parent().is_some_and(folders::is_folder);
    is_usual.then_some((user, rest))
}

/// Tells whether a path is one of a region that no setting names.
#[must_use]
pub fn is_usual(region: &Path) -> bool {
    parts(region).is_some()
}

/// Tells whether `gpuslice run` has named this region.
#[must_use]
pub fn is_of_run(region: &Path) -> bool {
    user_of_run(region).is_some()
}

/// Returns the user's number in the name of a region that `gpuslice run` has named.
fn user_of_run(region: &Path) -> Option<&str> {
    parts(region).filter(|(_, rest)| rest.starts_with(RUN)).map(|(user, _)| user)
}

/// Returns the region of a program. `named` is the region that the configuration names.
/// `has_operator_file` is true if there is an operator's file at [`FIXED_FILE`].
///
/// `gpuslice run` names the region of its user's program, so only that user and root may have made it. Otherwise another user
/// could make it while the program starts.
///
/// Without a named region, the process uses the folder that a node agent has mounted. Without such a folder, an operator's
/// file makes all users of the container one slice. Without an operator's file, each user of a container has a slice.
#[must_use]
pub fn of_program(named: Option<PathBuf>, has_operator_file: bool) -> ProgramRegion {
    let mounted = || Path::new(MOUNTED).is_dir().then(|| Path::new(MOUNTED).join(REGION_FILE));
    let chosen = named.or_else(mounted);
    let has_more_names = chosen.is_none();
    let usual = || if has_operator_file { of_all_users() } else { of_user() };
    let path = chosen.unwrap_or_else(usual);
    let is_own_run = || user_of_run(&path).is_some_and(|named| named == user().to_string());
    let trust = match has_operator_file {
        true => Trust::AllUsers,
        false if has_more_names || is_own_run() => Trust::OwnerOnly,
        false => Trust::AnyOwner,
    };
    ProgramRegion { path, trust, has_more_names }
}

/// Returns the region of all users of a container. Its name has the numbers of the operator's folder.
///
/// The folder stays the same when the operator writes a new file, and in a mount namespace that a program makes.
fn of_all_users() -> PathBuf {
    let folder = Path::new(FIXED_FILE).parent().unwrap_or_else(|| Path::new("/"));
    let (device, inode) = numbers(folder);
    Path::new(FOLDER).join(format!("{FILE_PREFIX}{ALL_USERS}-{device}-{inode}"))
}

/// Returns the number of a file's file system, and the file's number there. Returns zeroes if the file does not exist.
fn numbers(path: &Path) -> (u64, u64) {
    fs::metadata(path).map_or((0, 0), |found| (found.dev(), found.ino()))
}

/// Returns the region of a user's processes in a container: by user and number of the mount namespace.
fn of_user() -> PathBuf {
    let container = numbers(Path::new("/proc/self/ns/mnt")).1;
    folder().join(format!("{FILE_PREFIX}{}-{container}", user()))
}

/// Returns the name of a slice. It is the name of its folder in [`SLOTS`], or the part of its region's file name after user
/// and `run`, or the whole file name.
#[must_use]
pub fn name_of(region: &Path) -> String {
    if let Some(slot) = slot_of(region) {
        return slot.to_owned();
    }
    let file = || region.file_name().unwrap_or(region.as_os_str()).to_string_lossy().into_owned();
    parts(region).map_or_else(file, |(_, rest)| rest.strip_prefix(RUN).unwrap_or(rest).to_owned())
}

/// Returns the name of the slice that has this region in its folder in [`SLOTS`].
fn slot_of(region: &Path) -> Option<&str> {
    let folder = region.parent().filter(|_| region.file_name() == Some(OsStr::new(REGION_FILE)))?;
    folder.file_name()?.to_str().filter(|_| folder.parent() == Some(Path::new(SLOTS)))
}

/// Returns the regions in folders of slices below `slots`. A link is no region.
fn regions_of_slots(slots: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(slots).into_iter().flatten().flatten();
    let regions = folders.map(|folder| folder.path().join(REGION_FILE));
    regions.filter(|path| path.symlink_metadata().is_ok_and(|found| found.is_file())).collect()
}

/// Returns the shortest text that identifies a slice on the command line: its name, else its file name, else its path.
#[must_use]
pub fn label(region: &Path) -> String {
    label_among(region, &all().unwrap_or_default(), nearness)
}

/// Returns the [`label`] of a region among the regions of `all`.
fn label_among(region: &Path, all: &[PathBuf], near: impl Fn(&Path) -> Option<NameRank>) -> String {
    let path = || region.display().to_string();
    let file = region.file_name().map(|file| file.to_string_lossy().into_owned());
    let means_it = |name: &String| matches!(meant(name, all, &near).as_slice(), [one] if one == region);
    [name_of(region)].into_iter().chain(file).find(means_it).unwrap_or_else(path)
}

/// Rank of a region for this user. If a name matches several regions, only the regions of the first rank count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameRank {
    /// A region of this user, or of the slice or container that the process is in.
    Own,
    /// A region of root; for root, a region of any user.
    Trusted,
}

/// Returns the regions that a name matches. All users may create files in these folders. So the region of another user has
/// no name here, only a path. Otherwise that user could direct a command to its own region.
fn meant(name: &str, all: &[PathBuf], near: impl Fn(&Path) -> Option<NameRank>) -> Vec<PathBuf> {
    let means = |path: &&PathBuf| name_of(path) == name || path.file_name() == Some(OsStr::new(name));
    let found = |path: &PathBuf| near(path).map(|near| (near, path.clone()));
    let found: Vec<(NameRank, PathBuf)> = all.iter().filter(means).filter_map(found).collect();
    let nearest = found.iter().map(|(near, _)| *near).min();
    found.into_iter().filter(|(near, _)| Some(*near) == nearest).map(|(_, path)| path).collect()
}

/// Returns every path that may be a region: in the usual folders, in [`SLOTS`], and the regions of this process's slice and
/// container.
///
/// # Errors
/// The folder cannot be read.
pub fn all() -> io::Result<Vec<PathBuf>> {
    let mut regions = Vec::new();
    for folder in folders::folders() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(FILE_PREFIX) {
                regions.push(entry.path());
            }
        }
    }
    regions.extend(regions_of_slots(Path::new(SLOTS)));
    regions.extend(around().filter(|path| path.exists()));
    regions.sort();
    regions.dedup();
    Ok(regions)
}

/// Returns the regions of the slice and the container that this process is in. The operator's file comes before the environment,
/// as in the library. A region that a node agent has mounted follows.
fn around() -> impl Iterator<Item = PathBuf> {
    let variable = env::var_os(keys::REGION).map(PathBuf::from).filter(|path| path.is_absolute());
    of_operator().or(variable).into_iter().chain([Path::new(MOUNTED).join(REGION_FILE)])
}

/// Returns the region that an operator's file gives every program that is started here with the library, whatever the
/// environment. `None`: no operator's file names a region.
#[must_use]
pub fn of_operator() -> Option<PathBuf> {
    let env = |name: &str| env::var_os(name).map(OsStringExt::into_vec);
    let files_alone = |name: &str| env(name).filter(|_| name == "GPUSLICE_CONFIG");
    let operator = Operator::look(&env);
    let named = Config::from_sources(&files_alone, &operator.files()).ok()?.region;
    if operator.fixed == Contents::Absent { named } else { Some(of_program(named, true).path_now()) }
}

/// Returns the regions that a slice's name or path matches. A text with a slash is a path. A name matches regions of this
/// user first, then regions of root.
///
/// # Errors
/// The folder or the current directory cannot be read.
pub fn find(slice: &OsStr) -> io::Result<NameMatch> {
    let text = slice.to_string_lossy();
    if text.contains('/') {
        return absolute(slice).map(NameMatch::One);
    }
    Ok(find_among(&text, &all()?))
}

/// Returns the regions of `all` that a slice's name matches, by the rules of [`find`].
#[must_use]
pub fn find_among(name: &str, all: &[PathBuf]) -> NameMatch {
    let mut found = meant(name, all, nearness);
    match found.len() {
        0 => NameMatch::Nothing,
        1 => NameMatch::One(found.remove(0)),
        _ => NameMatch::Several(found),
    }
}

/// Returns the rank of a region for this user. `None`: only its path matches it.
fn nearness(path: &Path) -> Option<NameRank> {
    let ours = user();
    let owner = fs::symlink_metadata(path).ok()?.uid();
    if owner == ours || around().any(|own| own == path) {
        return Some(NameRank::Own);
    }
    (owner == 0 || ours == 0).then_some(NameRank::Trusted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_slice_is_the_part_after_its_user() {
        for (path, name) in [
            ("/dev/shm/gpuslice-1000-run-red", "red"),
            ("/dev/shm/gpuslice-1000-4026531841", "4026531841"),
            ("/dev/shm/gpuslice-all-66-2305", "66-2305"),
            ("/dev/shm/gpuslice-else", "gpuslice-else"),
            ("/tmp/gpuslice-1000-run-red", "red"),
            ("/srv/gpuslice-1000-run-red", "gpuslice-1000-run-red"),
            ("/srv/region", "region"),
            ("/run/gpuslice/slots/red/region", "red"),
            ("/run/gpuslice/slots/red/other", "other"),
            ("/run/gpuslice/region/region", "region"),
        ] {
            assert_eq!(name_of(Path::new(path)), name);
        }
    }

    #[test]
    fn an_operators_file_makes_all_users_of_a_container_one_slice() {
        let of_all = of_program(None, true);
        assert!(is_usual(&of_all.path) && !is_of_run(&of_all.path), "{of_all:?}");
        assert!(of_all.trust == Trust::AllUsers && of_all.has_more_names, "{of_all:?}");
        assert!(
            !of_all.path.display().to_string().contains(&format!("{FILE_PREFIX}{}-", user())),
            "{of_all:?}"
        );
        let of_user = of_program(None, false);
        assert!(of_user.path != of_all.path && of_user.trust == Trust::OwnerOnly, "{of_user:?}");
        assert!(of_user.has_more_names, "{of_user:?}");
        for (has_file, trust) in [(false, Trust::AnyOwner), (true, Trust::AllUsers)] {
            let named = of_program(Some("/srv/region".into()), has_file);
            assert_eq!(named, ProgramRegion { path: "/srv/region".into(), trust, has_more_names: false });
        }
    }

    #[test]
    fn the_region_of_a_users_run_belongs_to_that_user() {
        for (number, trust) in [(user(), Trust::OwnerOnly), (user() + 1, Trust::AnyOwner)] {
            let region = PathBuf::from(format!("{FOLDER}/{FILE_PREFIX}{number}-{RUN}train"));
            let expected = ProgramRegion { path: region.clone(), trust, has_more_names: false };
            assert_eq!(of_program(Some(region), false), expected);
        }
    }

    #[test]
    fn a_folder_of_a_slice_has_one_region() {
        let slots = tempfile::tempdir().unwrap();
        for name in ["a", "b", "empty"] {
            fs::create_dir(slots.path().join(name)).unwrap();
        }
        fs::write(slots.path().join("a/region"), "").unwrap();
        fs::write(slots.path().join("a/region.broken"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", slots.path().join("b/region")).unwrap();
        assert_eq!(regions_of_slots(slots.path()), [slots.path().join("a/region")]);
        assert_eq!(regions_of_slots(&slots.path().join("missing")), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_label_means_its_slice_and_no_other() {
        let all = [
            "/dev/shm/gpuslice-0-run-red",
            "/dev/shm/gpuslice-1000-run-red",
            "/dev/shm/gpuslice-1000-run-blue",
            "/dev/shm/gpuslice-1000-blue",
            "/dev/shm/gpuslice-1000-77",
            "/dev/shm/gpuslice-2000-run-planted",
            "/dev/shm/gpuslice-2000-run-red",
            "/run/gpuslice/region/region",
            "/run/gpuslice/slots/green/region",
            "/srv/region",
        ]
        .map(PathBuf::from);
        // As user 1000 sees them.
        let near = |path: &Path| match path.to_string_lossy() {
            text if text.contains("-2000-") => None,
            text if text.contains("-0-") => Some(NameRank::Trusted),
            _ => Some(NameRank::Own),
        };
        for (path, label) in [
            ("/dev/shm/gpuslice-0-run-red", "gpuslice-0-run-red"),
            ("/dev/shm/gpuslice-1000-run-red", "red"),
            ("/dev/shm/gpuslice-1000-run-blue", "gpuslice-1000-run-blue"),
            ("/dev/shm/gpuslice-1000-blue", "gpuslice-1000-blue"),
            ("/dev/shm/gpuslice-1000-77", "77"),
            ("/dev/shm/gpuslice-2000-run-planted", "/dev/shm/gpuslice-2000-run-planted"),
            ("/run/gpuslice/region/region", "/run/gpuslice/region/region"),
            ("/elsewhere/region", "/elsewhere/region"),
            ("/run/gpuslice/slots/green/region", "green"),
        ] {
            assert_eq!(label_among(Path::new(path), &all, near), label);
            let found = meant(label, &all, near);
            assert!(label.contains('/') || found == [PathBuf::from(path)], "{label}: {found:?}");
        }
        assert_eq!(meant("blue", &all, near).len(), 2);
        assert!(meant("yellow", &all, near).is_empty());
        assert!(meant("planted", &all, near).is_empty());
    }
}
