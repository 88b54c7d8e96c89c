//! Errors of a region, with messages that say how to correct each.

use core::fmt;
use std::{
    error::Error,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    file::sigbus_guard::MAX_PROTECTED,
    layout::constants::{MAGIC, MAX_DEVICES, MAX_SLOTS, VERSION},
};

/// The action of a process that opens a file without the right to write.
pub(crate) const OPENING_TO_READ: &str = "open it to read";

/// Reason for which a region cannot be used. The message names the file, the value found, the value expected, and the
/// remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegionError {
    /// A system call failed.
    System {
        /// The region's path.
        path: PathBuf,
        /// The action that failed.
        doing: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// The path is a symbolic link, a directory or another object that is not a regular file.
    NotAFile {
        /// The region's path.
        path: PathBuf,
        /// The kind of the object.
        found: &'static str,
    },
    /// The file belongs to another user.
    Owner {
        /// The region's path.
        path: PathBuf,
        /// The owner of the file.
        found: u32,
        /// The user of this process.
        ours: u32,
    },
    /// The file does not start like a region.
    Magic {
        /// The region's path.
        path: PathBuf,
        /// The file's first eight bytes, or fewer if it is shorter.
        found: Vec<u8>,
    },
    /// The file is a region of another version.
    Version {
        /// The region's path.
        path: PathBuf,
        /// The file's version.
        found: u32,
    },
    /// The file does not have the size of a region.
    Size {
        /// The region's path.
        path: PathBuf,
        /// The file's size, or the size in its header.
        found: u64,
        /// The size of a region.
        expected: u64,
    },
    /// Another process is joining and does not finish.
    Busy {
        /// The region's path.
        path: PathBuf,
        /// The process that holds the join lock, as a number in its own process-number namespace.
        by: u32,
        /// The time waited.
        waited: Duration,
    },
    /// Another process is changing limits and does not finish.
    Changing {
        /// The region's path.
        path: PathBuf,
        /// The time waited.
        waited: Duration,
    },
    /// All slots belong to living processes.
    TableFull {
        /// The region's path.
        path: PathBuf,
    },
    /// The device table is full.
    TooManyDevices {
        /// The region's path.
        path: PathBuf,
    },
    /// The file system drops a lock when its descriptor is closed although a mapping remains.
    LockNotKept {
        /// The region's path.
        path: PathBuf,
    },
    /// The file is not a table of arbiter leases.
    NotArbiterLeases {
        /// The file's path.
        path: PathBuf,
        /// The difference from a table of arbiter leases.
        wrong: &'static str,
    },
    /// The file was truncated or overwritten, so it has lost the state of this process.
    Damaged {
        /// The region's path.
        path: PathBuf,
    },
    /// The path leads to another file, or to no file.
    Replaced {
        /// The region's path.
        path: PathBuf,
    },
    /// The file was removed, and members of the slice use it without its name.
    Detached {
        /// The former path.
        path: PathBuf,
        /// The members that this process can see, by process number.
        members: Vec<u32>,
    },
    /// Processes use a file under another name of the region too.
    SecondFile {
        /// The region's path.
        path: PathBuf,
        /// The other file.
        other: PathBuf,
    },
    /// The region was initialised again: the slice that was opened has ended.
    Reinitialised {
        /// The region's path.
        path: PathBuf,
    },
    /// This process has mapped as many regions as it can protect from truncation.
    TooManyOpen {
        /// The region's path.
        path: PathBuf,
    },
}

impl RegionError {
    /// Tells whether the file is no region of this version, or is not accessible to this user.
    pub(crate) fn is_of_contents(&self) -> bool {
        match self {
            Self::NotAFile { .. } | Self::Magic { .. } | Self::Version { .. } | Self::Size { .. } => true,
            Self::System { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

impl fmt::Display for RegionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { path, doing, source } => {
                write!(out, "{}: cannot {doing}: {source}", path.display())?;
                match source.kind() {
                    io::ErrorKind::NotFound => write!(out, "; make its directory, or name another path"),
                    io::ErrorKind::PermissionDenied if *doing == OPENING_TO_READ => {
                        write!(
                            out,
                            "; give this user the right to read it{}, or name another path",
                            by_owner(path)
                        )
                    }
                    io::ErrorKind::PermissionDenied => {
                        let by_owner = by_owner(path);
                        write!(
                            out,
                            "; give this user the right to read and write it{by_owner}, or name another path"
                        )
                    }
                    io::ErrorKind::Unsupported => {
                        write!(out, "; name a path on a tmpfs such as /dev/shm, or on a volume")
                    }
                    io::ErrorKind::ReadOnlyFilesystem => {
                        write!(out, "; mount it so that it can be written to, or name another path")
                    }
                    io::ErrorKind::StorageFull => write!(out, "; make room there, or name another path"),
                    _ => Ok(()),
                }
            }
            Self::NotAFile { path, found } => write!(
                out,
                "{}: is {found}, but a region is a regular file; name another path, or remove it if it is not needed",
                path.display()
            ),
            Self::Owner { path, found, ours } => {
                let ours = if *ours == 0 { "0".to_owned() } else { format!("{ours} or 0") };
                write!(
                    out,
                    "{}: belongs to user {found}, but must belong to user {ours}; let user {found} or root remove it, or set \
                     GPUSLICE_REGION to this path to use the slice of user {found}",
                    path.display()
                )
            }
            Self::Magic { path, found } => write!(
                out,
                "{}: begins with \"{}\", a region begins with \"{}\"; name another path, or remove it if it is not needed{}",
                path.display(),
                found.escape_ascii(),
                MAGIC.to_le_bytes().escape_ascii(),
                by_owner(path)
            ),
            Self::Version { path, found } => write!(
                out,
                "{}: region of version {found}, this library reads version {VERSION}; end the processes that \
                 use it and remove it with `gpuslice remove`, or load the same gpuslice in all of them",
                path.display()
            ),
            Self::Size { path, found, expected } => write!(
                out,
                "{}: size {found}, a region of version {VERSION} has {expected} bytes; end the processes that \
                 use it and remove it",
                path.display()
            ),
            Self::Busy { path, by, waited } => write!(
                out,
                "{}: process {by} has been joining for more than {} ms and may be suspended; resume it or \
                 end it",
                path.display(),
                waited.as_millis()
            ),
            Self::Changing { path, waited } => write!(
                out,
                "{}: another process has been changing its limits for more than {} ms and may be suspended; resume \
                 it or end it",
                path.display(),
                waited.as_millis()
            ),
            Self::TableFull { path } => write!(
                out,
                "{}: this slice has {MAX_SLOTS} living processes, the most that it can have; end some, or name \
                 another region",
                path.display()
            ),
            Self::TooManyDevices { path } => write!(
                out,
                "{}: the slice would have more than {MAX_DEVICES} devices; show its processes fewer",
                path.display()
            ),
            Self::LockNotKept { path } => write!(
                out,
                "{}: this file system forgets the lock of a closed file that is still mapped (overlayfs, a \
                 container's own file system, does), so gpuslice could not detect dead processes; name a \
                 path on a tmpfs such as /dev/shm, or on a volume",
                path.display()
            ),
            Self::NotArbiterLeases { path, wrong } => {
                write!(out, "{}: {wrong}, so no arbiter can be elected there; remove it", path.display())
            }
            Self::Damaged { path } => write!(
                out,
                "{}: was shortened or overwritten while this slice uses it; end the slice's processes, remove it, \
                 and start them again",
                path.display()
            ),
            Self::Replaced { path } => write!(
                out,
                "{}: was removed or replaced while this slice uses it; its processes go on and keep to its limits, but new \
                 ones and `gpuslice set` do not reach them",
                path.display()
            ),
            Self::Detached { path, members } => write!(
                out,
                "{}: was removed while in use by {}, and a new region would give the slice its limits twice; end them, or name \
                 another region",
                path.display(),
                listed(members)
            ),
            Self::SecondFile { path, other } => write!(
                out,
                "{}: cannot be the slice's region while processes use {} too, and two regions would give the slice its limits \
                 twice; end the processes of one of them",
                path.display(),
                other.display()
            ),
            Self::Reinitialised { path } => write!(
                out,
                "{}: was initialised again for another slice since it was opened; open it again",
                path.display()
            ),
            Self::TooManyOpen { path } => {
                write!(
                    out,
                    "{}: this process has {MAX_PROTECTED} regions open, the most that it can protect from truncation; close some",
                    path.display()
                )
            }
        }
    }
}

/// Returns the part of a remedy that names the users with the right to change or remove a file. Empty if there is no file.
fn by_owner(path: &Path) -> String {
    match path.symlink_metadata().map(|found| found.uid()) {
        Ok(0) => ", which root can".to_owned(),
        Ok(owner) => format!(", which user {owner} or root can"),
        Err(_) => String::new(),
    }
}

/// Returns process numbers as text: `process 7`, or `processes 7, 8 and 3 more`.
pub(crate) fn listed(processes: &[u32]) -> String {
    /// The most numbers that the text contains.
    const TOLD: usize = 8;
    let told: Vec<String> = processes.iter().take(TOLD).map(u32::to_string).collect();
    let word = if processes.len() == 1 { "process" } else { "processes" };
    match processes.len().saturating_sub(told.len()) {
        0 => format!("{word} {}", told.join(", ")),
        more => format!("{word} {} and {more} more", told.join(", ")),
    }
}

impl Error for RegionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}
