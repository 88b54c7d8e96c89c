//! Makes folders and files. Containers never see a half-written file.

use gpuslice_policy::config::Malformed;
use gpuslice_region::RegionError;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};

/// A failure with a file.
#[derive(Debug)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// The failure, and its remedy.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path.display(), self.what)
    }
}

impl std::error::Error for Problem {}

impl Problem {
    pub(super) fn of<'a>(path: &'a Path, doing: &'a str) -> impl FnOnce(io::Error) -> Self + 'a {
        move |error| {
            let mend = match error.kind() {
                io::ErrorKind::PermissionDenied => "; run this as root, or choose other paths",
                io::ErrorKind::StorageFull => "; make room there",
                io::ErrorKind::ReadOnlyFilesystem => "; choose a path that can be written",
                _ => "",
            };
            Self { path: path.to_owned(), what: format!("cannot {doing}: {error}{mend}") }
        }
    }
}

impl From<Malformed> for Problem {
    fn from(malformed: Malformed) -> Self {
        // The text of the error begins with the path and the line.
        let text = format!("{} {}", malformed.said, malformed.error);
        let (path, what) = text.split_once(": ").unwrap_or(("", &text));
        Self { path: path.into(), what: format!("{what}; mend the line, or remove the file") }
    }
}

impl From<RegionError> for Problem {
    fn from(error: RegionError) -> Self {
        // The message begins with the path.
        let text = error.to_string();
        let (path, what) = text.split_once(": ").unwrap_or(("", &text));
        Self { path: path.into(), what: what.to_owned() }
    }
}

/// Makes a folder and the folders above it. All users may read new folders, and only their owner may write them. A folder that
/// exists keeps its rights.
///
/// # Errors
/// The folder cannot be made, or another kind of file has its path.
pub fn make_folder(path: &Path) -> Result<(), Problem> {
    let missing: Vec<&Path> =
        path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()).collect();
    missing.into_iter().rev().try_for_each(make_one).map_err(Problem::of(path, "make this folder"))
}

fn make_one(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        // The umask of an operator may hide new files from the users of containers.
        Ok(()) => fs::set_permissions(folder, Permissions::from_mode(0o755)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Gives a file or folder the owner of the folder `like`, and a mode. A container may have changed them.
///
/// # Errors
/// The owner or the mode cannot be set, or a link has the path.
pub(super) fn take_back(path: &Path, like: &Path, mode: u32) -> Result<(), Problem> {
    let set = || -> io::Result<()> {
        let (found, owner) = (path.symlink_metadata()?, like.metadata()?.uid());
        if found.uid() == owner && found.permissions().mode() & 0o7777 == mode {
            return Ok(());
        }
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        fchown(&file, Some(owner), None)?;
        file.set_permissions(Permissions::from_mode(mode))
    };
    set().map_err(Problem::of(path, "set its owner and mode"))
}

/// Writes a file. A reader sees either the whole new file or the whole file before it. A file that already has this content and
/// mode stays.
///
/// # Errors
/// The file cannot be written.
pub fn write_whole(path: &Path, content: &[u8], mode: u32) -> Result<(), Problem> {
    let has_mode = |file: &fs::Metadata| file.is_file() && file.permissions().mode() & 0o7777 == mode;
    if path.symlink_metadata().is_ok_and(|file| has_mode(&file))
        && fs::read(path).is_ok_and(|there| there == content)
    {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Container engines ignore a file with such a name.
    let beside = path.with_file_name(format!(".{name}.tmp"));
    let write = || -> io::Result<()> {
        let _left_by_the_dead = fs::remove_file(&beside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        // The folder is synchronised too, so that the new name survives a loss of power.
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    write().map_err(Problem::of(path, "write it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_file_with_the_same_content_is_not_written_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        write_whole(&path, b"x", 0o644).unwrap();
        let inode = || fs::metadata(&path).unwrap().ino();
        let first = inode();
        write_whole(&path, b"x", 0o644).unwrap();
        assert_eq!(inode(), first);
        write_whole(&path, b"y", 0o600).unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"y".to_vec(), 0o600));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
