//! Opens regular files, and nothing else.
//!
//! To open a device is to act on it: `/dev/watchdog` starts its clock. A container can put a device of any number in the
//! place of a file that the agent reads with the rights of the host. So a process looks at the kind of a file before it
//! opens the file. For the look it needs a descriptor with `O_PATH`, which opens no device. It then opens the file through
//! that descriptor, because the path may lead to another file by then.

use std::{
    fs::{File, Metadata, OpenOptions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    },
    path::Path,
};

use libc::c_int;

/// Access that a process needs to a file, and to a mapping of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Reading. A write through the mapping would end the process.
    Read,
    /// Reading and writing.
    Write,
}

/// Result of looking at a file, and of opening it if it is a regular one.
#[derive(Debug)]
pub enum Opened {
    /// The opened regular file.
    File(File),
    /// The kind of another object, which was not opened.
    Other(&'static str),
}

/// Opens for reading the file of a descriptor with `O_PATH`.
///
/// # Errors
/// The file cannot be looked at or cannot be opened. [`io::ErrorKind::NotFound`]: there is no `/proc`.
pub fn open_found(found: &File) -> io::Result<Opened> {
    match kind_of(&found.metadata()?) {
        None => by_descriptor(found, Rights::Read).map(Opened::File),
        Some(kind) => Ok(Opened::Other(kind)),
    }
}

/// Opens a file. Does not follow a link, and does not wait for the other end of a pipe.
pub(crate) fn open(path: &Path, rights: Rights) -> io::Result<Opened> {
    let found = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;
    let looked = found.metadata()?;
    if let Some(kind) = kind_of(&looked) {
        return Ok(Opened::Other(kind));
    }
    let opened = match by_descriptor(&found, rights) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => by_path(path, rights, &looked),
        opened => opened,
    };
    opened.map(Opened::File)
}

/// Opens the regular file of a descriptor with `O_PATH`.
fn by_descriptor(found: &File, rights: Rights) -> io::Result<File> {
    options(rights, 0).open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// Opens by its path a regular file that the caller has looked at. For a program without `/proc`. An agent always has
/// `/proc`.
fn by_path(path: &Path, rights: Rights, looked: &Metadata) -> io::Result<File> {
    let file = options(rights, libc::O_NOFOLLOW).open(path)?;
    let found = file.metadata()?;
    let is_same = (found.dev(), found.ino()) == (looked.dev(), looked.ino());
    if is_same { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Returns the options of an opening that waits neither for the other end of a pipe nor for the holder of a file lease.
fn options(rights: Rights, flags: c_int) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(rights == Rights::Write).custom_flags(flags | libc::O_NONBLOCK | libc::O_NOCTTY);
    options
}

/// Returns the kind of an object that is no regular file.
fn kind_of(looked: &Metadata) -> Option<&'static str> {
    match looked.file_type() {
        kind if kind.is_file() => None,
        kind if kind.is_symlink() => Some("a symbolic link"),
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}
