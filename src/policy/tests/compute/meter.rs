//! The worker thread of a process: it turns measurements into charges and estimates.

use gpuslice_policy::compute::attribution::correction;
use gpuslice_policy::compute::cost::thread_cache::epoch_of;
use gpuslice_policy::compute::limiter::settlement;
use gpuslice_policy::compute::measuring::event_clock::{self, EventTime};
use gpuslice_policy::compute::measuring::peer_intervals::{self, Interval};
use gpuslice_policy::compute::measuring::verdict::{EstimateUpdate, Opening, Verdict};

use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

use crate::gpu::{Gpu, NEVER};
use crate::shim::{Shim, TimedBatch};
use crate::slice::{PLACES, Slice};

/// Kernels of 400 ms differ by 2 %.
const LONG_KERNEL: GpuTime = GpuTime::from_millis(390);

impl Shim {
    /// Performs one tick of the worker: charges the measured time. Returns true if any work ended.
    pub fn poll_events(&mut self, now: Monotonic, slice: &mut Slice, gpu: &Gpu) -> bool {
        if !self.read(slice.places, now, slice) {
            return false;
        }
        self.compare_clocks(now, gpu);
        self.calibrate(gpu);
        let mut any = false;
        for stream in 0..self.pending.len() {
            while self.poll_first(stream, now, slice, gpu) {
                any = true;
            }
        }
        any
    }

    /// Uses all readings before it puts any interval on the time line, because the latest reading is the most exact.
    fn compare_clocks(&mut self, now: Monotonic, gpu: &Gpu) {
        for timed in self.pending.iter().flatten() {
            if gpu.event(timed.start) != NEVER {
                self.offset.recorded(timed.opened, self.readings.of(gpu.event(timed.start)));
            }
            for event in [timed.start, timed.end].map(|event| gpu.event(event)) {
                if event != NEVER {
                    self.offset.passed(now, self.readings.of(event));
                }
            }
        }
    }

    /// Measures the cost of an event by the events after the first work.
    fn calibrate(&mut self, gpu: &Gpu) {
        let passed = |event: &usize| Some(gpu.event(*event)).filter(|time| *time != NEVER);
        let Some(times) = self.at_first.iter().map(passed).collect::<Option<Vec<u64>>>() else {
            return;
        };
        for pair in times.windows(2) {
            self.cost.adjacent(self.readings.of(pair[1]).since(self.readings.of(pair[0])));
        }
        self.at_first.clear();
    }

    fn poll_first(&mut self, stream: usize, now: Monotonic, slice: &mut Slice, gpu: &Gpu) -> bool {
        let Some(mut timed) = self.pending[stream].pop_front() else {
            return false;
        };
        let (start, end) = (gpu.event(timed.start), gpu.event(timed.end));
        if end == NEVER {
            if start != NEVER {
                self.charge_running(&mut timed, self.readings.of(start), now, slice);
            }
            self.pending[stream].push_front(timed);
            return false;
        }
        self.long_kernels += u64::from(timed.batch.launches() == 1 && timed.truth >= LONG_KERNEL);
        let measured = self.readings.of(end).since(self.readings.of(start));
        let before = core::mem::replace(&mut self.last_end[stream], self.readings.of(end));
        let was_idle =
            timed.known_idle || event_clock::was_idle(before, self.readings.of(start), self.cost.get());
        let switched = !timed.is_unknown && self.others_until > self.own_until;
        let opening = match (was_idle, switched) {
            (true, true) => Opening::Switched,
            (true, false) => Opening::Idle,
            _ => Opening::Busy,
        };
        let verdict = timed.batch.verdict(measured, opening, self.cost.get());
        if verdict.held {
            self.last_end[stream] = EventTime::BEGIN;
        }
        let until = self.offset.instant(self.readings.of(end)).unwrap() - verdict.after;
        self.charge_rest(&mut timed, (verdict.length + verdict.events, until), now, slice);
        slice.settle(timed.settlement.close(), now);
        if (0..self.pending.len()).all(|other| other == stream || self.pending[other].is_empty()) {
            self.settled_at = self.settled_at.max(until.min(now));
        }
        self.outstanding = self.outstanding.checked_sub(timed.settlement.prepaid()).unwrap();
        self.queued_work.done(timed.settlement.prepaid());
        self.ends = until + self.queued_work.queued().wall_if_alone();
        self.learn(&timed, verdict, slice);
        true
    }

    /// Charges running work while it runs.
    fn charge_running(
        &mut self,
        timed: &mut TimedBatch,
        start: EventTime,
        now: Monotonic,
        slice: &mut Slice,
    ) {
        let start = self.offset.instant(start).unwrap() + timed.batch.idle();
        let start = start.max(timed.charged_to);
        if let Some(until) = settlement::running(start, now) {
            self.charge(timed, (start, until, true), now, slice);
            timed.charged_to = until;
            timed.progress += until.since(start);
        }
    }

    /// Charges the rest of ended work, or refunds an excess. It compares durations and not instants, because the comparison
    /// of two clocks makes instants inexact.
    fn charge_rest(
        &mut self,
        timed: &mut TimedBatch,
        (length, until): (WallTime, Monotonic),
        now: Monotonic,
        slice: &mut Slice,
    ) {
        let rest = length - timed.progress;
        let start = (until - rest).max(timed.charged_to);
        self.charge(timed, (start, start + rest, false), now, slice);
        let lengths = (length, timed.progress);
        let beyond = settlement::beyond(timed.settlement.charged(), lengths, slice.factor, slice.is_replayed);
        slice.measured -= i128::from(beyond.nanos());
        slice.used = slice.used.checked_sub(beyond).unwrap();
        slice.settle(timed.settlement.refund(beyond), now);
    }

    fn charge(
        &mut self,
        timed: &mut TimedBatch,
        (start, end, goes_on): (Monotonic, Monotonic, bool),
        now: Monotonic,
        slice: &mut Slice,
    ) {
        if start >= end {
            return;
        }
        let add_overlap = |slice: &mut Slice, covered| {
            if !timed.is_unknown {
                slice.overlap.add(end.since(start), covered);
            }
        };
        let context = peer_intervals::context(self.me, timed.context as u64);
        let interval = Interval { start, end, context, goes_on };
        // An interval that is covered only by intervals of its own context shows nothing new. Beside others it shows whose
        // turn it was.
        if self.union.is_covered(start, end) && !self.context_ends.is_beside(&interval) {
            add_overlap(slice, WallTime::ZERO);
            return;
        }
        let place = slice.publish(interval);
        self.context_ends.add(&interval);
        self.own_until = self.own_until.max(end);
        self.read(place, now, slice);
        let covered = self.union.cover(start, end);
        add_overlap(slice, covered);
        let charge = correction::apply(covered, slice.factor);
        slice.measured += i128::from(charge.nanos());
        slice.used += charge;
        slice.settle(timed.settlement.charge(charge), now);
    }

    pub fn read(&mut self, to: u64, now: Monotonic, slice: &Slice) -> bool {
        self.read_to = self.read_to.max(to);
        let (own, others, ends) = (self.own_until, &mut self.others_until, &mut self.context_ends);
        let entry = |slot: u64| {
            let entry = slice.ring[slot as usize];
            let end = entry.interval.end;
            // An interval that ends later than all own intervals is not an own one.
            *others = (*others).max(if end > own { end } else { Monotonic::BEGIN });
            ends.add(&entry.interval);
            entry
        };
        self.reader.read((to, PLACES), now, &mut self.union, entry)
    }

    fn learn(&mut self, timed: &TimedBatch, verdict: Verdict, slice: &mut Slice) {
        let own = slice.overlap.part(verdict.length);
        let charged = correction::apply(own, slice.factor);
        let paid = timed.settlement.prepaid();
        let all = correction::apply(slice.overlap.part(verdict.length + verdict.events), slice.factor);
        let length = if timed.is_unknown { timed.settlement.charged() } else { all };
        let served = &mut slice.asks[self.me].virtual_service;
        *served = (*served + length).saturating_sub(paid);
        slice.got[self.me] = slice.got[self.me].saturating_add(all.less(paid));
        let outcome = timed.batch.outcome(charged, verdict.length);
        for part in timed.batch.parts() {
            let changed = match verdict.update {
                EstimateUpdate::Single => self.table.measure(&part.key, charged, (own, verdict.length)),
                EstimateUpdate::Batch => self.table.measure_batch(part, &outcome),
                EstimateUpdate::Gaps | EstimateUpdate::Nothing => [None; 2],
            };
            changed.into_iter().flatten().for_each(|id| self.epochs[epoch_of(id)] += 1);
            if timed.is_unknown {
                self.unknown.done(&part.key);
            }
        }
        if verdict.update == EstimateUpdate::Gaps {
            self.sampler.note_gaps(1);
        }
    }
}
