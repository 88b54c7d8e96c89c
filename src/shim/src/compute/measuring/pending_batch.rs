//! A closed batch on its way through the GPU, until its timing events have been read.

use super::usage::UsageState;
use crate::driver_calls::events::Event;
use gpuslice_policy::compute::limiter::settlement::Settlement;
use gpuslice_policy::compute::measuring::batch::Batch;
use gpuslice_policy::compute::measuring::event_clock::EventTime;
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

/// A batch as its thread closed it.
#[derive(Debug)]
pub(crate) struct ClosedBatch {
    /// Number of the thread's use of the stream: batches with the same number end in order.
    pub(crate) stream: u64,
    /// Number of the context whose events time the batch.
    pub(crate) pool: u64,
    /// Device, as a place among the limiters.
    pub(crate) device: usize,
    pub(crate) batch: Batch,
    /// Event before the first launch.
    pub(crate) start: Event,
    /// Event behind the last launch.
    pub(crate) end: Event,
    /// Events right behind the end, which measure the cost of an event. Only the first batch of a context has them.
    pub(crate) calibration: Vec<Event>,
    /// Instant at which the opening event was recorded.
    pub(crate) opened: Monotonic,
    /// True if the host had waited for the stream before the batch was opened.
    pub(crate) known_idle: bool,
    /// True if the batch is one launch of unknown cost.
    pub(crate) is_unknown: bool,
    /// True if the batch is a copy that is not paid for.
    pub(crate) is_copy: bool,
}

/// A closed batch and the state of its measurement. The thread that closed it hands it to the meter. From then on only the thread
/// that holds the lock of the meter's state touches it.
#[derive(Debug)]
pub(crate) struct PendingBatch {
    pub(crate) closed: ClosedBatch,
    /// True if its predicted time counts as queued. False while its stream waits for something other than the GPU.
    is_queued: bool,
    /// True if launches of unknown cost may have to wait for the batch. Once false it stays false, because the limiter has then
    /// counted the batch's launches as finished.
    is_awaited: bool,
    /// Time of the opening event; `None` before a poll has seen that the GPU has passed it.
    pub(crate) began: Option<EventTime>,
    /// Time of the closing event; `None` before a poll has seen that the GPU has passed it. The beginning of the time line if the
    /// batch was given up.
    pub(crate) ended: Option<EventTime>,
    is_given_up: bool,
    /// True if this process has noted in the region that the batch runs for far longer than predicted.
    pub(crate) is_overrun: bool,
    pub(crate) settlement: Settlement,
    /// Instant up to which the batch has been charged while it ran. The next charge begins there.
    pub(crate) charged_to: Monotonic,
    /// Part of its time that has been charged, or that other intervals had covered.
    pub(crate) progress: WallTime,
    /// Part of the charged time that was counted as used.
    pub(crate) counted: GpuTime,
}

impl PendingBatch {
    /// Makes the state of a batch that was just closed.
    pub(crate) fn new(closed: ClosedBatch) -> Self {
        Self {
            settlement: Settlement::new(closed.batch.prepaid()),
            closed,
            is_queued: true,
            is_awaited: true,
            began: None,
            ended: None,
            is_given_up: false,
            is_overrun: false,
            charged_to: Monotonic::BEGIN,
            progress: WallTime::ZERO,
            counted: GpuTime::ZERO,
        }
    }

    /// Leaves the batch unmeasured. Its prepaid time stays charged.
    pub(crate) fn leave_unmeasured(&self, usage: &UsageState) {
        if !self.closed.is_copy {
            usage.leave_unmeasured(self.closed.device, &self.closed.batch, self.holds_unknown());
        }
    }

    /// Returns true if launches of unknown cost wait until the batch has been measured.
    pub(crate) fn holds_unknown(&self) -> bool {
        self.closed.is_unknown && self.is_awaited
    }

    /// Notes that the batch has ended at `ended`, or that no thread will see its end.
    pub(crate) fn complete(&self, usage: &UsageState, ended: Monotonic) {
        if let Some(limiter) = usage.limiters.get(self.closed.device) {
            limiter.complete(self.is_queued.then_some(&self.closed.batch), ended);
        }
        usage.end_work();
    }

    /// Stops counting the batch as queued, so that no launch waits for it. The meter still measures the batch when it ends.
    /// Returns true if launches may have waited until now.
    ///
    /// Example: the batch waits for a host callback, which waits for a lock that a launching thread holds. If that thread waited
    /// for the batch, neither of them would ever continue.
    pub(crate) fn mark_blocked(&mut self, usage: &UsageState) -> bool {
        let holds_unknown = self.holds_unknown();
        if !core::mem::take(&mut self.is_queued) {
            return false;
        }
        self.is_awaited = false;
        if let Some(limiter) = usage.limiters.get(self.closed.device) {
            limiter.mark_blocked(&self.closed.batch, holds_unknown);
        }
        true
    }

    /// Counts the batch as queued again, because its stream moves again. Launches of unknown cost do not wait for it again. The
    /// limiter has counted its launches as finished, and a second count would finish other launches.
    pub(crate) fn requeue(&mut self, usage: &UsageState) {
        if !core::mem::replace(&mut self.is_queued, true)
            && let Some(limiter) = usage.limiters.get(self.closed.device)
        {
            limiter.requeue(&self.closed.batch);
        }
    }

    /// Gives the batch up because its events fail: it counts as ended and is not measured. `ended` gets a value that is no time
    /// of an event, so that the queue continues with the batches behind it.
    pub(crate) fn give_up(&mut self) {
        (self.is_given_up, self.ended) = (true, Some(EventTime::BEGIN));
    }

    /// Returns true if its events have failed.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up
    }
}
