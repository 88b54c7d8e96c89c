//! Model of usage samples: a reader accepts a sample only as it was written.

use loom::sync::Arc;

use super::{beside, model};
use crate::{
    compute::history::ReadSample,
    compute::reclaim::TimeUsed,
    layout::compute_words::UsageSample,
    sync::atomics::broken::{self, Break},
};
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

const SECOND: WallTime = WallTime::from_millis(1_000);
/// The reader's clock: ten seconds after the first sample.
const NOW: Monotonic = Monotonic::BEGIN.saturating_add(SECOND.saturating_mul(10));
const OLD: ReadSample = ReadSample {
    age: SECOND.saturating_mul(10),
    used: GpuTime::from_nanos(7),
    throttled: WallTime::from_nanos(14),
};
const NEW: ReadSample = ReadSample {
    age: SECOND.saturating_mul(8),
    used: GpuTime::from_nanos(50),
    throttled: WallTime::from_nanos(100),
};

fn note(moment: &UsageSample, note: ReadSample) {
    let sums = TimeUsed { used: note.used, throttled: note.throttled, ..TimeUsed::default() };
    moment.note(NOW.saturating_sub(note.age).since(Monotonic::BEGIN).count(SECOND) + 1, || sums);
}

/// A process overwrites an old sample while another one reads it.
fn one_notes_and_one_reads() {
    model(|| {
        let moment = Arc::new(UsageSample::default());
        note(&moment, OLD);
        let other = beside(&moment, |moment| note(moment, NEW));
        let said = moment.read(NOW);
        assert!([None, Some(OLD), Some(NEW)].contains(&said), "words of two notes: {said:?}");
        other.join().unwrap();
        assert_eq!(moment.read(NOW), Some(NEW));
    });
}

#[test]
fn words_of_two_notes_are_never_taken_for_one() {
    one_notes_and_one_reads();
}

#[test]
#[should_panic(expected = "words of two notes")]
fn without_the_fence_words_of_two_notes_are_taken_for_one() {
    broken::make(Break::NoFence);
    one_notes_and_one_reads();
}
