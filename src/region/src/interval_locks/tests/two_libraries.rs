//! Tests of slices whose containers have two libraries of the driver, or only one of the two.

use super::*;

#[test]
fn slices_use_the_first_library_that_they_have_in_common() {
    let (nvml, cuda, image) = (NodeFile::new(), NodeFile::new(), NodeFile::new());
    // The image of the third slice brings a CUDA library, and the fourth slice has no NVML.
    let mut slices =
        [[&nvml, &cuda], [&nvml, &cuda], [&nvml, &image]].map(|libraries| slice_of(libraries, 0));
    for (number, slice) in (1..).zip(&mut slices) {
        slice.slice = number;
    }
    let [mut a, mut b, mut c] = slices;
    let mut d = slice_of([&cuda], 4);
    meet([&mut a, &mut b, &mut c, &mut d]);
    let now = START + 3 * LOOK_EVERY;
    let publish =
        |slice: &mut IntervalLocks, at: u64| slice.publish(&[span(now - ns(at * MS), 0)], now).unwrap();
    publish(&mut a, 1);
    publish(&mut b, 2);
    publish(&mut c, 3);
    publish(&mut d, 4);
    let read = |slice: &mut IntervalLocks| {
        let mut read = Vec::new();
        let add = |slice, has_first, interval: Interval| {
            read.push((slice, has_first, now.since(interval.end).nanos() / MS));
        };
        slice.read(now, |_| false, add).unwrap();
        read.sort_unstable();
        read
    };
    assert_eq!(read(&mut a), [(2, true, 2), (3, true, 3), (4, false, 4)]);
    assert_eq!(read(&mut b), [(1, true, 1), (3, true, 3), (4, false, 4)]);
    assert_eq!(read(&mut c), [(1, true, 1), (2, true, 2)]);
    assert_eq!(read(&mut d), [(1, true, 1), (2, true, 2)]);
    assert_eq!([&mut a, &mut b, &mut c, &mut d].map(read), [[], [], [], []], "no interval counts twice");
}

#[test]
fn a_slice_publishes_in_the_second_library_only_while_a_slice_has_that_one_alone() {
    let (nvml, cuda) = (NodeFile::new(), NodeFile::new());
    let [mut a, mut b] = [1, 2].map(|slice| slice_of([&nvml, &cuda], slice));
    meet([&mut a, &mut b]);
    assert_eq!([held(&a), held(&b)], [[1, 0], [1, 0]]);
    let mut alone = slice_of([&cuda], 3);
    for round in 3..6 {
        let now = START + round * LOOK_EVERY;
        for slice in [&mut alone, &mut a, &mut b] {
            exchange(slice, &[span(now, 0)], now);
        }
    }
    assert_eq!([held(&alone), held(&a), held(&b)], [vec![1], vec![1, 1], vec![1, 1]]);
    drop(alone);
    for round in 6..8 {
        let now = START + round * LOOK_EVERY;
        exchange(&mut a, &[span(now, 0)], now);
    }
    assert_eq!(held(&a), [1, 0]);
}

#[test]
fn an_interval_counts_once_if_its_slice_appears_in_an_earlier_library() {
    let (nvml, cuda) = (NodeFile::new(), NodeFile::new());
    let [mut a, mut b] = [1, 2].map(|slice| slice_of([&nvml, &cuda], slice));
    let mut alone = slice_of([&cuda], 3);
    meet([&mut a, &mut b, &mut alone]);
    // At its last look the reader saw the slice only in the second library.
    a.others.iter_mut().for_each(|other| other.library = 1);
    let now = START + 3 * LOOK_EVERY - ns(MS);
    exchange(&mut b, &[span(now, 1), span(now, 2)], now);
    assert_eq!(exchange(&mut a, &[], now), [(2, span(now, 1)), (2, span(now, 2))]);
    exchange(&mut b, &[span(now, 3)], now);
    exchange(&mut b, &[span(now, 4)], now);
    assert_eq!(held(&b), [4, 4]);
    assert_eq!(exchange(&mut a, &[], now + ns(MS)), [(2, span(now, 3)), (2, span(now, 4))]);
    assert!(a.others.iter().any(|other| (other.slice, other.library) == (2, 0)));
}

#[test]
fn an_idle_process_of_a_slice_does_not_hide_one_with_another_library() {
    let (nvml, cuda) = (NodeFile::new(), NodeFile::new());
    let mut idle = slice_of([&nvml, &cuda], 1);
    let mut reader = slice_of([&nvml, &cuda], 2);
    meet([&mut idle, &mut reader]);
    let mut elected = slice_of([&cuda], 1);
    for round in 3..6 {
        let now = START + round * LOOK_EVERY;
        exchange(&mut elected, &[span(now, 7)], now);
        let read = exchange(&mut reader, &[span(now, 8)], now);
        assert!(round < 5 || read == [(1, span(now, 7))], "{read:?}");
        let read = exchange(&mut elected, &[], now);
        assert!(round < 5 || read == [(2, span(now, 8))], "{read:?}");
    }
}

#[test]
fn a_slice_has_one_lane_in_all_its_libraries() {
    let (nvml, cuda) = (NodeFile::new(), NodeFile::new());
    let mut slice = slice_of([&nvml, &cuda], 1);
    let other = take(&cuda, &slice.gpu.entry(1, 99));
    exchange(&mut slice, &[], START);
    let lane = slice.lane.unwrap();
    assert_ne!(lane, 1);
    drop(other);
    for node in [&nvml, &cuda] {
        let found = Library::open(node.0.path()).unwrap().find_all(slice.gpu.directory()).unwrap();
        assert_eq!(found, [slice.gpu.entry(lane, 1)]);
    }
}

#[test]
fn a_lane_that_another_slice_takes_in_the_second_library_is_given_back_in_both() {
    let (nvml, cuda) = (NodeFile::new(), NodeFile::new());
    let mut slice = slice_of([&nvml, &cuda], 1);
    let _other = take(&cuda, &slice.gpu.entry(1, 99));
    slice.take_lane(0).unwrap();
    assert_eq!(slice.lane, None);
    assert_eq!(nvml.slice(2).libraries[0].find(&slice.gpu.directory()).unwrap(), None);
}

#[test]
fn a_file_that_is_both_libraries_counts_once() {
    let node = NodeFile::new();
    let mut slices = [1, 2].map(|slice| slice_of([&node, &node], slice));
    meet(slices.each_mut());
    assert!(slices.iter().all(|slice| slice.libraries.len() == 1 && slice.others.len() == 1));
}

#[test]
fn a_slice_tells_and_hears_of_programs_by_each_library() {
    let (nvml, cuda) = (NodeFile::new(), NodeFile::new());
    let mut both = slice_of([&nvml, &cuda], 1);
    let mut others = [slice_of([&nvml], 2), slice_of([&cuda], 3)];
    let mut rounds = 0..;
    let mut look = |slice: &mut IntervalLocks| {
        exchange(slice, &[], START + rounds.next().unwrap() * LOOK_EVERY);
        slice.has_heard_of_programs()
    };
    assert!(!look(&mut both));
    for are_there in [true, false] {
        both.tell_programs(are_there).unwrap();
        assert_eq!(others.each_mut().map(&mut look), [are_there; 2]);
    }
    for other in &mut others {
        for are_there in [true, false] {
            other.tell_programs(are_there).unwrap();
            assert_eq!(look(&mut both), are_there);
        }
    }
}

#[test]
fn descriptors_that_are_both_another_files_by_now_are_left_alone() {
    let (first, second) = (NodeFile::new(), NodeFile::new());
    let mut locks = slice_of([&first, &second], 1);
    exchange(&mut locks, &[], START);
    let other = tempfile::tempfile().unwrap();
    let descriptors: Vec<_> = locks.libraries.iter().map(descriptor_of).collect();
    for descriptor in &descriptors {
        // SAFETY: `dup2` needs two open descriptors, which both are. The test wants the first number to stand for another file.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), *descriptor) }, *descriptor);
    }
    // The reading fails at the first library, so that only the drop looks at the second one.
    assert!(locks.read(START, |_| false, |_, _, _| ()).is_err());
    drop(locks);
    for descriptor in descriptors {
        // SAFETY: the test made this descriptor and closes it once.
        assert_eq!(unsafe { libc::close(descriptor) }, 0, "it is open");
    }
}
