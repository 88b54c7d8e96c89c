//! Opens, checks and maps a region file.
//!
//! A process makes a complete region file without a name, and then links it to its path. Other processes therefore never
//! see half a file, and a process killed in between leaves nothing. A process that finds a file joins it. It checks the
//! file's kind, owner, magic, version and size before it uses anything in it. No check helps against a later truncation;
//! `file::sigbus_guard` handles that.

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
            fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
        },
    },
    path::{self, Path, PathBuf},
    ptr::{self, NonNull},
};

use crate::{
    file::{
        error::{OPENING_TO_READ, RegionError},
        folders,
        locks::LockFile,
        regular::{self, Opened, Rights},
        sigbus_guard,
        space::take_space,
    },
    layout::{
        Layout, SIZE,
        constants::{MAGIC, VERSION},
    },
};

/// Permissions of a new region: for its owner only.
const MODE: u32 = 0o600;
/// Permissions of a new region that processes of all users join.
const MODE_FOR_ALL: u32 = 0o666;
/// Bytes at the start of a file that identify it: magic, version, ready, size.
const IDENTITY_BYTES: usize = 24;
/// [`SIZE`] in the type of the file system.
const FILE_SIZE: u64 = SIZE as u64;

/// The owners that a region file may have, and the users for which a new file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// This user or root: for a path that gpuslice has chosen, in a directory where all users may create files.
    OwnerOnly,
    /// Any user: for a path that the user has named.
    AnyOwner,
    /// Any user, and all users may join: an operator's file makes all programs of a container one slice.
    AllUsers,
}

impl Trust {
    /// Tells whether `owner` may own the region.
    pub(crate) fn allows(self, owner: u32) -> bool {
        self != Self::OwnerOnly || owner == 0 || owner == folders::user()
    }
}

/// Identifies a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileId {
    /// Returns a number of 38 bits for the file, which is the same in all containers of the node.
    pub(crate) fn number(self) -> u64 {
        // The numbers of devices are small. The first factor, the golden ratio's, spreads them. The second one is from
        // splitmix64.
        let mixed = self.device.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.inode.rotate_left(32);
        mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 26
    }
}

/// The mapped memory of a region. Its drop unmaps the memory.
#[derive(Debug)]
struct Mapping(NonNull<Layout>);

// SAFETY: the pointer leads to a `Layout`, which consists of atomics. It stays mapped until the drop, for all threads.
unsafe impl Send for Mapping {}
// SAFETY: shared references to the atomics of a `Layout` may be used by all threads at the same time.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        sigbus_guard::forget(self.0.cast());
        // SAFETY: `Mapping::new` mapped these `SIZE` bytes. References into them borrow `self`, so none outlives this
        // drop.
        unsafe { libc::munmap(self.0.as_ptr().cast(), SIZE) };
    }
}

impl Mapping {
    /// Maps a file of at least [`SIZE`] bytes. Also returns whether `sigbus_guard` protects the mapping.
    fn new(file: &File, rights: Rights) -> io::Result<(Self, bool)> {
        let kind = libc::MAP_SHARED;
        let rights = match rights {
            Rights::Read => libc::PROT_READ,
            Rights::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: without `MAP_FIXED` the kernel chooses a free address, so the mapping replaces no other.
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
        // SAFETY: the memory is page-aligned, `SIZE` bytes long, and mapped until `self` is dropped. `Layout` consists
        // of atomics, for which every bit pattern is valid and which other processes may write at any time.
        unsafe { self.memory.0.as_ref() }
    }
}

impl Mapped {
    /// Returns the path of the region.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the identity of the region's file.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// Opens the same file again, by its path or by its present name. Locks belong to one opening, so a caller that
    /// locks needs its own.
    pub(crate) fn reopen(&self) -> Result<File, RegionError> {
        match self.reopen_at(&self.path) {
            Err(RegionError::Replaced { .. }) => match self.name_now() {
                Some(name) if !is_removed(&name) => self.reopen_at(&name),
                _ => Err(self.replaced()),
            },
            opened => opened,
        }
    }

    /// Opens the file at `path`. [`RegionError::Replaced`] if it is another file.
    fn reopen_at(&self, path: &Path) -> Result<File, RegionError> {
        let file = match open_file(path, Rights::Write) {
            Ok(file) => file.ok_or_else(|| self.replaced())?,
            // The path leads to something that is no regular file.
            Err(RegionError::NotAFile { .. }) => return Err(self.replaced()),
            Err(error) => return Err(error),
        };
        match file.metadata() {
            Ok(found) if id_of(&found) == self.id => Ok(file),
            Ok(_) => Err(self.replaced()),
            Err(source) => Err(self.failed("look at it", source)),
        }
    }

    /// Opens the file again, for locks.
    pub(crate) fn locks(&self) -> Result<LockFile, RegionError> {
        self.reopen().map(LockFile::new)
    }

    /// Checks that the path still leads to this file, and that the file has its full size. If the path cannot be read,
    /// for example after `chroot`, the kernel tells whether the file was removed.
    ///
    /// A file may have been cut behind the words that a member reads. The member then reads no zeroes, and only the size of
    /// the file shows the damage.
    pub(crate) fn check_path(&self) -> Result<(), RegionError> {
        match self.path.symlink_metadata() {
            Ok(found) if id_of(&found) == self.id => self.check_size(&found),
            Ok(_) => Err(self.replaced()),
            Err(_) if self.has_lost_its_name() => Err(self.replaced()),
            Err(_) => Ok(()),
        }
    }

    /// Checks that the file has its full size.
    fn check_size(&self, found: &fs::Metadata) -> Result<(), RegionError> {
        if found.len() == FILE_SIZE { Ok(()) } else { Err(RegionError::Damaged { path: self.path.clone() }) }
    }

    /// Tells whether the kernel says that the file was removed.
    pub(crate) fn has_lost_its_name(&self) -> bool {
        self.name_now().is_some_and(|name| is_removed(&name))
    }

    /// Returns the present name of the file. `readlink` needs no rights on this link, unlike an opening of the link.
    fn name_now(&self) -> Option<PathBuf> {
        let start = self.memory.0.as_ptr().expose_provenance();
        fs::read_link(format!("/proc/self/map_files/{start:x}-{:x}", start.saturating_add(SIZE))).ok()
    }

    /// Checks that `file` has its full size, and that the path leads to it.
    pub(crate) fn check_file(&self, file: &File) -> Result<(), RegionError> {
        let found = file.metadata().map_err(|source| self.failed("look at it", source))?;
        if found.nlink() == 0 {
            return Err(self.replaced());
        }
        self.check_size(&found)?;
        match self.path.symlink_metadata() {
            Ok(found) if id_of(&found) != self.id => Err(self.replaced()),
            _ => Ok(()),
        }
    }

    /// Returns the error of a system call.
    pub(crate) fn failed(&self, doing: &'static str, source: io::Error) -> RegionError {
        system(&self.path, doing)(source)
    }

    /// Returns the error for a path that leads to another file.
    fn replaced(&self) -> RegionError {
        RegionError::Replaced { path: self.path.clone() }
    }
}

/// Returns the path as an absolute path, which stays valid when the process changes its directory.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, RegionError> {
    path::absolute(path).map_err(|source| RegionError::System {
        path: path.into(),
        doing: "find where it is",
        source,
    })
}

/// Opens and maps the region at `path`, an absolute path. `None`: there is no file.
pub(crate) fn open(path: &Path, trust: Trust) -> Result<Option<Mapped>, RegionError> {
    Ok(open_with(path, trust, Rights::Write)?.map(|(mapped, _file)| mapped))
}

/// Opens and maps the region for reading, which needs no right to write. Also returns the opened file.
pub(crate) fn open_to_read(path: &Path, trust: Trust) -> Result<Option<(Mapped, File)>, RegionError> {
    open_with(path, trust, Rights::Read)
}

/// Opens, checks and maps a region. Also returns the opened file. Fails if `sigbus_guard` has no room to protect the mapping:
/// a process that may write the file could end this one by a truncation.
pub(crate) fn open_with(
    path: &Path,
    trust: Trust,
    rights: Rights,
) -> Result<Option<(Mapped, File)>, RegionError> {
    let Some(file) = open_file(path, rights)? else { return Ok(None) };
    let found = file.metadata().map_err(system(path, "look at it"))?;
    if !trust.allows(found.uid()) {
        return Err(RegionError::Owner { path: path.into(), found: found.uid(), ours: folders::user() });
    }
    check_prefix(path, &file, found.len())?;
    let (memory, is_protected) = Mapping::new(&file, rights).map_err(system(path, "map it"))?;
    if !is_protected {
        return Err(RegionError::TooManyOpen { path: path.into() });
    }
    Ok(Some((Mapped { memory, path: path.into(), id: id_of(&found) }, file)))
}

/// Makes an empty region at `path`, for its owner alone or for all users. Succeeds if another process has made one meanwhile.
pub(crate) fn create(path: &Path, trust: Trust) -> Result<(), RegionError> {
    make(path, if trust == Trust::AllUsers { MODE_FOR_ALL } else { MODE }).map(drop)
}

/// Makes an empty region at `path`, an absolute path, with these rights (`0o600`, `0o666`). Returns false, and changes
/// nothing, if there is a region. For slices whose processes run as several users and may not make files in the folder.
///
/// # Errors
/// [`RegionError::System`] if the file cannot be made.
pub fn make(path: &Path, mode: u32) -> Result<bool, RegionError> {
    // The agent asks for its regions again and again. An empty region is 14 MB, which the kernel fills and frees each time.
    if path.symlink_metadata().is_ok() {
        return Ok(false);
    }
    let file = unnamed(path)?;
    fill(&file).map_err(system(path, "make it"))?;
    file.set_permissions(Permissions::from_mode(mode)).map_err(system(path, "set its rights"))?;
    match link(&file, path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(system(path, "name it")(error)),
    }
}

/// Opens a regular file. Does not follow a link, and does not wait for the other end of a pipe.
pub(crate) fn open_file(path: &Path, rights: Rights) -> Result<Option<File>, RegionError> {
    match regular::open(path, rights) {
        Ok(Opened::File(file)) => Ok(Some(file)),
        Ok(Opened::Other(found)) => Err(RegionError::NotAFile { path: path.into(), found }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if rights == Rights::Write => Err(system(path, "open it")(error)),
        Err(error) => Err(system(path, OPENING_TO_READ)(error)),
    }
}

/// Checks the start of the file before it is mapped: touching a mapping beyond the end of a file raises `SIGBUS`.
fn check_prefix(path: &Path, file: &File, len: u64) -> Result<(), RegionError> {
    let mut prefix = [0_u8; IDENTITY_BYTES];
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

/// Makes a file without a name in the directory of `path`. It gets the permissions [`MODE`], whatever the umask.
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

/// Writes an empty region. The compute ledger of a device gets its space when the device is added. Most slices use one of
/// the 64 devices, and the program may need the space in a small `/dev/shm` itself.
pub(crate) fn fill(file: &File) -> io::Result<()> {
    may_have_size(SIZE)?;
    file.set_len(FILE_SIZE)?;
    take_space(file, 0..offset_of!(Layout, time))?;
    file.write_all_at(&MAGIC.to_ne_bytes(), 0)?;
    file.write_all_at(&VERSION.to_ne_bytes(), 8)?;
    file.write_all_at(&FILE_SIZE.to_ne_bytes(), 16)
}

/// Fails if the process may not make files of `bytes`. The kernel would send `SIGXFSZ`, which ends a program.
pub(crate) fn may_have_size(bytes: usize) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `getrlimit` needs a limit that is valid for writes: `limit` is on this stack. If it fails, `limit` stays as it is.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if usize::try_from(limit.rlim_cur).is_ok_and(|most| most < bytes) {
        Err(io::Error::from_raw_os_error(libc::EFBIG))
    } else {
        Ok(())
    }
}

/// Gives a file its name.
pub(crate) fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::AT_SYMLINK_FOLLOW;
    // SAFETY: `linkat` needs two strings that end with a zero. Both are `CString`s that live until after the call.
    match unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Tells whether the kernel marks this name as removed.
fn is_removed(name: &Path) -> bool {
    name.as_os_str().as_bytes().ends_with(b" (deleted)")
}

/// Returns the identity of a file.
pub(crate) fn id_of(found: &fs::Metadata) -> FileId {
    FileId { device: found.dev(), inode: found.ino() }
}

/// Makes a [`RegionError::System`] of an error, for `map_err`.
pub(crate) fn system(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> RegionError {
    move |source| RegionError::System { path: path.into(), doing, source }
}
