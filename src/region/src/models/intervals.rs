//! Models of the ring of intervals: a reader accepts an interval only as it was published, and charges each interval once.

use gpuslice_policy::compute::measuring::peer_intervals::{Interval, IntervalEntry, RingReader};
use gpuslice_policy::compute::measuring::union::BusyUnion;
use gpuslice_policy::time::Monotonic;
use gpuslice_policy::time::literals::ns;
use loom::{sync::Arc, thread};

use super::{DEVICE, NOW, SLOTS, World, beside, model};
use crate::{
    compute::intervals::INTERVAL_SLOTS,
    layout::compute_words::IntervalSlot,
    sync::atomics::broken::{self, Break},
};

/// A process is suspended during a write, and another one has come around to the same slot.
fn two_write_at_a_place_and_one_reads() {
    const TOLD: [IntervalEntry; 2] = [
        IntervalEntry::new(
            0,
            Interval {
                start: Monotonic::from_nanos(10),
                end: Monotonic::from_nanos(20),
                context: 1,
                goes_on: false,
            },
        ),
        IntervalEntry::new(
            INTERVAL_SLOTS,
            Interval {
                start: Monotonic::from_nanos(50),
                end: Monotonic::from_nanos(90),
                context: 2,
                goes_on: true,
            },
        ),
    ];
    model(|| {
        let place = Arc::new(IntervalSlot::default());
        for entry in TOLD {
            let _ = beside(&place, move |place| place.write(&entry));
        }
        let read = place.read();
        assert!(read == IntervalEntry::default() || TOLD.contains(&read), "words of two intervals: {read:?}");
    });
}

#[test]
fn words_of_two_intervals_are_never_taken_for_one() {
    two_write_at_a_place_and_one_reads();
}

#[test]
#[should_panic(expected = "words of two intervals")]
fn without_the_check_words_of_two_intervals_are_taken_for_one() {
    broken::make(Break::TornBelieved);
    two_write_at_a_place_and_one_reads();
}

/// Returns the charge of a process for its own interval. `hasty`: it does not wait until other processes have written the
/// slots before its own.
fn charge(world: &World, (start, end): (u64, u64), hasty: bool) -> u64 {
    let (mut reader, mut union) = (RingReader::new(0), BusyUnion::new());
    let time = &world.layout.time[DEVICE];
    let place = time.intervals.publish(Interval { start: ns(start), end: ns(end), ..Interval::default() });
    let read = |reader: &mut RingReader, union: &mut BusyUnion| {
        reader.read((place, INTERVAL_SLOTS), NOW, union, |slot| time.intervals.at(slot))
    };
    while !read(&mut reader, &mut union) && !hasty {
        thread::yield_now();
    }
    union.cover(ns(start), ns(end)).nanos()
}

/// Two processes were busy from 0 to 100 and from 50 to 150.
fn two_that_overlap(hasty: bool) {
    model(move || {
        let world = World::new([true; SLOTS], [0; SLOTS]);
        let other = beside(&world, move |world| charge(world, (50, 150), hasty));
        let charged = charge(&world, (0, 100), hasty);
        assert_eq!(charged + other.join().unwrap(), 150, "charged twice, or not at all");
    });
}

#[test]
fn time_that_two_processes_cover_is_charged_once() {
    two_that_overlap(false);
}

#[test]
#[should_panic(expected = "charged twice, or not at all")]
fn a_process_that_does_not_wait_for_lower_places_charges_twice() {
    two_that_overlap(true);
}
