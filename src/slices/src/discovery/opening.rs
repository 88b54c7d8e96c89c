//! Opens files of a container without following a link.

use gpuslice_region::operator::Contents;
use gpuslice_region::{Opened, open_found};
use rustix::fs::{self as kernel, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Opens the root directory of a container.
pub(super) fn open_root(path: &Path) -> Result<OwnedFd, Errno> {
    kernel::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Resolves a path in a container below its root, and without links.
const WITHIN: ResolveFlags =
    ResolveFlags::IN_ROOT.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Opens a path of a container below its root. Follows no link.
pub(super) fn open_within(root: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    match kernel::openat2(root, below(path), flags, Mode::empty(), WITHIN) {
        // Linux before 5.6 lacks `openat2`. An old filter of system calls refuses it.
        Err(Errno::NOSYS | Errno::PERM) => open_by_parts(root, path, flags),
        opened => opened,
    }
}

/// Opens a path below a root, one part after the other. So no part can be a link.
fn open_by_parts(root: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let (folders, last) = below(path).rsplit_once('/').unwrap_or_else(|| ("", below(path)));
    let mut folder = kernel::openat(root, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for part in folders.split('/').filter(|part| !part.is_empty()) {
        folder = kernel::openat(&folder, part, step, Mode::empty())?;
    }
    kernel::openat(&folder, last, flags | OFlags::NOFOLLOW, Mode::empty())
}

pub(super) fn below(path: &str) -> &str {
    path.trim_start_matches('/')
}

/// Reads a short regular file below a root.
pub(super) fn file_below(root: &OwnedFd, path: &str) -> Contents {
    let opened = match open_within(root, path, OFlags::PATH) {
        Ok(found) => open_found(&File::from(found)),
        Err(Errno::NOENT) => return Contents::Absent,
        Err(error) => return Contents::Unreadable(error.to_string()),
    };
    match opened {
        Ok(Opened::File(file)) => Contents::from_file(file),
        Ok(Opened::Other(kind)) => Contents::Unreadable(format!("it is {kind}")),
        Err(error) => Contents::Unreadable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_policy::config::FIXED_FILE;
    use gpuslice_region::names::MOUNTED;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    /// Opening a socket fails. So the error shows whether the agent opened the file before it checked the file's kind.
    #[test]
    fn the_agent_looks_at_a_file_of_a_container_before_it_opens_the_file() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("run/gpuslice/conf")).unwrap();
        let opened = kernel::open(root.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        assert_eq!(file_below(&opened, FIXED_FILE), Contents::Absent);
        let file = root.path().join(below(FIXED_FILE));
        let _socket = std::os::unix::net::UnixListener::bind(&file).unwrap();
        assert_eq!(file_below(&opened, FIXED_FILE), Contents::Unreadable("it is a socket".to_owned()));
        fs::remove_file(&file).unwrap();
        fs::write(&file, "GPU_MEM_LIMIT=1GiB").unwrap();
        assert_eq!(file_below(&opened, FIXED_FILE), Contents::Read(b"GPU_MEM_LIMIT=1GiB".to_vec()));
    }

    #[test]
    fn a_kernel_without_openat2_finds_the_same_files_and_follows_no_link() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("run/gpuslice/region")).unwrap();
        fs::write(root.path().join("run/gpuslice/region/region"), "this one").unwrap();
        symlink("gpuslice", root.path().join("run/link")).unwrap();
        symlink("region", root.path().join("run/gpuslice/link")).unwrap();
        let opened = kernel::open(root.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let folder = OFlags::PATH | OFlags::DIRECTORY;
        for open in [open_within, open_by_parts] {
            let found = kernel::fstat(open(&opened, MOUNTED, folder).unwrap()).unwrap();
            assert_eq!(found.st_ino, fs::metadata(root.path().join(below(MOUNTED))).unwrap().ino());
            assert!(open(&opened, "/run/gpuslice/region/region", OFlags::RDONLY).is_ok());
            for link in ["/run/link/region", "/run/gpuslice/link"] {
                assert!(open(&opened, link, folder).is_err(), "{link}");
            }
            assert_eq!(open(&opened, "/run/missing/region", folder).unwrap_err(), Errno::NOENT);
        }
    }
}
