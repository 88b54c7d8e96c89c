//! Busy intervals of slices whose regions lie in different directories. The slices publish them by file locks.
//!
//! Example: two containers have private folders, and no node agent runs. They have no file in common that both can write.
//! But the container runtime mounts the driver's libraries of the node into both, and a lock of a file is a lock of its
//! inode. So in each slice one process takes read locks on bytes of one such library. [Positions and lengths](position) of
//! the locks stand for the slice's busy intervals. The processes of other slices ask the kernel for these locks.
//!
//! A read lock needs no right to write, and never conflicts with another read lock, so no process waits. No process reads
//! or writes a byte of the library. The kernel releases the locks when the process ends, because its forked children
//! [close](forked_children) the library.
//!
//! Each slice has a lane, and an entry in the directory of its GPU that names the lane. The slice publishes nothing while
//! the directory has no other slice. It numbers its intervals, so that a reader asks only for the next number. It releases
//! a lock when every replay has passed the interval. A reader that asks more often than that misses no interval. A second
//! range in the directory shows that the slice has found programs on the GPU that publish nothing.
//!
//! The method has these limits:
//!
//! - The library may be a file of the image, and not a file of the node. Then the slices have no inode in common and see
//!   nothing.
//! - A process may take false locks. Slices then count less time than they use, as with false intervals in a common folder.
//! - The program may close the descriptor and open another file that gets its number. So the process compares the inode in each
//!   round, and leaves alone a descriptor that is not its own.

mod forked_children;
mod position;

use core::mem;
use std::{collections::VecDeque, fs::File, io, path::Path};

use gpuslice_policy::compute::{attribution::correction::LOCKED_DELAY, measuring::peer_intervals::Interval};
use gpuslice_policy::time::{Monotonic, WallTime};

use crate::{
    file::{
        folders, locks,
        map::{FileId, id_of},
    },
    handle::device::Uuid,
};
use forked_children::ClosedInChildren;
use position::{Bytes, GpuRanges, INTERVAL_NUMBERS, LANES, interval_of, number_of};

/// Time between two looks at the directory: 100 ms.
const LOOK_EVERY: WallTime = WallTime::from_millis(100);
/// The most intervals of a slice that have locks at a time. A new interval takes the place of the oldest. The limit is less
/// than the number of interval numbers. So a reader that has read all intervals finds no lock at the next number.
const MOST_HELD: usize = 128;
/// The most locks that one look finds. The limit keeps another process from delaying this one by many locks.
const MOST_FOUND: usize = 256;

/// The intervals of a GPU in the locks of a file. A forked child must neither use nor drop its copy.
#[derive(Debug)]
pub struct IntervalLocks {
    /// Dropped before `file`. A child that is forked in between must not close a file of the program.
    _closed_in_children: ClosedInChildren,
    file: Option<File>,
    id: FileId,
    gpu: GpuRanges,
    slice: u64,
    lane: Option<u64>,
    /// Number of attempts to get a lane.
    attempts: u64,
    /// Number of the next interval.
    next: u64,
    /// Ranges of the published intervals, each with the instant of its lock.
    held: VecDeque<(Monotonic, Bytes)>,
    others: Vec<OtherSlice>,
    looked_at: Option<Monotonic>,
    /// True if this slice publishes that it has found programs that publish nothing.
    tells_programs: bool,
    /// True if another slice published this at the last look.
    has_heard_of_programs: bool,
}

/// Another slice.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OtherSlice {
    lane: u64,
    slice: u64,
    /// Number of the next interval.
    next: u64,
    /// Instant at which this process last read an interval.
    read_at: Monotonic,
    /// End of the last interval that this process has read.
    read_until: Monotonic,
}

impl OtherSlice {
    /// Makes a slice of which no interval has been read yet.
    const fn new(lane: u64, slice: u64) -> Self {
        Self { lane, slice, next: 0, read_at: Monotonic::BEGIN, read_until: Monotonic::BEGIN }
    }
}

impl IntervalLocks {
    /// Opens the file at `path`, which all containers of the node have. `slice` is the
    /// [number](crate::Region::file_number) of this slice's region.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, is no regular file, or lies on a file system whose locks may leave the machine. Or this
    /// process has opened it for more GPUs than a slice can have.
    pub fn open(path: &Path, gpu: Uuid, slice: u64) -> io::Result<Self> {
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
            gpu: GpuRanges::new(gpu.0),
            slice,
            lane: None,
            attempts: 0,
            next: 0,
            held: VecDeque::new(),
            others: Vec::new(),
            looked_at: None,
            tells_programs: false,
            has_heard_of_programs: false,
        })
    }

    /// Returns true if another slice published, by the last look, that programs which publish nothing use the GPU.
    #[must_use]
    pub const fn has_heard_of_programs(&self) -> bool {
        self.has_heard_of_programs
    }

    /// Publishes whether this slice has found programs on the GPU that publish nothing.
    ///
    /// # Errors
    ///
    /// Those of [`publish`](Self::publish).
    pub fn tell_programs(&mut self, are_there: bool) -> io::Result<()> {
        let Some(lane) = self.lane.filter(|_| are_there != self.tells_programs) else { return Ok(()) };
        self.check()?;
        let range = self.gpu.programs(lane);
        let file = self.file()?;
        if are_there { locks::share(file, &range) } else { locks::unshare(file, &range) }?;
        self.tells_programs = are_there;
        Ok(())
    }

    /// Returns true if there are other slices, so that intervals are [published](Self::publish).
    #[must_use]
    pub fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// Publishes new intervals of this slice, if there are other slices. `now` is the monotonic clock.
    ///
    /// # Errors
    ///
    /// The kernel refuses a lock, or the descriptor belongs to another file. The caller then drops this value.
    pub fn publish(&mut self, new: &[Interval], now: Monotonic) -> io::Result<()> {
        let Some(lane) = self.lane.filter(|_| self.has_others()) else { return Ok(()) };
        self.check()?;
        self.release(now)?;
        for interval in new.iter().skip(new.len().saturating_sub(MOST_HELD)) {
            if self.held.len() >= MOST_HELD {
                self.release_oldest()?;
            }
            let range = self.gpu.interval(lane, self.next, interval);
            locks::share(self.file()?, &range)?;
            self.held.push_back((now, range));
            self.next = self.next.wrapping_add(1) % INTERVAL_NUMBERS;
        }
        Ok(())
    }

    /// Passes new intervals of other slices to `add`, each with the number of its slice. If `is_known` returns true for a
    /// slice, the caller reads its intervals otherwise, and `add` gets none of them. `now` is the monotonic clock.
    ///
    /// # Errors
    ///
    /// Those of [`publish`](Self::publish).
    pub fn read(
        &mut self,
        now: Monotonic,
        is_known: impl Fn(u64) -> bool,
        mut add: impl FnMut(u64, Interval),
    ) -> io::Result<()> {
        self.check()?;
        self.release(now)?;
        if self.looked_at.is_none_or(|looked_at| now.since(looked_at) >= LOOK_EVERY) {
            self.looked_at = Some(now);
            self.look(is_known)?;
        }
        let mut others = mem::take(&mut self.others);
        let read = others.iter_mut().try_for_each(|other| self.read_from(other, now, &mut add));
        self.others = others;
        read
    }

    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Fails if the descriptor now belongs to another file. In this case it forgets the descriptor: to close it would be to
    /// close a file of the program.
    fn check(&mut self) -> io::Result<()> {
        let found = self.file()?.metadata();
        if found.is_ok_and(|found| id_of(&found) == self.id) {
            return Ok(());
        }
        mem::forget(self.file.take());
        Err(io::ErrorKind::NotFound.into())
    }

    /// Releases the locks of intervals that every replay has passed.
    fn release(&mut self, now: Monotonic) -> io::Result<()> {
        while self.held.front().is_some_and(|(locked_at, _)| now.since(*locked_at) > LOCKED_DELAY) {
            self.release_oldest()?;
        }
        Ok(())
    }

    fn release_oldest(&mut self) -> io::Result<()> {
        let Some((_, range)) = self.held.pop_front() else { return Ok(()) };
        locks::unshare(self.file()?, &range)
    }

    /// Reads the directory, and takes a lane if this slice has none.
    fn look(&mut self, is_known: impl Fn(u64) -> bool) -> io::Result<()> {
        let entries = locks_in(self.file()?, self.gpu.directory())?;
        self.has_heard_of_programs =
            entries.iter().any(|range| *range == self.gpu.programs(number_of(range)));
        let known = mem::take(&mut self.others);
        self.others = entries
            .iter()
            .filter_map(|entry| self.gpu.slice_at(entry))
            // Another process of this slice publishes until it learns that it is not elected any more.
            .filter(|(_, slice)| *slice != self.slice && !is_known(*slice))
            .map(|(lane, slice)| {
                let known = known.iter().find(|other| (other.lane, other.slice) == (lane, slice));
                known.cloned().unwrap_or_else(|| OtherSlice::new(lane, slice))
            })
            .collect();
        if self.lane.is_none() {
            // An entry of another GPU with the same positions takes the lane, too.
            let taken = entries.iter().fold(0, |taken, entry| taken | 1 << (number_of(entry) % LANES));
            self.take_lane(taken)?;
        }
        Ok(())
    }

    /// Takes a lane that no other slice has. If two slices take one lane at the same instant, both give it back. At the
    /// next look they try other lanes, which depend on the slice's number.
    fn take_lane(&mut self, taken: u64) -> io::Result<()> {
        let (first, step) = (self.slice % LANES, 1_u64.saturating_add(self.slice / LANES % (LANES - 1)));
        let first = first.saturating_add(self.attempts.wrapping_mul(step));
        self.attempts = self.attempts.wrapping_add(1);
        let free = (0..LANES).map(|by| first.wrapping_add(by) % LANES).find(|lane| taken & (1 << lane) == 0);
        let Some(lane) = free else { return Ok(()) };
        let entry = self.gpu.entry(lane, self.slice);
        let file = self.file()?;
        locks::share(file, &entry)?;
        if locks::find(file, &self.gpu.entry_of(lane))?.is_some() {
            return locks::unshare(file, &entry);
        }
        self.lane = Some(lane);
        Ok(())
    }

    /// Reads the new intervals of another slice. If there are none for a time, looks for the slice's next number in the
    /// whole lane.
    fn read_from(
        &self,
        other: &mut OtherSlice,
        now: Monotonic,
        add: &mut impl FnMut(u64, Interval),
    ) -> io::Result<()> {
        let file = self.file()?;
        let mut new = Vec::new();
        while new.len() < MOST_HELD {
            let place = self.gpu.numbers(other.lane, other.next..other.next.saturating_add(1));
            let Some(range) = locks::find(file, &place)?.filter(|range| is_within(range, &place)) else {
                break;
            };
            new.push(interval_of(&range, now));
            other.next = other.next.wrapping_add(1) % INTERVAL_NUMBERS;
        }
        if new.is_empty() && now.since(other.read_at) > LOCKED_DELAY {
            new = self.find_again(other, now)?;
        }
        for interval in new {
            (other.read_at, other.read_until) = (now, other.read_until.max(interval.end));
            if interval.is_sane(now) {
                add(other.slice, interval);
            }
        }
        Ok(())
    }

    /// Finds the next number of another slice in its lane, and returns the intervals that were not read yet. This is
    /// necessary in three cases: the slice is new, this process was late, or the other slice has elected another process,
    /// whose numbers start at 0 again.
    fn find_again(&self, other: &mut OtherSlice, now: Monotonic) -> io::Result<Vec<Interval>> {
        let locks = locks_in(self.file()?, self.gpu.numbers(other.lane, 0..INTERVAL_NUMBERS))?;
        let mut found: Vec<_> =
            locks.iter().map(|range| (interval_of(range, now), number_of(range))).collect();
        let has = |number| found.iter().any(|(_, known)| *known == number);
        let after = |number: u64| number.wrapping_add(1) % INTERVAL_NUMBERS;
        // The slice uses the numbers in turn, so no number follows the newest one.
        let newest = found.iter().filter(|(_, number)| !has(after(*number))).max_by_key(|(last, _)| last.end);
        other.next = newest.map_or(other.next, |(_, number)| after(*number));
        found.retain(|(interval, _)| interval.end > other.read_until);
        found.sort_unstable_by_key(|(interval, _)| interval.end);
        Ok(found.into_iter().map(|(interval, _)| interval).collect())
    }
}

fn is_within(range: &Bytes, place: &Bytes) -> bool {
    place.start <= range.start && range.end <= place.end
}

/// Returns the locks of other processes in a range, in any order. The kernel names one lock of a range at a time. The parts
/// of the range before and after that lock may have others.
fn locks_in(file: &File, range: Bytes) -> io::Result<Vec<Bytes>> {
    let (mut parts, mut found) = (vec![range], Vec::new());
    while let Some(part) = parts.pop() {
        let Some(lock) = locks::find(file, &part)?.filter(|_| found.len() < MOST_FOUND) else { continue };
        let rest = [lock.end..part.end, part.start..lock.start];
        parts.extend(rest.into_iter().filter(|part| !part.is_empty()));
        found.push(lock);
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
