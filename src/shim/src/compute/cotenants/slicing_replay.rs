//! Replay of the driver's time slicing. It finds the part of the time between two events that was the slice's own.
//!
//! Example: two slices run kernels at once. Each measures 10 ms between its events, but the GPU has worked 5 ms for each.
//! The slice elects one process. That process reads the busy intervals of all slices of its GPU whose regions lie in
//! the same directory. It also reads intervals of slices of other directories: the node agent relays them, or they are in
//! [locks](gpuslice_region::IntervalLocks) of the driver's libraries. It
//! [replays](gpuslice_policy::compute::attribution::slicing) the driver's time slices, writes the factor by which charges
//! are multiplied, and settles the difference to earlier charges. If no co-tenant publishes intervals, the process
//! replays nothing.
//!
//! Among slices that see each other, one asks NVML: the slice whose region has the smallest number. It passes the answer to the
//! other slices by the source of its time in its region, or by a lock. If the node agent relays intervals, the agent asks NVML
//! instead, and writes the answer to a word of each region. A slice whose locks are only in CUDA's library may have no NVML. So
//! slices that have NVML do not count it among those of which one asks.

use super::slices::Cotenants;
use crate::compute::attribution::nvml_schedule::SAMPLER_SILENCE;
use crate::compute::attribution::source::LoggedSources;
use crate::driver_calls;
use crate::os::clock;
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use gpuslice_driver::{Api, slot};
use gpuslice_policy::compute::attribution::correction::{LOCKED_DELAY, REPLAY_STEP, Split};
use gpuslice_policy::compute::attribution::slicing::{RELAYED_DELAY, REPLAY_DELAY, Slicing};
use gpuslice_policy::compute::attribution::source::{Measured, Source};
use gpuslice_policy::compute::measuring::peer_intervals::Interval;
use gpuslice_policy::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};
use gpuslice_region::{Device, IntervalLocks, Origin, Region, SamplerLease, Uuid};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// Co-tenants that have published nothing for this long count as absent.
const ABSENT_AFTER: WallTime = WallTime::from_millis(2_000);
/// Largest time that one step settles. A larger difference is cut, because it is probably the error of a clock.
const MOST_SETTLED: GpuTime = GpuTime::from_millis(200);

/// The replay of one device. The worker advances it, and the thread that asks NVML reads its sight and writes the programs that
/// it has found.
#[derive(Debug, Default)]
pub(crate) struct SlicingReplay {
    /// `None` while another process of the slice is elected.
    elected: Option<ElectedReplay>,
    /// Instant at which the next step is due.
    next: Monotonic,
    /// True if co-tenants have published intervals lately.
    has_cotenants: bool,
    /// True if another slice, or the node agent, asks NVML for this slice too.
    listens: bool,
    /// True if NVML has told this slice that programs which publish nothing use the GPU.
    has_found_programs: bool,
}

/// Sight of a slice on a device: the co-tenants that it sees, and whether it asks NVML for them.
#[derive(Debug)]
pub(super) enum Sight {
    /// No co-tenant publishes intervals.
    Alone,
    /// This slice asks NVML, also for its co-tenants. The set has the processes of co-tenants that published intervals since the
    /// last call. Each entry is the number of a slice and the number of a process in it.
    Asks(BTreeSet<(u64, u32)>),
    /// Another slice or the node agent asks.
    Listens,
}

/// State of the replay while this process is elected.
#[derive(Debug)]
struct ElectedReplay {
    /// Instant of the election.
    elected_at: Monotonic,
    slicing: Slicing,
    split: Split,
    /// Place up to which this process has read the ring of each region, by the number of its slice. Number 0 is the ring of
    /// relayed intervals.
    read: BTreeMap<u64, u64>,
    /// Present co-tenants, in the directory or by locks, by the number of the region.
    present: BTreeMap<u64, PresentSlice>,
    /// Processes of co-tenants that published since the last question to NVML: number of the region, and of the process in it.
    publishers: BTreeSet<(u64, u32)>,
    /// True if the co-tenant or the agent that asks NVML has reported programs that publish nothing.
    has_heard_of_programs: bool,
    /// Instant at which the agent last relayed an interval.
    relayed_at: Monotonic,
    /// Intervals in locks of the driver's libraries. `None`: this process does not use them.
    locks: Option<IntervalLocks>,
    /// Place up to which this process has published the slice's own ring by locks.
    locked: u64,
    /// Instant at which an interval was last read from a lock.
    locked_at: Monotonic,
    /// Time that was refunded after it had been counted as used. It is subtracted from later counts.
    overcounted: GpuTime,
}

/// A co-tenant that publishes intervals.
#[derive(Debug)]
struct PresentSlice {
    /// Instant at which it last published.
    published_at: Monotonic,
    /// True if it asks NVML for all slices that see each other, in case its region has the smallest number.
    may_ask: bool,
}

impl SlicingReplay {
    /// Returns the slice's sight as of the last step. Takes the publishers out, so that each question to NVML gets the publishers
    /// since the previous question.
    pub(super) fn sight(&mut self) -> Sight {
        let elected = self.elected.as_mut().filter(|_| self.has_cotenants);
        match elected.map(|elected| core::mem::take(&mut elected.publishers)) {
            None => Sight::Alone,
            Some(_) if self.listens => Sight::Listens,
            Some(publishers) => Sight::Asks(publishers),
        }
    }

    /// Notes whether NVML has named programs that publish nothing.
    pub(super) fn set_programs(&mut self, are_there: bool) {
        self.has_found_programs = are_there;
    }

    /// Publishes new intervals of the slice for slices of other directories, if this process is elected. It does not wait for the
    /// next step, because this process may sleep at that time.
    ///
    /// It renews the lease first, because another process may have been elected meanwhile. If both processes published, the other
    /// slices would get each interval twice.
    pub(super) fn publish(&mut self, slice: &Slice, gpu: SliceDevice) {
        let Some(elected) = &mut self.elected else { return };
        let now = clock::now();
        let new = elected.unpublished(slice, gpu, now);
        if new.is_empty() || !self.renew_lease(slice, gpu, now) {
            return;
        }
        if let Some(elected) = &mut self.elected {
            elected.publish(&new, now);
        }
    }

    /// Takes or renews the sampler lease. Returns true if this process has the lease, and so is elected.
    ///
    /// Forgets the replay if another process has the lease, or may have had it since the last call. That process has settled the
    /// same time. If this process continued with its own state, the slice would be charged or refunded twice. So all threads of
    /// the process renew the lease here, under the lock of the replays.
    ///
    /// Another process takes the lease over after 1.5 s without a step. An idle process makes no steps. The time is that long
    /// because processes may work by turns. If they took the lease from each other at each turn, time would stay unsettled. Each
    /// new holder begins without the state of the holder before it.
    pub(super) fn renew_lease(&mut self, slice: &Slice, gpu: SliceDevice, now: Monotonic) -> bool {
        let lease = slice.member().renew_sampler_lease(gpu.device, now, SAMPLER_SILENCE);
        if lease != SamplerLease::Kept {
            *self = Self { next: self.next, ..Self::default() };
        }
        lease.is_held()
    }

    /// Replays, if that is due. Returns true if this slice asks NVML for the programs that use the GPU.
    pub(crate) fn tick(
        &mut self,
        slice: &Slice,
        sources: &LoggedSources,
        gpu: SliceDevice,
        cotenants: &Mutex<Cotenants>,
    ) -> bool {
        let now = clock::now();
        if now >= self.next {
            self.step(slice, sources, gpu, cotenants, now);
        }
        !self.listens
    }

    /// Does one step: reads new intervals, replays the time up to which all work is published, and settles it.
    ///
    /// Without co-tenants the factor is one. The step still settles time that was charged by another factor, because the process
    /// that wrote the factor may have died together with the co-tenants. After that it settles nothing, but the replay still
    /// advances. Otherwise, if a co-tenant comes after an hour, the next step would settle that whole hour.
    fn step(
        &mut self,
        slice: &Slice,
        sources: &LoggedSources,
        gpu: SliceDevice,
        cotenants: &Mutex<Cotenants>,
        now: Monotonic,
    ) {
        self.next = now.saturating_add(REPLAY_STEP);
        if !self.renew_lease(slice, gpu, now) {
            return;
        }
        let elected = self.elected.get_or_insert_with(|| ElectedReplay::new(slice, gpu, now));
        elected.read(slice, gpu, &mut cotenants.lock(), now);
        let has_cotenants = elected.has_cotenants(now);
        self.listens = has_cotenants && !elected.asks(slice, now);
        if has_cotenants || elected.has_charged_a_part(now) {
            elected.settle(slice, gpu, now, !has_cotenants);
        } else if elected.split.is_whole() {
            elected.slicing.skip(elected.published_until(now));
        }
        if has_cotenants {
            elected.tell_programs(!self.listens && self.has_found_programs);
            // A slice that asks may have no NVML. Then it hears from another slice.
            let hears = self.listens || !slot::is_driver_loaded(Api::Nvml);
            let has_programs = if hears { elected.has_heard_of_programs } else { self.has_found_programs };
            let source = if has_programs { Source::ReplayedWhole } else { Source::Replayed };
            sources.report(slice, gpu, Measured::by(source));
        }
        self.has_cotenants = has_cotenants;
    }
}

impl ElectedReplay {
    fn new(slice: &Slice, gpu: SliceDevice, now: Monotonic) -> Self {
        Self {
            elected_at: now,
            slicing: Slicing::new(now),
            split: Split::from(slice.region().correction(gpu.device)),
            read: BTreeMap::new(),
            present: BTreeMap::new(),
            publishers: BTreeSet::new(),
            has_heard_of_programs: false,
            relayed_at: Monotonic::BEGIN,
            locks: interval_locks(slice, gpu),
            locked: slice.region().interval_head(gpu.device, Origin::Slice),
            locked_at: Monotonic::BEGIN,
            overcounted: GpuTime::ZERO,
        }
    }

    /// Reads the intervals that all slices have published since the last call.
    ///
    /// A co-tenant may be visible in three ways, but its intervals must count once. Relayed intervals and intervals in locks come
    /// from the same slices of other directories, so the function reads locks only without the agent. It leaves out the locks of
    /// slices of this directory.
    fn read(&mut self, slice: &Slice, gpu: SliceDevice, cotenants: &mut Cotenants, now: Monotonic) {
        let own = slice.region().path();
        self.present.retain(|_, cotenant| is_recent(cotenant.published_at, now));
        let asker = self.asker(slice, now);
        self.has_heard_of_programs = self.locks.as_ref().is_some_and(IntervalLocks::has_heard_of_programs);
        cotenants.refresh(slice, now);
        for cotenant in cotenants.all() {
            let (id, region) = (cotenant.id(), cotenant.region());
            let Some(device) = region.device(&Uuid(gpu.uuid)).filter(|_| region.is_ready()) else {
                continue;
            };
            let is_own = region.path() == own;
            self.add(region, device, (id, Origin::Slice), is_own, now);
            if !is_own && asker == Some(region.file_number()) {
                let source = Measured::of_word(region.measure_source(device)).source;
                self.has_heard_of_programs |= source.is_beside_programs();
            }
        }
        // All relayed intervals count as one slice with the number 0, which no slice of the directory has. The agent numbers the
        // contexts of that slice.
        self.add(slice.region(), gpu.device, (0, Origin::Relayed), false, now);
        if is_recent(self.relayed_at, now) {
            self.has_heard_of_programs = slice.region().has_programs(gpu.device, now);
        }
        self.read_locks(cotenants, now);
        // The arbiter divides a GPU only among the slices of a directory, and the agent only among slices whose intervals it
        // relays. So nothing divides the GPU with a slice that this process sees by locks.
        if is_recent(self.locked_at, now) && slice.region().limits(gpu.device).sharing.divides() {
            cotenants.warn_if_alone(slice, &Uuid(gpu.uuid), true);
        }
    }

    /// Adds the intervals of slices that are neither in the directory nor relayed.
    fn read_locks(&mut self, cotenants: &Cotenants, now: Monotonic) {
        /// Bit that is set in the numbers of slices of other directories, so that they differ from numbers of this directory.
        const APART: u64 = 1 << 63;
        let Self { slicing, locked_at, locks, relayed_at, present, publishers, .. } = self;
        let Some(open) = locks.as_mut().filter(|_| !is_recent(*relayed_at, now)) else { return };
        let add = |other: u64, may_ask, interval| {
            slicing.add(APART | other, false, interval);
            *locked_at = now;
            present.insert(other, PresentSlice { published_at: now, may_ask });
            publishers.insert((other, interval.process()));
        };
        if open.read(now, |other| cotenants.has(other), add).is_err() {
            *locks = None;
        }
    }

    /// Returns the slice's intervals since the last call, if slices of other directories read its locks. The place in the ring
    /// advances in any case, so that a slice that appears later gets no old intervals.
    fn unpublished(&mut self, slice: &Slice, gpu: SliceDevice, now: Monotonic) -> Vec<Interval> {
        let new = slice.region().new_intervals(gpu.device, Origin::Slice, &mut self.locked, now);
        let is_read = self.locks.as_ref().is_some_and(IntervalLocks::has_others);
        if is_read && !is_recent(self.relayed_at, now) { new.collect() } else { Vec::new() }
    }

    /// Publishes intervals of the slice by locks.
    fn publish(&mut self, new: &[Interval], now: Monotonic) {
        if self.locks.as_mut().is_some_and(|locks| locks.publish(new, now).is_err()) {
            self.locks = None;
        }
    }

    /// Adds the new intervals of the ring of slice `id`.
    fn add(
        &mut self,
        region: &Region,
        device: Device,
        (id, origin): (u64, Origin),
        is_own: bool,
        now: Monotonic,
    ) {
        // The ring of a region has old intervals. At the first reading of a region they are skipped.
        let read = self.read.entry(id).or_insert_with(|| region.interval_head(device, origin));
        for interval in region.new_intervals(device, origin, read, now) {
            self.slicing.add(id, is_own, interval);
            match origin {
                Origin::Relayed => self.relayed_at = now,
                Origin::Slice if is_own => {}
                Origin::Slice => {
                    let cotenant = PresentSlice { published_at: now, may_ask: true };
                    self.present.insert(region.file_number(), cotenant);
                    self.publishers.insert((region.file_number(), interval.process()));
                }
            }
        }
    }

    /// Returns the number of the region whose slice asks NVML. `None`: the node agent asks.
    ///
    /// All slices with NVML's library in common apply the same rule, so they agree without a message. A slice without NVML may
    /// find itself here: it gets no answer, and hears from another slice. If the asking slice has ended, no slice asks until the
    /// ended slice counts as absent, after [`ABSENT_AFTER`].
    fn asker(&self, slice: &Slice, now: Monotonic) -> Option<u64> {
        let askers = self.present.iter().filter(|(_, cotenant)| cotenant.may_ask).map(|(id, _)| *id);
        let first = askers.chain([slice.region().file_number()]).min();
        first.filter(|_| !is_recent(self.relayed_at, now))
    }

    /// Returns true if this slice asks NVML.
    fn asks(&self, slice: &Slice, now: Monotonic) -> bool {
        self.asker(slice, now) == Some(slice.region().file_number())
    }

    /// Tells slices of other directories whether programs that publish nothing use the GPU.
    fn tell_programs(&mut self, are_there: bool) {
        if self.locks.as_mut().is_some_and(|locks| locks.tell_programs(are_there).is_err()) {
            self.locks = None;
        }
    }

    /// Returns true if time since the election was charged by a factor other than one. Returns false until the replay has reached
    /// the instant of the election, because by then each busy co-tenant has published.
    fn has_charged_a_part(&self, now: Monotonic) -> bool {
        !self.split.is_whole() && self.published_until(now) > self.elected_at
    }

    /// Returns true if co-tenants have published intervals lately.
    fn has_cotenants(&self, now: Monotonic) -> bool {
        is_recent(self.relayed_at, now) || !self.present.is_empty()
    }

    /// Returns the instant up to which all slices have published their work. Beyond it the replay would be wrong: it would give
    /// time slices of unpublished work to other contexts. Intervals by the relay or by locks arrive later than intervals of a
    /// common directory.
    fn published_until(&self, now: Monotonic) -> Monotonic {
        let behind = if is_recent(self.locked_at, now) {
            LOCKED_DELAY
        } else if is_recent(self.relayed_at, now) {
            RELAYED_DELAY
        } else {
            REPLAY_DELAY
        };
        now.saturating_sub(behind)
    }

    /// Replays the new intervals, and settles the difference to the charged time.
    ///
    /// The factor is only a guess for the next charges, and the difference corrects it afterwards. So a wrong factor delays a
    /// part of a charge, and does not change the mean. A step covers about 20 ms, so a difference beyond 200 ms is cut.
    fn settle(&mut self, slice: &Slice, gpu: SliceDevice, now: Monotonic, is_alone: bool) {
        let (member, device) = (slice.member(), gpu.device);
        let to = self.published_until(now);
        let part = self.slicing.advance(to);
        let (factor, difference) = self.split.learn(&part, to, now, is_alone);
        member.set_correction(device, factor);
        let difference =
            difference.clamp(GpuTimeChange::refund(MOST_SETTLED), GpuTimeChange::charge(MOST_SETTLED));
        member.settle(device, difference, now);
        // The counter of used time only counts up, so overcounted time is taken from later counts.
        let none = GpuTime::ZERO;
        let (used, refunded) =
            if difference.is_refund() { (none, difference.amount()) } else { (difference.amount(), none) };
        self.overcounted = self.overcounted.saturating_add(refunded);
        let more = used.saturating_sub(self.overcounted);
        self.overcounted = self.overcounted.saturating_sub(used);
        member.count_used(device, more);
    }
}

/// Opens the driver's libraries for locks.
fn interval_locks(slice: &Slice, gpu: SliceDevice) -> Option<IntervalLocks> {
    IntervalLocks::open(driver_calls::libraries(), Uuid(gpu.uuid), slice.region().file_number())
}

/// Returns true if co-tenants that published something at the instant `at` count as present.
fn is_recent(at: Monotonic, now: Monotonic) -> bool {
    now.since(at) < ABSENT_AFTER
}
