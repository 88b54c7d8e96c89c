//! Limiter of GPU time on one device, in this process: the queued work, and its bound.
//!
//! Example: with a share of 50 % the process may queue 20 ms of predicted work. A launch that would exceed this bound waits until
//! some of the work has ended. If a co-tenant with high priority leaves less room, the bound is smaller.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::credit::CreditLock;
use crate::os::clock::now;
use crate::os::time_word::TimeWord;
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use gpuslice_policy::compute::cost::estimate::Key;
use gpuslice_policy::compute::limiter::queue_bound::{self, QueuedWork, Unknown};
use gpuslice_policy::compute::measuring::batch::Batch;
use gpuslice_policy::config::Priority;
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};
use parking_lot::Mutex;
use std::os::unix::ffi::OsStrExt;

/// A device and the work that this process has queued on it.
///
/// Launching threads and the worker read and write these atomics without a lock. Each atomic is right by itself, but two of them
/// may be of different instants. Example: a launch reads the queued time before a batch ends, and the bound after the arbiter's
/// grant has changed. Such a launch is admitted a moment too early or too late, but the slice pays for it in any case.
///
/// "Poll" below is a poll of timing events: by the worker, or by a thread that waits and polls in its place.
#[derive(Debug)]
pub(crate) struct DeviceLimiter {
    /// The device.
    pub(crate) gpu: SliceDevice,
    /// Credit that all threads of the process may spend.
    pub(crate) credit: CreditLock,
    /// Instant at which a thread last checked that the region still exists. All threads share the instant, so that many waiting
    /// threads check as seldom as one thread.
    pub(crate) region_checked_at: TimeWord<Monotonic>,
    /// Number of batches that have ended, or whose end no thread will see; wraps. A thread without credit reads it repeatedly, to
    /// learn whether work of its process still ends.
    pub(crate) completions: AtomicU32,
    /// Streams in use, as of the last poll of events.
    pub(crate) streams: AtomicUsize,
    /// Predicted time of closed batches that have not been seen to end. The thread that closes a batch adds, a poll subtracts.
    /// Each launch reads it.
    pub(crate) queued: TimeWord<GpuTime>,
    /// Number of launches in the closed batches that have not been seen to end.
    queued_launches: AtomicU32,
    /// Instant at which the last closed batch is predicted to end. Threads only raise it, so it may be later than the real end.
    pub(crate) busy_until: TimeWord<Monotonic>,
    /// True if the GPU was at work on a batch at the last poll of events.
    pub(crate) is_running: AtomicBool,
    /// Room that co-tenants leave for queued work, as of the worker's last tick. The tick writes it.
    pub(crate) room: TimeWord<GpuTime>,
    /// True if no other process of the slice uses the device, as of the last request for time. Written by threads that request.
    is_alone: AtomicBool,
    /// Bound of queued time for short launches. It follows from `room` and `is_alone`, so that a launch reads one word only.
    queue_bound: TimeWord<GpuTime>,
    /// Bound of launches in flight on a stream.
    launch_bound: u32,
    /// Instant at which the queued work is expected to have ended. Kept only while the bound is reduced.
    queue_ends: TimeWord<Monotonic>,
    /// Launches of unknown cost in flight.
    pub(crate) unknown: Mutex<Unknown>,
}

impl DeviceLimiter {
    /// Makes the limiter of a device, before any launch.
    pub(crate) fn new(gpu: SliceDevice) -> Self {
        let scale = std::env::var_os("CUDA_SCALE_LAUNCH_QUEUES");
        let queue_scale = queue_bound::queue_scale(scale.as_deref().map(OsStrExt::as_bytes));
        Self {
            gpu,
            credit: CreditLock::default(),
            region_checked_at: TimeWord::zero(),
            completions: AtomicU32::new(0),
            streams: AtomicUsize::new(0),
            queued: TimeWord::zero(),
            queued_launches: AtomicU32::new(0),
            busy_until: TimeWord::zero(),
            is_running: AtomicBool::new(false),
            room: TimeWord::new(GpuTime::MAX),
            is_alone: AtomicBool::new(true),
            queue_bound: TimeWord::new(queue_bound::LEAST_BOUND),
            launch_bound: queue_bound::launches(queue_scale),
            queue_ends: TimeWord::zero(),
            unknown: Mutex::default(),
        }
    }

    /// Returns true if the slice has less than all of the device's time now, or divides it with others.
    #[inline]
    pub(crate) fn is_pacing(&self, slice: &Slice) -> bool {
        slice.region().is_paced(self.gpu.device)
    }

    /// Returns true if this slice divides the device's time with other slices.
    pub(crate) fn is_divided(&self, slice: &Slice) -> bool {
        slice.region().limits(self.gpu.device).sharing.divides()
    }

    /// Returns true if other slices yield to this slice.
    pub(crate) fn has_priority(&self, slice: &Slice) -> bool {
        let sharing = slice.region().limits(self.gpu.device).sharing;
        sharing.divides() && sharing.priority == Priority::High
    }

    /// Returns true if co-tenants leave less room than usual for queued work. Then the slice takes no GPU time in advance.
    pub(crate) fn must_yield(&self) -> bool {
        self.room.get() < queue_bound::LEAST_BOUND
    }

    /// Reads the room from the arbiter's grant. A grant that is too old is dropped: otherwise a slice would keep the small room
    /// of a grant whose arbiter has died.
    pub(crate) fn read_grant(&self, slice: &Slice) {
        let room = slice.region().expire_grant(self.gpu.device, now).unwrap_or(GpuTime::MAX);
        self.room.set(room);
        self.update_bound();
    }

    /// Notes whether no other process of the slice uses the device.
    pub(crate) fn set_alone(&self, is_alone: bool) {
        self.is_alone.store(is_alone, Ordering::Relaxed);
        self.update_bound();
    }

    /// Computes the bound from `room` and `is_alone`. If two threads do this at once, the later write may use an old word. The
    /// next tick of the worker computes the bound again, so a wrong bound holds for about a millisecond.
    fn update_bound(&self) {
        let bound = queue_bound::least(self.room.get(), self.is_alone.load(Ordering::Relaxed));
        self.queue_bound.set(bound);
    }

    /// Returns true if co-tenants, or other processes of the slice, leave less room than usual for queued work.
    pub(crate) fn has_reduced_bound(&self) -> bool {
        self.queue_bound.get() < queue_bound::LEAST_BOUND
    }

    /// Returns true if a launch of this cost may follow the work that is queued.
    ///
    /// The function reserves nothing, so several threads may be admitted by the same reading. Open batches do not count. Both
    /// errors are bounded: a batch is closed after about 2 ms of work, or 10 ms if its launches are chained, and then counts. An
    /// exact count would need a word that all threads write in each launch.
    #[inline]
    pub(crate) fn admits(&self, cost: GpuTime) -> bool {
        let bound = self.queue_bound.get();
        QueuedWork::of(self.queued.get()).admits_within(cost, bound)
    }

    /// Returns true if the driver's queue of a stream is about to be full. `open`: number of launches in the stream's open batch.
    /// `left`: time for which the stream is predicted to be busy. `each`: predicted time of one launch.
    pub(crate) fn is_full(&self, open: u32, left: WallTime, each: WallTime) -> bool {
        let queued = self.queued_launches.load(Ordering::Relaxed).saturating_add(open);
        queue_bound::launches_ahead(queued, left, each) > self.launch_bound
    }

    /// Adds a closed batch to the queue.
    ///
    /// Usually the worker publishes the sum at its next tick. In two cases a millisecond is too late: the queue was empty, or its
    /// bound is reduced.
    pub(crate) fn enqueue(&self, slice: &Slice, batch: &Batch) {
        let before = self.add_to_queue(batch);
        if before.is_zero() || self.has_reduced_bound() {
            self.note_growth(slice, before, batch.prepaid());
        }
    }

    /// Adds a batch to the queue. Returns the predicted time before.
    fn add_to_queue(&self, batch: &Batch) -> GpuTime {
        self.queued_launches.fetch_add(batch.launches(), Ordering::Relaxed);
        self.queued.add(batch.prepaid())
    }

    /// Notes work that came into an empty queue, or into a queue with a reduced bound.
    #[cold]
    #[inline(never)]
    fn note_growth(&self, slice: &Slice, before: GpuTime, prepaid: GpuTime) {
        if before.is_zero() {
            // A co-tenant that yields to this slice must see its work at once, not at the worker's next tick.
            slice.member().set_queued(self.gpu.device, prepaid);
        }
        if self.has_reduced_bound() {
            let now = now();
            self.expect_end(
                now.saturating_add(self.time_to_end(now)).saturating_add(prepaid.wall_if_alone()),
            );
        }
    }

    /// Sets the instant at which the queue is expected to be empty. The new value may be earlier, because each ended batch
    /// corrects it. If two threads set it at once, a wrong value lasts until the next batch is closed or ends.
    fn expect_end(&self, at: Monotonic) {
        self.queue_ends.set(at);
    }

    /// Returns the wall time until the queued work is expected to have ended.
    pub(crate) fn time_to_end(&self, now: Monotonic) -> WallTime {
        self.queue_ends.get().since(now)
    }

    /// Notes that a stream of the device is predicted to be busy until `until`.
    pub(crate) fn extend_busy_until(&self, until: Monotonic) {
        self.busy_until.raise(until);
    }

    /// Notes that a batch ended at `ended`, or that no thread will see its end. `queued`: the batch, if it was still in the
    /// queue.
    ///
    /// With a reduced bound the expected end is computed again from the real end of the batch. Otherwise errors of the estimates
    /// would add up. The next launch would then come too late, so that the GPU is idle, or so early that co-tenants wait for it.
    pub(crate) fn complete(&self, queued: Option<&Batch>, ended: Monotonic) {
        self.completions.fetch_add(1, Ordering::Relaxed);
        let left = queued.map_or_else(|| self.queued.get(), |batch| self.dequeue(batch));
        if self.has_reduced_bound() {
            self.expect_end(ended.saturating_add(left.wall_if_alone()));
        }
    }

    /// Takes a batch out of the queue. Returns the predicted time that is left. The batch must be in the queue. Otherwise
    /// `queued_launches` would wrap below 0, and each stream could seem full.
    fn dequeue(&self, batch: &Batch) -> GpuTime {
        self.queued_launches.fetch_sub(batch.launches(), Ordering::Relaxed);
        let by = batch.prepaid();
        let less = |queued: GpuTime| Some(queued.saturating_sub(by));
        let before = self.queued.change(less);
        before.unwrap_or_default().saturating_sub(by)
    }

    /// Takes a batch out of the queue that waits for something other than the GPU, so that no launch waits for it.
    /// `holds_unknown`: launches of unknown cost wait for its measurement.
    ///
    /// Example: a stream waits for a host callback, which runs only after the program has launched on another stream. If the
    /// blocked batches still counted, that launch would wait for them, and both would stand still.
    pub(crate) fn mark_blocked(&self, batch: &Batch, holds_unknown: bool) {
        self.dequeue(batch);
        if holds_unknown {
            self.finish_unknown(batch);
        }
    }

    /// Counts a batch that was blocked as queued again.
    pub(crate) fn requeue(&self, batch: &Batch) {
        self.add_to_queue(batch);
    }

    /// Notes that a launch of unknown cost has gone to the driver.
    ///
    /// The thread writes the mark in the region under the lock. Otherwise the worker could find no unknown launch, then this
    /// thread writes the mark, and then the worker clears it. If the process died after that, the launch's time would not be
    /// charged to the slice.
    pub(crate) fn begin_unknown(&self, slice: &Slice, key: &Key) {
        let mut unknown = self.unknown.lock();
        unknown.add(key);
        slice.member().set_unpredicted(self.gpu.device, true);
    }

    /// Notes that a batch of launches of unknown cost was measured, or that it will not be measured.
    pub(crate) fn finish_unknown(&self, batch: &Batch) {
        batch.parts().for_each(|part| self.unknown.lock().done(&part.key));
    }

    /// Returns true if launches of unknown cost are in flight.
    pub(crate) fn has_unknown(&self) -> bool {
        self.unknown.lock().any()
    }
}
