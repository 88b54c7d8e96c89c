//! Charges of this process on one device.
//!
//! A measured batch is an interval on the slice's time line. Other intervals come from the other streams of this
//! process and from the other processes of the slice. The library charges and learns the part of the batch that no
//! other interval covers. Example: two streams run for 1 ms side by side. The batch of one stream is charged for the
//! whole time, and the batch of the other for nothing.

use super::pending_batch::PendingBatch;
use super::usage::UsageState;
use crate::compute::attribution::source::override_source;
use crate::compute::limiter::estimates::MeasuredCost;
use crate::os::clock;
use crate::slice::handle::Slice;
use gpuslice_policy::compute::attribution::correction;
use gpuslice_policy::compute::attribution::source::{Measured, Source};
use gpuslice_policy::compute::coupling::{CouplingEvidence, MeasuredBatch};
use gpuslice_policy::compute::limiter::settlement;
use gpuslice_policy::compute::measuring::event_clock::{self, ClockOffset, EventCost, EventTime};
use gpuslice_policy::compute::measuring::peer_intervals::{self, ContextEnds, Interval, RingReader};
use gpuslice_policy::compute::measuring::union::BusyUnion;
use gpuslice_policy::compute::measuring::verdict::{Opening, Verdict};
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};
use gpuslice_region::{Device, INTERVAL_SLOTS, Origin};

/// The measured time of a device. Reached only under the lock of the meter's state.
#[derive(Debug)]
pub(crate) struct DeviceUsage {
    /// The slice's time line: intervals of this process, and intervals that it has read from other processes. A batch is charged
    /// for the part that is not covered yet.
    union: BusyUnion,
    /// Reads the intervals that the slice's other processes publish.
    reader: RingReader,
    /// End of the last interval of this process.
    own_until: Monotonic,
    /// Latest end of an interval of another process that ended later than `own_until` when it was read. While it is later than
    /// `own_until`, the GPU was last at work for another process of the slice.
    others_until: Monotonic,
    /// Ends of the intervals of all contexts of the slice. They show whether an interval runs beside another context.
    context_ends: ContextEnds,
    /// Batches that waited for launches on other devices.
    coupling: CouplingEvidence,
}

/// The measurement of an ended batch by its events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventReading {
    /// End of the previous batch in the stream, then the start and the end of this batch.
    pub(crate) before: EventTime,
    pub(crate) began: EventTime,
    pub(crate) ended: EventTime,
    /// Offset from the context's time line to the monotonic clock.
    pub(crate) offset: ClockOffset,
    /// Cost of an event.
    pub(crate) cost: EventCost,
    /// True if no other stream of the process has work under way.
    pub(crate) is_only: bool,
}

impl DeviceUsage {
    /// Makes the usage of a device without batches. `head`: the place in the ring from which intervals of other processes are
    /// read.
    pub(crate) fn new(head: u64) -> Self {
        Self {
            union: BusyUnion::new(),
            reader: RingReader::new(head),
            own_until: Monotonic::BEGIN,
            others_until: Monotonic::BEGIN,
            context_ends: ContextEnds::default(),
            coupling: CouplingEvidence::default(),
        }
    }

    /// Charges, settles and learns a batch that has ended. Returns true if its stream may have been idle when the closing event
    /// passed, because the host was delayed.
    ///
    /// The thread writes to the region in a fixed order: first that the prepaid time is settled, then the refund. If the process
    /// is killed in between, the slice loses a refund. In the other order the slice would get the refund twice, because another
    /// process refunds the unsettled time of a dead process.
    pub(crate) fn settle(
        &mut self,
        usage: &UsageState,
        batch: &mut PendingBatch,
        reading: EventReading,
    ) -> bool {
        let Some(device) = usage.device(batch.closed.device) else { return false };
        let EventReading { before, began, ended, offset, cost, is_only } = reading;
        let was_idle = batch.closed.known_idle || event_clock::was_idle(before, began, cost.get());
        // The comparison comes before this batch changes `own_until`.
        let is_switched = !batch.closed.is_unknown && self.others_until > self.own_until;
        let opening = match (was_idle, is_switched) {
            (true, true) => Opening::Switched,
            (true, false) => Opening::Idle,
            _ => Opening::Busy,
        };
        let verdict = batch.closed.batch.verdict(ended.since(began), opening, cost.get());
        // A copy has no prepaid time. It is counted, and neither charged nor published.
        if batch.closed.is_copy {
            let charged = verdict.length.gpu_if_alone();
            usage.member().count_copied(device, charged);
            learn(usage, batch, MeasuredCost { charged, own: verdict.length }, verdict);
            return verdict.held;
        }
        let until = offset.instant(ended).unwrap_or_else(clock::now).saturating_sub(verdict.after);
        override_source(usage, device, Source::Events);
        self.charge_rest(usage, batch, verdict.length.saturating_add(verdict.events), until);
        let now = clock::now();
        // Work of other streams may have begun before `until`, and it is not settled with this batch.
        let settled_until = if is_only { until.min(now) } else { Monotonic::BEGIN };
        usage.member().settled(device, batch.settlement.prepaid(), settled_until);
        usage.member().settle(device, batch.settlement.close(), now);
        count(usage, device, batch);
        usage.member().count_launches(device, batch.closed.batch.launches().into());
        let predicted = batch.closed.batch.predicted();
        let ran = MeasuredBatch { predicted, length: verdict.length, until, after: verdict.after };
        // If another batch overruns too, a later poll reports the overrun again.
        if batch.is_overrun {
            usage.member().clear_overrun(device);
        }
        // Before the first measurement of a kernel the library cannot tell whether its batch was longer than usual.
        let was_blocked = !batch.closed.is_unknown && self.detect_coupling(usage, device, &ran, now);
        let believed = if was_blocked { ran.believed() } else { verdict.length };
        adjust_and_learn(usage, device, batch, verdict, believed);
        verdict.held
    }

    /// Returns true if a batch waited for a launch on another device. If there is enough evidence, couples the two devices.
    ///
    /// The driver does not report that a kernel waits, but two facts together show it. The batch ran far longer than its
    /// estimate, and it ended when a throttled launch on the other device was admitted. The caller then teaches the estimates a
    /// shorter time. Otherwise a collective of 1 ms that waited for 100 ms would move its estimate towards 100 ms.
    fn detect_coupling(
        &mut self,
        slice: &Slice,
        device: Device,
        ran: &MeasuredBatch,
        now: Monotonic,
    ) -> bool {
        let ended_by = ran.beyond().and_then(|_| slice.member().unblocked_by(device, ran));
        if let Some((other, _)) = ended_by.filter(|(_, kept)| self.coupling.add(ran, *kept)) {
            slice.member().couple([device, other], now);
        }
        ended_by.is_some()
    }

    /// Charges a batch that still runs, up to a millisecond ago. `began`: its start. `is_only`: no other stream of the
    /// process has work under way.
    ///
    /// Without this step a kernel that never ends would cost only its estimate, and the slice could use the whole GPU. The charge
    /// uses instants, and the clocks of host and GPU are aligned only to about a millisecond. When the batch ends,
    /// [`charge_rest`](Self::charge_rest) corrects that error by lengths.
    pub(crate) fn charge_running(
        &mut self,
        usage: &UsageState,
        batch: &mut PendingBatch,
        began: Monotonic,
        is_only: bool,
    ) {
        let now = clock::now();
        let began = began.saturating_add(batch.closed.batch.idle());
        let start = began.max(batch.charged_to);
        let until = settlement::running(start, now).filter(|_| !batch.closed.is_copy);
        let (Some(until), Some(device)) = (until, usage.device(batch.closed.device)) else { return };
        let length = until.since(began);
        let ran =
            MeasuredBatch { predicted: batch.closed.batch.predicted(), length, until, after: WallTime::ZERO };
        // Each poll reports the overrun again. A report that is not renewed for 5 ms counts as the end of the overrun.
        if !batch.closed.is_unknown && ran.may_wait() {
            usage.member().note_overrun(device, now);
            batch.is_overrun = true;
        }
        self.charge(usage, batch, (start, until), true);
        // The whole step counts as progress, also a part that other intervals cover, because the rest is computed from lengths.
        batch.charged_to = until;
        batch.progress = batch.progress.saturating_add(until.since(start));
        count(usage, device, batch);
        if batch.closed.is_unknown && is_only {
            // Almost nothing was prepaid. If the process dies, the slice is charged only for the time after `until`. If another
            // stream has work, that work may have begun before `until`, so this is done only without such a stream.
            usage.member().settled(device, GpuTime::ZERO, until);
        }
    }

    /// Charges the rest of a batch that has ended, or refunds an excess. It uses lengths, because the error between the clocks of
    /// host and GPU changes instants, but not lengths. Example: 3 ms were charged while the batch ran, and its events are 2.9 ms
    /// apart. Then 0.1 ms is refunded.
    fn charge_rest(
        &mut self,
        usage: &UsageState,
        batch: &mut PendingBatch,
        length: WallTime,
        until: Monotonic,
    ) {
        let Some(device) = usage.device(batch.closed.device) else { return };
        let rest = length.saturating_sub(batch.progress);
        // The batch's own intervals cover the time before `charged_to`. If the rest began earlier, too little would be charged.
        let start = until.saturating_sub(rest).max(batch.charged_to);
        self.charge(usage, batch, (start, start.saturating_add(rest)), false);
        let source = Measured::of_word(usage.region().measure_source(device)).source;
        let factor = usage.member().correction(device);
        let lengths = (length, batch.progress);
        let beyond = settlement::beyond(batch.settlement.charged(), lengths, factor, source.is_replayed());
        usage.member().settle(device, batch.settlement.refund(beyond), clock::now());
    }

    /// Publishes an interval, and charges the part of it that no interval on the time line covers. `goes_on`: the batch still
    /// runs.
    ///
    /// Two processes may publish overlapping intervals at once. The process with the later place in the ring reads the other
    /// interval before it charges, and is charged only for the rest. So it has to wait while the other slot is half written.
    /// Without that wait both processes would be charged for the overlap. If the writer is dead or stuck, the reader skips the
    /// slot after a short time (`peer_intervals::SKIP_UNWRITTEN_AFTER`).
    fn charge(
        &mut self,
        usage: &UsageState,
        batch: &mut PendingBatch,
        (start, end): (Monotonic, Monotonic),
        goes_on: bool,
    ) {
        let device = usage.device(batch.closed.device).filter(|_| start < end);
        let Some(device) = device else { return };
        let (member, length) = (usage.member(), end.since(start));
        // Processes that start together run their first kernels side by side. Later kernels do not overlap in the same way, so
        // first kernels do not count here.
        let add_overlap = |covered| {
            if !batch.closed.is_unknown {
                member.add_overlap(device, length, covered);
            }
        };
        let context = peer_intervals::context(member.slot(), batch.closed.pool);
        let interval = Interval { start, end, context, goes_on };
        // If only intervals of the same context cover the interval, other processes do not need it. Beside intervals of other
        // contexts it is published, because the replay needs all contexts that had work in flight. Example: a process has two
        // contexts, and each has time slices of its own.
        if self.union.is_covered(start, end) && !self.context_ends.is_beside(&interval) {
            add_overlap(WallTime::ZERO);
            return;
        }
        let place = member.publish(device, interval);
        self.context_ends.add(&interval);
        self.own_until = self.own_until.max(end);
        // The loop ends, because the reader skips a slot that is still half written after 2 ms.
        while !self.read(usage, device, place, clock::now()) {
            std::thread::yield_now();
        }
        let covered = self.union.cover(start, end);
        add_overlap(covered);
        let charge = correction::apply(covered, member.correction(device));
        member.settle(device, batch.settlement.charge(charge), clock::now());
    }

    /// Adds the intervals of other processes that lie below place `to` of the ring. Returns false if one of them is still being
    /// written. Then the caller charges nothing yet, because that interval may cover the same time.
    pub(crate) fn read(&mut self, slice: &Slice, device: Device, to: u64, now: Monotonic) -> bool {
        let (own, others, ends) = (self.own_until, &mut self.others_until, &mut self.context_ends);
        let entry = |slot: u64| {
            let entry = slice.member().interval_at(device, Origin::Slice, slot);
            // A half-written slot reads as empty. Its end is then the beginning of the clock, so it does not change the maxima.
            let end = entry.interval.end;
            // An interval that ends later than all intervals of this process belongs to another process.
            *others = (*others).max(if end > own { end } else { Monotonic::BEGIN });
            ends.add(&entry.interval);
            entry
        };
        self.reader.read((to, INTERVAL_SLOTS), now, &mut self.union, entry)
    }
}

/// Counts the charged time of a batch as used. A refund at its end, of a millisecond at most, is not subtracted again.
fn count(slice: &Slice, device: Device, batch: &mut PendingBatch) {
    let charged = batch.settlement.charged();
    slice.member().count_used(device, charged.saturating_sub(batch.counted));
    batch.counted = batch.counted.max(charged);
}

/// Adjusts the fair queue of the slice's processes by the charge of a batch, and learns from its `believed` length.
fn adjust_and_learn(
    usage: &UsageState,
    device: Device,
    batch: &PendingBatch,
    verdict: Verdict,
    believed: WallTime,
) {
    let member = usage.member();
    let own = |length| member.overlap_part(device, length);
    let charged = |length| correction::apply(own(length), member.correction(device));
    // The first batch of a kernel may run beside first batches of other processes. Then its length says little about the own
    // part, but its charge is exact.
    let all = verdict.length.saturating_add(verdict.events);
    let served = if batch.closed.is_unknown { batch.settlement.charged() } else { charged(all) };
    member.adjust_service(device, served, batch.settlement.prepaid());
    let cost = MeasuredCost { charged: charged(believed), own: own(believed) };
    learn(usage, batch, cost, Verdict { length: believed, ..verdict });
}

/// Updates the estimates. Launches that waited for the measurement of this batch may continue.
fn learn(usage: &UsageState, batch: &PendingBatch, cost: MeasuredCost, verdict: Verdict) {
    usage.estimates.learn(&batch.closed.batch, batch.closed.opened, cost, verdict);
    if let Some(limiter) = usage.limiters.get(batch.closed.device).filter(|_| batch.holds_unknown()) {
        limiter.finish_unknown(&batch.closed.batch);
    }
}
