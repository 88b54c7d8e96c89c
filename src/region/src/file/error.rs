//! What can be wrong with a region, and what mends it?

use core::fmt;
use std::{error::Error, io, path::PathBuf, time::Duration};

use crate::layout::constants::{MAGIC, MAX_DEVICES, MAX_SLOTS, VERSION};

/// What is being done by who needs no right to write.
pub(crate) const OPENING_TO_READ: &str = "open it to read";

/// Why a region cannot be used. The message names the file, what was found, what would be right, and how to
/// mend it.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegionError {
    /// A system call failed.
    System {
        /// The region's path.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The path is a symbolic link, a directory or another thing that is not a regular file.
    NotAFile {
        /// The region's path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The file belongs to another user.
    Owner {
        /// The region's path.
        path: PathBuf,
        /// The user it belongs to.
        found: u32,
        /// The user that this process runs as.
        ours: u32,
    },
    /// The file does not begin like a region.
    Magic {
        /// The region's path.
        path: PathBuf,
        /// Its first eight bytes, or what there is of them.
        found: Vec<u8>,
    },
    /// The file is a region of another version.
    Version {
        /// The region's path.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The file's size is not a region's.
    Size {
        /// The region's path.
        path: PathBuf,
        /// Its size, or the size that its header says.
        found: u64,
        /// The size of a region.
        expected: u64,
    },
    /// Another process is joining and does not finish.
    Busy {
        /// The region's path.
        path: PathBuf,
        /// The process that says that it is joining, in its own process-number namespace.
        by: u32,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Another process is changing the limits and does not finish.
    Changing {
        /// The region's path.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
    /// All slots are taken by living processes.
    TableFull {
        /// The region's path.
        path: PathBuf,
    },
    /// The slice would have more devices than there is room for.
    TooManyDevices {
        /// The region's path.
        path: PathBuf,
    },
    /// The file system drops a lock when its descriptor is closed although a mapping remains.
    LockNotKept {
        /// The region's path.
        path: PathBuf,
    },
    /// The file is not what processes elect an arbiter by.
    NotArbiterLeases {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// The file was shortened or overwritten: it says nothing of this process any more.
    Damaged {
        /// The region's path.
        path: PathBuf,
    },
    /// The path names another file now, or none.
    Replaced {
        /// The region's path.
        path: PathBuf,
    },
    /// The file was removed, and members of the slice go on without it.
    Detached {
        /// Where it was.
        path: PathBuf,
        /// The members that this process can see, by process number.
        members: Vec<u32>,
    },
    /// The region was made anew: the slice that was looked at has ended.
    Reinitialised {
        /// The region's path.
        path: PathBuf,
    },
    /// This process has as many regions mapped as it can be kept from being ended by.
    TooManyOpen {
        /// The region's path.
        path: PathBuf,
    },
}

impl fmt::Display for RegionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { path, doing, source } => {
                write!(out, "{}: cannot {doing}: {source}", path.display())?;
                match source.kind() {
                    io::ErrorKind::NotFound => write!(out, "; make its directory, or name another path"),
                    io::ErrorKind::PermissionDenied if *doing == OPENING_TO_READ => {
                        write!(out, "; give this user the right to read it, or name another path")
                    }
                    io::ErrorKind::PermissionDenied => {
                        write!(out, "; give this user the right to read and write it, or name another path")
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
                "{}: is {found}, a region is a regular file; name another path, or remove it if nobody needs it",
                path.display()
            ),
            Self::Owner { path, found, ours } => write!(
                out,
                "{}: belongs to user {found}, it would have to be {ours} or 0; remove it, or name the path in \
                 GPUSLICE_REGION if that user's slice is meant",
                path.display()
            ),
            Self::Magic { path, found } => write!(
                out,
                "{}: begins with \"{}\", a region begins with \"{}\"; name another path, or remove it if nobody needs it",
                path.display(),
                found.escape_ascii(),
                MAGIC.to_le_bytes().escape_ascii()
            ),
            Self::Version { path, found } => write!(
                out,
                "{}: region of version {found}, this library reads version {VERSION}; end the processes that \
                 use it and remove it, or load the same gpuslice in all of them",
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
                "{}: process {by} has been joining for more than {} ms and may be suspended; let it go on, or \
                 end it",
                path.display(),
                waited.as_millis()
            ),
            Self::Changing { path, waited } => write!(
                out,
                "{}: another process has been changing its limits for more than {} ms and may be suspended; let it go \
                 on, or end it",
                path.display(),
                waited.as_millis()
            ),
            Self::TableFull { path } => write!(
                out,
                "{}: {MAX_SLOTS} processes live in this slice, which is all it can have; end some, or name \
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
                 container's own file system, does), so the dead could not be told from the living; name a \
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
            Self::Reinitialised { path } => write!(
                out,
                "{}: was made anew since it was opened, for another slice; open it again",
                path.display()
            ),
            Self::TooManyOpen { path } => {
                write!(out, "{}: too many regions are open in this process; close some", path.display())
            }
        }
    }
}

/// `process 7`, or `processes 7, 8 and 3 more`.
pub(crate) fn listed(processes: &[u32]) -> String {
    /// So many are told.
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
