//! Pending batches that one thread has closed on one stream, in their order.

use super::device_usage::{DeviceUsage, EventReading};
use super::event_times::{ContextTimes, read_events};
use super::pending_batch::PendingBatch;
use super::usage::UsageState;
use crate::os::clock;
use gpuslice_driver::types::Status;
use gpuslice_policy::compute::limiter::queue_bound;
use gpuslice_policy::compute::measuring::event_clock::{EventCost, EventTime};
use gpuslice_policy::time::{Monotonic, WallTime};
use std::collections::VecDeque;

/// Pending batches of a stream, and the state of the stream as of the last poll.
#[derive(Debug, Default)]
pub(crate) struct StreamQueue {
    batches: VecDeque<PendingBatch>,
    /// End of the last batch, on the context's time line. If it is the beginning of the line, the next batch counts as begun on
    /// an empty stream.
    last_end: EventTime,
    /// Instant since which the queue is empty; `None` while it has batches.
    empty_since: Option<Monotonic>,
    pub(crate) device: usize,
    /// Instant at which a poll last saw a batch begin or end, or at which a batch came into the empty queue.
    moved_at: Monotonic,
    /// True if the stream waits for something other than the GPU, as far as polls can tell.
    is_blocked: bool,
    /// True if the GPU was at work on the first batch at the last poll.
    has_begun: bool,
}

impl StreamQueue {
    /// Adds a batch.
    pub(crate) fn push(&mut self, batch: PendingBatch) {
        self.device = batch.closed.device;
        if self.batches.is_empty() {
            self.moved_at = clock::now();
        }
        self.batches.push_back(batch);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Returns the number of the first batch's context.
    pub(crate) fn pool(&self) -> Option<u64> {
        self.batches.front().map(|batch| batch.closed.pool)
    }

    /// Notes at `now` whether the queue is empty.
    pub(crate) fn note_empty(&mut self, now: Monotonic) {
        self.empty_since = self.batches.is_empty().then(|| self.empty_since.unwrap_or(now));
    }

    /// Returns true if the stream has had work within the time `last`.
    pub(crate) fn was_used_within(&self, last: WallTime, now: Monotonic) -> bool {
        self.empty_since.is_none_or(|since| now.since(since) < last)
    }

    /// Returns true if the GPU is at work on the first batch.
    pub(crate) fn is_running(&self) -> bool {
        self.batches.front().is_some_and(|batch| batch.began.is_some())
    }

    /// Reads events up to the first that the GPU has not passed.
    pub(crate) fn read_events(
        &mut self,
        usage: &UsageState,
        contexts: &mut ContextTimes,
        cost: &mut EventCost,
    ) -> Result<(), Status> {
        for batch in &mut self.batches {
            if !read_events(batch, &usage.timing.pools, contexts, cost)? {
                break;
            }
        }
        Ok(())
    }

    /// Gives up the first batch that has not ended. Its events could not be read, and all batches behind it would wait for it.
    /// Each failure gives up one batch only: an error may concern one event, and other events may still be readable.
    pub(crate) fn give_up_first(&mut self) {
        let first = self.batches.iter_mut().find(|batch| batch.ended.is_none());
        first.into_iter().for_each(PendingBatch::give_up);
    }

    /// Charges the batches that have ended, and the running batch up to now. `is_only`: no other stream has batches. Returns the
    /// number of batches that have ended. Adds 1 if this call has found that launches must not wait for the stream.
    ///
    /// Only the first batch that has not ended is charged as running, because the batches behind it have not begun.
    pub(crate) fn charge(
        &mut self,
        usage: &UsageState,
        devices: &mut [DeviceUsage],
        contexts: &ContextTimes,
        cost: EventCost,
        is_only: bool,
    ) -> usize {
        let mut count = 0_usize;
        while let Some(mut batch) = self.batches.pop_front() {
            let pool = batch.closed.pool;
            let offset = contexts.get(&pool).map(|times| times.offset).unwrap_or_default();
            let device = devices.get_mut(batch.closed.device);
            let Some(ended) = batch.ended else {
                let began = batch.began.and_then(|began| offset.instant(began));
                if let (Some(device), Some(began)) = (device, began) {
                    device.charge_running(usage, &mut batch, began, is_only);
                }
                self.batches.push_front(batch);
                break;
            };
            match (device, batch.began) {
                (Some(device), Some(began)) if !batch.is_given_up() => {
                    let before = core::mem::replace(&mut self.last_end, ended);
                    let reading = EventReading { before, began, ended, offset, cost, is_only };
                    if device.settle(usage, &mut batch, reading) {
                        // The stream may have been idle at this end. So it does not show that the next batch follows at once.
                        self.last_end = EventTime::BEGIN;
                    }
                }
                _ => batch.leave_unmeasured(usage),
            }
            batch.complete(usage, offset.instant(ended).unwrap_or_else(clock::now));
            let events = [batch.closed.start, batch.closed.end].into_iter().chain(batch.closed.calibration);
            events.for_each(|event| usage.timing.pools.put(pool, event));
            count = count.saturating_add(1);
        }
        let is_blocked = self.update_blocked(usage, count > 0);
        count.saturating_add(usize::from(is_blocked))
    }

    /// Marks the batches as blocked while the stream waits for something other than the GPU, and queues them again when the wait
    /// is over. Returns true if launches may have waited for them until now.
    ///
    /// The driver does not report that a stream waits, for example for a host callback. So a stream counts as waiting if no batch
    /// has begun or ended for [`queue_bound::MOST_BOUND`] plus the predicted time of its running batch. Its work may wait for the
    /// very launch that waits for this work. If the batch is only slow, more work than the bound is queued.
    fn update_blocked(&mut self, usage: &UsageState, has_moved: bool) -> bool {
        let is_running = self.is_running();
        let Some(front) = self.batches.front() else { return false };
        let now = clock::now();
        let had_begun = core::mem::replace(&mut self.has_begun, is_running);
        // Batches that came after the stream was marked are still queued, and `requeue` leaves them as they are.
        if has_moved || self.has_begun != had_begun {
            self.moved_at = now;
            if core::mem::take(&mut self.is_blocked) {
                self.batches.iter_mut().for_each(|batch| batch.requeue(usage));
            }
            return false;
        }
        let predicted = if self.has_begun { front.closed.batch.predicted() } else { WallTime::ZERO };
        if now.since(self.moved_at) < queue_bound::MOST_BOUND.wall_if_alone().saturating_add(predicted) {
            return false;
        }
        // Each poll marks all batches, because some may have been submitted since the last poll.
        self.is_blocked = true;
        let mut any = false;
        for batch in &mut self.batches {
            any |= batch.mark_blocked(usage);
        }
        any
    }

    /// Drops all batches unmeasured, because the context of the first batch has ended. Their events ended with the context, so
    /// they do not go back to a pool. The end of the last batch is forgotten, because another context has another time line.
    pub(crate) fn end_context(&mut self, usage: &UsageState) {
        for batch in self.batches.drain(..) {
            batch.leave_unmeasured(usage);
            batch.complete(usage, clock::now());
        }
        self.last_end = EventTime::BEGIN;
    }
}
