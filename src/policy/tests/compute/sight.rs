//! Tests the correction that a slice learns from what the slices of its GPU publish.

use gpuslice_policy::compute::attribution::correction::{STEP, Split};
use gpuslice_policy::compute::attribution::slicing::{BEHIND, Slicing};
use gpuslice_policy::time::Monotonic;

use crate::slice::PLACES;
use crate::world::World;
use gpuslice_policy::time::literals::ns;

/// One slice's knowledge of all slices.
#[derive(Debug)]
pub struct Sight {
    pub next: u64,
    slicing: Slicing,
    split: Split,
    /// The place up to which each ring has been read.
    read: Vec<u64>,
}

impl Sight {
    /// Makes the knowledge of each slice. The slices look at different times.
    pub fn all(slices: usize, now: u64) -> Vec<Self> {
        let one = |at: usize| Self {
            next: now + STEP.nanos() + at as u64 * 1_700_000,
            slicing: Slicing::new(ns(now)),
            split: Split::default(),
            read: vec![0; slices],
        };
        (0..slices).map(one).collect()
    }
}

impl World {
    /// Lets every due slice read all rings, and correct its wrong charges.
    pub fn look_around(&mut self) {
        for me in 0..self.sights.len() {
            if self.sights[me].next <= self.now {
                self.look_from(me);
            }
        }
    }

    fn look_from(&mut self, me: usize) {
        let sight = &mut self.sights[me];
        sight.next = self.now + STEP.nanos();
        for (at, (slice, read)) in self.slices.iter().zip(&mut sight.read).enumerate() {
            for place in (*read).max(slice.places.saturating_sub(PLACES))..slice.places {
                let told = slice.ring[(place % PLACES) as usize].told_at(place, ns(self.now));
                told.into_iter().for_each(|told| sight.slicing.add(at as u64, at == me, told));
            }
            *read = slice.places;
        }
        let to = ns::<Monotonic>(self.now) - BEHIND;
        let part = sight.slicing.advance(to);
        let (factor, difference) = sight.split.learn(&part, to, ns(self.now));
        let slice = &mut self.slices[me];
        slice.factor = factor;
        slice.measured += i128::from(difference.nanos());
        let used = u64::try_from(difference.nanos()).unwrap_or(0);
        slice.overcounted += difference.nanos().min(0).unsigned_abs();
        slice.used += used.saturating_sub(slice.overcounted);
        slice.overcounted = slice.overcounted.saturating_sub(used);
        slice.settle(difference, self.now);
        self.wake_sleepers(me);
    }
}
