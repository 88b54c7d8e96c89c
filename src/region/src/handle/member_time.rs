//! GPU time of a member: requests, payments, settlement, and measurements.

use gpuslice_policy::compute::coupling::{MeasuredBatch, ThrottledLaunch};
use gpuslice_policy::compute::limiter::lease::Situation;
use gpuslice_policy::compute::measuring::peer_intervals::Interval;
use gpuslice_policy::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};

use crate::{
    compute::{reclaim::TimeUsed, sampler_lease::SamplerLease},
    handle::{device::Device, member::Member},
    layout::compute_words::{ProcessTime, UNPREDICTED, WORK_UNDER_WAY},
    sync::{clock, futex},
};

impl Member {
    /// Returns the conditions that determine the [size](gpuslice_policy::compute::limiter::lease::size_for) of this
    /// process's leases.
    #[must_use]
    pub fn lease_situation(&self, device: Device, now: Monotonic) -> Situation {
        self.layout().lease_situation(device.index(), self.slot(), now)
    }

    /// Takes `amount` of GPU time, if the slice has it and no other process comes first. One thread at a time calls this
    /// function for each device.
    ///
    /// # Errors
    /// The instant at which to try again. Until then the request stays published. It ends when the process acquires
    /// time or [withdraws](Self::withdraw_request) it.
    pub fn acquire(&self, device: Device, amount: GpuTime, now: Monotonic) -> Result<(), Monotonic> {
        self.acquire_since(device, amount, now, || now)
    }

    /// Does the same as [`acquire`](Self::acquire), for a thread whose first request was at `since`. On a
    /// [coupled](Self::couple) device each of the other devices delays the thread once. `clock` returns the present
    /// instant.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire).
    pub fn acquire_since(
        &self,
        device: Device,
        amount: GpuTime,
        since: Monotonic,
        clock: impl Fn() -> Monotonic,
    ) -> Result<(), Monotonic> {
        let layout = self.layout();
        layout.expire_grant(device.index(), &clock);
        layout.take_time(device.index(), self.slot(), amount, (since, clock()))
    }

    /// Returns the device on which a launch was admitted for which the batch `ran` had waited. Also returns how long that
    /// launch was throttled.
    #[must_use]
    pub fn unblocked_by(&self, device: Device, ran: &MeasuredBatch) -> Option<(Device, ThrottledLaunch)> {
        let layout = self.layout();
        let mut others =
            layout.other_devices(device.index()).map(|other| (Device(other), layout.last_throttle(other)));
        others.find(|(_, kept)| ran.ended_by(*kept))
    }

    /// Tells whether a device is coupled with others.
    #[must_use]
    pub fn is_coupled(&self, device: Device, now: Monotonic) -> bool {
        self.layout().is_coupled(device.index(), now)
    }

    /// Couples two devices, because their kernels wait for each other. For
    /// [`COUPLING_LASTS`](gpuslice_policy::compute::coupling::COUPLING_LASTS) a payment on one of them waits until throttled
    /// launches on the other are ready.
    pub fn couple(&self, devices: [Device; 2], now: Monotonic) {
        self.layout().couple(devices.map(Device::index), now);
    }

    /// Reports that a batch on a device runs far longer than predicted. Throttled launches on other devices may then be
    /// [admitted early](Self::overdraw_for_peer).
    pub fn note_overrun(&self, device: Device, now: Monotonic) {
        self.layout().note_overrun(device.index(), now);
    }

    /// Reports that an overrunning batch has ended. The caller reports another such batch again.
    pub fn clear_overrun(&self, device: Device) {
        self.layout().clear_overrun(device.index());
    }

    /// Tells whether a batch on another device [overruns](Self::note_overrun).
    #[must_use]
    pub fn has_peer_overrun(&self, device: Device, now: Monotonic) -> bool {
        self.layout().peer_overrun(device.index(), now).is_some()
    }

    /// Charges `amount` although the slice owes time already, because [a batch on another device](Self::has_peer_overrun)
    /// may wait for this launch. Returns `false` if no batch waits, or if the slice owes too much. Also returns `false` if
    /// [the budget of overdrafts](gpuslice_policy::compute::limiter::overdraft) does not pay for it.
    pub fn overdraw_for_peer(
        &self,
        device: Device,
        amount: GpuTime,
        since: Monotonic,
        now: Monotonic,
    ) -> bool {
        self.layout().overdraw_for_peer(device.index(), self.slot(), amount, (since, now))
    }

    /// Charges `amount` although the slice has no time left or another process comes first. For launches that add no busy
    /// time to the work under way, and for launches for which a kernel of the process may wait. Returns `false`, and
    /// charges nothing, if [the budget of overdrafts](gpuslice_policy::compute::limiter::overdraft) does not pay for it.
    pub fn overdraw(&self, device: Device, amount: GpuTime, now: Monotonic) -> bool {
        self.layout().overdraw(device.index(), self.slot(), amount, now)
    }

    /// Ends the request of this process.
    pub fn withdraw_request(&self, device: Device) {
        self.layout().withdraw_request(device.index(), self.slot());
    }

    /// Tells whether this process waits for GPU time.
    #[must_use]
    pub fn is_waiting(&self, device: Device) -> bool {
        self.layout()
            .process_time(device.index(), self.slot())
            .is_some_and(|(_, process)| process.waits(clock::now()))
    }

    /// Returns the value to pass to [`sleep`](Self::sleep). The caller reads it before [`acquire`](Self::acquire), so that
    /// no wake-up is lost.
    #[must_use]
    pub fn wake_sequence(&self, device: Device) -> u32 {
        self.layout().time(device.index()).map_or(0, |time| time.wake_seq.0.sequence())
    }

    /// Sleeps until `until`, until another process wakes this one, or until the thread handles a signal; one second at
    /// most. Does not sleep if the [sequence](Self::wake_sequence) is no longer `sequence`, or if the device does not
    /// exist.
    pub fn sleep(&self, device: Device, sequence: u32, until: Monotonic) {
        if let Some(time) = self.layout().time(device.index()) {
            futex::sleep(&time.wake_seq.0, sequence, until);
        }
    }

    /// Charges `difference` between measured and prepaid time. A negative difference is a refund: the function then wakes
    /// processes that would sleep for too long.
    pub fn settle(&self, device: Device, difference: GpuTimeChange, now: Monotonic) {
        self.layout().settle_time(device.index(), difference, now);
    }

    /// Removes `prepaid` time from the unsettled time, because its work has ended at `until`.
    pub fn settled(&self, device: Device, prepaid: GpuTime, until: Monotonic) {
        self.with_own(device, |process| {
            process.unsettled_ns.change(|outstanding| outstanding.saturating_sub(prepaid));
            process.settled_at.set(process.settled_at.get().max(until));
        });
    }

    /// Records that no work of this process has run until now.
    pub fn idle_until_now(&self, device: Device, now: Monotonic) {
        self.with_own(device, |process| process.settled_at.set(now));
    }

    /// Refunds prepaid time that no launch has used. This time does not count as service either.
    pub fn give_back(&self, device: Device, credit: GpuTime, now: Monotonic) {
        // In this order: a process killed in between loses the time, and no process gets it twice.
        self.with_own(device, |process| {
            process.unsettled_ns.change(|outstanding| outstanding.saturating_sub(credit));
            process.virtual_service.change(|served| served.saturating_sub(credit));
        });
        self.layout().settle_time(device.index(), GpuTimeChange::refund(credit), now);
    }

    /// Corrects this process's place in the queue: the process was charged `charged` instead of `paid`.
    pub fn adjust_service(&self, device: Device, charged: GpuTime, paid: GpuTime) {
        self.with_own(device, |process| {
            process.virtual_service.change(|served| served.saturating_add(charged).saturating_sub(paid));
        });
    }

    /// Publishes an interval in which the GPU was busy, and returns its number.
    pub fn publish(&self, device: Device, interval: Interval) -> u64 {
        self.layout().publish(device.index(), interval)
    }

    /// Counts an interval of `length`, of which the part `covered` was newly covered.
    pub fn add_overlap(&self, device: Device, length: WallTime, covered: WallTime) {
        self.layout().add_overlap(device.index(), length, covered);
    }

    /// Returns the part of `length` of busy time that other intervals do not cover, on average over the slice.
    #[must_use]
    pub fn overlap_part(&self, device: Device, length: WallTime) -> WallTime {
        self.layout().overlap_part(device.index(), length)
    }

    /// Returns the numbers of the slice's processes in the process-number namespace of this process, its own number
    /// included. The number of a process that has ended is included until another process gets its slot.
    #[must_use]
    pub fn numbers_beside(&self) -> Vec<u32> {
        self.layout().slots_beside(self.slot()).map(|(_, entry)| entry.pid.get()).collect()
    }

    /// Returns the sums over these processes without this one. They fall if a process gets the slot of one that has ended.
    #[must_use]
    pub fn time_used_beside(&self, device: Device) -> TimeUsed {
        let (layout, own) = (self.layout(), self.slot());
        let others = layout.slots_beside(own).filter(|(slot, _)| *slot != own);
        let used = others.map(|(slot, _)| layout.time_used_by(device.index(), slot));
        used.fold(TimeUsed::default(), TimeUsed::plus)
    }

    /// Counts `time` as charged.
    pub fn count_used(&self, device: Device, time: GpuTime) {
        self.with_own(device, |process| process.counts.charged_ns.add(time));
    }

    /// Counts `time` that a launch was throttled.
    pub fn count_throttled(&self, device: Device, time: WallTime) {
        self.with_own(device, |process| process.counts.throttled_ns.add(time));
    }

    /// Counts `time` of copies.
    pub fn count_copied(&self, device: Device, time: GpuTime) {
        self.with_own(device, |process| process.counts.copied_ns.add(time));
    }

    /// Publishes the predicted GPU time of this process's work under way.
    pub fn set_queued(&self, device: Device, time: GpuTime) {
        let (marks, time) = (UNPREDICTED | WORK_UNDER_WAY, time.nanos());
        self.with_own(device, |process| process.queued_ns.change(|before| before & marks | time & !marks));
    }

    /// Publishes that work of this process may be under way. If the process dies, its prepaid time then counts as used.
    pub fn begin_work(&self, device: Device) {
        self.with_own(device, |process| process.queued_ns.change(|before| before | WORK_UNDER_WAY));
    }

    /// Publishes that no work of this process is under way. If the process dies, its prepaid time is then refunded.
    pub fn end_work(&self, device: Device) {
        self.with_own(device, |process| {
            process.queued_ns.change(|before| before & !(WORK_UNDER_WAY | UNPREDICTED))
        });
    }

    /// Publishes whether a launch without a prediction is under way. Such a launch may take longer than the
    /// [predicted](Self::set_queued) time.
    pub fn set_unpredicted(&self, device: Device, is_unpredicted: bool) {
        let mark = if is_unpredicted { UNPREDICTED | WORK_UNDER_WAY } else { 0 };
        self.with_own(device, |process| process.queued_ns.change(|before| before & !UNPREDICTED | mark));
    }

    /// Counts `launches` launches.
    pub fn count_launches(&self, device: Device, launches: u64) {
        self.with_own(device, |process| process.counts.launches.add(launches));
    }

    /// Writes this second's usage sample for [`Region::used_over`](crate::Region::used_over). It costs little if the
    /// sample exists. A process calls it once a second while work is under way, and after a pause before it counts
    /// anything.
    pub fn note_second(&self, device: Device, now: Monotonic) {
        self.layout().note_second(device.index(), now);
    }

    /// Takes or renews the sampler lease of a device. This process keeps the lease while it renews the lease within
    /// `patience`, at least a tenth of a millisecond. Otherwise another process takes over.
    pub fn renew_sampler_lease(&self, device: Device, now: Monotonic, patience: WallTime) -> SamplerLease {
        self.layout().renew_sampler_lease(device.index(), self.slot(), now, patience)
    }

    /// Publishes the slice's own part of the time between events.
    pub fn set_correction(&self, device: Device, correction: u32) {
        if let Some(time) = self.layout().time(device.index()) {
            time.control.0.correction_millionths.set(correction);
        }
    }

    /// Publishes the source of measured GPU time: see [`Region::measure_source`](crate::Region::measure_source).
    pub fn set_measure_source(&self, device: Device, source: u32) {
        if let Some(time) = self.layout().time(device.index()) {
            time.control.0.measure_source.set(source);
        }
    }

    /// Calls `change` with the words of this process, if they exist.
    fn with_own<T>(&self, device: Device, change: impl FnOnce(&ProcessTime) -> T) {
        if let Some((_, process)) = self.layout().process_time(device.index(), self.slot()) {
            change(process);
        }
    }
}
