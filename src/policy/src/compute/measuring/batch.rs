//! A batch: launches of one thread on one stream that are measured together between two timing events.
//!
//! A timing event occupies its stream for 1 to 5 us. That is its cost ([`EventCost`](super::event_clock::EventCost)). A
//! long kernel gets two events of its own. Small kernels share two events around about 2 ms of predicted work. The thread
//! closes its batch before each wait of the library. Otherwise the wait would be charged as GPU time.
//!
//! The stream may be idle inside a batch because the host was late. The batch records that time by its causes:
//!
//! - `idle_before_first`: before the first kernel, until its launch returned.
//! - `idle_between`: between launches, while the host was outside the driver.
//! - `idle_after_sync`: around a synchronisation of the host.
//! - `idle_after_last`: between the last launch and the close.
//! - `close_delay`: between the close and the closing event.
//!
//! [The verdict](super::verdict) uses these times as the uncertainty of the measurement.

use super::super::cost::estimate::{BatchPart, Estimate, Key, Outcome};
use super::when_alone::{Timing, full};
use crate::time::{GpuTime, WallTime};

/// Time after the end of GPU work in which a waiting host returns. It is 50 us for a host that sleeps, and a tenth of that for
/// one that spins.
///
/// In a batch with waits, the estimates decide about this time. Otherwise a program that repeatedly launches 20 us and
/// waits would be charged for the host's return, which is a tenth too much.
pub const HOST_RETURN: WallTime = WallTime::from_micros(50);

/// Time for which a batch may stay open: 10 ms. Example: kernels become longer, and the host waits for
/// each. Without this bound they would stay unmeasured until the predicted work fills a batch.
pub const OLDEST_BATCH: WallTime = WallTime::from_millis(10);

/// Number of keys of a batch that can learn from it. Launches of further keys are charged all the same.
const BATCH_PARTS: usize = 8;

/// A batch of launches between two events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    pub(super) timing: Timing,
    /// Predicted duration of the work from which the batch is closed.
    pub(super) full: WallTime,
    pub(super) launches: u32,
    pub(super) prepaid: GpuTime,
    pub(super) predicted: WallTime,
    pub(super) idle_between: WallTime,
    pub(super) idle_before_first: WallTime,
    pub(super) idle_after_sync: WallTime,
    /// Predicted duration of the launches before the host last waited.
    pub(super) awaited: WallTime,
    pub(super) idle_after_last: WallTime,
    pub(super) close_delay: WallTime,
    /// True if all estimates of the launches come from measurements.
    pub(super) is_certain: bool,
    pub(super) parts: [Option<BatchPart>; BATCH_PARTS],
}

impl Batch {
    /// Opens a batch after its opening event has been recorded. `event` is the cost of an event.
    #[must_use]
    pub fn open(timing: Timing, event: WallTime) -> Self {
        Self {
            timing,
            full: match timing {
                Timing::Single => WallTime::ZERO,
                Timing::Batched => full(event),
            },
            launches: 0,
            prepaid: GpuTime::ZERO,
            predicted: WallTime::ZERO,
            idle_between: WallTime::ZERO,
            idle_before_first: WallTime::ZERO,
            idle_after_sync: WallTime::ZERO,
            awaited: WallTime::ZERO,
            idle_after_last: WallTime::ZERO,
            close_delay: WallTime::ZERO,
            is_certain: true,
            parts: [None; BATCH_PARTS],
        }
    }

    /// Returns the time for which the stream may have been idle. It is not charged before the batch has ended.
    #[must_use]
    pub const fn idle(&self) -> WallTime {
        self.idle_between
            .saturating_add(self.idle_before_first)
            .saturating_add(self.idle_after_sync)
            .saturating_add(self.close_delay)
    }

    /// Returns the number of launches.
    #[must_use]
    pub const fn launches(&self) -> u32 {
        self.launches
    }

    /// Returns true if there was no launch.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.launches == 0
    }

    /// Returns the way in which the launches are measured.
    #[must_use]
    pub const fn timing(&self) -> Timing {
        self.timing
    }

    /// Returns the GPU time that was prepaid for the launches.
    #[must_use]
    pub const fn prepaid(&self) -> GpuTime {
        self.prepaid
    }

    /// Returns the predicted duration of the launches in sequence.
    #[must_use]
    pub const fn predicted(&self) -> WallTime {
        self.predicted
    }

    /// Records the return of the first launch from the driver, `idle` after the record of the opening event. If that event
    /// had to wait for another event ([`delay`](super::when_alone::delay)), `idle` counts from the instant at which the GPU
    /// passed that other event.
    pub const fn set_idle_before_first(&mut self, idle: WallTime) {
        self.idle_before_first = idle;
    }

    /// Records that the host waited for the GPU. The host was inside the driver for `inside`. That is the time since the
    /// first launch into the empty stream ([`Spell`]), or the wait alone.
    ///
    /// The stream may have been idle for the time beyond the predicted work, for two reasons. A launch may take longer than
    /// its kernel. And the host returns some time after the GPU's end, on a busy machine much later.
    #[inline]
    pub fn host_synchronised(&mut self, inside: WallTime) {
        let idle = inside.saturating_sub(self.unawaited());
        self.idle_after_sync = self.idle_after_sync.saturating_add(idle.max(HOST_RETURN));
        self.awaited = self.predicted;
    }

    /// Returns the predicted duration of the launches since the host last waited.
    const fn unawaited(&self) -> WallTime {
        self.predicted.saturating_sub(self.awaited)
    }

    /// Records that the stream may have been idle for `time` because of the host. This is the time between the return of
    /// one driver call and the entry of the next. After a wait for the stream, it extends to the return of the launch.
    #[inline]
    pub const fn add_idle_between(&mut self, time: WallTime) {
        self.idle_between = self.idle_between.saturating_add(time);
    }

    /// Closes the batch. The stream may have been idle for `idle` since the last launch.
    pub const fn close(&mut self, idle: WallTime) {
        self.add_idle_between(idle);
        self.idle_after_last = idle;
    }

    /// Records that the closing event reached the stream `delay` after the close, because of the host. A host without a
    /// delay is late by less than [`HOST_RETURN`], and this does not count.
    pub fn set_close_delay(&mut self, delay: WallTime) {
        self.close_delay = if delay > HOST_RETURN { delay } else { WallTime::ZERO };
    }

    /// Adds a launch that was prepaid by this estimate. Returns true if the batch is full and must be closed.
    #[inline]
    pub fn add(&mut self, key: &Key, estimate: &Estimate) -> bool {
        // A batch is closed long before its launches fill the counter.
        self.launches = self.launches.wrapping_add(1);
        self.prepaid = self.prepaid.saturating_add(estimate.charged);
        self.predicted = self.predicted.saturating_add(estimate.duration);
        self.is_certain &= estimate.is_certain();
        self.note(key, estimate);
        self.predicted >= self.full
    }

    /// Returns true if a full batch may continue, because a closing event would delay the next kernel. The bound is
    /// [`OLDEST_BATCH`] of predicted work.
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        self.timing == Timing::Batched && self.predicted < OLDEST_BATCH
    }

    fn note(&mut self, key: &Key, estimate: &Estimate) {
        let Estimate { charged, duration, .. } = *estimate;
        for part in &mut self.parts {
            match part {
                Some(part) if part.key.id() != key.id() => {}
                Some(part) => {
                    part.launches = part.launches.wrapping_add(1);
                    part.charged = part.charged.saturating_add(charged);
                    part.duration = part.duration.saturating_add(duration);
                    return;
                }
                None => return *part = Some(BatchPart { key: *key, launches: 1, charged, duration }),
            }
        }
    }

    /// Returns the parts of the batch that learn from it.
    pub fn parts(&self) -> impl Iterator<Item = &BatchPart> {
        self.parts.iter().flatten()
    }

    /// Returns the outcome from which the keys learn, if the whole batch was measured.
    #[must_use]
    pub const fn outcome(&self, charged: GpuTime, duration: WallTime) -> Outcome {
        Outcome { charged, charged_predicted: self.prepaid, duration, duration_predicted: self.predicted }
    }
}

/// A busy spell: the time from the first launch into an empty stream to the next wait for the stream. The thread may close
/// and open batches in it.
///
/// Example: a launch of 10 us delays a kernel of 5 us. The stream is idle for half of the time although the host
/// never leaves the driver. So all time inside the driver beyond the predicted work may have been idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spell {
    /// Predicted duration of the batches that were closed in the spell. `counted` is the part that counts as idle in them.
    predicted: WallTime,
    counted: WallTime,
}

impl Spell {
    /// Returns the part of `inside` that no closed batch accounts for. `inside` is the time inside the driver since the
    /// spell began.
    #[must_use]
    pub const fn left(&self, inside: WallTime) -> WallTime {
        inside.saturating_sub(self.predicted.saturating_add(self.counted))
    }

    /// Returns true if the stream may have become empty `passed` after the spell began. It may have if at most `last` of
    /// predicted work is left. `open` is the open batch.
    #[must_use]
    pub fn may_have_ended(&self, open: Option<&Batch>, passed: WallTime, last: WallTime) -> bool {
        let predicted = self.predicted.saturating_add(open.map_or(WallTime::ZERO, Batch::unawaited));
        passed.saturating_add(last) > predicted
    }

    /// Closes `batch` in the spell. The host was inside the driver for `inside` until its last launch returned.
    pub const fn close(&mut self, batch: &mut Batch, inside: WallTime) {
        let idle = self.left(inside).saturating_sub(batch.unawaited());
        batch.idle_after_sync = batch.idle_after_sync.saturating_add(idle);
        self.predicted = self.predicted.saturating_add(batch.unawaited());
        self.counted = self.counted.saturating_add(idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::{ns, us};

    fn estimate(duration: WallTime) -> Estimate {
        let mut estimate = Estimate::NONE;
        (estimate.charged, estimate.duration, estimate.samples) = (duration.gpu_if_alone(), duration, 1);
        estimate
    }

    fn of(launches: u64, gaps: WallTime) -> Batch {
        let mut batch = Batch::open(Timing::Batched, ns(0));
        batch.set_idle_before_first(us(3));
        for _ in 0..launches {
            batch.add(&Key::graph(1), &estimate(us(20)));
        }
        batch.add_idle_between(gaps);
        batch
    }

    #[test]
    fn a_batch_is_full_after_two_milliseconds_and_a_single_at_once() {
        let mut batch = of(99, ns(0));
        assert!(batch.add(&Key::graph(1), &estimate(us(20))));
        assert!(!of(98, ns(0)).add(&Key::graph(1), &estimate(us(20))));
        assert!(Batch::open(Timing::Single, ns(0)).add(&Key::graph(1), &estimate(ns(1))));
        assert_eq!(batch.prepaid(), us(2000));
    }

    #[test]
    fn a_full_batch_can_go_on_for_ten_milliseconds_and_a_single_cannot() {
        assert!(of(499, ns(0)).can_go_on() && !of(500, ns(0)).can_go_on());
        let mut single = Batch::open(Timing::Single, ns(0));
        single.add(&Key::graph(1), &estimate(ns(1)));
        assert!(!single.can_go_on());
    }

    #[test]
    fn all_that_may_have_been_a_gap_is_not_charged_before_the_end() {
        let mut batch = of(10, ns(100));
        assert_eq!(batch.idle(), us::<WallTime>(3) + ns(100));
        batch.host_synchronised(ns(0));
        batch.close(ns(7));
        batch.set_close_delay(HOST_RETURN + ns(1));
        assert_eq!(batch.idle(), us::<WallTime>(3) + ns(107) + 2 * HOST_RETURN + ns(1));
    }

    #[test]
    fn every_key_of_a_batch_has_its_part_and_too_many_are_charged_all_the_same() {
        let mut batch = Batch::open(Timing::Batched, ns(0));
        assert!(batch.is_empty());
        for key in 0..20 {
            batch.add(&Key::graph(key % 10), &estimate(ns(10)));
        }
        assert!(!batch.is_empty());
        assert_eq!((batch.launches(), batch.prepaid(), batch.predicted()), (20, ns(200), ns(200)));
        assert_eq!(batch.parts().count(), BATCH_PARTS);
        assert!(batch.parts().all(|part| (part.launches, part.duration) == (2, ns(20))));
    }
}
