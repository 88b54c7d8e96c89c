//! How does a process use its slice's share of GPU time, and what can all read of it?
//!
//! Instants are of the monotonic clock, spans of GPU time unless said otherwise, all in nanoseconds.

use gpuslice_policy::{
    arbiter::word,
    compute::{bucket::Terms, ring::Entry},
};

use crate::{
    compute::{
        history::RecentUsage,
        reclaim::TimeUsed,
        terms::{load_repaired, terms, terms_of},
    },
    handle::{device::Device, region::Region},
    layout::constants::UNLIMITED,
    sync::clock,
};

/// What a process does on a device. Sums over processes are those of [`TimeUsed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessActivity {
    /// GPU time that was charged, in nanoseconds; never falls.
    pub used: u64,
    /// Time on the clock that launches waited for the share, in nanoseconds; never falls.
    pub throttled: u64,
    /// Predicted GPU time of work that is under way, in nanoseconds.
    pub queued: u64,
    /// Whether it waits for the share.
    pub waits: bool,
}

impl Region {
    /// What the slice may use of a device's time now. Nearly nothing of one that is not there.
    #[must_use]
    pub fn terms(&self, device: Device) -> Terms {
        self.layout().terms(device.index())
    }

    /// What the slice may use of a device's time where nobody tells it anything.
    #[must_use]
    pub fn own_terms(&self, device: Device) -> Terms {
        self.layout().devices.get(device.index()).map_or_else(|| terms(1, 0), terms_of)
    }

    /// Whether launches on a device are paid for: less than the whole is the slice's, or others divide it with the slice.
    #[inline]
    #[must_use]
    pub fn is_paced(&self, device: Device) -> bool {
        self.layout().is_paced(device.index())
    }

    /// Whether launches were not paid for on any device since the region was made anew; then they are on none. Cheap.
    #[inline]
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.layout().header.unlimited_hint.get() == UNLIMITED
    }

    /// What the slice was told by an arbiter last: [`word`].
    #[must_use]
    pub fn grant(&self, device: Device) -> u64 {
        self.layout().time(device.index()).map_or(0, |time| time.control.0.grant.get())
    }

    /// Tells the slice what it may use from now on: a [word](gpuslice_policy::arbiter::word::told). GPU time that it owes
    /// or has saved up stays what it is, and who waits for the share looks again.
    pub fn set_grant(&self, device: Device, word: u64, now: u64) {
        self.layout().set_grant(device.index(), word, now);
    }

    /// Forgets what was told too long ago. The most work that a process may have queued, in nanoseconds of GPU time, if
    /// that was told.
    pub fn expire_grant(&self, device: Device, now: u64) -> Option<u64> {
        self.layout().expire_grant(device.index(), now);
        word::granted(self.grant(device), self.own_terms(device)).1
    }

    /// Lets the slice go on earlier by so much on the clock, where it owes so much: the GPU would be idle otherwise.
    pub fn credit_wall_time(&self, device: Device, wall: u64, now: u64) {
        self.layout().credit_wall_time(device.index(), wall, now);
    }

    /// What every process does now that has a slot, or had one, by slot.
    pub fn process_activity(&self, device: Device, now: u64) -> impl Iterator<Item = ProcessActivity> {
        let layout = self.layout();
        let processes = layout.time(device.index()).into_iter().flat_map(|time| time.processes.iter());
        processes.take(layout.slot_high_water()).map(move |process| ProcessActivity {
            used: process.counts.charged_ns.get(),
            throttled: process.counts.throttled_ns.get(),
            queued: process.queued(),
            waits: process.waits(now),
        })
    }

    /// The part of the time between events that was the slice's own, in parts of
    /// [`ONE`](gpuslice_policy::compute::trim::ONE).
    #[must_use]
    pub fn correction(&self, device: Device) -> u32 {
        self.layout().correction(device.index())
    }

    /// What all processes have used of a device, those included that have ended since the region was made anew.
    #[must_use]
    pub fn time_used(&self, device: Device) -> TimeUsed {
        self.layout().time_used(device.index())
    }

    /// What all processes used of a device over the last seconds, 1 to 62; up to one more where work was under way then.
    /// Nothing where nobody [notes](Member::note_second) it. `now` is the monotonic clock.
    #[must_use]
    pub fn used_over(&self, device: Device, seconds: u64, now: u64) -> RecentUsage {
        self.layout().used_over(device.index(), seconds, now)
    }

    /// Until when the slice's GPU time is paid; an instant that has passed is time saved up.
    #[must_use]
    pub fn paid_until(&self, device: Device) -> u64 {
        let layout = self.layout();
        let time = layout.time(device.index());
        time.map_or(0, |time| load_repaired(time, layout.terms(device.index()), clock::now()))
    }

    /// How GPU time is measured now: 0 not known, 1 by events, 2 by events beside programs that publish nothing, 3 by NVML only,
    /// 4 by events that fail, 5 by events and trimmed by what slices publish. Others mean nothing.
    #[must_use]
    pub fn measure_source(&self, device: Device) -> u32 {
        self.layout().time(device.index()).map_or(0, |time| time.control.0.measure_source.get())
    }

    /// Places that intervals were told of at: the ring has [`RING_PLACES`](crate::RING_PLACES), and this count goes on.
    #[must_use]
    pub fn interval_head(&self, device: Device) -> u64 {
        self.layout().time(device.index()).map_or(0, |time| time.interval_head.0.get())
    }

    /// What stands at a place of the ring, or in a slot of it. While it is being written, a ticket of 0.
    #[must_use]
    pub fn interval_at(&self, device: Device, place: u64) -> Entry {
        self.layout().time(device.index()).map_or_else(Entry::default, |time| time.interval_at(place))
    }
}
