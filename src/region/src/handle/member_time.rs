//! How does a process use its slice's share of GPU time, and what can all read of it?
//!
//! Instants are of the monotonic clock, spans of GPU time unless said otherwise, all in nanoseconds.

use gpuslice_policy::compute::{
    lease::Least,
    ring::Interval,
    step::{Kept, Ran},
};

use crate::{
    handle::{device::Device, member::Member},
    layout::compute_words::{ProcessTime, UNDER_WAY, UNPREDICTED},
    sync::{clock, futex},
};

impl Member {
    /// How much GPU time to take at least: more where turns or neighbours make each taking dear, next to nothing where the
    /// device goes [in step](Self::go_in_step).
    #[must_use]
    pub fn least_lease(&self, device: Device, now: u64) -> Least {
        self.layout().least_lease(device.index(), self.slot(), now)
    }

    /// Pays for so much GPU time, if the slice has it and it is this process's turn. To be called by one thread at a
    /// time for each device.
    ///
    /// # Errors
    /// The instant to look again at; this process is then one that waits, until it takes or
    /// [stops asking](Self::stop_asking).
    pub fn acquire(&self, device: Device, amount: u64, now: u64) -> Result<(), u64> {
        self.acquire_since(device, amount, now, now)
    }

    /// The same for one who has asked since an instant: where the device goes [in step](Self::go_in_step) with others,
    /// each of those keeps it once.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub fn acquire_since(&self, device: Device, amount: u64, since: u64, now: u64) -> Result<(), u64> {
        self.layout().take_time(device.index(), self.slot(), amount, (since, now))
    }

    /// The device on which a launch got through that a run on `device` had waited for, and how that had been kept.
    #[must_use]
    pub fn unblocked_by(&self, device: Device, ran: &Ran) -> Option<(Device, Kept)> {
        let layout = self.layout();
        let mut others =
            layout.other_devices(device.index()).map(|other| (Device(other), layout.last_throttle(other)));
        others.find(|(_, kept)| ran.ended_by(*kept))
    }

    /// Whether a device goes in step with others.
    #[must_use]
    pub fn is_coupled(&self, device: Device, now: u64) -> bool {
        self.layout().is_coupled(device.index(), now)
    }

    /// Kernels of these devices wait for each other: for [a while](gpuslice_policy::compute::step::LASTS) who pays on one of them waits until those
    /// can that are held back on the other.
    pub fn couple(&self, devices: [Device; 2], now: u64) {
        self.layout().couple(devices.map(Device::index), now);
    }

    /// A run on a device goes on for far longer than it does, as far as is known now. Who is held back on others may
    /// [go ahead](Self::go_ahead).
    pub fn note_overrun(&self, device: Device, now: u64) {
        self.layout().note_overrun(device.index(), now);
    }

    /// A run that was [seen](Self::note_overdue) to go on for far longer than it does has ended. If there is another one, that
    /// is seen again.
    pub fn clear_overrun(&self, device: Device) {
        self.layout().clear_overrun(device.index());
    }

    /// Whether a run on another device was [seen](Self::note_overdue) to go on for far longer than it does.
    #[must_use]
    pub fn has_peer_overrun(&self, device: Device, now: u64) -> bool {
        self.layout().peer_overrun(device.index(), now).is_some()
    }

    /// Pays for so much GPU time although the slice owes already, for one who has asked since an instant:
    /// [a run on another device](Self::are_others_overdue) may wait for it, and for nothing that was sent off before. It is
    /// owed. False: half of the share has gone ahead already, too much is owed, or nothing waits.
    pub fn overdraw_for_peer(&self, device: Device, amount: u64, since: u64, now: u64) -> bool {
        self.layout().overdraw_for_peer(device.index(), self.slot(), amount, (since, now))
    }

    /// Pays for so much GPU time although the slice has nothing left, or it is not this process's turn: it is owed. For
    /// launches that take no time of their own beside what is under way.
    pub fn overdraw(&self, device: Device, amount: u64, now: u64) {
        self.layout().overdraw(device.index(), self.slot(), amount, now);
    }

    /// This process does not wait any more.
    pub fn withdraw_request(&self, device: Device) {
        self.layout().withdraw_request(device.index(), self.slot());
    }

    /// Whether this process waits for the share.
    #[must_use]
    pub fn is_waiting(&self, device: Device) -> bool {
        self.layout()
            .process_time(device.index(), self.slot())
            .is_some_and(|(_, process)| process.waits(clock::now()))
    }

    /// What to [`sleep`](Self::sleep) with. To be read before [`take`](Self::take), so that no ring is lost.
    #[must_use]
    pub fn wake_sequence(&self, device: Device) -> u32 {
        self.layout().time(device.index()).map_or(0, |time| time.wake_seq.0.sequence())
    }

    /// Sleeps until this instant, until the bell rings, or until a signal was handled; not at all if it has rung since
    /// it was [read](Self::bell). A second at most. On a device that is not there, not at all.
    pub fn sleep(&self, device: Device, bell: u32, until: u64) {
        if let Some(time) = self.layout().time(device.index()) {
            futex::sleep(&time.wake_seq.0, bell, until);
        }
    }

    /// What was measured differs by so much from what was prepaid. A refund wakes those who sleep too long by it.
    pub fn settle(&self, device: Device, difference: i64, now: u64) {
        self.layout().settle_time(device.index(), difference, now);
    }

    /// So much prepaid time is settled, and with it all that this process's work had run by `until`; 0 where that is not
    /// known. To be told before the difference is [settled](Self::settle): who is killed in between loses a refund, which
    /// nobody gets twice.
    pub fn settled(&self, device: Device, prepaid: u64, until: u64) {
        self.with_own(device, |process| {
            process.unsettled_ns.change(|outstanding| outstanding.saturating_sub(prepaid));
            process.settled_at.set(process.settled_at.get().max(until));
        });
    }

    /// Nothing of this process has run until now.
    pub fn idle_until_now(&self, device: Device, now: u64) {
        self.with_own(device, |process| process.settled_at.set(now));
    }

    /// Gives back prepaid time that nothing was launched for: it was not served either.
    pub fn give_back(&self, device: Device, credit: u64, now: u64) {
        // In this order: who is killed in between loses it, and nobody gets it twice.
        self.with_own(device, |process| {
            process.unsettled_ns.change(|outstanding| outstanding.saturating_sub(credit));
            process.virtual_service.change(|served| served.saturating_sub(credit));
        });
        let refund = i64::try_from(credit).unwrap_or(i64::MAX);
        self.layout().settle_time(device.index(), refund.saturating_neg(), now);
    }

    /// This process was charged so much where so much had been paid: its place among those who wait follows.
    pub fn adjust_service(&self, device: Device, charged: u64, paid: u64) {
        self.with_own(device, |process| {
            process.virtual_service.change(|served| served.saturating_add(charged).saturating_sub(paid));
        });
    }

    /// Tells all who look at the region that the GPU was busy in this interval. Its place.
    pub fn publish(&self, device: Device, interval: Interval) -> u64 {
        self.layout().publish(device.index(), interval)
    }

    /// An interval of this length was measured, and so much of it was covered newly.
    pub fn add_overlap(&self, device: Device, length: u64, covered: u64) {
        self.layout().add_overlap(device.index(), length, covered);
    }

    /// The part of so much busy time that is newly covered, on average over the slice.
    #[must_use]
    pub fn overlap_part(&self, device: Device, length: u64) -> u64 {
        self.layout().overlap_part(device.index(), length)
    }

    /// This process was charged so much GPU time more.
    pub fn count_used(&self, device: Device, time: u64) {
        self.with_own(device, |process| process.counts.charged_ns.add(time));
    }

    /// A launch of this process waited so long for the share, on the clock.
    pub fn count_throttled(&self, device: Device, time: u64) {
        self.with_own(device, |process| process.counts.throttled_ns.add(time));
    }

    /// Copies of this process took so much GPU time more.
    pub fn count_copied(&self, device: Device, time: u64) {
        self.with_own(device, |process| process.counts.copied_ns.add(time));
    }

    /// Work of this process that is under way is predicted to take so long.
    pub fn set_queued(&self, device: Device, time: u64) {
        let marks = UNPREDICTED | UNDER_WAY;
        self.with_own(device, |process| process.queued_ns.change(|before| before & marks | time & !marks));
    }

    /// Work of this process may be under way from now on: should it die, its prepaid time counts as used.
    pub fn begin_work(&self, device: Device) {
        self.with_own(device, |process| process.queued_ns.change(|before| before | UNDER_WAY));
    }

    /// No work of this process is under way: should it die, its prepaid time is given back.
    pub fn end_work(&self, device: Device) {
        self.with_own(device, |process| {
            process.queued_ns.change(|before| before & !(UNDER_WAY | UNPREDICTED))
        });
    }

    /// Whether a launch of this process is under way of which nothing is known: it may take longer than is
    /// [predicted](Self::set_queued).
    pub fn set_unpredicted(&self, device: Device, is_unpredicted: bool) {
        let mark = if is_unpredicted { UNPREDICTED | UNDER_WAY } else { 0 };
        self.with_own(device, |process| process.queued_ns.change(|before| before & !UNPREDICTED | mark));
    }

    /// This process made so many launches more.
    pub fn count_launches(&self, device: Device, launches: u64) {
        self.with_own(device, |process| process.counts.launches.add(launches));
    }

    /// Notes what the slice has used of a device until now, for [`Region::used_over`]. Cheap where that was done in this
    /// second. To be called once a second while anything is under way, and before what begins after a pause is counted.
    pub fn note_second(&self, device: Device, now: u64) {
        self.layout().note_second(device.index(), now);
    }

    /// Whether this process is the one of the slice that samples a device. It stays the one for as long as it asks again
    /// within `patience`, a tenth of a millisecond at least; of one that is dead or silent for longer, another takes
    /// over.
    pub fn renew_sampler_lease(&self, device: Device, now: u64, patience: u64) -> bool {
        self.layout().renew_sampler_lease(device.index(), self.slot(), now, patience)
    }

    /// Says which part of the time between events is the slice's own.
    pub fn set_correction(&self, device: Device, factor: u32) {
        if let Some(time) = self.layout().time(device.index()) {
            time.control.0.correction_millionths.set(factor);
        }
    }

    /// Says how GPU time is measured: see [`Region::meter`].
    pub fn set_measure_source(&self, device: Device, meter: u32) {
        if let Some(time) = self.layout().time(device.index()) {
            time.control.0.measure_source.set(meter);
        }
    }

    /// Does something with the words of this process, if they are there.
    fn with_own<T>(&self, device: Device, change: impl FnOnce(&ProcessTime) -> T) {
        if let Some((_, process)) = self.layout().process_time(device.index(), self.slot()) {
            change(process);
        }
    }
}
