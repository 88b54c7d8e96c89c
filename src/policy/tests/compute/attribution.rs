//! Tests the correction that a slice learns from the intervals that the slices of its GPU publish.

use gpuslice_policy::compute::attribution::correction::{REPLAY_STEP, Split};
use gpuslice_policy::compute::attribution::slicing::{REPLAY_DELAY, Slicing};
use gpuslice_policy::time::literals::us;
use gpuslice_policy::time::{GpuTimeChange, Monotonic, WallTime};

use crate::slice::PLACES;
use crate::world::World;

/// The knowledge of one slice about all slices.
#[derive(Debug)]
pub struct Attribution {
    pub next: Monotonic,
    slicing: Slicing,
    split: Split,
    /// The place up to which each ring has been read.
    read: Vec<u64>,
}

impl Attribution {
    /// Makes the knowledge of each slice. The slices look at different instants.
    pub fn all(slices: usize, now: Monotonic) -> Vec<Self> {
        let one = |at: usize| Self {
            next: now + REPLAY_STEP + at as u64 * us::<WallTime>(1_700),
            slicing: Slicing::new(now),
            split: Split::default(),
            read: vec![0; slices],
        };
        (0..slices).map(one).collect()
    }
}

impl World {
    /// Lets every due slice read all rings, and correct its wrong charges.
    pub fn attribute_due(&mut self) {
        for me in 0..self.attributions.len() {
            if self.attributions[me].next <= self.now {
                self.attribute(me);
            }
        }
    }

    fn attribute(&mut self, me: usize) {
        let attribution = &mut self.attributions[me];
        attribution.next = self.now + REPLAY_STEP;
        for (at, (slice, read)) in self.slices.iter().zip(&mut attribution.read).enumerate() {
            for place in (*read).max(slice.places.saturating_sub(PLACES))..slice.places {
                let told = slice.ring[(place % PLACES) as usize].told_at(place, self.now);
                told.into_iter().for_each(|told| attribution.slicing.add(at as u64, at == me, told));
            }
            *read = slice.places;
        }
        let to = self.now - REPLAY_DELAY;
        let part = attribution.slicing.advance(to);
        let (factor, difference) = attribution.split.learn(&part, to, self.now, false);
        let slice = &mut self.slices[me];
        slice.factor = factor;
        slice.measured += i128::from(difference.nanos());
        let used = difference.max(GpuTimeChange::NONE).amount();
        slice.overcounted += difference.min(GpuTimeChange::NONE).amount();
        slice.used += used - slice.overcounted;
        slice.overcounted = slice.overcounted - used;
        slice.settle(difference, self.now);
        self.wake_sleepers(me);
    }
}
