//! How does a file lock say that a process lives, and that nobody else joins?
//!
//! All locks are open-file-description locks on single bytes. Unlike a process's own locks they conflict
//! between two openings in one process, are not lost when some other descriptor of the file is closed, and end
//! with the description. `roster` says what they mean.

use std::{fs::File, io, os::fd::AsRawFd as _, ptr};

use libc::{c_int, c_short};

use crate::{
    file::{folders, space},
    layout::{JOIN_LOCK_OFFSET, LIMITS_LOCK_OFFSET, Layout, Slot, constants::MAX_SLOTS},
    slots::roster::Liveness,
};

/// Bytes of the mapping that keeps a description open; the system rounds up to a page.
const KEPT: usize = 1;

/// An opening of the region file that is used for locks only: never mapped, so that it ends with its descriptor.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
}

/// The lock of a byte, until it is dropped.
#[derive(Debug)]
pub(crate) struct LockGuard<'locks> {
    locks: &'locks LockFile,
    offset: usize,
}

impl LockFile {
    /// Uses an opening of its own of the region.
    pub(crate) fn new(file: File) -> Self {
        Self { file }
    }

    /// The opening.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Takes the file's space for a device's time, before it is touched: a full disk is an error here and not a signal
    /// later.
    pub(crate) fn take_space(&self, device: usize) -> io::Result<()> {
        space::take_space(&self.file, space::device_time(device))
    }

    /// Takes the join lock, unless somebody has it.
    pub(crate) fn try_join(&self) -> io::Result<Option<LockGuard<'_>>> {
        self.try_lock(JOIN_LOCK_OFFSET)
    }

    /// Takes the lock of those who change limits, unless somebody has it.
    pub(crate) fn try_limits(&self) -> io::Result<Option<LockGuard<'_>>> {
        self.try_lock(LIMITS_LOCK_OFFSET)
    }

    fn try_lock(&self, offset: usize) -> io::Result<Option<LockGuard<'_>>> {
        Ok(set(&self.file, libc::F_WRLCK, offset)?.then_some(LockGuard { locks: self, offset }))
    }
}

impl Drop for LockGuard<'_> {
    /// Lets go by an unlock and not by closing: a child that was forked meanwhile has the descriptor too. A
    /// failure is not possible for a lock that is held.
    fn drop(&mut self) {
        let _ = set(&self.locks.file, libc::F_UNLCK, self.offset);
    }
}

impl Liveness for LockFile {
    type Error = io::Error;

    fn is_alive(&self, slot: usize) -> io::Result<bool> {
        // A lock for reading, which only the owner's is in the way of: who may not write may ask too.
        let mut lock = byte(libc::F_RDLCK, life_offset(slot));
        // SAFETY: the descriptor is open and `lock` is a `flock` that the call may write.
        let status =
            unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_GETLK, ptr::from_mut(&mut lock)) };
        if status == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(c_int::from(lock.l_type) != libc::F_UNLCK)
    }
}

/// A slot's lock, held by a mapping and by no descriptor, for as long as the process lives and does not `exec`.
#[derive(Debug)]
pub(crate) struct LifeLock {
    /// Address of the mapping.
    page: usize,
    /// The slot.
    slot: usize,
}

impl LifeLock {
    /// Locks the first free slot through `file`, an opening of its own of the region. `None`: all are locked.
    pub(crate) fn begin(file: &File, free: impl Iterator<Item = usize>) -> io::Result<Option<Self>> {
        for slot in free {
            if set(file, libc::F_WRLCK, life_offset(slot))? {
                keep_from_ageing(file);
                return Ok(Some(Self { page: keep(file)?, slot }));
            }
        }
        Ok(None)
    }

    /// The slot that is locked.
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Lets go of the slot.
    pub(crate) fn end(self) {
        // SAFETY: the mapping is our own, `keep` made it, and nothing ever reads or writes it.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.page), KEPT) };
    }
}

/// Keeps `systemd-tmpfiles`, which removes what lies in `/tmp` unused for days, from a region that is in use: it leaves files
/// alone that somebody has locked by `flock`, and a mapping's writes change no time of a file. Elsewhere than on a tmpfs the
/// two kinds of locks may be one.
fn keep_from_ageing(file: &File) {
    if folders::is_of_tmpfs(file) {
        // SAFETY: the descriptor is open; the call takes nothing else. Whether it succeeds changes nothing here.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) };
    }
}

/// Maps a page that nobody can touch, so that the description of `file` outlives its descriptors.
fn keep(file: &File) -> io::Result<usize> {
    // SAFETY: a new mapping at an address of the system's choice; it overlaps nothing.
    let page =
        unsafe { libc::mmap(ptr::null_mut(), KEPT, libc::PROT_NONE, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping was just made; the advice only says that a forked child does not get it.
    if unsafe { libc::madvise(page, KEPT, libc::MADV_DONTFORK) } == -1 {
        let error = io::Error::last_os_error();
        // SAFETY: the mapping was just made and nobody knows it.
        unsafe { libc::munmap(page, KEPT) };
        return Err(error);
    }
    Ok(page.expose_provenance())
}

/// Sets or lifts a lock without waiting. `false`: somebody else has it.
fn set(file: &File, kind: c_int, offset: usize) -> io::Result<bool> {
    let lock = byte(kind, offset);
    // SAFETY: the descriptor is open and `lock` is a `flock` that the call only reads.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, ptr::from_ref(&lock)) } != -1 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// A lock request for one byte.
fn byte(kind: c_int, offset: usize) -> libc::flock {
    libc::flock {
        l_type: c_short::try_from(kind).unwrap_or(c_short::MAX),
        l_whence: c_short::try_from(libc::SEEK_SET).unwrap_or(c_short::MAX),
        l_start: libc::off_t::try_from(offset).unwrap_or(libc::off_t::MAX),
        l_len: 1,
        l_pid: 0,
    }
}

/// The byte that proves the life of the process in `slot`.
fn life_offset(slot: usize) -> usize {
    let slots = core::mem::offset_of!(Layout, slots);
    slots.saturating_add(slot.min(MAX_SLOTS).saturating_mul(size_of::<Slot>()))
}
