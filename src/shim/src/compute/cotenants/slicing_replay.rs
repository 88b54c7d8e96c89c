//! Which part of the time between events was the slice's own, by what the slices beside it publish?
//!
//! The process of a slice that is elected reads the busy intervals of all slices of its GPU whose regions lie in the same
//! directory, has the driver's time slicing [replayed](gpuslice_policy::compute::attribution::slicing), writes the factor
//! that charges are multiplied with, and settles what earlier charges were too much or too little. Where no slice beside
//! it publishes anything, nothing is done here, and NVML is asked.

use crate::compute::cotenants::program_sampler::{PATIENCE, say};
use crate::compute::cotenants::slices::Cotenants;
use crate::compute::state::Compute;
use crate::os::clock;
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use gpuslice_policy::compute::attribution::correction::ONE;
use gpuslice_policy::compute::attribution::factor::{STEP, Split};
use gpuslice_policy::compute::attribution::slicing::{BEHIND, Slicing};
use gpuslice_policy::compute::attribution::source::{Measured, Source};
use gpuslice_region::{INTERVAL_SLOTS, Uuid};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Slices that have published nothing for so long count as not there, in nanoseconds.
const LATELY: u64 = 2_000_000_000;
/// The most that is settled at once, in nanoseconds: more is taken for a clock that was wrong.
const MOST: u64 = 200_000_000;

/// What is known of a device's time slicing.
#[derive(Debug, Default)]
pub(crate) struct SlicingReplay {
    known: Option<Known>,
    /// When there is something to do next.
    next: u64,
    /// Whether slices beside this one have published something lately.
    sees: bool,
}

/// The same, while this process is elected.
#[derive(Debug)]
struct Known {
    slicing: Slicing,
    split: Split,
    /// Up to which place the ring of each region has been read, by its number.
    read: BTreeMap<u64, u64>,
    /// When another slice published last.
    heard: u64,
    /// What was given back and had been counted as used.
    overcounted: u64,
}

impl Compute {
    /// Looks at the slices beside this one, where it is time to. Whether they say what is to be known of a device.
    pub(crate) fn sees_turns(&'static self, device: usize) -> bool {
        let (Some(mut sights), Some(pacer)) = (self.sights.try_lock(), self.pacers.get(device)) else {
            return false;
        };
        let Some(sight) = sights.get_mut(device).filter(|_| !self.shares_contexts && pacer.is_pacing(self))
        else {
            return false;
        };
        sight.tick(self, pacer.place, &self.neighbours, clock::now());
        sight.sees
    }
}

impl SlicingReplay {
    fn tick(&mut self, compute: &Compute, place: SliceDevice, neighbours: &Mutex<Cotenants>, now: u64) {
        if now < self.next {
            return;
        }
        self.next = now.saturating_add(STEP);
        if !compute.member().renew_sampler_lease(place.device, now, PATIENCE) {
            *self = Self { next: self.next, ..Self::default() };
            return;
        }
        let known = self.known.get_or_insert_with(|| Known::new(compute, place, now));
        known.read(compute, place, &mut neighbours.lock(), now);
        let sees = now.saturating_sub(known.heard) < LATELY;
        if sees {
            known.settle(compute, place, now);
            say(compute, place, Measured::by(Source::Replayed));
        } else {
            known.slicing.skip(now.saturating_sub(BEHIND));
        }
        if self.sees && !sees {
            // Until NVML says something else.
            compute.member().set_correction(place.device, ONE);
        }
        if sees != self.sees {
            known.split = Split::from(compute.region().correction(place.device));
        }
        self.sees = sees;
    }
}

impl Known {
    fn new(slice: &Slice, place: SliceDevice, now: u64) -> Self {
        Self {
            slicing: Slicing::new(now),
            split: Split::from(slice.region().correction(place.device)),
            read: BTreeMap::new(),
            heard: 0,
            overcounted: 0,
        }
    }

    /// Reads what all slices have published since it was looked last.
    fn read(&mut self, compute: &Compute, place: SliceDevice, neighbours: &mut Cotenants, now: u64) {
        let own = compute.region().path();
        neighbours.look(compute, now);
        for neighbour in neighbours.all() {
            let (id, region) = (neighbour.id(), neighbour.region());
            let is_own = region.path() == own;
            let Some(device) = region.device(&Uuid(place.uuid)).filter(|_| region.is_ready()) else {
                continue;
            };
            let places = region.interval_head(device);
            let read = self.read.entry(id).or_insert(places);
            // Who finds fewer than before has a region that was made anew.
            for number in (*read).min(places).max(places.saturating_sub(INTERVAL_SLOTS))..places {
                if let Some(told) = region.interval_at(device, number).told_at(number, now) {
                    self.slicing.add(id, is_own, told);
                    self.heard = if is_own { self.heard } else { now };
                }
            }
            *read = places;
        }
    }

    /// Replays what has come, and settles the difference to what was charged.
    fn settle(&mut self, slice: &Slice, place: SliceDevice, now: u64) {
        let (member, device) = (slice.member(), place.device);
        let to = now.saturating_sub(BEHIND);
        let part = self.slicing.advance(to);
        let (factor, difference) = self.split.learn(&part, to, now);
        member.set_correction(device, factor);
        let most = i64::try_from(MOST).unwrap_or(i64::MAX);
        let difference = difference.clamp(most.saturating_neg(), most);
        member.settle(device, difference, now);
        // What was used is only ever counted up.
        let used = u64::try_from(difference).unwrap_or(0);
        self.overcounted = self.overcounted.saturating_add(difference.min(0).unsigned_abs());
        let news = used.saturating_sub(self.overcounted);
        self.overcounted = self.overcounted.saturating_sub(used);
        member.count_used(device, news);
    }
}
