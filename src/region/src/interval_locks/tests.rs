//! Tests of slices that publish their intervals to each other by locks of files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod two_libraries;

use super::*;
use gpuslice_policy::time::Monotonic;
use gpuslice_policy::time::literals::ns;
use std::os::fd::{AsRawFd as _, RawFd};

use super::forked_children::{ClosedInChildren, MOST_OPEN_LIBRARIES};
use super::library::MOST_FOUND;
use crate::{file::map::FileId, layout::constants::MAX_DEVICES};

const GPU: Uuid = Uuid([7; 16]);
const MS: u64 = 1_000_000;
const START: Monotonic = Monotonic::from_nanos(1_000_000 * MS);

/// A file that all containers of a node have.
struct NodeFile(tempfile::NamedTempFile);

impl NodeFile {
    fn new() -> Self {
        Self(tempfile::NamedTempFile::new_in("/dev/shm").unwrap())
    }

    fn slice(&self, slice: u64) -> IntervalLocks {
        slice_of([self], slice)
    }
}

/// Makes a slice whose container has these files as the driver's libraries.
fn slice_of<const N: usize>(libraries: [&NodeFile; N], slice: u64) -> IntervalLocks {
    IntervalLocks::open(libraries.map(|node| node.0.path()), GPU, slice).unwrap()
}

/// Returns how many intervals of the slice have locks, for each of its libraries.
fn held(slice: &IntervalLocks) -> Vec<usize> {
    slice.libraries.iter().map(Library::held).collect()
}

/// Takes the lock of a range for another process.
fn take(node: &NodeFile, range: &Bytes) -> Library {
    let other = Library::open(node.0.path()).unwrap();
    other.set(range, true).unwrap();
    other
}

/// Publishes intervals, and returns the intervals of others that the slice reads.
fn exchange(locks: &mut IntervalLocks, new: &[Interval], now: Monotonic) -> Vec<(u64, Interval)> {
    let mut read = Vec::new();
    locks.publish(new, now).unwrap();
    locks.read(now, |_| false, |slice, _, interval| read.push((slice, interval))).unwrap();
    read
}

/// Returns an interval of 1 ms that ends at `end`.
fn span(end: Monotonic, context: u16) -> Interval {
    Interval { start: end - ns(MS), end, context, goes_on: false }
}

/// Makes slices that have met: each of them has read an interval of every other slice.
fn met<const N: usize>(node: &NodeFile) -> [IntervalLocks; N] {
    let mut slices = core::array::from_fn(|number| node.slice(number as u64 + 1));
    meet(slices.each_mut());
    slices
}

/// Lets slices find each other.
fn meet<const N: usize>(mut slices: [&mut IntervalLocks; N]) {
    for round in 0..3 {
        let now = START + round * LOOK_EVERY;
        slices.iter_mut().for_each(|slice| drop(exchange(slice, &[span(now, 0)], now)));
        slices.iter_mut().for_each(|slice| drop(exchange(slice, &[], now)));
    }
}

#[test]
fn slices_read_the_intervals_of_each_other_once_and_in_order() {
    let [mut a, mut b, mut c] = met(&NodeFile::new());
    let now = START + 3 * LOOK_EVERY;
    let (first, second) =
        (span(now - ns(5 * MS), 1), Interval { goes_on: true, ..span(now - ns(2 * MS), 2) });
    assert_eq!(exchange(&mut a, &[first, second], now), []);
    assert_eq!(exchange(&mut b, &[span(now, 9)], now), [(1, first), (1, second)]);
    let mut of_both = exchange(&mut c, &[], now);
    of_both.sort_by_key(|(slice, _)| *slice);
    assert_eq!(of_both, [(1, first), (1, second), (2, span(now, 9))]);
    assert_eq!(exchange(&mut a, &[], now), [(2, span(now, 9))]);
    assert_eq!(
        [exchange(&mut a, &[], now), exchange(&mut b, &[], now), exchange(&mut c, &[], now)],
        [[], [], []]
    );
}

#[test]
fn a_slice_that_is_alone_holds_no_lock_but_its_entry() {
    let node = NodeFile::new();
    let mut alone = node.slice(1);
    for round in 0..9 {
        let now = START + round * LOOK_EVERY;
        assert_eq!(exchange(&mut alone, &[span(now, 0)], now), []);
    }
    assert!(held(&alone) == [0] && alone.lane.is_some());
}

#[test]
fn a_slice_of_another_gpu_and_one_that_is_known_otherwise_are_not_read() {
    let node = NodeFile::new();
    let (mut a, mut b) = (node.slice(1), node.slice(2));
    let mut elsewhere = IntervalLocks::open([node.0.path()], Uuid([8; 16]), 3).unwrap();
    for round in 0..5 {
        let now = START + round * LOOK_EVERY;
        exchange(&mut b, &[span(now, 0)], now);
        exchange(&mut elsewhere, &[span(now, 0)], now);
        a.read(now, |slice| slice == 2, |slice, _, _| panic!("reads {slice}")).unwrap();
    }
    assert!(!b.others.is_empty() && elsewhere.others.is_empty());
}

#[test]
fn two_processes_of_a_slice_are_no_neighbours() {
    let node = NodeFile::new();
    let (mut elected, mut successor) = (node.slice(1), node.slice(1));
    for round in 0..3 {
        let now = START + round * LOOK_EVERY;
        exchange(&mut elected, &[span(now, 0)], now);
        exchange(&mut successor, &[span(now, 0)], now);
    }
    assert!(elected.others.is_empty() && successor.others.is_empty());
    assert!(elected.lane.is_some() && successor.lane.is_some() && elected.lane != successor.lane);
}

#[test]
fn locks_are_released_once_every_replay_has_passed_them() {
    let [mut a, mut b] = met(&NodeFile::new());
    let now = START + 3 * LOOK_EVERY;
    exchange(&mut a, &[span(now, 0)], now);
    let later = now + LOCKED_DELAY + ns(1000);
    exchange(&mut a, &[span(later, 0)], later);
    assert_eq!(held(&a), [1]);
    // The lock of the first interval is gone. The reader goes on with the second interval.
    assert_eq!(exchange(&mut b, &[], later), [(1, span(later, 0))]);
    assert_eq!(exchange(&mut b, &[], later), []);
}

#[test]
fn a_reader_goes_on_after_any_number_of_missed_intervals() {
    for missed in 0..2 * INTERVAL_NUMBERS {
        let [mut a, mut b] = met(&NodeFile::new());
        let mut now = START + 3 * LOOK_EVERY;
        for _ in 0..=missed {
            now += LOCKED_DELAY + ns(1000);
            exchange(&mut a, &[span(now, 0)], now);
        }
        assert_eq!(exchange(&mut b, &[], now), [(1, span(now, 0))], "{missed}");
        assert_eq!(exchange(&mut b, &[], now + LOCKED_DELAY + ns(1000)), [], "{missed}");
    }
}

#[test]
fn a_process_that_is_elected_next_is_read_although_it_counts_anew() {
    let node = NodeFile::new();
    let [mut a, b] = met(&node);
    let now = START + 3 * LOOK_EVERY;
    drop(b);
    let mut successor = node.slice(2);
    exchange(&mut successor, &[], now);
    exchange(&mut successor, &[span(now, 5)], now);
    assert_eq!(exchange(&mut a, &[], now), [(2, span(now, 5))]);
}

#[test]
fn a_slice_that_ends_is_a_neighbour_no_more() {
    let [mut a, b] = met(&NodeFile::new());
    assert_eq!(a.others.len(), 1);
    drop(b);
    exchange(&mut a, &[], START + 4 * LOOK_EVERY);
    assert_eq!(a.others, []);
}

#[test]
fn a_slice_tells_of_programs_until_they_or_the_slice_are_gone() {
    let [mut a, mut b] = met(&NodeFile::new());
    let mut heard = |a: &mut IntervalLocks, round: u64| {
        let now = START + round * LOOK_EVERY;
        let read = [exchange(a, &[], now), exchange(&mut b, &[], now)];
        assert_eq!(read, [[], []], "the range is no interval");
        (a.has_heard_of_programs(), b.has_heard_of_programs())
    };
    assert_eq!(heard(&mut a, 3), (false, false));
    for (round, are_there) in [(4, true), (5, false), (6, true)] {
        a.tell_programs(are_there).unwrap();
        assert_eq!(heard(&mut a, round), (false, are_there));
    }
    drop(a);
    exchange(&mut b, &[], START + 7 * LOOK_EVERY);
    assert!(!b.has_heard_of_programs());
}

#[test]
fn slices_that_take_one_lane_at_once_get_different_ones() {
    let node = NodeFile::new();
    // Both slices begin at the same lane, and neither has seen the other.
    let (mut a, mut b) = (node.slice(1), node.slice(1 + LANES));
    let entry = a.gpu.entry(1, 99);
    let third = take(&node, &entry);
    a.take_lane(0).unwrap();
    b.take_lane(0).unwrap();
    assert_eq!((a.lane, b.lane), (None, None));
    drop(third);
    for round in 0..3 {
        let now = START + round * LOOK_EVERY;
        exchange(&mut a, &[], now);
        exchange(&mut b, &[], now);
    }
    assert!(a.lane.is_some() && b.lane.is_some() && a.lane != b.lane);
    assert_eq!((a.others.len(), b.others.len()), (1, 1));
}

#[test]
fn the_last_intervals_are_kept_where_there_are_too_many() {
    let [mut a, mut b] = met(&NodeFile::new());
    let now = START + 3 * LOOK_EVERY;
    let many: Vec<Interval> =
        (0..3 * MOST_HELD as u64).map(|by| span(now - ns(40 * MS) + ns(by * 100_000), 0)).collect();
    exchange(&mut a, &many[..2 * MOST_HELD], now);
    assert_eq!(held(&a), [MOST_HELD]);
    exchange(&mut a, &many[2 * MOST_HELD..], now);
    // The reader is late, so it finds only the later intervals.
    let read: Vec<Interval> = exchange(&mut b, &[], now).into_iter().map(|(_, interval)| interval).collect();
    assert_eq!(read, many[2 * MOST_HELD..]);
}

#[test]
fn locks_of_others_that_mean_nothing_do_no_harm() {
    let node = NodeFile::new();
    let [mut a, mut b] = met(&node);
    let hostile = Library::open(node.0.path()).unwrap();
    let gpu = a.gpu;
    let wide = gpu.numbers(a.lane.unwrap(), 0..INTERVAL_NUMBERS);
    for range in [0..i64::MAX as u64, wide.clone(), gpu.directory(), wide.start + 5..wide.start + 6] {
        hostile.set(&range, true).unwrap();
        for round in 3..6 {
            let now = START + round * LOOK_EVERY;
            exchange(&mut a, &[span(now, 0)], now);
            let read = exchange(&mut b, &[], now);
            assert!(read.len() <= 2 * MOST_FOUND, "{read:?}");
            assert!(read.iter().all(|(_, interval)| interval.start <= interval.end));
        }
        hostile.set(&range, false).unwrap();
    }
    // A process with thousands of locks delays no other process.
    for number in 0..4 * MOST_FOUND as u64 {
        let start = gpu.directory().start + 2 * number;
        hostile.set(&(start..start + 1), true).unwrap();
    }
    let now = START + 9 * LOOK_EVERY;
    exchange(&mut b, &[], now);
}

#[test]
fn a_descriptor_that_is_another_files_by_now_is_left_alone() {
    let node = NodeFile::new();
    let mut locks = node.slice(1);
    exchange(&mut locks, &[], START);
    let descriptor = descriptor_of(&locks.libraries[0]);
    let other = tempfile::tempfile().unwrap();
    // SAFETY: `dup2` needs two open descriptors, which both are. The test wants the first number to stand for another file.
    assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), descriptor) }, descriptor);
    assert!(locks.read(START, |_| false, |_, _, _| ()).is_err());
    drop(locks);
    // SAFETY: `fcntl` with `F_GETFD` changes nothing, whatever the descriptor is.
    assert_ne!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) }, -1);
    // SAFETY: the test made this descriptor and closes it once.
    assert_eq!(unsafe { libc::close(descriptor) }, 0);
}

fn descriptor_of(library: &Library) -> RawFd {
    library.file().unwrap().as_raw_fd()
}

/// Forks a child that asks `question` and ends at once. Returns its answer. The question may only do what a child of a process
/// with threads may do.
fn in_a_child(question: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only asks the question and ends by a system call, which a child of a process with threads may do.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let answer = question();
        // SAFETY: `_exit` takes a number and does not return.
        unsafe { libc::_exit(i32::from(answer)) };
    }
    let mut status = 0;
    // SAFETY: `waitpid` needs room for a status, which `status` is.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status));
    libc::WEXITSTATUS(status) == 1
}

/// Returns whether a forked child has the descriptor.
fn a_child_has(descriptor: RawFd) -> bool {
    // SAFETY: `fcntl` with `F_GETFD` changes nothing, whatever the descriptor is.
    in_a_child(|| unsafe { libc::fcntl(descriptor, libc::F_GETFD) } != -1)
}

#[test]
fn a_forked_child_has_all_places_for_its_own_files() {
    let node = NodeFile::new();
    let _locks = node.slice(1);
    let file = tempfile::tempfile().unwrap();
    let id = FileId { device: 0, inode: 0 };
    let takes = |_| ClosedInChildren::begin(&file, id).map(mem::forget).is_ok();
    assert!(in_a_child(|| (0..2 * MAX_DEVICES).all(takes)));
}

#[test]
fn a_forked_child_closes_the_files_and_no_other_that_has_a_descriptor_of_them() {
    let locks = slice_of([&NodeFile::new(), &NodeFile::new()], 1);
    let descriptors: Vec<RawFd> = locks.libraries.iter().map(descriptor_of).collect();
    assert!(!descriptors.iter().any(|descriptor| a_child_has(*descriptor)));
    let descriptor = descriptors[1];
    let other = tempfile::tempfile().unwrap();
    // SAFETY: `dup2` needs two open descriptors, which both are. The test wants the first number to stand for another file.
    assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), descriptor) }, descriptor);
    assert!(a_child_has(descriptor));
}

#[test]
fn many_files_are_opened_one_after_the_other() {
    let node = NodeFile::new();
    for _ in 0..10 * MOST_OPEN_LIBRARIES {
        drop(node.slice(1));
    }
}

#[test]
fn only_files_of_this_machine_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    let none = [folder.path(), &absent, Path::new("/proc/self/status")];
    assert!(none.iter().all(|path| IntervalLocks::open([*path], GPU, 1).is_none()));
    let node = NodeFile::new();
    let some = IntervalLocks::open([none[0], node.0.path()], GPU, 1).unwrap();
    assert_eq!(some.libraries.len(), 1);
}
