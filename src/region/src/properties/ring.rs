//! Is an interval believed only where all words of its place are of one writing?

use gpuslice_policy::compute::ring::Entry;

use super::NOW;
use crate::words::Place;

#[test]
fn a_place_that_has_one_word_of_another_writing_says_nothing() {
    let (place, entry) = (Place::default(), Entry::new(5, (NOW, NOW + 700_000), true));
    let others: [fn(&Place, &Entry); 3] = [
        |place, other| place.ticket.publish(other.ticket),
        |place, other| place.start.set(other.start),
        |place, other| place.end.set(other.end | if other.goes_on { 1 << 63 } else { 0 }),
    ];
    // The other writing differs in as little as it can.
    for bit in (0..u64::BITS).map(|bit| 1 << bit) {
        let is_flag = bit == 1 << 63;
        let other = Entry {
            ticket: entry.ticket ^ bit,
            start: entry.start ^ bit,
            end: if is_flag { entry.end } else { entry.end ^ bit },
            goes_on: entry.goes_on != is_flag,
        };
        for (word, write_other) in others.iter().enumerate() {
            place.write(&entry);
            assert_eq!(place.read(), entry);
            write_other(&place, &other);
            assert_eq!(place.read(), Entry::default(), "word {word}, bit {bit:#x}");
        }
    }
}
