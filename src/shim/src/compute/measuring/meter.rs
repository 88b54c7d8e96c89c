//! Meter: polls the timing events of pending batches, and charges the measured time.
//!
//! While work is under way, the worker polls once a millisecond. It visits each stream's batches in their order. A batch that
//! has begun and not ended is charged while it runs.
//!
//! The worker locks the meter's state. A thread that ends a context locks it too. A thread that launches does not wait for the
//! lock: if the worker is late, it polls only if the lock is free. If the worker does not run, threads that wait for a batch tick
//! in its place, and wait for the lock. The driver may block the worker for long. So a thread that ends a context leaves a note,
//! which the next poll reads.
//!
//! A thread takes the locks of the notes and of the submitted batches after the lock of the state. It never holds them across a
//! call of the driver. So a thread that submits a batch waits for a short time only.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::device_usage::DeviceUsage;
use super::event_times::ContextTimes;
use super::pending_batch::PendingBatch;
use super::stream_queue::StreamQueue;
use super::usage::UsageState;
use crate::driver_calls::contexts::within;
use crate::os::clock;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use gpuslice_driver::types::status;
use gpuslice_policy::compute::measuring::event_clock::EventCost;
use gpuslice_policy::time::WallTime;
use gpuslice_region::Origin;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;

/// Time for which the meter keeps the end of a stream's last batch after the stream's work has ended.
const REMEMBERED: WallTime = WallTime::from_millis(1_000);
/// Time for which a call that may end a context waits for a poll to end.
const POLL_ENDS: Duration = Duration::from_secs(2);
/// Time for which a call that has ended a context waits for a poll to end. A poll that the driver does not block is shorter.
const AFTER_END: Duration = Duration::from_millis(10);
/// Time for which a stream counts as in use.
const IN_USE: WallTime = WallTime::from_millis(100);

/// All pending batches, and the state of their measurement.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Last number that was given to a stream.
    numbers: AtomicU64,
    /// Batches that were submitted since the last poll. Any thread adds batches, and the thread that polls takes all of them.
    submitted: Mutex<Vec<PendingBatch>>,
    notes: Mutex<ContextNotes>,
    state: Mutex<MeterState>,
}

/// Notes of threads that end contexts or load code into them, by the contexts' numbers.
#[derive(Debug, Default)]
struct ContextNotes {
    /// Contexts that may be ending, or into which code is loaded. No thread polls their events. The list has a context once for
    /// each such call.
    suspended: Vec<u64>,
    /// Contexts that have ended, for the next poll.
    ended: Vec<u64>,
}

#[derive(Debug, Default)]
struct MeterState {
    /// Batches of each stream, by the stream's number, in the order in which they were submitted.
    streams: BTreeMap<u64, StreamQueue>,
    contexts: ContextTimes,
    devices: Vec<DeviceUsage>,
    event_cost: EventCost,
}

impl Meter {
    /// Returns a new number for a thread's use of a stream.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Adds a closed batch, for the next poll.
    pub(crate) fn submit(&self, batch: PendingBatch) {
        self.submitted.lock().push(batch);
    }

    /// Polls the events of pending batches. If another thread polls, it waits for the end of that poll first. Returns the number
    /// of batches that have ended, plus the number of streams that this poll found to wait for something other than the GPU.
    pub(crate) fn poll_events(&self, usage: &UsageState) -> usize {
        self.poll_locked(self.state.lock(), usage)
    }

    /// Polls like [`poll_events`](Self::poll_events). If another thread polls, returns 0 at once.
    pub(crate) fn try_poll_events(&self, usage: &UsageState) -> usize {
        self.state.try_lock().map_or(0, |state| self.poll_locked(state, usage))
    }

    fn poll_locked(&self, mut state: MutexGuard<'_, MeterState>, usage: &UsageState) -> usize {
        state.receive(usage, self);
        state.poll(usage, self)
    }

    /// Notes that a context is about to end. This thread polls the context's events once more. After that no thread polls them
    /// until [`resume_context`](Self::resume_context).
    ///
    /// The last poll measures batches that have ended, because afterwards their events are gone. The thread writes the note
    /// before it releases the lock, so no poll begins in between. Otherwise the worker could be inside the driver with an event
    /// that the driver destroys.
    ///
    /// The wait is bounded, because the driver may block the polling thread for long. After that time only the note protects the
    /// events: the running poll skips streams of the context that it has not reached yet.
    pub(crate) fn suspend_context(&self, usage: &UsageState, pool: u64) {
        let state = self.lock_state(usage, POLL_ENDS);
        let state = state.map(|mut state| {
            state.receive(usage, self);
            state.poll(usage, self);
            state
        });
        self.notes.lock().suspended.push(pool);
        drop(state);
    }

    /// Notes that the call that suspended a context has returned. If the context `has_ended`, its batches are left unmeasured.
    /// Otherwise they are polled again.
    ///
    /// If the context has ended, its pool of events was removed before this call. So a poll between the two notes below finds no
    /// context for the stream, and gives up the batch.
    pub(crate) fn resume_context(&self, usage: &UsageState, pool: u64, has_ended: bool) {
        self.unsuspend(pool);
        if !has_ended {
            return;
        }
        self.notes.lock().ended.push(pool);
        // This thread handles the note itself if possible, because the process may end before the next poll.
        if let Some(mut state) = self.lock_state(usage, AFTER_END) {
            state.receive(usage, self);
        }
    }

    /// Locks the state. Waits for the end of a poll, for `most` at most, because the driver may block the poll while code is
    /// loaded. Does not wait while the process ends.
    fn lock_state(&self, usage: &UsageState, most: Duration) -> Option<MutexGuard<'_, MeterState>> {
        let most = if usage.worker.is_ending() { Duration::ZERO } else { most };
        self.state.try_lock_for(most)
    }

    /// Notes that a call is about to load code into a context. The driver then holds the context's lock until the GPU's queue is
    /// empty, and would block the worker. So the context's events are not polled until the result is dropped.
    ///
    /// Example: the look-up of a function waits for a kernel of one second. Without the note the batches of all contexts would
    /// stay unmeasured for that second. The note does not wait for a poll: a load that begins while the worker is inside the
    /// driver may still block it.
    pub(crate) fn begin_code_load(&'static self, pool: u64) -> CodeLoad {
        self.notes.lock().suspended.push(pool);
        CodeLoad { meter: self, pool }
    }

    /// Takes back one note that a context is suspended. Other calls may have noted the same context, and their notes stay.
    fn unsuspend(&self, pool: u64) {
        let mut notes = self.notes.lock();
        if let Some(at) = notes.suspended.iter().position(|suspended| *suspended == pool) {
            notes.suspended.swap_remove(at);
        }
    }

    /// Returns true if a context may be ending, or if code is loaded into it. Then a call of the driver for an event of the
    /// context may block until the GPU's queue is empty.
    pub(crate) fn is_suspended(&self, pool: u64) -> bool {
        self.notes.lock().suspended.contains(&pool)
    }
}

/// A call that loads code into a context. No thread polls the context's events until this value is dropped.
#[derive(Debug)]
pub(crate) struct CodeLoad {
    meter: &'static Meter,
    pool: u64,
}

impl Drop for CodeLoad {
    fn drop(&mut self) {
        self.meter.unsuspend(self.pool);
    }
}

impl MeterState {
    /// Takes over the batches that were submitted, and the notes about contexts.
    fn receive(&mut self, usage: &UsageState, meter: &Meter) {
        // The notes are taken before the batches. So if a batch was submitted before its context ended, this call receives the
        // batch before it handles the end. In the other order such a batch could arrive after the end was handled.
        let ended = core::mem::take(&mut meter.notes.lock().ended);
        while self.devices.len() < usage.limiters.len() {
            let device = usage.device(self.devices.len());
            let head = device.map_or(0, |device| usage.member().interval_head(device, Origin::Slice));
            self.devices.push(DeviceUsage::new(head));
        }
        for batch in core::mem::take(&mut *meter.submitted.lock()) {
            self.streams.entry(batch.closed.stream).or_default().push(batch);
        }
        for pool in ended {
            self.end_context(usage, pool);
        }
    }

    /// Reads the events of all streams, then charges the measured time. Before that, it reads all intervals that other processes
    /// of the slice have published, because they may cover a part of the measured time. If an interval is half written, this poll
    /// does nothing and the next poll tries again. After 2 ms the reader skips such an interval, so a dead writer delays polls
    /// for 2 ms at most.
    fn poll(&mut self, usage: &UsageState, meter: &Meter) -> usize {
        if !self.read_others(usage) {
            return 0;
        }
        self.read_events(usage, meter);
        let count = self.charge(usage);
        self.forget_idle(usage);
        count
    }

    /// Adds the intervals that other processes of the slice have published to the time lines. Returns true if none is missing.
    fn read_others(&mut self, usage: &UsageState) -> bool {
        let now = clock::now();
        self.devices.iter_mut().zip(&usage.limiters).all(|(device, limiter)| {
            let number = limiter.gpu.device;
            device.read(usage, number, usage.member().interval_head(number, Origin::Slice), now)
        })
    }

    fn read_events(&mut self, usage: &UsageState, meter: &Meter) {
        let Self { streams, contexts, event_cost, .. } = self;
        for queue in streams.values_mut() {
            // The poll checks each stream's context, because a thread may have suspended it since the poll began.
            let Some(pool) = queue.pool().filter(|pool| !meter.is_suspended(*pool)) else { continue };
            let read = || {
                usage.timing.pools.refill(pool);
                queue.read_events(usage, contexts, event_cost)
            };
            let context = usage.timing.pools.context_of(pool);
            let read = context.and_then(|context| within(context, read));
            if let Err(code) = read.unwrap_or(Err(status::INVALID_CONTEXT)) {
                // Without this the next poll would fail at the same batch, and read no batch behind it.
                usage.timing.fail(code);
                queue.give_up_first();
            }
        }
        usage.timing.set_cost(event_cost.get());
    }

    fn charge(&mut self, usage: &UsageState) -> usize {
        let Self { streams, contexts, devices, event_cost } = self;
        // Number of streams that still have batches, the stream of the present pass included. A stream whose last batch ends in
        // its pass does not count in later passes.
        let mut others = streams.values().filter(|queue| !queue.is_empty()).count();
        let mut count = 0_usize;
        for queue in streams.values_mut().filter(|queue| !queue.is_empty()) {
            count = count.saturating_add(queue.charge(usage, devices, contexts, *event_cost, others == 1));
            others = others.saturating_sub(usize::from(queue.is_empty()));
        }
        count
    }

    /// Forgets streams that had no work for [`REMEMBERED`], and writes the number of used streams into the limiters. The meter
    /// keeps a stream for a while, because the end of its last batch tells whether the stream was idle before the next batch.
    fn forget_idle(&mut self, usage: &UsageState) {
        let now = clock::now();
        self.streams.retain(|_, queue| {
            queue.note_empty(now);
            queue.was_used_within(REMEMBERED, now)
        });
        for (at, limiter) in usage.limiters.iter().enumerate() {
            let of_device = || self.streams.values().filter(|queue| queue.device == at);
            let used = of_device().filter(|queue| queue.was_used_within(IN_USE, now)).count();
            limiter.streams.store(used, Ordering::Relaxed);
            limiter.is_running.store(of_device().any(StreamQueue::is_running), Ordering::Relaxed);
        }
    }

    /// Drops the time line and the batches of a context that has ended. For batches that are submitted later,
    /// [`read_events`](Self::read_events) finds no context, and gives them up.
    fn end_context(&mut self, usage: &UsageState, pool: u64) {
        self.contexts.remove(&pool);
        for queue in self.streams.values_mut().filter(|queue| queue.pool() == Some(pool)) {
            queue.end_context(usage);
        }
    }
}
