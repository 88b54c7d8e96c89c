//! How does a path become memory that can be trusted to be a region?
//!
//! A region is made under no name at all, complete, and then linked to its name: nobody ever sees half of one,
//! and a process that is killed while it makes one leaves nothing. A region that exists is only joined.
//! Nothing that the file says is believed before its kind, owner, magic, version and size were looked at.
//! What no check here can help against is a file that is shortened later: see `shortened`.

use core::mem::offset_of;
use std::{
    ffi::CString,
    fs::{self, File, OpenOptions, Permissions},
    io,
    ops::Deref,
    os::{
        fd::AsRawFd as _,
        unix::{
            ffi::OsStrExt as _,
            fs::{
                FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
            },
        },
    },
    path::{self, Path, PathBuf},
    ptr::{self, NonNull},
};

use crate::{
    file::{
        error::{OPENING_TO_READ, RegionError},
        locks::LockFile,
        sigbus_guard,
        space::take_space,
    },
    layout::{
        Layout, SIZE,
        constants::{MAGIC, VERSION},
    },
};

/// Rights of a region that we make: its owner's alone.
const MODE: u32 = 0o600;
/// Bytes at the start of a file that say what it is: magic, version, ready, size.
const PREFIX: usize = 24;
/// [`SIZE`] as the file system counts.
const FILE_SIZE: u64 = SIZE as u64;

/// Whose file a region may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// This user's or root's: for a path that was made up, in a directory where anybody may put files.
    OwnerOnly,
    /// Anybody's who lets us open it: for a path that was named on purpose.
    AnyOwner,
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

/// What a mapping is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// To be read. A write would end the process.
    Read,
    /// To be changed too.
    Write,
}

/// The memory of a region. Unmapped when dropped.
#[derive(Debug)]
struct Mapping(NonNull<Layout>);

// SAFETY: what the pointer leads to is made of atomics and mapped until the drop, on whatever thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared references to atomics may be used by all threads.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        sigbus_guard::forget(self.0.cast());
        // SAFETY: `Mapping::new` mapped these bytes, and no reference into them outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), SIZE) };
    }
}

impl Mapping {
    /// Maps a file that is at least [`SIZE`] long, and tells whether it is kept from ending the process.
    fn new(file: &File, rights: Rights) -> io::Result<(Self, bool)> {
        let kind = libc::MAP_SHARED;
        let rights = match rights {
            Rights::Read => libc::PROT_READ,
            Rights::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a new mapping at an address of the system's choice; it overlaps nothing.
        let start = unsafe { libc::mmap(ptr::null_mut(), SIZE, rights, kind, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let is_protected = sigbus_guard::protect(start, SIZE);
        Ok((Self(start.cast()), is_protected))
    }
}

/// A region file that was checked and mapped.
#[derive(Debug)]
pub(crate) struct Mapped {
    memory: Mapping,
    path: PathBuf,
    id: FileId,
}

impl Deref for Mapped {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        // SAFETY: the memory is page-aligned, SIZE long, and mapped until `self` is dropped. `Layout` is made
        // of atomics, for which every bit pattern is a value and which other processes may write at any time.
        unsafe { self.memory.0.as_ref() }
    }
}

impl Mapped {
    /// Where the region is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Another opening of the same file, through its path or the name that it has now: only an opening of its own has locks
    /// of its own.
    pub(crate) fn reopen(&self) -> Result<File, RegionError> {
        match self.reopen_at(&self.path) {
            Err(RegionError::Replaced { .. }) => match self.name_now() {
                Some(name) if !is_removed(&name) => self.reopen_at(&name),
                _ => Err(self.replaced()),
            },
            opened => opened,
        }
    }

    fn reopen_at(&self, path: &Path) -> Result<File, RegionError> {
        let file = match open_file(path, Rights::Write) {
            Ok(file) => file.ok_or_else(|| self.replaced())?,
            // Something that is no file at all stands there.
            Err(RegionError::NotAFile { .. }) => return Err(self.replaced()),
            Err(error) => return Err(error),
        };
        match file.metadata() {
            Ok(found) if id_of(&found) == self.id => Ok(file),
            Ok(_) => Err(self.replaced()),
            Err(source) => Err(self.failed("look at it", source)),
        }
    }

    /// An opening for locks.
    pub(crate) fn locks(&self) -> Result<LockFile, RegionError> {
        self.reopen().map(LockFile::new)
    }

    /// Whether newcomers find this file. Where the path cannot be looked at any more (the process has another root
    /// directory now, say), the kernel is asked whether the file has lost its name.
    pub(crate) fn check_path(&self) -> Result<(), RegionError> {
        match self.path.symlink_metadata() {
            Ok(found) if id_of(&found) == self.id => Ok(()),
            Ok(_) => Err(self.replaced()),
            Err(_) if self.has_lost_its_name() => Err(self.replaced()),
            Err(_) => Ok(()),
        }
    }

    /// Whether the file was removed, as far as the kernel tells.
    pub(crate) fn has_lost_its_name(&self) -> bool {
        self.name_now().is_some_and(|name| is_removed(&name))
    }

    /// The name that the file has now, as the kernel tells it. Reading this link needs no rights; following it would.
    fn name_now(&self) -> Option<PathBuf> {
        let start = self.memory.0.as_ptr().expose_provenance();
        fs::read_link(format!("/proc/self/map_files/{start:x}-{:x}", start.saturating_add(SIZE))).ok()
    }

    /// Whether an opening of the file still has all of it, and newcomers find it.
    pub(crate) fn check_file(&self, file: &File) -> Result<(), RegionError> {
        let found = file.metadata().map_err(|source| self.failed("look at it", source))?;
        if found.nlink() == 0 {
            return Err(self.replaced());
        }
        if found.len() != FILE_SIZE {
            return Err(RegionError::Damaged { path: self.path.clone() });
        }
        match self.path.symlink_metadata() {
            Ok(found) if id_of(&found) != self.id => Err(self.replaced()),
            _ => Ok(()),
        }
    }

    /// An error of a system call.
    pub(crate) fn failed(&self, doing: &'static str, source: io::Error) -> RegionError {
        system(&self.path, doing)(source)
    }

    fn replaced(&self) -> RegionError {
        RegionError::Replaced { path: self.path.clone() }
    }
}

/// A path that means the same wherever this process goes.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, RegionError> {
    path::absolute(path).map_err(|source| RegionError::System {
        path: path.into(),
        doing: "find where it is",
        source,
    })
}

/// Opens and maps the region at `path`, an absolute path. `None`: there is no file.
pub(crate) fn open(path: &Path, trust: Trust) -> Result<Option<Mapped>, RegionError> {
    Ok(open_with(path, trust, Rights::Write)?.map(|(mapped, _file, _is_protected)| mapped))
}

/// The same to be read only, which needs no right to write, with the opening. Refuses what cannot be kept from ending
/// the process.
pub(crate) fn open_to_read(path: &Path, trust: Trust) -> Result<Option<(Mapped, File)>, RegionError> {
    match open_with(path, trust, Rights::Read)? {
        None => Ok(None),
        Some((mapped, file, true)) => Ok(Some((mapped, file))),
        Some((_, _, false)) => Err(RegionError::TooManyOpen { path: path.into() }),
    }
}

fn open_with(path: &Path, trust: Trust, rights: Rights) -> Result<Option<(Mapped, File, bool)>, RegionError> {
    let Some(file) = open_file(path, rights)? else { return Ok(None) };
    let found = file.metadata().map_err(system(path, "look at it"))?;
    // SAFETY: the call has no arguments and cannot fail.
    let ours = unsafe { libc::geteuid() };
    if trust == Trust::OwnerOnly && found.uid() != ours && found.uid() != 0 {
        return Err(RegionError::Owner { path: path.into(), found: found.uid(), ours });
    }
    check_prefix(path, &file, found.len())?;
    let (memory, is_protected) = Mapping::new(&file, rights).map_err(system(path, "map it"))?;
    Ok(Some((Mapped { memory, path: path.into(), id: id_of(&found) }, file, is_protected)))
}

/// Makes an empty region at `path`. That another process was faster is no failure.
pub(crate) fn create(path: &Path) -> Result<(), RegionError> {
    let file = unnamed(path)?;
    fill(&file).map_err(system(path, "make it"))?;
    match link(&file, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(system(path, "name it")(error)),
        _ => Ok(()),
    }
}

/// Opens a regular file, without following a link and without waiting for the other end of a pipe.
pub(crate) fn open_file(path: &Path, rights: Rights) -> Result<Option<File>, RegionError> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let write = rights == Rights::Write;
    let file = match OpenOptions::new().read(true).write(write).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            // Only after the failure, and only for the message.
            return Err(match path.symlink_metadata().map(|found| name_of(&found.file_type())) {
                Ok(Some(found)) => RegionError::NotAFile { path: path.into(), found },
                _ => system(path, if write { "open it" } else { OPENING_TO_READ })(error),
            });
        }
    };
    let kind = file.metadata().map_err(system(path, "look at it"))?.file_type();
    match name_of(&kind) {
        None => Ok(Some(file)),
        Some(found) => Err(RegionError::NotAFile { path: path.into(), found }),
    }
}

/// What a file is that is not a regular file.
fn name_of(kind: &fs::FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_symlink() => Some("a symbolic link"),
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

/// Looks at the start of the file before it is mapped: a file that is too short must not be touched as memory.
fn check_prefix(path: &Path, file: &File, len: u64) -> Result<(), RegionError> {
    let mut prefix = [0_u8; PREFIX];
    let read = file.read_at(&mut prefix, 0).map_err(system(path, "read it"))?;
    let (magic, rest) = prefix.split_at(8);
    if magic != MAGIC.to_ne_bytes() {
        let found = magic.get(..read.min(8)).unwrap_or_default().to_vec();
        return Err(RegionError::Magic { path: path.into(), found });
    }
    let (version, rest) = rest.split_at(4);
    let found = u32::from_ne_bytes(version.try_into().unwrap_or_default());
    if found != VERSION {
        return Err(RegionError::Version { path: path.into(), found });
    }
    let (_ready, size) = rest.split_at(4);
    let said = u64::from_ne_bytes(size.try_into().unwrap_or_default());
    match [len, said].into_iter().find(|found| *found != FILE_SIZE) {
        Some(found) => Err(RegionError::Size { path: path.into(), found, expected: FILE_SIZE }),
        None => Ok(()),
    }
}

/// A file without a name, in the directory of `path`, with our rights whatever the process's mask is.
pub(crate) fn unnamed(path: &Path) -> Result<File, RegionError> {
    let directory = path.parent().unwrap_or_else(|| Path::new("/"));
    let flags = libc::O_TMPFILE | libc::O_CLOEXEC;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .mode(MODE)
        .custom_flags(flags)
        .open(directory)
        .map_err(system(path, "make it"))?;
    file.set_permissions(Permissions::from_mode(MODE)).map_err(system(path, "set its rights"))?;
    Ok(file)
}

/// Writes an empty region. Space is taken now for all but the devices' time, which has it when a device is added: of
/// 64 devices most have one, and a small `/dev/shm` is the program's.
pub(crate) fn fill(file: &File) -> io::Result<()> {
    file.set_len(FILE_SIZE)?;
    take_space(file, 0..offset_of!(Layout, time))?;
    file.write_all_at(&MAGIC.to_ne_bytes(), 0)?;
    file.write_all_at(&VERSION.to_ne_bytes(), 8)?;
    file.write_all_at(&FILE_SIZE.to_ne_bytes(), 16)
}

/// Gives a file without a name its name.
pub(crate) fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::AT_SYMLINK_FOLLOW;
    // SAFETY: both names end with a zero and outlive the call.
    match unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the kernel says that a file has lost this name.
fn is_removed(name: &Path) -> bool {
    name.as_os_str().as_bytes().ends_with(b" (deleted)")
}

fn id_of(found: &fs::Metadata) -> FileId {
    FileId { device: found.dev(), inode: found.ino() }
}

pub(crate) fn system(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> RegionError {
    move |source| RegionError::System { path: path.into(), doing, source }
}
