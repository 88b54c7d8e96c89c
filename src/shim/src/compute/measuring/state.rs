//! GPU time of this process, together with the meter that measures it.

use super::meter::Meter;
use super::pending_batch::{ClosedBatch, PendingBatch};
use super::usage::UsageState;
use core::ops::Deref;

/// The use of GPU time, and its meter.
#[derive(Debug)]
pub(crate) struct MeasuringState {
    usage: UsageState,
    pub(crate) meter: Meter,
}

impl Deref for MeasuringState {
    type Target = UsageState;

    #[inline]
    fn deref(&self) -> &UsageState {
        &self.usage
    }
}

impl MeasuringState {
    /// Makes a meter without batches.
    pub(crate) fn new(usage: UsageState) -> Self {
        Self { usage, meter: Meter::default() }
    }

    /// Hands a closed batch to the meter, and wakes the worker.
    ///
    /// The batch is counted before the meter gets it. Otherwise another thread could poll its end and subtract it first. The
    /// subtraction would stop at zero, and the later addition would stay in the queue for ever. The wake comes last, so that a
    /// worker that is about to sleep sees the count.
    pub(crate) fn submit(&self, batch: ClosedBatch) {
        if let Some(limiter) = self.limiters.get(batch.device) {
            limiter.enqueue(self, &batch.batch);
        }
        self.begin_work();
        self.meter.submit(PendingBatch::new(batch));
        self.worker.wake();
    }
}
