//! Property tests of the ring: a reader accepts an interval only if all words of its slot belong to one write.

use gpuslice_policy::compute::measuring::peer_intervals::{Interval, IntervalEntry};

use super::NOW;
use crate::layout::compute_words::IntervalSlot;
use gpuslice_policy::time::literals::ns;

#[test]
fn a_place_that_has_one_word_of_another_writing_says_nothing() {
    let interval = Interval { start: NOW, end: NOW + ns(700_000), context: 0x5a5a, goes_on: true };
    let (place, entry) = (IntervalSlot::default(), IntervalEntry::new(5, interval));
    // The other write differs in one bit of one word.
    let others: [fn(&IntervalSlot, u64); 3] = [
        |place, bit| place.ticket.publish(place.ticket.observe() ^ bit),
        |place, bit| place.start.set(ns(place.start.get().nanos() ^ bit)),
        |place, bit| place.packed.set(place.packed.get() ^ bit),
    ];
    for bit in (0..u64::BITS).map(|bit| 1 << bit) {
        for (word, write_other) in others.iter().enumerate() {
            place.write(&entry);
            assert_eq!(place.read(), entry);
            write_other(&place, bit);
            assert_eq!(place.read(), IntervalEntry::default(), "word {word}, bit {bit:#x}");
        }
    }
}
