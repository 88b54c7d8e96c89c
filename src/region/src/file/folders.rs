//! Folders for regions that no setting names.
//!
//! `/dev/shm`, except for one case. Where systemd runs, its log-in service removes all files of a user in `/dev/shm` when the
//! user's last session ends (`RemoveIPC=`, on by default, and not for system users). A training run that was left behind in
//! `tmux` or by `nohup` would lose its region: it goes on, but new processes of its slice are refused. So for such a user
//! `/tmp` is taken if it is a tmpfs, as on Fedora, Arch and Debian 13. It is not where `/tmp` is on a disk, since a write-back
//! would keep launches waiting, and `/run/lock` has room for three regions. Then `gpuslice doctor` warns.
//!
//! All processes of a user come to the same answer, because nothing that is looked at changes while the machine runs.

use core::mem::MaybeUninit;
use std::{
    fs::File,
    os::{
        fd::AsRawFd as _,
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

/// Where regions are unless they are named.
pub const FOLDER: &str = "/dev/shm";
/// Where those are that would not outlive a log-out in [`FOLDER`].
const LASTING: &str = "/tmp";
/// Is there where systemd is the machine's first process: `sd_booted`.
const SYSTEMD: &str = "/run/systemd/system";
/// Users whose files stay at a log-out have no higher number: systemd's default for `SYS_UID_MAX`.
const LAST_SYSTEM_USER: u32 = 999;
/// Anybody may make files, and only their owners may remove them.
const STICKY: u32 = 0o1002;
/// Names of one region that are tried where others have put files.
const NUMBERS: u32 = 16;

/// The folder for regions of this user that no setting names.
#[must_use]
pub fn folder() -> &'static Path {
    Path::new(choose(user(), Path::new(SYSTEMD).is_dir(), is_shared_tmpfs(Path::new(LASTING))))
}

/// Every folder in which regions may be that no setting names, of whatever user.
pub(crate) fn folders() -> impl Iterator<Item = &'static Path> {
    let lasting = is_shared_tmpfs(Path::new(LASTING)).then_some(LASTING);
    [FOLDER].into_iter().chain(lasting).map(Path::new)
}

/// Whether a folder is one of those in which regions may be that no setting names.
pub(crate) fn is_folder(folder: &Path) -> bool {
    [FOLDER, LASTING].into_iter().any(|known| Path::new(known) == folder)
}

/// Whether files of this user in a folder are removed at the user's last log-out, as far as systemd's defaults say.
#[must_use]
pub fn ends_with_session(folder: &Path) -> bool {
    folder.starts_with(FOLDER) && is_of_sessions(user()) && Path::new(SYSTEMD).is_dir()
}

fn choose(user: u32, has_systemd: bool, can_last: bool) -> &'static str {
    if has_systemd && can_last && is_of_sessions(user) { LASTING } else { FOLDER }
}

fn is_of_sessions(user: u32) -> bool {
    user > LAST_SYSTEM_USER
}

fn user() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether a folder is a tmpfs in which all users may have files.
fn is_shared_tmpfs(folder: &Path) -> bool {
    let is_shared = folder
        .symlink_metadata()
        .is_ok_and(|found| found.is_dir() && found.permissions().mode() & STICKY == STICKY);
    is_shared && File::open(folder).is_ok_and(|folder| is_of_tmpfs(&folder))
}

/// Whether a file lies in memory.
pub(crate) fn is_of_tmpfs(file: &File) -> bool {
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor is open, and `found` may be written.
    let is_known = unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) } == 0;
    // SAFETY: filled by the call above, or zeroes, which are numbers as well.
    is_known && unsafe { found.assume_init() }.f_type == libc::TMPFS_MAGIC
}

/// Of a path and its numbered successors the first that a trusted user's file has, else the first that nothing has: a file
/// that another user puts at the path denies nothing. The path itself where others have put files at all of them.
///
/// A trusted user's file is looked for first, so that nobody leaves the file that the others use when one before it goes.
pub(crate) fn numbered(path: &Path, is_trusted: impl Fn(u32) -> bool) -> PathBuf {
    let mut free = None;
    for number in 1..=NUMBERS {
        let mut name = path.as_os_str().to_owned();
        if number > 1 {
            name.push(format!("-{number}"));
        }
        let candidate = PathBuf::from(name);
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
