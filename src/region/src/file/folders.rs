//! Chooses the folder of regions that no setting names.
//!
//! The folder is `/dev/shm`, with one exception. Where systemd runs, its log-in service removes all files of a user in
//! `/dev/shm` when the user's last session ends. The setting is `RemoveIPC=`; it is on by default, and spares system users.
//! A training run left behind in `tmux` or by `nohup` would lose its region. It would go on, but new processes of its slice
//! could not join. For such a user the folder is `/tmp` if `/tmp` is a tmpfs, as on Fedora, Arch and Debian 13.
//!
//! A `/tmp` on a disk does not help, because the write-back would delay launches. `/run/lock` has room for only three
//! regions. In these cases the folder stays `/dev/shm`, and `gpuslice doctor` warns.
//!
//! All processes of a user choose the same folder, because the choice depends on facts that stay the same while the machine
//! runs.

use core::mem::MaybeUninit;
use std::{
    fs::File,
    os::{
        fd::AsRawFd as _,
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

/// The usual folder of regions.
pub const FOLDER: &str = "/dev/shm";
/// The folder for regions that would not survive a log-out in [`FOLDER`].
const LASTING: &str = "/tmp";
/// A directory that exists if systemd is the first process of the machine. `sd_booted` checks the same.
const SYSTEMD: &str = "/run/systemd/system";
/// The highest user number whose files survive a log-out: systemd's default for `SYS_UID_MAX`.
const LAST_SYSTEM_USER: u32 = 999;
/// Mode of a folder in which all users may create files, and only their owners may remove them.
const STICKY: u32 = 0o1002;
/// Number of tmpfs in `linux/magic.h`.
const TMPFS: u64 = 0x0102_1994;
/// File systems that have no server, and on which a driver's library may lie. Their numbers are in `linux/magic.h`: tmpfs,
/// ext4, XFS, Btrfs, overlayfs, EROFS, `SquashFS`, F2FS. The last number, of ZFS, is in no header of Linux.
const LOCAL: [u64; 9] = [
    TMPFS,
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x794c_7630,
    0xe0f5_e1e2,
    0x7371_7368,
    0xf2f5_2010,
    0x2fc1_2fc1,
];
/// Names that are tried for one region if other users have taken the first ones.
const REGION_NUMBERS: u32 = 16;

/// Returns the folder of this user's regions that no setting names.
#[must_use]
pub fn folder() -> &'static Path {
    Path::new(choose(user(), Path::new(SYSTEMD).is_dir(), is_shared_tmpfs(Path::new(LASTING))))
}

/// Returns all folders of regions that no setting names, of all users.
pub(crate) fn folders() -> impl Iterator<Item = &'static Path> {
    let lasting = is_shared_tmpfs(Path::new(LASTING)).then_some(LASTING);
    [FOLDER].into_iter().chain(lasting).map(Path::new)
}

/// Tells whether `folder` is one of [`folders`].
pub(crate) fn is_folder(folder: &Path) -> bool {
    [FOLDER, LASTING].into_iter().any(|known| Path::new(known) == folder)
}

/// Tells whether systemd removes this user's files in `folder` at the last log-out, by its default settings.
#[must_use]
pub fn ends_with_session(folder: &Path) -> bool {
    folder.starts_with(FOLDER) && is_of_sessions(user()) && Path::new(SYSTEMD).is_dir()
}

/// Returns the folder for a user, by the facts about the machine.
fn choose(user: u32, has_systemd: bool, can_last: bool) -> &'static str {
    if has_systemd && can_last && is_of_sessions(user) { LASTING } else { FOLDER }
}

/// Tells whether systemd removes this user's files when the last session ends.
fn is_of_sessions(user: u32) -> bool {
    user > LAST_SYSTEM_USER
}

/// Returns the effective user of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: `geteuid` has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Tells whether `folder` is a tmpfs in which all users may create files.
fn is_shared_tmpfs(folder: &Path) -> bool {
    let is_shared = folder
        .symlink_metadata()
        .is_ok_and(|found| found.is_dir() && found.permissions().mode() & STICKY == STICKY);
    is_shared && File::open(folder).is_ok_and(|folder| is_of_tmpfs(&folder))
}

/// Tells whether a file lies on a tmpfs.
pub(crate) fn is_of_tmpfs(file: &File) -> bool {
    file_system(file) == Some(TMPFS)
}

/// Tells whether the kernel keeps the locks of a file itself. A network file system or a FUSE file system may ask a server.
pub(crate) fn has_local_locks(file: &File) -> bool {
    file_system(file).is_some_and(|kind| LOCAL.contains(&kind))
}

/// Returns the number of a file's file system, as `statfs` reports it.
fn file_system(file: &File) -> Option<u64> {
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `fstatfs` needs an open descriptor, which `file` owns, and room for a `statfs`, which `found` is.
    let is_known = unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) } == 0;
    // SAFETY: `found` was filled by `fstatfs`, or is all zeroes, which is a valid `statfs` too.
    let kind = unsafe { found.assume_init() }.f_type;
    u64::try_from(kind).ok().filter(|_| is_known)
}

/// Returns `path`, `path-2`, `path-3` and so on.
pub(crate) fn names_of(path: &Path) -> impl Iterator<Item = PathBuf> {
    (1..=REGION_NUMBERS).map(move |number| {
        let mut name = path.as_os_str().to_owned();
        if number > 1 {
            name.push(format!("-{number}"));
        }
        PathBuf::from(name)
    })
}

/// Returns the first of `path`, `path-2`, `path-3` and so on that a trusted user owns; else the first that does not exist. If
/// other users own all of them, `path`.
///
/// So a file that another user creates at the path keeps no process from its region. Trusted files come first, so that all
/// processes use the same file even when an earlier name becomes free.
pub(crate) fn numbered(path: &Path, is_trusted: impl Fn(u32) -> bool) -> PathBuf {
    let mut free = None;
    for candidate in names_of(path) {
        match candidate.symlink_metadata().map(|found| found.uid()) {
            Ok(owner) if is_trusted(owner) => return candidate,
            Ok(_) => {}
            Err(_) => free = free.or(Some(candidate)),
        }
    }
    free.unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::chown};

    #[test]
    fn a_region_is_where_it_outlives_a_log_out_if_there_is_such_a_folder_in_memory() {
        for (user, has_systemd, can_last, expected) in [
            (1000, true, true, LASTING),
            (1000, true, false, FOLDER),
            (1000, false, true, FOLDER),
            (999, true, true, FOLDER),
            (0, true, true, FOLDER),
            (65534, true, true, LASTING),
        ] {
            assert_eq!(choose(user, has_systemd, can_last), expected, "{user} {has_systemd} {can_last}");
        }
    }

    #[test]
    fn a_folder_counts_if_it_is_a_tmpfs_that_all_may_use() {
        let folder = tempfile::tempdir_in(FOLDER).unwrap();
        let with = |mode| {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            is_shared_tmpfs(folder.path())
        };
        assert_eq!([with(0o1777), with(0o777), with(0o1755)], [true, false, false]);
        assert!(!is_shared_tmpfs(Path::new("/proc")) && !is_shared_tmpfs(Path::new("/nowhere")));
    }

    #[test]
    fn a_file_of_another_user_takes_no_name_away() {
        let folder = tempfile::tempdir_in(FOLDER).unwrap();
        let path = folder.path().join("name");
        let at = |number| folder.path().join(format!("name-{number}"));
        let ours = |owner: u32| owner == user();
        assert_eq!(numbered(&path, ours), path);
        fs::write(at(2), "").unwrap();
        assert_eq!(numbered(&path, ours), at(2), "what the others use");
        fs::write(&path, "").unwrap();
        assert_eq!(numbered(&path, ours), path);
        if chown(&path, Some(12345), None).is_err() {
            eprintln!("SKIP files of other users; to mend it: run the tests as root");
            return;
        }
        assert_eq!(numbered(&path, ours), at(2));
        chown(at(2), Some(12345), None).unwrap();
        assert_eq!(numbered(&path, ours), at(3));
        (3..=16).for_each(|number| {
            fs::write(at(number), "").unwrap();
            chown(at(number), Some(12345), None).unwrap();
        });
        assert_eq!(numbered(&path, ours), path, "others have all of them");
    }
}
