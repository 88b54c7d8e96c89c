//! A library of the driver, in whose locks intervals are.

use core::mem;
use std::{collections::VecDeque, fs::File, io, path::Path};

use gpuslice_policy::compute::attribution::correction::LOCKED_DELAY;
use gpuslice_policy::time::Monotonic;

use super::{forked_children::ClosedInChildren, position::Bytes};
use crate::file::{
    folders, locks,
    map::{FileId, id_of},
};

/// The most intervals of a slice that have locks at a time. A new interval takes the place of the oldest. The limit is less
/// than the number of interval numbers. So a reader that has read all intervals finds no lock at the next number.
pub(super) const MOST_HELD: usize = 128;
/// The most locks that one look finds. The limit keeps another process from delaying this one by many locks.
pub(super) const MOST_FOUND: usize = 256;

/// An open library. A forked child must neither use nor drop its copy.
#[derive(Debug)]
pub(super) struct Library {
    /// Dropped before `file`. A child that is forked in between must not close a file of the program.
    _closed_in_children: ClosedInChildren,
    file: Option<File>,
    id: FileId,
    /// Ranges of the published intervals, each with the instant of its lock.
    held: VecDeque<(Monotonic, Bytes)>,
}

impl Library {
    /// Opens the library at `path`.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, is no regular file, or lies on a file system whose locks may leave the machine. Or this
    /// process has opened libraries for more GPUs than a slice can have.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let found = file.metadata()?;
        if !found.is_file() || !folders::has_local_locks(&file) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let id = id_of(&found);
        Ok(Self {
            _closed_in_children: ClosedInChildren::begin(&file, id)?,
            file: Some(file),
            id,
            held: VecDeque::new(),
        })
    }

    /// Returns true if both are one file.
    pub(super) fn is_file_of(&self, other: &Self) -> bool {
        self.id == other.id
    }

    pub(super) fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Fails if the descriptor now belongs to another file. In this case it forgets the descriptor: to close it would be to
    /// close a file of the program.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let found = self.file()?.metadata();
        if found.is_ok_and(|found| id_of(&found) == self.id) {
            return Ok(());
        }
        mem::forget(self.file.take());
        Err(io::ErrorKind::NotFound.into())
    }

    /// Takes or releases the lock of a range.
    pub(super) fn set(&self, range: &Bytes, is_held: bool) -> io::Result<()> {
        let file = self.file()?;
        if is_held { locks::share(file, range) } else { locks::unshare(file, range) }
    }

    /// Takes the lock of an interval, until [`release`](Self::release) finds that it is old.
    pub(super) fn publish(&mut self, range: Bytes, now: Monotonic) -> io::Result<()> {
        if self.held.len() >= MOST_HELD {
            self.release_oldest()?;
        }
        self.set(&range, true)?;
        self.held.push_back((now, range));
        Ok(())
    }

    /// Releases the locks of intervals that every replay has passed.
    pub(super) fn release(&mut self, now: Monotonic) -> io::Result<()> {
        while self.held.front().is_some_and(|(locked_at, _)| now.since(*locked_at) > LOCKED_DELAY) {
            self.release_oldest()?;
        }
        Ok(())
    }

    fn release_oldest(&mut self) -> io::Result<()> {
        let Some((_, range)) = self.held.pop_front() else { return Ok(()) };
        self.set(&range, false)
    }

    /// Returns a lock of another process in a range, if there is one.
    pub(super) fn find(&self, range: &Bytes) -> io::Result<Option<Bytes>> {
        locks::find(self.file()?, range)
    }

    /// Returns the locks of other processes in a range, in any order. The kernel names one lock of a range at a time. The
    /// parts of the range before and after that lock may have others.
    pub(super) fn find_all(&self, range: Bytes) -> io::Result<Vec<Bytes>> {
        let (mut parts, mut found) = (vec![range], Vec::new());
        while let Some(part) = parts.pop() {
            let Some(lock) = self.find(&part)?.filter(|_| found.len() < MOST_FOUND) else { continue };
            let rest = [lock.end..part.end, part.start..lock.start];
            parts.extend(rest.into_iter().filter(|part| !part.is_empty()));
            found.push(lock);
        }
        Ok(found)
    }
}

impl Drop for Library {
    /// Closes the descriptor only if it still belongs to the library.
    fn drop(&mut self) {
        let _forgotten = self.check();
    }
}
