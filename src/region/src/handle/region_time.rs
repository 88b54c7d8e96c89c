//! GPU time of a slice, for members and monitors.

use gpuslice_policy::arbiter::grant_word;
use gpuslice_policy::compute::limiter::token_bucket::RateLimit;
use gpuslice_policy::compute::measuring::peer_intervals::{Interval, IntervalEntry};
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

use crate::{
    compute::{
        history::RecentUsage,
        intervals::INTERVAL_SLOTS,
        rate_limit::{load_repaired, rate_limit, rate_limit_of},
        reclaim::TimeUsed,
    },
    handle::{device::Device, region::Region},
    layout::{
        compute_words::{ControlWords, IntervalRing},
        constants::UNLIMITED,
    },
    sync::{atomics::Word64, clock},
};

/// Time for which a record of [programs that publish nothing](Region::note_programs) holds: 3 s. The agent looks once a second.
const PROGRAMS_FOR: WallTime = WallTime::from_millis(3_000);

/// A process's present activity on a device. [`TimeUsed`] has sums over processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessActivity {
    /// GPU time charged; never falls.
    pub used: GpuTime,
    /// Wall time that launches were throttled; never falls.
    pub throttled: WallTime,
    /// Predicted GPU time of work under way.
    pub queued: GpuTime,
    /// Whether the process waits for GPU time.
    pub waits: bool,
}

/// The slices whose busy intervals are in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The slice itself.
    Slice,
    /// Slices of other directories: the node agent [relays](Region::relay) their intervals.
    Relayed,
}

impl Region {
    /// Returns the slice's rate limit on a device now. For a device that does not exist, the lowest rate and no burst.
    #[must_use]
    pub fn rate_limit(&self, device: Device) -> RateLimit {
        self.layout().rate_limit(device.index())
    }

    /// Returns the slice's rate limit on a device without a grant of the arbiter.
    #[must_use]
    pub fn own_rate_limit(&self, device: Device) -> RateLimit {
        self.layout().devices.get(device.index()).map_or_else(|| rate_limit(1, GpuTime::ZERO), rate_limit_of)
    }

    /// Returns true if launches on a device need GPU time from the ledger. They do if the share is less than the whole, or
    /// if other slices have a part in the rate.
    #[inline]
    #[must_use]
    pub fn is_paced(&self, device: Device) -> bool {
        self.layout().is_paced(device.index())
    }

    /// Tells whether no device of the slice had limits on GPU time in this epoch. Costs one load. If it returns false,
    /// [`is_paced`](Self::is_paced) tells whether a single device has such limits.
    #[inline]
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.layout().header.unlimited_hint.get() == UNLIMITED
    }

    /// Returns the last grant of the arbiter: a [`word`](gpuslice_policy::arbiter::grant_word).
    #[must_use]
    pub fn grant(&self, device: Device) -> u64 {
        self.layout().time(device.index()).map_or(0, |time| time.control.0.grant.get())
    }

    /// Writes a grant: a [word](gpuslice_policy::arbiter::grant_word::encode). GPU time that the slice owes or has saved up
    /// stays the same. Throttled processes try again at once. `clock` returns the present instant. The function reads it
    /// when it scales the debt, because this process may have been stopped before.
    pub fn set_grant(&self, device: Device, word: u64, clock: impl Fn() -> Monotonic) {
        self.layout().set_grant(device.index(), word, clock);
    }

    /// Records that the node agent divides the GPU at the instant `now`. Then no process of the slice divides it.
    pub fn note_division(&self, device: Device, now: Monotonic) {
        if let Some(time) = self.layout().time(device.index()) {
            time.control.0.divided_at.set(now);
        }
    }

    /// Tells whether the node agent divides the GPU: it has [looked](Self::note_division) within
    /// [`ARBITER_SILENCE`](grant_word::ARBITER_SILENCE).
    #[must_use]
    pub fn is_divided_by_agent(&self, device: Device, now: Monotonic) -> bool {
        self.is_recent(device, |control| &control.divided_at, grant_word::ARBITER_SILENCE, now)
    }

    /// Records that programs which publish nothing use the GPU at the instant `now`. The node agent calls this function.
    pub fn note_programs(&self, device: Device, now: Monotonic) {
        if let Some(time) = self.layout().time(device.index()) {
            time.control.0.programs_at.set(now);
        }
    }

    /// Tells whether the node agent has [recorded](Self::note_programs) in the last three seconds that programs which publish
    /// nothing use the GPU.
    #[must_use]
    pub fn has_programs(&self, device: Device, now: Monotonic) -> bool {
        self.is_recent(device, |control| &control.programs_at, PROGRAMS_FOR, now)
    }

    /// Tells whether the node agent has written this instant, and less than `holds` ago.
    fn is_recent(
        &self,
        device: Device,
        word: impl FnOnce(&ControlWords) -> &Word64<Monotonic>,
        holds: WallTime,
        now: Monotonic,
    ) -> bool {
        let time = self.layout().time(device.index());
        let at = time.map_or(Monotonic::BEGIN, |time| word(&time.control.0).get());
        at != Monotonic::BEGIN && now.since(at) < holds
    }

    /// Removes a grant that is too old. Returns the largest queue of a process, if the grant has one. `clock` has the same
    /// meaning as in [`set_grant`](Self::set_grant).
    pub fn expire_grant(&self, device: Device, clock: impl Fn() -> Monotonic) -> Option<GpuTime> {
        self.layout().expire_grant(device.index(), clock);
        grant_word::decode(self.grant(device), self.own_rate_limit(device)).1
    }

    /// Lets the slice go on earlier by `wall`, or by its whole debt if that is less. Otherwise the GPU would be idle.
    /// `clock` has the same meaning as in [`set_grant`](Self::set_grant).
    pub fn credit_wall_time(&self, device: Device, wall: WallTime, clock: impl Fn() -> Monotonic) {
        self.layout().credit_wall_time(device.index(), wall, clock);
    }

    /// Returns the activity of every process that has or had a slot, by slot.
    pub fn process_activity(&self, device: Device, now: Monotonic) -> impl Iterator<Item = ProcessActivity> {
        let layout = self.layout();
        let processes = layout.time(device.index()).into_iter().flat_map(|time| time.processes.iter());
        processes.take(layout.slot_high_water()).map(move |process| ProcessActivity {
            used: process.counts.charged_ns.get(),
            throttled: process.counts.throttled_ns.get(),
            queued: process.queued(),
            waits: process.waits(now),
        })
    }

    /// Returns the slice's own part of the time between events, in parts of
    /// [`WHOLE_FACTOR`](gpuslice_policy::compute::attribution::correction::WHOLE_FACTOR).
    #[must_use]
    pub fn correction(&self, device: Device) -> u32 {
        self.layout().correction(device.index())
    }

    /// Returns the GPU time that all processes have used on a device in this epoch, including those that have ended.
    #[must_use]
    pub fn time_used(&self, device: Device) -> TimeUsed {
        self.layout().time_used(device.index())
    }

    /// Returns the GPU time that all processes used on a device over the last `seconds` seconds, 1 to 62. The span is up to
    /// one second longer if work was under way then. Returns nothing if no process [samples](crate::Member::note_second)
    /// the use. `now` is the present instant.
    #[must_use]
    pub fn used_over(&self, device: Device, seconds: u64, now: Monotonic) -> RecentUsage {
        self.layout().used_over(device.index(), seconds, now)
    }

    /// Returns the instant up to which the slice's GPU time is paid. An instant in the past means that time is saved up.
    #[must_use]
    pub fn paid_until(&self, device: Device) -> Monotonic {
        let layout = self.layout();
        let time = layout.time(device.index());
        time.map_or(Monotonic::BEGIN, |time| {
            load_repaired(time, layout.rate_limit(device.index()), clock::now())
        })
    }

    /// Returns the present source of measured GPU time. 0: not known. 1: events. 2: events beside programs that publish nothing.
    /// 3: NVML only. 4: events that fail. 5: events corrected by the figures of other slices. 6: the same beside programs that
    /// publish nothing. [`Measured`](gpuslice_policy::compute::attribution::source::Measured) reads the word, whose higher bits
    /// have the reason why NVML does not help.
    #[must_use]
    pub fn measure_source(&self, device: Device) -> u32 {
        self.layout().time(device.index()).map_or(0, |time| time.control.0.measure_source.get())
    }

    /// Returns the number of busy intervals published so far. The ring keeps the last [`INTERVAL_SLOTS`].
    #[must_use]
    pub fn interval_head(&self, device: Device, origin: Origin) -> u64 {
        self.ring(device, origin).map_or(0, |ring| ring.head.0.get())
    }

    /// Returns the entry with this number, or the later entry in its slot. While a process writes the entry, returns an
    /// entry with ticket 0.
    #[must_use]
    pub fn interval_at(&self, device: Device, origin: Origin, place: u64) -> IntervalEntry {
        self.ring(device, origin).map_or_else(IntervalEntry::default, |ring| ring.at(place))
    }

    /// Returns the busy intervals that were published since the place `read`, as far as the ring still has them. Moves
    /// `read` on to the end. `now` is the present instant.
    pub fn new_intervals(
        &self,
        device: Device,
        origin: Origin,
        read: &mut u64,
        now: Monotonic,
    ) -> impl Iterator<Item = Interval> {
        let head = self.interval_head(device, origin);
        // If a ring has fewer intervals than before, its region was initialised again.
        let new = (*read).min(head).max(head.saturating_sub(INTERVAL_SLOTS))..head;
        *read = head;
        new.filter_map(move |place| self.interval_at(device, origin, place).told_at(place, now))
    }

    /// Publishes a busy interval of a slice of another directory. [`Interval::context`] tells contexts of all such slices
    /// apart.
    pub fn relay(&self, device: Device, interval: Interval) {
        if let Some(ring) = self.ring(device, Origin::Relayed) {
            ring.publish(interval);
        }
    }

    fn ring(&self, device: Device, origin: Origin) -> Option<&IntervalRing> {
        let time = self.layout().time(device.index())?;
        Some(match origin {
            Origin::Slice => &time.intervals,
            Origin::Relayed => &time.relayed,
        })
    }
}
