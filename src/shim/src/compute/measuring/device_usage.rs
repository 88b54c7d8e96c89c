//! What does a device's time cost this process?
//!
//! The measurement of a run becomes an interval on the slice's line of time. What no other interval covers, of this
//! process's streams and of the slice's other processes, is charged and learned.

use crate::compute::cotenants::program_sampler::overrule;
use crate::compute::state::Compute;
use crate::compute::threads::thread_state::StreamState;
use crate::driver_calls::events::Event;
use crate::os::clock;
use crate::slice::handle::Slice;
use gpuslice_policy::compute::attribution::correction;
use gpuslice_policy::compute::attribution::source::{Measured, Source};
use gpuslice_policy::compute::coupling::{CouplingEvidence, MeasuredBatch};
use gpuslice_policy::compute::limiter::settlement::{self, Bill};
use gpuslice_policy::compute::measuring::batch::Run;
use gpuslice_policy::compute::measuring::event_clock::{self, EventCost, Offset};
use gpuslice_policy::compute::measuring::peer_intervals::{self, Interval, Reader};
use gpuslice_policy::compute::measuring::union::Union;
use gpuslice_policy::compute::measuring::verdict::{Opening, Verdict};
use gpuslice_region::{Device, INTERVAL_SLOTS};

/// A closed run on its way through the GPU.
#[derive(Debug)]
pub(crate) struct PendingBatch {
    /// The number of the lane.
    pub(crate) lane: u64,
    /// The number of the context.
    pub(crate) pool: u64,
    /// The place among the process's devices.
    pub(crate) device: usize,
    pub(crate) run: Run,
    pub(crate) start: Event,
    pub(crate) end: Event,
    /// When the start was recorded, on the monotonic clock.
    pub(crate) opened: u64,
    /// Recorded right behind the end, in a context of which it is the first: they tell what an event costs.
    pub(crate) behind: Vec<Event>,
    known_idle: bool,
    is_unknown: bool,
    /// Whether its predicted time counts as queued.
    is_queued: bool,
    /// Whether launches of other shapes of which nothing is known may have to wait for it.
    is_awaited: bool,
    /// Whether it is a copy that nobody pays for.
    is_copy: bool,
    /// On the line of time of the context's events.
    pub(crate) began: Option<u64>,
    pub(crate) ended: Option<u64>,
    given_up: bool,
    /// Whether it was told that it runs for far longer than it does.
    is_overdue: bool,
    bill: Bill,
    /// Until when it has been charged while it ran.
    charged_to: u64,
    /// How much of its time has been charged.
    progress: u64,
    /// How much of the bill was counted as used.
    counted: u64,
}

impl PendingBatch {
    pub(crate) fn new(
        lane: &StreamState,
        device: usize,
        run: Run,
        (start, end): (Event, Event),
        (opened, known_idle, is_unknown): (u64, bool, bool),
    ) -> Self {
        Self {
            lane: lane.number,
            pool: lane.pool,
            device,
            bill: Bill::new(run.prepaid()),
            run,
            start,
            end,
            opened,
            behind: Vec::new(),
            known_idle,
            is_unknown,
            is_queued: true,
            is_awaited: true,
            is_copy: false,
            began: None,
            ended: None,
            given_up: false,
            is_overdue: false,
            charged_to: 0,
            progress: 0,
            counted: 0,
        }
    }

    /// The same with events that were recorded right behind its end.
    pub(crate) fn followed_by(self, behind: Vec<Event>) -> Self {
        Self { behind, ..self }
    }

    /// The same for a copy that nobody pays for.
    pub(crate) fn of_copy(self) -> Self {
        Self { is_copy: true, ..self }
    }

    /// It is not measured: what was prepaid for it stands.
    pub(crate) fn unmeasured(&self, compute: &Compute) {
        if !self.is_copy {
            compute.unmeasured(self.device, &self.run, self.keeps_others());
        }
    }

    /// Whether launches of shapes of which nothing is known wait until it has been measured.
    pub(crate) fn keeps_others(&self) -> bool {
        self.is_unknown && self.is_awaited
    }

    /// How much of what is queued it is, in nanoseconds of GPU time.
    pub(crate) fn queued(&self) -> u64 {
        if self.is_queued { self.run.prepaid() } else { 0 }
    }

    /// Nobody waits for it any more: it is still measured when it comes to that. Whether somebody may have until now.
    pub(crate) fn set_aside(&mut self, compute: &Compute) -> bool {
        let keeps_others = self.keeps_others();
        if !core::mem::take(&mut self.is_queued) {
            return false;
        }
        self.is_awaited = false;
        compute.set_aside(self.device, &self.run, keeps_others);
        true
    }

    /// What it waited for has come.
    pub(crate) fn is_ahead_again(&mut self, compute: &Compute) {
        if !core::mem::replace(&mut self.is_queued, true) {
            compute.is_ahead_again(self.device, &self.run);
        }
    }

    /// Its events fail: it counts as ended and is not measured.
    pub(crate) fn give_up(&mut self) {
        (self.given_up, self.ended) = (true, Some(0));
    }

    /// Whether its events have failed.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up
    }
}

/// What is known of a device's time.
#[derive(Debug)]
pub(crate) struct DeviceUsage {
    union: Union,
    reader: Reader,
    /// Until when intervals of ours and of the slice's other processes reach.
    own_until: u64,
    others_until: u64,
    /// Until when intervals of the slice's other processes reach, whatever ours do.
    beside_until: u64,
    /// Runs that waited for launches on other devices.
    meetings: CouplingEvidence,
}

impl DeviceUsage {
    /// Nothing is known; what others publish is read from this place on.
    pub(crate) fn new(place: u64) -> Self {
        Self {
            union: Union::new(),
            reader: Reader::new(place),
            own_until: 0,
            others_until: 0,
            beside_until: 0,
            meetings: CouplingEvidence::default(),
        }
    }

    /// A flight has ended: it is charged, settled and learned. The times are of the lane's event before, and of its own;
    /// `is_only` says that no other lane has work under way. Returns whether the stream may have been idle when its closing
    /// event passed, because the host was held up.
    pub(crate) fn settle(
        &mut self,
        compute: &'static Compute,
        flight: &mut PendingBatch,
        (before, began, ended): (u64, u64, u64),
        (offset, cost, is_only): (Offset, EventCost, bool),
    ) -> bool {
        let Some(device) = device_of(compute, flight) else { return false };
        let was_idle = flight.known_idle || event_clock::was_idle(before, began, cost.get());
        let switched = !flight.is_unknown && self.others_until > self.own_until;
        let opening = match (was_idle, switched) {
            (true, true) => Opening::Switched,
            (true, false) => Opening::Idle,
            _ => Opening::Busy,
        };
        let verdict = flight.run.judge(ended.saturating_sub(began), opening, cost.get());
        if flight.is_copy {
            compute.member().count_copied(device, verdict.length);
            compute.learn(flight, (verdict.length, verdict.length), verdict);
            return verdict.held;
        }
        let until = offset.instant(ended).unwrap_or_else(clock::now).saturating_sub(verdict.after);
        overrule(compute, device, Source::Events);
        self.charge_rest(compute, flight, (verdict.length.saturating_add(verdict.events), until));
        let now = clock::now();
        // In this order: who is killed in between loses a refund, and nobody gets it twice.
        // What runs beside it, or has begun since, is not settled with it.
        let settled_until = if is_only { until.min(now) } else { 0 };
        compute.member().settled(device, flight.bill.prepaid(), settled_until);
        compute.member().settle(device, flight.bill.close(), now);
        count(compute, device, flight);
        compute.member().count_launches(device, flight.run.launches().into());
        let ran =
            MeasuredBatch { plain: flight.run.plain(), length: verdict.length, until, after: verdict.after };
        if flight.is_overdue {
            compute.member().clear_overrun(device);
        }
        // What it takes by itself is not known of one that is measured for the first time.
        let has_waited = !flight.is_unknown && self.has_waited(compute, device, &ran, now);
        let believed = if has_waited { ran.believed() } else { verdict.length };
        learn(compute, device, flight, verdict, believed);
        verdict.held
    }

    /// Whether a run waited for a launch on another device, which shows that the two have to go in step.
    fn has_waited(&mut self, slice: &Slice, device: Device, ran: &MeasuredBatch, now: u64) -> bool {
        let ended_by = ran.beyond().and_then(|_| slice.member().unblocked_by(device, ran));
        if let Some((other, _)) = ended_by.filter(|(_, kept)| self.meetings.add(ran, *kept)) {
            slice.member().couple([device, other], now);
        }
        ended_by.is_some()
    }

    /// What still runs is charged as it runs.
    /// `is_only` says that no other lane has work under way.
    pub(crate) fn charge_running(
        &mut self,
        compute: &'static Compute,
        flight: &mut PendingBatch,
        began: u64,
        is_only: bool,
    ) {
        let now = clock::now();
        let began = began.saturating_add(flight.run.gaps());
        let start = began.max(flight.charged_to);
        if let Some(until) = settlement::running(start, now).filter(|_| !flight.is_copy) {
            let ran = MeasuredBatch {
                plain: flight.run.plain(),
                length: until.saturating_sub(began),
                until,
                after: 0,
            };
            if let Some(device) = device_of(compute, flight).filter(|_| !flight.is_unknown && ran.may_wait())
            {
                compute.member().note_overrun(device, now);
                flight.is_overdue = true;
            }
            self.charge(compute, flight, (start, until), true);
            flight.charged_to = until;
            flight.progress = flight.progress.saturating_add(until.saturating_sub(start));
            if let Some(device) = device_of(compute, flight) {
                count(compute, device, flight);
                if flight.is_unknown && is_only {
                    // Next to nothing was prepaid: should the process die, only what runs from here on is to be charged.
                    compute.member().settled(device, 0, until);
                }
            }
        }
    }

    /// It has ended: the rest is charged, or what was charged too much is given back. By lengths, not by instants, since
    /// those depend on how well two clocks are laid on each other.
    fn charge_rest(
        &mut self,
        compute: &'static Compute,
        flight: &mut PendingBatch,
        (length, until): (u64, u64),
    ) {
        let Some(device) = device_of(compute, flight) else { return };
        let rest = length.saturating_sub(flight.progress);
        let start = until.saturating_sub(rest).max(flight.charged_to);
        self.charge(compute, flight, (start, start.saturating_add(rest)), false);
        let is_replayed =
            Measured::of_word(compute.region().measure_source(device)).source == Source::Replayed;
        let factor = compute.member().correction(device);
        let beyond =
            settlement::beyond(flight.bill.charged(), (length, flight.progress), factor, is_replayed);
        compute.member().settle(device, flight.bill.refund(beyond), clock::now());
    }

    /// Charges what an interval newly covers, and publishes it. `goes_on`: the work has not ended.
    fn charge(
        &mut self,
        compute: &'static Compute,
        flight: &mut PendingBatch,
        (start, end): (u64, u64),
        goes_on: bool,
    ) {
        let Some(device) = device_of(compute, flight).filter(|_| start < end) else { return };
        let (member, length) = (compute.member(), end.saturating_sub(start));
        // Processes that start together run their first kernels side by side. What follows does not overlap as these do.
        let add_overlap = |covered| {
            if !flight.is_unknown {
                member.add_overlap(device, length, covered);
            }
        };
        // What only intervals of its own cover says nothing new; beside others' it says whose turn it was.
        if self.union.is_covered(start, end) && self.beside_until <= start {
            add_overlap(0);
            return;
        }
        let context = peer_intervals::context(member.slot(), flight.pool);
        let place = member.publish(device, Interval { start, end, context, goes_on });
        self.own_until = self.own_until.max(end);
        // Who does not wait for those that came before and are still writing charges what they charge as well.
        while !self.read(compute, device, place, clock::now()) {
            std::thread::yield_now();
        }
        let covered = self.union.cover(start, end);
        add_overlap(covered);
        let charge = correction::apply(covered, member.correction(device));
        member.settle(device, flight.bill.charge(charge), clock::now());
    }

    /// Lays what others have published below a place on the line. False: one of them is still writing.
    pub(crate) fn read(&mut self, slice: &Slice, device: Device, to: u64, now: u64) -> bool {
        let (own, others, beside) = (self.own_until, &mut self.others_until, &mut self.beside_until);
        let me = slice.member().slot();
        let entry = |slot: u64| {
            let entry = slice.member().interval_at(device, slot);
            let end = entry.interval.end;
            // What ends later than anything of ours is not ours.
            *others = (*others).max(if end > own { end } else { 0 });
            *beside = (*beside).max(if entry.interval.is_of(me) { 0 } else { end });
            entry
        };
        self.reader.read((to, INTERVAL_SLOTS), now, &mut self.union, entry)
    }
}

fn device_of(compute: &Compute, flight: &PendingBatch) -> Option<Device> {
    compute.pacers.get(flight.device).map(|pacer| pacer.place.device)
}

/// Counts what was charged as used. What is given back in the end, a millisecond at most, is not taken out again.
fn count(slice: &Slice, device: Device, flight: &mut PendingBatch) {
    let charged = flight.bill.charged();
    slice.member().count_used(device, charged.saturating_sub(flight.counted));
    flight.counted = flight.counted.max(charged);
}

/// What a flight was charged counts for its process's turn; of what it took so much is learned.
fn learn(compute: &'static Compute, device: Device, flight: &PendingBatch, verdict: Verdict, believed: u64) {
    let member = compute.member();
    let own = |length| member.overlap_part(device, length);
    let charged = |length| correction::apply(own(length), member.correction(device));
    // The first run of a kernel may contain first runs of other processes: its length says little, its charge is exact.
    let all = verdict.length.saturating_add(verdict.events);
    let served = if flight.is_unknown { flight.bill.charged() } else { charged(all) };
    member.adjust_service(device, served, flight.bill.prepaid());
    compute.learn(flight, (charged(believed), own(believed)), Verdict { length: believed, ..verdict });
}
