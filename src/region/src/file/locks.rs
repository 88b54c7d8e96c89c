//! File locks on single bytes of the region: life locks, the join lock, and the lock on limits.
//!
//! All are open-file-description locks. Unlike the classic locks of a process, they conflict between two openings in one
//! process. The process keeps them when it closes another descriptor of the file. They end with the description.
//! `slots::roster` describes their use.

use core::ops::Range;
use std::{collections::BTreeSet, fs::File, io, os::fd::AsRawFd as _, ptr};

use libc::{c_int, c_short};

use crate::{
    file::{folders, space},
    layout::{JOIN_LOCK_OFFSET, LIMITS_LOCK_OFFSET, Layout, Slot, constants::MAX_SLOTS},
    slots::roster::Liveness,
    sync::clock,
};
use gpuslice_policy::time::WallTime;

/// The length with which a lock request covers all bytes from its start on, also those behind the end of the file.
const TO_THE_END: libc::off_t = 0;

/// All bytes of a file.
const WHOLE: Range<u64> = 0..u64::MAX;
/// Longest processor time of the questions which of a region's processes are alive. 1024 living processes take 4 ms.
const LONGEST_QUESTIONS: WallTime = WallTime::from_millis(10);

/// Bytes of the mapping that keeps a description open. The kernel rounds them up to a page.
const MAPPED_BYTES: usize = 1;

/// An opening of the region file that is used for locks only. It is never mapped, so its description ends with its
/// descriptor.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
}

/// The lock of one byte. Its drop releases the lock.
#[derive(Debug)]
pub(crate) struct LockGuard<'locks> {
    locks: &'locks LockFile,
    offset: usize,
}

impl LockFile {
    /// Takes over an opening of the region.
    pub(crate) fn new(file: File) -> Self {
        Self { file }
    }

    /// Returns the opening.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Allocates space for a device's compute ledger, before any process touches it.
    pub(crate) fn take_space(&self, device: usize) -> io::Result<()> {
        space::take_space(&self.file, space::device_time(device))
    }

    /// Takes the join lock. `None`: another process has it.
    pub(crate) fn try_join(&self) -> io::Result<Option<LockGuard<'_>>> {
        self.try_lock(JOIN_LOCK_OFFSET)
    }

    /// Takes the lock on limits. `None`: another process has it.
    pub(crate) fn try_limits(&self) -> io::Result<Option<LockGuard<'_>>> {
        self.try_lock(LIMITS_LOCK_OFFSET)
    }

    /// Locks the byte at `offset`. `None`: another process has it.
    fn try_lock(&self, offset: usize) -> io::Result<Option<LockGuard<'_>>> {
        Ok(set(&self.file, libc::F_WRLCK, offset)?.then_some(LockGuard { locks: self, offset }))
    }
}

impl Drop for LockGuard<'_> {
    /// Releases the lock by an unlock. Closing the descriptor would not be enough, because a child that was forked
    /// meanwhile has the descriptor too. The unlock of a held lock cannot fail.
    fn drop(&mut self) {
        let _ = set(&self.locks.file, libc::F_UNLCK, self.offset);
    }
}

impl Liveness for LockFile {
    type Error = io::Error;

    fn is_alive(&self, slot: usize) -> io::Result<bool> {
        // Asks about a read lock, because only the lock of the slot's owner conflicts with one. A process without the right
        // to write can ask too.
        let lock = ask(&self.file, byte(libc::F_RDLCK, life_offset(slot)))?;
        Ok(c_int::from(lock.l_type) != libc::F_UNLCK)
    }

    fn living(&self, slots: &[usize]) -> io::Result<BTreeSet<usize>> {
        let begun = clock::of_thread();
        let is_late = || clock::of_thread().since(begun) >= LONGEST_QUESTIONS;
        locked(slots, is_late, |range| found(ask(&self.file, range_of(libc::F_RDLCK, range))?))
    }
}

/// Returns those of `slots`, which are in ascending order, whose life locks `find` finds. `find` returns any lock in a range.
///
/// A tenant can make the kernel compare each question with thousands of locks. So one question covers many slots, and slots
/// without a living process cost none of their own. When `is_late` is true, the remaining slots count as locked.
fn locked(
    slots: &[usize],
    is_late: impl Fn() -> bool,
    mut find: impl FnMut(&Range<u64>) -> io::Result<Option<Range<u64>>>,
) -> io::Result<BTreeSet<usize>> {
    let (mut locked, mut parts) = (BTreeSet::new(), vec![slots]);
    while let Some(part) = parts.pop() {
        let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
        if is_late() {
            locked.extend(part);
            continue;
        }
        let Some(lock) = find(&(life_byte(*first).start..life_byte(*last).end))? else { continue };
        let (before, rest) = part.split_at(part.partition_point(|slot| life_byte(*slot).end <= lock.start));
        let (inside, behind) = rest.split_at(rest.partition_point(|slot| life_byte(*slot).start < lock.end));
        locked.extend(inside);
        parts.extend([before, behind]);
    }
    Ok(locked)
}

/// The life lock of a slot. A mapping, and no descriptor, holds the lock until the process ends or calls `exec`.
#[derive(Debug)]
pub(crate) struct LifeLock {
    /// Address of the mapping.
    page: usize,
    /// The slot.
    slot: usize,
}

impl LifeLock {
    /// Locks the first slot of `free` that is not locked. `file` is an opening for this lock alone. `None`: all slots are
    /// locked.
    ///
    /// The caller closes `file` afterwards; the mapping of one page keeps its description open. The lock thus survives
    /// a program that closes all descriptors, and ends with the address space.
    pub(crate) fn begin(file: &File, free: impl Iterator<Item = usize>) -> io::Result<Option<Self>> {
        for slot in free {
            if set(file, libc::F_WRLCK, life_offset(slot))? {
                keep_from_ageing(file);
                return Ok(Some(Self { page: keep(file)?, slot }));
            }
        }
        Ok(None)
    }

    /// Returns the locked slot.
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Releases the slot.
    pub(crate) fn end(self) {
        // SAFETY: `keep` made this mapping of `MAPPED_BYTES` bytes, `self` is its only owner, and no code reads or writes it.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.page), MAPPED_BYTES) };
    }
}

/// Keeps `systemd-tmpfiles` from removing a region in use. It removes old files in `/tmp`, but not files with a
/// `flock`; writes through a mapping do not make a file newer. On file systems other than tmpfs `flock` may conflict
/// with the life lock.
fn keep_from_ageing(file: &File) {
    if folders::is_of_tmpfs(file) {
        // SAFETY: `flock` needs an open descriptor, which `file` owns. Its result does not matter here.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) };
    }
}

/// Maps a page without access rights, so that the description of `file` outlives its descriptors. Returns its address.
fn keep(file: &File) -> io::Result<usize> {
    let page =
        // SAFETY: without `MAP_FIXED` the kernel chooses a free address, so the mapping replaces no other.
        unsafe { libc::mmap(ptr::null_mut(), MAPPED_BYTES, libc::PROT_NONE, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `madvise` needs a mapped range, which was just made. `MADV_DONTFORK` changes no memory of this process.
    if unsafe { libc::madvise(page, MAPPED_BYTES, libc::MADV_DONTFORK) } == -1 {
        let error = io::Error::last_os_error();
        // SAFETY: `munmap` needs a mapping without users: the code above has just made it, and no other code knows its address.
        unsafe { libc::munmap(page, MAPPED_BYTES) };
        return Err(error);
    }
    Ok(page.expose_provenance())
}

/// Locks every byte of a file until the description of `file` ends. `false`: another process has a lock in the file.
///
/// The lock conflicts with the join lock and with the life lock of each member, at the offsets of every version of the
/// layout.
pub(crate) fn try_whole(file: &File) -> io::Result<bool> {
    request(file, &libc::flock { l_len: TO_THE_END, ..byte(libc::F_WRLCK, 0) })
}

/// Tells whether a process has a lock in a file, as a member of a region has its life lock. This is true for each version of the
/// layout. A process that removes the file locks all of it ([`try_whole`]); no process lives there then.
pub(crate) fn has_life(file: &File) -> io::Result<bool> {
    Ok(find(file, &WHOLE)?.is_some_and(|found| found != WHOLE))
}

/// Takes a read lock of a range of bytes.
pub(crate) fn share(file: &File, range: &Range<u64>) -> io::Result<()> {
    let is_free = request(file, &range_of(libc::F_RDLCK, range))?;
    if is_free { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
}

/// Releases a read lock.
pub(crate) fn unshare(file: &File, range: &Range<u64>) -> io::Result<()> {
    request(file, &range_of(libc::F_UNLCK, range)).map(|_| ())
}

/// Returns a lock of another opening of the file in a range of bytes, if there is one.
pub(crate) fn find(file: &File, range: &Range<u64>) -> io::Result<Option<Range<u64>>> {
    // Asks about a write lock, because every lock conflicts with one. The kernel requires no right to write for the
    // question.
    found(ask(file, range_of(libc::F_WRLCK, range))?)
}

/// Returns the range of the kernel's answer to a question, if it is a lock.
fn found(lock: libc::flock) -> io::Result<Option<Range<u64>>> {
    let place = |number: libc::off_t| u64::try_from(number).unwrap_or(0);
    let start = place(lock.l_start);
    let end = if lock.l_len == TO_THE_END { u64::MAX } else { start.saturating_add(place(lock.l_len)) };
    Ok((c_int::from(lock.l_type) != libc::F_UNLCK).then_some(start..end))
}

/// Asks the kernel whether `lock` can be set. Returns a lock that conflicts with it, or the type `F_UNLCK`.
fn ask(file: &File, mut lock: libc::flock) -> io::Result<libc::flock> {
    let status =
        // SAFETY: `F_OFD_GETLK` needs an open descriptor, which `file` owns, and a `flock` to read and write, which `lock` is.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, ptr::from_mut(&mut lock)) };
    if status == -1 { Err(io::Error::last_os_error()) } else { Ok(lock) }
}

/// Sets or releases the lock of a byte without waiting. `false`: another process has it.
fn set(file: &File, kind: c_int, offset: usize) -> io::Result<bool> {
    request(file, &byte(kind, offset))
}

/// Sets or releases a lock without waiting. `false`: another process has it.
fn request(file: &File, lock: &libc::flock) -> io::Result<bool> {
    // SAFETY: `F_OFD_SETLK` needs an open descriptor, which `file` owns, and a `flock` to read, which `lock` is.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, ptr::from_ref(lock)) } != -1 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// Returns a lock request for one byte.
fn byte(kind: c_int, offset: usize) -> libc::flock {
    range_of(kind, &byte_at(offset))
}

fn byte_at(offset: usize) -> Range<u64> {
    let start = u64::try_from(offset).unwrap_or(u64::MAX);
    start..start.saturating_add(1)
}

/// Returns the byte of the life lock of `slot`.
fn life_byte(slot: usize) -> Range<u64> {
    byte_at(life_offset(slot))
}

/// Returns a lock request for a range of bytes.
fn range_of(kind: c_int, range: &Range<u64>) -> libc::flock {
    let place = |number: u64| libc::off_t::try_from(number).unwrap_or(libc::off_t::MAX);
    libc::flock {
        l_type: c_short::try_from(kind).unwrap_or(c_short::MAX),
        l_whence: c_short::try_from(libc::SEEK_SET).unwrap_or(c_short::MAX),
        l_start: place(range.start),
        l_len: place(range.end.saturating_sub(range.start)),
        l_pid: 0,
    }
}

/// Returns the offset of the life lock of `slot`.
fn life_offset(slot: usize) -> usize {
    let slots = core::mem::offset_of!(Layout, slots);
    slots.saturating_add(slot.min(MAX_SLOTS).saturating_mul(size_of::<Slot>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Asks about `slots`. `locks` are the slots with a lock. Returns the answer and the number of questions.
    fn asked(slots: &[usize], locks: &[usize], most: usize) -> (Vec<usize>, usize) {
        let questions = Cell::new(0);
        let find = |range: &Range<u64>| {
            questions.set(questions.get() + 1);
            let is_in = |lock: &Range<u64>| lock.start < range.end && range.start < lock.end;
            // The kernel's list has no order.
            Ok(locks.iter().rev().map(|slot| life_byte(*slot)).find(is_in))
        };
        let locked = locked(slots, || questions.get() >= most, find).unwrap();
        (locked.into_iter().collect(), questions.get())
    }

    #[test]
    fn slots_without_a_living_process_cost_no_questions() {
        let all: Vec<usize> = (0..MAX_SLOTS).collect();
        assert_eq!(asked(&all, &[], usize::MAX), (Vec::new(), 1));
        assert_eq!(asked(&all, &[0], usize::MAX), (vec![0], 2));
        assert_eq!(asked(&all, &[700, 3], usize::MAX), (vec![3, 700], 5));
        // A lock of a slot that nobody asks about has no effect on the answer.
        assert_eq!(asked(&[1, 5, 9], &[2, 5, 7], usize::MAX).0, [5]);
        assert_eq!(asked(&[], &[2], usize::MAX), (Vec::new(), 0));
        let (locked, questions) = asked(&all, &all, usize::MAX);
        assert!(locked == all && questions <= 2 * MAX_SLOTS, "{questions}");
    }

    #[test]
    fn a_region_with_too_many_locks_is_taken_for_full_of_living_processes() {
        let all: Vec<usize> = (0..MAX_SLOTS).collect();
        assert_eq!(asked(&all, &all, 10), (all.clone(), 10));
    }
}
