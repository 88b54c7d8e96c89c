//! Busy intervals of slices whose regions lie in different directories. The slices publish them by file locks.
//!
//! Example: two containers have private folders, and no node agent runs. They have no file in common that both can write.
//! But the container runtime mounts the driver's libraries of the node into both, and a lock of a file is a lock of its
//! inode. So in each slice one process takes read locks on bytes of such libraries. [Positions and lengths](position) of
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
//! Two slices may have NVML's library in common, CUDA's, or both. A slice has the same lane and an entry in each of its
//! libraries. Two slices use the first library in which both have an entry. So a slice publishes its intervals in CUDA's
//! library only while another slice is in that one alone. An interval has the same number in both libraries, and a reader
//! reads each lane in one library. So no interval counts twice.
//!
//! The method has these limits:
//!
//! - A library may be a file of the image, and not a file of the node. Slices without an inode in common do not see each
//!   other.
//! - A process may take false locks. Slices then count less time than they use, as with false intervals in a common folder.
//! - The program may close the descriptor and open another file that gets its number. So the process compares the inode in each
//!   round, and leaves alone a descriptor that is not its own.

mod forked_children;
mod library;
mod position;

use core::mem;
use std::{io, path::Path};

use gpuslice_policy::compute::{attribution::correction::LOCKED_DELAY, measuring::peer_intervals::Interval};
use gpuslice_policy::time::{Monotonic, WallTime};

use crate::handle::device::Uuid;
use library::{Library, MOST_HELD};
use position::{Bytes, GpuRanges, INTERVAL_NUMBERS, LANES, interval_of, number_of};

/// Time between two looks at the directory: 100 ms.
const LOOK_EVERY: WallTime = WallTime::from_millis(100);

/// The intervals of a GPU in the locks of the driver's libraries. A forked child must neither use nor drop its copy.
#[derive(Debug)]
pub struct IntervalLocks {
    /// Each is another file.
    libraries: Vec<Library>,
    gpu: GpuRanges,
    slice: u64,
    /// The lane of this process, the same in all libraries.
    lane: Option<u64>,
    /// Number of attempts to get a lane.
    attempts: u64,
    /// Number of the next interval.
    next: u64,
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
    /// Number of the first library in which it has an entry.
    library: usize,
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
        Self { library: 0, lane, slice, next: 0, read_at: Monotonic::BEGIN, read_until: Monotonic::BEGIN }
    }
}

impl IntervalLocks {
    /// Opens the files at `paths`, of which other containers of the node have at least one. All slices name them in the same
    /// order. `slice` is the [number](crate::Region::file_number) of this slice's region.
    ///
    /// Returns `None` if no file can be used. A file is left out in these cases: it cannot be opened, is no regular file, is one
    /// of the files before it, or lies on a file system whose locks may leave the machine. The same holds if this process has
    /// opened libraries for more GPUs than a slice can have.
    pub fn open(paths: impl IntoIterator<Item = impl AsRef<Path>>, gpu: Uuid, slice: u64) -> Option<Self> {
        let mut libraries = Vec::<Library>::new();
        for new in paths.into_iter().filter_map(|path| Library::open(path.as_ref()).ok()) {
            if !libraries.iter().any(|library| library.is_file_of(&new)) {
                libraries.push(new);
            }
        }
        (!libraries.is_empty()).then(|| Self {
            libraries,
            gpu: GpuRanges::new(gpu.0),
            slice,
            lane: None,
            attempts: 0,
            next: 0,
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
        let range = self.gpu.programs(lane);
        for library in &mut self.libraries {
            library.check()?;
            library.set(&range, are_there)?;
        }
        self.tells_programs = are_there;
        Ok(())
    }

    /// Returns true if there are other slices, so that intervals are [published](Self::publish).
    #[must_use]
    pub fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// Publishes new intervals of this slice in the libraries in which other slices read them. `now` is the monotonic clock.
    ///
    /// # Errors
    ///
    /// The kernel refuses a lock, or a descriptor belongs to another file. The caller then drops this value.
    pub fn publish(&mut self, new: &[Interval], now: Monotonic) -> io::Result<()> {
        let Some(lane) = self.lane.filter(|_| self.has_others()) else { return Ok(()) };
        let first = self.next;
        for (place, library) in self.libraries.iter_mut().enumerate() {
            if !self.others.iter().any(|other| other.library == place) {
                continue;
            }
            library.check()?;
            library.release(now)?;
            self.next = first;
            for interval in new.iter().skip(new.len().saturating_sub(MOST_HELD)) {
                library.publish(self.gpu.interval(lane, self.next, interval), now)?;
                self.next = self.next.wrapping_add(1) % INTERVAL_NUMBERS;
            }
        }
        Ok(())
    }

    /// Passes new intervals of other slices to `add`. Its arguments are the number of the slice, whether that slice has the
    /// first library of this one, and the interval. If `is_known` returns true for a slice, the caller reads its intervals
    /// otherwise, and `add` gets none of them. `now` is the monotonic clock.
    ///
    /// # Errors
    ///
    /// Those of [`publish`](Self::publish).
    pub fn read(
        &mut self,
        now: Monotonic,
        is_known: impl Fn(u64) -> bool,
        mut add: impl FnMut(u64, bool, Interval),
    ) -> io::Result<()> {
        for library in &mut self.libraries {
            library.check()?;
            library.release(now)?;
        }
        if self.looked_at.is_none_or(|looked_at| now.since(looked_at) >= LOOK_EVERY) {
            self.looked_at = Some(now);
            self.look(is_known)?;
        }
        let mut others = mem::take(&mut self.others);
        let read = others.iter_mut().try_for_each(|other| self.read_from(other, now, &mut add));
        self.others = others;
        read
    }

    /// Reads the directories, and takes a lane if this slice has none.
    fn look(&mut self, is_known: impl Fn(u64) -> bool) -> io::Result<()> {
        let (known, mut taken) = (mem::take(&mut self.others), 0);
        self.has_heard_of_programs = false;
        for (place, library) in self.libraries.iter().enumerate() {
            for entry in library.find_all(self.gpu.directory())? {
                self.has_heard_of_programs |= entry == self.gpu.programs(number_of(&entry));
                // An entry of another GPU with the same positions takes the lane, too.
                taken |= 1 << (number_of(&entry) % LANES);
                // Another process of this slice publishes until it learns that it is not elected any more.
                let other =
                    self.gpu.slice_at(&entry).filter(|(_, slice)| *slice != self.slice && !is_known(*slice));
                let Some((lane, slice)) = other else { continue };
                let is_it = |other: &&OtherSlice| (other.lane, other.slice) == (lane, slice);
                // A slice whose entry is in a library before this one is read there.
                if self.others.iter().find(is_it).is_none() {
                    let known = known.iter().find(is_it).cloned();
                    let other = known.unwrap_or_else(|| OtherSlice::new(lane, slice));
                    self.others.push(OtherSlice { library: place, ..other });
                }
            }
        }
        if self.lane.is_none() {
            self.take_lane(taken)?;
        }
        Ok(())
    }

    /// Takes a lane that no other slice has in any library. If two slices take one lane at the same instant, both give it back.
    /// At the next look they try other lanes, which depend on the slice's number.
    fn take_lane(&mut self, taken: u64) -> io::Result<()> {
        let (first, step) = (self.slice % LANES, 1_u64.saturating_add(self.slice / LANES % (LANES - 1)));
        let first = first.saturating_add(self.attempts.wrapping_mul(step));
        self.attempts = self.attempts.wrapping_add(1);
        let free = (0..LANES).map(|by| first.wrapping_add(by) % LANES).find(|lane| taken & (1 << lane) == 0);
        let Some(lane) = free else { return Ok(()) };
        let (entry, of_all) = (self.gpu.entry(lane, self.slice), self.gpu.entry_of(lane));
        let mut has_another = false;
        for library in &self.libraries {
            library.set(&entry, true)?;
            has_another |= library.find(&of_all)?.is_some();
        }
        if has_another {
            return self.libraries.iter().try_for_each(|library| library.set(&entry, false));
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
        add: &mut impl FnMut(u64, bool, Interval),
    ) -> io::Result<()> {
        let Some(library) = self.libraries.get(other.library) else { return Ok(()) };
        let mut new = Vec::new();
        while new.len() < MOST_HELD {
            let place = self.gpu.numbers(other.lane, other.next..other.next.saturating_add(1));
            let Some(range) = library.find(&place)?.filter(|range| is_within(range, &place)) else {
                break;
            };
            new.push(interval_of(&range, now));
            other.next = other.next.wrapping_add(1) % INTERVAL_NUMBERS;
        }
        if new.is_empty() && now.since(other.read_at) > LOCKED_DELAY {
            new = self.find_again(library, other, now)?;
        }
        for interval in new {
            (other.read_at, other.read_until) = (now, other.read_until.max(interval.end));
            if interval.is_sane(now) {
                add(other.slice, other.library == 0, interval);
            }
        }
        Ok(())
    }

    /// Finds the next number of another slice in its lane, and returns the intervals that were not read yet. This is
    /// necessary in three cases: the slice is new, this process was late, or the other slice has elected another process,
    /// whose numbers start at 0 again.
    fn find_again(
        &self,
        library: &Library,
        other: &mut OtherSlice,
        now: Monotonic,
    ) -> io::Result<Vec<Interval>> {
        let locks = library.find_all(self.gpu.numbers(other.lane, 0..INTERVAL_NUMBERS))?;
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

#[cfg(test)]
mod tests;
