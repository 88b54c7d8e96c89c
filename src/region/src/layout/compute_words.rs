//! Which words does the compute ledger have, and what lies where in them?
//!
//! All words of a device lie together, so that only devices in use take space: see `map`. A word that many
//! processes change has a line of its own.

use crate::{
    layout::constants::{PLACES, SECONDS},
    sync::atomics::{Bell, Gate64, Word32, Word64},
};

/// Keeps words on a line of their own: 128 bytes, since processors fetch lines of 64 in pairs.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct Line<T>(pub(crate) T);

/// The time of one device.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(4096)))]
pub(crate) struct DeviceTime<const SLOTS: usize> {
    /// Until when the slice's GPU time is paid.
    pub(crate) paid: Line<Paid>,
    /// GPU time that the process had been served that was served last.
    pub(crate) virtual_time: Line<Word64>,
    /// What those sleep on who wait for the share.
    pub(crate) bell: Line<Bell>,
    /// Places of the ring that were taken.
    pub(crate) places: Line<Word64>,
    /// Which part of busy intervals is newly covered: two sums in one word.
    pub(crate) overlap: Line<Word64>,
    /// What all read and few write.
    pub(crate) readings: Line<Readings>,
    /// What the elected process knows from NVML.
    pub(crate) sampler: Line<Sampler>,
    /// How it goes in step with other devices.
    pub(crate) step: Line<Step>,
    /// Intervals in which the GPU was busy for the slice.
    pub(crate) ring: [Place; PLACES],
    /// What had been used, second by second.
    pub(crate) history: [Moment; SECONDS],
    /// The processes.
    pub(crate) processes: [ProcessTime; SLOTS],
}

/// Until when GPU time is paid, on the monotonic clock.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Paid {
    /// The instant.
    pub(crate) until: Word64,
    /// The instant from which on time is free.
    pub(crate) free_from: Word64,
}

/// How time is counted.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Readings {
    /// Part of the time between events that was the slice's own; 0 while nobody has written it.
    pub(crate) factor: Word32,
    /// How GPU time is measured.
    pub(crate) meter: Word32,
    /// What the arbiter of the GPU's slices grants this one: `gpuslice_policy::arbiter::word`.
    pub(crate) told: Word64,
}

/// Who looks at the slice's neighbours and samples NVML.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Sampler {
    /// Who, and when it said so last, in one word.
    pub(crate) elected: Word64,
}

/// What other devices are to know of a device's payments, and whether they have to.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Step {
    /// When the last one was made, on the monotonic clock.
    pub(crate) paid_at: Word64,
    /// Since when the last one had been waited for that was waited for long.
    pub(crate) kept_since: Word64,
    /// When that was made; written behind it.
    pub(crate) kept_until: Gate64,
    /// Until when the device goes in step with all others of which that is said.
    pub(crate) lasts_until: Word64,
    /// When a run was seen last that runs for far longer than it does, and so may wait for another device.
    pub(crate) overdue_at: Word64,
    /// When something went ahead last since a run on another device may wait for it.
    pub(crate) ahead_at: Word64,
    /// Until when such is paid.
    pub(crate) ahead_until: Word64,
}

/// An interval in which the GPU was busy for the slice.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(32)))]
pub(crate) struct Place {
    /// Number of the place plus 1.
    pub(crate) ticket: Gate64,
    /// When the GPU could begin, on the monotonic clock.
    pub(crate) start: Word64,
    /// How long that took, whose it was and whether it goes on.
    pub(crate) rest: Word64,
    /// Made of the other three, so that words of two intervals are never taken for one.
    pub(crate) check: Word64,
}

/// What all processes of the slice had used when a second began.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(32)))]
pub(crate) struct Moment {
    /// Which second of the monotonic clock, plus 1; 0 while it is being written.
    pub(crate) second: Gate64,
    /// GPU time that had been charged.
    pub(crate) used: Word64,
    /// Time on the clock that launches had waited for the share.
    pub(crate) throttled: Word64,
}

/// What one process does on one device.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct ProcessTime {
    /// GPU time that it was served, as virtual time.
    pub(crate) served: Word64,
    /// GPU time that it waits for; 0 if it does not wait.
    pub(crate) wants: Word64,
    /// Until when it sleeps unless the bell rings; 0 if it does not, all ones while it is about to.
    pub(crate) sleeps_until: Gate64,
    /// GPU time that was prepaid and is neither settled nor given back.
    pub(crate) outstanding: Word64,
    /// When it settled last.
    pub(crate) settled_at: Word64,
    /// Predicted time of work under way, [`UNPREDICTED`] and [`UNDER_WAY`].
    pub(crate) queued: Word64,
    /// What was counted, by the processes that had the slot before as well: no sum of slots ever falls.
    pub(crate) counts: Counts,
    /// What they had counted when this process came.
    pub(crate) before: Counts,
    /// Bytes beyond the quota that it was given in host memory.
    pub(crate) spilled: Word64,
    /// Bytes that it holds for contexts.
    pub(crate) contexts: Word64,
}

/// The bit of [`ProcessTime::queued`] that says that nothing predicts some of the work under way.
pub(crate) const UNPREDICTED: u64 = 1 << 63;

/// The bit of [`ProcessTime::queued`] that says that work may be under way, predicted or not, sent off as a whole or not.
pub(crate) const UNDER_WAY: u64 = 1 << 62;

impl ProcessTime {
    /// Predicted time of work under way.
    pub(crate) fn queued(&self) -> u64 {
        self.queued.get() & !(UNPREDICTED | UNDER_WAY)
    }
}

/// Figures that only grow.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Counts {
    /// GPU time that was charged.
    pub(crate) used: Word64,
    /// Time on the clock that launches waited for the share.
    pub(crate) throttled: Word64,
    /// GPU time of copies.
    pub(crate) copied: Word64,
    /// Launches.
    pub(crate) launches: Word64,
}

#[cfg(test)]
impl<const SLOTS: usize> Default for DeviceTime<SLOTS> {
    fn default() -> Self {
        Self {
            paid: Default::default(),
            virtual_time: Default::default(),
            bell: Default::default(),
            places: Default::default(),
            overlap: Default::default(),
            readings: Default::default(),
            sampler: Default::default(),
            step: Default::default(),
            ring: core::array::from_fn(|_| Place::default()),
            history: core::array::from_fn(|_| Moment::default()),
            processes: core::array::from_fn(|_| ProcessTime::default()),
        }
    }
}
