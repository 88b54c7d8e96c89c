//! A stream as one thread uses it: its open batch, its events, and the predicted end of its work.

use super::open_batch::{BusySince, OpenBatch};
use crate::compute::measuring::pending_batch::ClosedBatch;
use crate::compute::measuring::state::MeasuringState;
use crate::driver_calls::capture_mode::{self, relaxed_if_capturing};
use crate::driver_calls::contexts::{self, within};
use crate::driver_calls::events::{self, Event};
use crate::driver_calls::streams::{self, Stream};
use crate::os::clock::{self, CycleInstant, Cycles};
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::limiter::overdraft;
use gpuslice_policy::compute::measuring::batch::{Batch, HOST_RETURN};
use gpuslice_policy::compute::measuring::event_clock::AT_FIRST;
use gpuslice_policy::compute::measuring::when_alone::{self, Timing};
use gpuslice_policy::time::{Monotonic, WallTime};

/// Number of launches that must be predicted to be queued for a stream to count as busy. With one launch it is about to be empty.
const BUSY_LAUNCHES: u64 = 2;

/// Time after which the thread closes a batch if it has launched only on other streams meanwhile.
const LEFT_AFTER: WallTime = WallTime::from_millis(2);

/// `CUDA_ERROR_INVALID_HANDLE`: the driver's status for an event in a stream of another context.
const NOT_OF_THIS_CONTEXT: Status = 400;

/// A thread's use of a stream.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) stream: Stream,
    /// True if the stream waits for the legacy default stream, and is not that stream.
    pub(crate) joins_legacy: bool,
    pub(crate) context: usize,
    /// Context whose events time the stream: the primary context if the stream's context is green.
    event_context: usize,
    /// Number of `event_context`. The number is not used again, so a later context with the same handle has another number.
    pub(crate) pool: u64,
    /// Device, as a place among the limiters; `None` for a device without a limiter.
    pub(crate) device: Option<usize>,
    /// Number of this use of the stream: batches with the same number end in order.
    number: u64,
    /// Sum of the host's time outside the driver, at the last launch.
    pub(crate) outside_at_launch: Cycles,
    /// Instant of the last launch.
    pub(crate) launched_at: CycleInstant,
    /// Instant since which the stream is known to be empty, because the host has waited for it. The next batch or launch
    /// sets it to `None`.
    pub(crate) empty_since: Option<CycleInstant>,
    /// Start of the busy period, if the stream was known to be empty before.
    pub(crate) busy_since: Option<BusySince>,
    /// Instant at which the GPU is predicted to have done the closed batches of the stream.
    busy_until: Monotonic,
    /// Predicted duration of a launch in the last closed batch.
    pub(crate) launch_duration: WallTime,
    /// Duration of the last close of a batch.
    close_duration: WallTime,
    /// Instant of the last close of a batch.
    closed_at: CycleInstant,
    /// True if the first batch of the stream has to measure the cost of an event in its context.
    calibrates: bool,
    pub(crate) open: Option<OpenBatch>,
}

impl StreamState {
    /// Makes the state of a stream on which the thread launches for the first time. `outside` and `now` are the thread's. Returns
    /// `None` if the driver does not report the stream's context.
    pub(crate) fn new(
        measuring: &MeasuringState,
        stream: Stream,
        outside: Cycles,
        now: CycleInstant,
    ) -> Option<Self> {
        let context = streams::stream_context(stream.handle)?;
        let event_context = measuring.contexts.event_context(measuring, context);
        let handle = contexts::context_device(event_context)?;
        let device = measuring.limiters.iter().position(|limiter| limiter.gpu.handle == handle);
        let pool = measuring.timing.pools.number_of(event_context);
        Some(Self {
            stream,
            joins_legacy: !stream.is_legacy()
                && (stream.is_default() || streams::waits_for_legacy(stream.handle)),
            context,
            event_context,
            pool,
            device,
            number: measuring.meter.next_number(),
            outside_at_launch: outside,
            launched_at: now,
            empty_since: None,
            busy_since: None,
            busy_until: Monotonic::BEGIN,
            launch_duration: WallTime::ZERO,
            close_duration: WallTime::ZERO,
            closed_at: CycleInstant::BEGIN,
            calibrates: measuring.timing.pools.is_first(pool),
            open: None,
        })
    }

    #[inline(always)]
    pub(crate) fn is_of(&self, stream: Stream, context: Option<usize>) -> bool {
        self.stream == stream && context.is_none_or(|context| self.context == context)
    }

    /// Returns true if a launch is the first since its batch was opened, or since the stream was last known to be empty.
    #[inline(always)]
    pub(crate) fn is_at_first(&self) -> bool {
        self.open.as_ref().is_some_and(|open| self.empty_since.is_some() || open.batch.is_empty())
    }

    /// Returns true if the stream has an open batch into which nothing was launched for [`LEFT_AFTER`].
    pub(crate) fn is_left(&self, now: CycleInstant) -> bool {
        let is_used = self.open.as_ref().is_some_and(|open| !open.batch.is_empty());
        is_used && self.empty_since.is_none() && now.since(self.launched_at).wall_time() >= LEFT_AFTER
    }

    /// Returns true if other threads can record events in the stream. They cannot in a thread's own default stream, because its
    /// handle names another stream in each thread.
    pub(crate) fn is_shared(&self) -> bool {
        !self.stream.per_thread
    }

    /// Returns true if a closing event can be recorded without a long wait in the driver.
    ///
    /// A driver that loads code holds the lock of the context until the GPU has done the queued work. Meanwhile it blocks a
    /// thread that records an event there, and that thread can do nothing for other contexts. A kernel of the context may even
    /// wait for a launch that this thread is about to make on another device. So the batch stays open until the load has ended.
    pub(crate) fn can_close_at_once(&self, measuring: &MeasuringState) -> bool {
        !measuring.meter.is_suspended(self.pool)
    }

    /// Returns the instant at which the GPU is predicted to have done all work that this thread has launched on the stream.
    pub(crate) fn predicted_end(&self) -> Monotonic {
        let open = self.open.as_ref();
        open.map_or(self.busy_until, |open| {
            overdraft::done(self.busy_until, open.opened, open.batch.predicted())
        })
    }

    /// Returns true if the stream may have become empty since the first launch of its busy period: see
    /// [`Spell::may_have_ended`].
    ///
    /// [`Spell::may_have_ended`]: gpuslice_policy::compute::measuring::batch::Spell::may_have_ended
    pub(crate) fn may_be_empty(&self, now: CycleInstant, known: &Estimate) -> bool {
        let Some(since) = self.busy_since.as_ref().filter(|_| self.empty_since.is_none()) else {
            return false;
        };
        let batch = self.open.as_ref().map(|open| &open.batch);
        let passed = now.since(since.at).wall_time();
        since.spell.may_have_ended(batch, passed, known.duration.saturating_mul(BUSY_LAUNCHES))
    }

    /// Notes that the first launch since the batch was opened, or since the stream was empty, has left the driver. `has_ended`:
    /// the launch left the driver only after its kernel had ended.
    ///
    /// The kernel begins at some instant of the launch's call that the host cannot see. So the stream may have been idle up to
    /// the return. Example: a launch takes 300 us because the driver loads code first. The slice must not pay for that time.
    ///
    /// If the launch waited for its kernel, that time is the kernel's own and stays in the measurement. A kernel of unknown cost
    /// is an exception, because the driver may have loaded its code in this call.
    #[cold]
    pub(crate) fn note_first(&mut self, now: CycleInstant, has_ended: bool) {
        let Some(open) = &mut self.open else { return };
        let is_idle = open.known_idle || open.opened >= self.busy_until;
        if self.empty_since.is_some() || self.busy_since.is_none() && open.batch.is_empty() && is_idle {
            let outside = self.outside_at_launch;
            self.busy_since = Some(BusySince { at: now, outside, spell: Default::default() });
        }
        match self.empty_since.take() {
            Some(since) => open.batch.add_idle_between(now.since(since).wall_time()),
            // For an unknown kernel the last arm applies, because the driver may have loaded its code in this call.
            None if has_ended && !open.is_unknown => {}
            None => open.first_launch_returned(now),
        }
    }

    /// Opens a batch: records its opening event, unless events fail.
    ///
    /// Only a batch that other threads can close counts as under way. While a batch is under way, the worker ticks each
    /// millisecond to close it. Otherwise a thread that leaves a batch open on its own default stream would keep the worker awake
    /// for ever.
    pub(crate) fn new_batch(&mut self, measuring: &MeasuringState, timing: Timing) -> OpenBatch {
        let (opened, before) = (clock::now(), CycleInstant::now());
        // While the process ends, no thread polls events.
        let is_measured = measuring.timing.are_used() && !measuring.worker.is_ending();
        let start = is_measured.then(|| self.record(measuring)).and_then(Result::ok);
        let after = start.map_or(before, |(_, returned)| returned);
        let start = start.map(|(event, _)| event);
        if self.is_shared() {
            measuring.begin_work();
        }
        let known_idle = self.empty_since.take().is_some();
        let cost = measuring.timing.cost();
        let delay = if known_idle { after.since(self.closed_at).wall_time() } else { WallTime::ZERO };
        OpenBatch {
            batch: Batch::open(timing, cost),
            start,
            opened,
            // The driver submits an event, and a kernel, at about the same point of its call. So the time between the two is
            // the time from return to return. If a call took long, the delay may have been before or after that point. Then the
            // time from the beginning of the call counts.
            since: if after.since(before).is_less_than(HOST_RETURN) { after } else { before },
            delay: if known_idle { when_alone::delay(delay, cost) } else { WallTime::ZERO },
            gaps: Cycles::default(),
            known_idle,
            is_unknown: false,
            is_copy: false,
        }
    }

    /// Records an event in the stream. Returns the event, and the instant at which the driver returned.
    ///
    /// Another thread may close the batch, so this function makes the right context current. A default stream belongs to the
    /// current context, and for other streams the driver requires any current context. A green context can be current to one
    /// thread at a time, so its primary context is used. If the stream captures, the function fails, because an event would
    /// invalidate the program's capture.
    fn record(&self, measuring: &MeasuringState) -> Result<(Event, CycleInstant), Status> {
        let may_capture = capture_mode::is_open();
        let pools = &measuring.timing.pools;
        let recorded = relaxed_if_capturing(|| {
            if may_capture && self.stream.may_capture() {
                return Err(status::CAPTURE_INVALIDATED);
            }
            let event = pools.get(self.pool)?;
            let current = if self.stream.is_default() { self.context } else { self.event_context };
            let recorded = within(current, || {
                let recorded = events::record(event, self.stream);
                recorded.map(|()| CycleInstant::now())
            });
            let recorded = recorded.map(|recorded| {
                recorded.map_err(|code| match code {
                    NOT_OF_THIS_CONTEXT if self.separate_if_green(measuring) => status::INVALID_CONTEXT,
                    _ => code,
                })
            });
            let recorded = recorded.unwrap_or(Err(status::INVALID_CONTEXT));
            recorded.inspect_err(|_| pools.put(self.pool, event)).map(|returned| (event, returned))
        });
        recorded.inspect_err(|code| measuring.timing.fail(*code))
    }

    /// Returns true if the events of the stream are of another context than the stream. Then the driver refuses such events, so
    /// all threads have to look their streams up again.
    ///
    /// The driver returns the same status for a stream that has ended, so the function compares the two contexts. If they differ,
    /// this batch is lost, and events of the green context itself time the next batch on the stream.
    fn separate_if_green(&self, measuring: &MeasuringState) -> bool {
        let is_green = self.event_context != self.context;
        if is_green {
            measuring.contexts.separate_green();
        }
        is_green
    }

    /// Records events in a row, which measure the cost of one event.
    #[cold]
    fn calibrate(&self, measuring: &MeasuringState) -> Vec<Event> {
        (0..AT_FIRST).map_while(|_| self.record(measuring).ok()).map(|(event, _)| event).collect()
    }

    /// Records the closing event of a batch, and submits the batch to the meter. `closed`: the instant of the close; `None` if
    /// the library must not record events in the stream any more. A batch without both events is not measured.
    ///
    /// An empty batch gets no closing event: its launch has failed or was never made. Its opening event goes back to the pool.
    ///
    /// Without a measurement the payment by the estimate stays, and launches that wait for an unknown launch continue.
    /// Otherwise they would wait for 50 ms for a measurement that never comes.
    pub(crate) fn submit(
        &mut self,
        measuring: &MeasuringState,
        open: OpenBatch,
        closed: Option<CycleInstant>,
    ) {
        self.busy_until = overdraft::done(self.busy_until, open.opened, open.batch.predicted());
        self.launch_duration = open.batch.predicted().part(open.batch.launches().max(1).into());
        let Some(device) = self.device else { return };
        let is_measured = open.start.filter(|_| closed.is_some() && !open.batch.is_empty());
        let end = is_measured.and_then(|_| self.record(measuring).ok()).map(|(event, _)| event);
        match (open.start, end, closed) {
            (Some(start), Some(end), Some(closed)) => {
                self.submit_measured(measuring, device, open, [start, end], closed);
            }
            (start, ..) => {
                start.into_iter().for_each(|start| measuring.timing.pools.put(self.pool, start));
                if !open.is_copy {
                    measuring.leave_unmeasured(device, &open.batch, open.is_unknown);
                }
            }
        }
        // The end of the open batch is counted after the pending batch. Otherwise the count could be 0 in between.
        if self.is_shared() {
            measuring.end_work();
        }
    }

    /// Hands a batch with both events to the meter.
    ///
    /// If the thread loses its processor between the close and the closing event, the measured time is too long. Example: a
    /// kernel runs for 1 ms, and the thread is delayed for 5 ms. The time from the close to the return of the driver shows the
    /// delay.
    fn submit_measured(
        &mut self,
        measuring: &MeasuringState,
        device: usize,
        open: OpenBatch,
        [start, end]: [Event; 2],
        closed: CycleInstant,
    ) {
        let OpenBatch { mut batch, opened, known_idle, is_unknown, is_copy, .. } = open;
        self.closed_at = CycleInstant::now();
        let duration = self.closed_at.since(closed).wall_time();
        let before = core::mem::replace(&mut self.close_duration, duration);
        // Only the excess over the last call shows a delay of the thread. The rest is the driver's usual time.
        batch.set_close_delay(duration.saturating_sub(before));
        if let Some(limiter) = measuring.limiters.get(device) {
            limiter.extend_busy_until(self.busy_until);
        }
        let calibrates = core::mem::take(&mut self.calibrates);
        let calibration = if calibrates { self.calibrate(measuring) } else { Vec::new() };
        measuring.submit(ClosedBatch {
            stream: self.number,
            pool: self.pool,
            device,
            batch,
            start,
            end,
            calibration,
            opened,
            known_idle,
            is_unknown,
            is_copy,
        });
    }

    /// Drops the open batch of a thread that has ended. The batch is not measured.
    pub(crate) fn abandon(self, measuring: &MeasuringState) {
        if let (Some(open), Some(device)) = (self.open, self.device) {
            open.start.into_iter().for_each(|start| measuring.timing.pools.put(self.pool, start));
            measuring.leave_unmeasured(device, &open.batch, open.is_unknown);
        }
    }
}
