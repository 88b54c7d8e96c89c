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

/// A stream counts as busy while at least this many launches are predicted to be queued. With one it is about to run empty.
const BUSY_LAUNCHES: u64 = 2;

/// A batch is closed if its thread has launched only elsewhere for this long: 2 ms.
const LEFT_AFTER: WallTime = WallTime::from_millis(2);

/// `CUDA_ERROR_INVALID_HANDLE`: the driver's status for an event in a stream of another context.
const NOT_OF_THIS_CONTEXT: Status = 400;

/// A thread's use of a stream.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) stream: Stream,
    /// True if it waits for the legacy default stream, and is not that stream.
    pub(crate) joins_legacy: bool,
    pub(crate) context: usize,
    /// Context whose events time it: the primary context if the stream's context is green.
    event_context: usize,
    /// Number of `event_context`. A context that ends takes its number with it, so a later context at the same address is
    /// another.
    pub(crate) pool: u64,
    /// Device, as a place among the limiters; none if nothing is paced.
    pub(crate) device: Option<usize>,
    /// Number of this use of the stream: batches with the same number end in order.
    number: u64,
    /// Sum of the host's time outside the driver, at the last launch.
    pub(crate) outside_at_launch: Cycles,
    /// Instant of the last launch.
    pub(crate) launched_at: CycleInstant,
    /// Instant since which the stream is known to be empty, because the host has waited for it. None from the next batch
    /// or launch on.
    pub(crate) empty_since: Option<CycleInstant>,
    /// Start of the busy period, if the stream was known to be empty before.
    pub(crate) busy_since: Option<BusySince>,
    /// Instant at which the stream is predicted to have done the closed batches.
    busy_until: Monotonic,
    /// Predicted duration of a launch in the last closed batch.
    pub(crate) launch_duration: WallTime,
    /// Duration of the last closing of a batch.
    close_duration: WallTime,
    /// Instant of that closing.
    closed_at: CycleInstant,
    /// True if its first batch has to measure the cost of an event in its context.
    calibrates: bool,
    pub(crate) open: Option<OpenBatch>,
}

impl StreamState {
    /// Makes the state of a stream on which the thread launches for the first time. `outside` and `now` are the thread's. None if
    /// the driver does not tell the stream's context.
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

    /// Returns true if other threads can record events in the stream. The handle of a thread's own default stream means another
    /// stream to each thread.
    pub(crate) fn is_shared(&self) -> bool {
        !self.stream.per_thread
    }

    /// Returns true if a closing event can be recorded without a long wait in the driver.
    ///
    /// A driver that loads code holds the lock of the context until the GPU has done the queued work. A thread that records
    /// an event there meanwhile is blocked, and so is all that it does for other contexts. A kernel of the context may even wait
    /// for a launch that this thread is about to make on another device. So the batch stays open until the load has ended.
    pub(crate) fn can_close_at_once(&self, measuring: &MeasuringState) -> bool {
        !measuring.meter.is_suspended(self.pool)
    }

    /// Returns the instant at which the stream is predicted to have done all that this thread has launched on it.
    pub(crate) fn predicted_end(&self) -> Monotonic {
        let open = self.open.as_ref();
        open.map_or(self.busy_until, |open| {
            overdraft::done(self.busy_until, open.opened, open.batch.predicted())
        })
    }

    /// Returns true if the stream may have run empty since it had its first launch: see [`Spell::may_have_ended`].
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
    /// The kernel begins at some point of the launch's call, which the host cannot see. So the time up to the return may have
    /// been idle. Example: a launch takes 300 us because the driver loads code first. The slice must not pay for that.
    ///
    /// If the launch waited for its kernel, that time is the kernel's own and stays in the measurement. A kernel of unknown cost
    /// is the exception: its code may have been loaded before.
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
            // The driver may have loaded the code of an unknown kernel first.
            None if has_ended && !open.is_unknown => {}
            None => open.first_launch_returned(now),
        }
    }

    /// Opens a batch: records its opening event, unless events fail.
    ///
    /// Only a batch that other threads can close counts as under way. While anything is under way, the worker ticks each
    /// millisecond to close it. A thread that leaves a batch open on its own default stream would otherwise keep the worker awake
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
            // An event and a kernel reach the GPU at about the same place of their calls. So the time between the two
            // is the time from return to return. A call that took long may have been delayed before or after that
            // place.
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
    /// Another thread may close the batch, so the call is made within the right context. A default stream belongs to the current
    /// context, and for other streams the driver wants some context to be current. A green context can be current to one thread
    /// at a time, so its primary context serves. An event in a stream that captures would spoil the program's capture.
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

    /// Returns true if the events of the stream are of another context than the stream. Because the driver has refused that, all
    /// threads look their streams up again.
    ///
    /// The same status comes from a stream that has ended, so the function looks whether the two contexts differ. If they do,
    /// this batch is lost, and the next one on the stream is timed by events of the green context itself.
    fn separate_if_green(&self, measuring: &MeasuringState) -> bool {
        let is_green = self.event_context != self.context;
        if is_green {
            measuring.contexts.separate_green();
        }
        is_green
    }

    /// Records events one right behind the other, which measure the cost of one.
    #[cold]
    fn calibrate(&self, measuring: &MeasuringState) -> Vec<Event> {
        (0..AT_FIRST).map_while(|_| self.record(measuring).ok()).map(|(event, _)| event).collect()
    }

    /// Records the closing event of a batch, and submits the batch to the meter. `closed`: the instant of the closing; none if no
    /// event may be recorded any more. A batch without both events is not measured.
    ///
    /// An empty batch gets no closing event: its launch has failed or was never made. Its opening event goes back to the pool.
    ///
    /// Without a measurement the payment by the estimate stands, and launches that wait for an unknown one go on.
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
        // Counted after the pending batch: otherwise nothing would seem to be under way in between.
        if self.is_shared() {
            measuring.end_work();
        }
    }

    /// Hands a batch with both events to the meter.
    ///
    /// A host that loses its processor between the close and the closing event lengthens the measurement. Example: a kernel runs
    /// for 1 ms, and the host is delayed for 5 ms. The time from the close to the return of the driver shows that.
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
        // Only the excess over the last call shows a delayed host; the rest is the driver's usual time.
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

    /// Drops the batch of a thread that has ended: it is not measured.
    pub(crate) fn abandon(self, measuring: &MeasuringState) {
        if let (Some(open), Some(device)) = (self.open, self.device) {
            open.start.into_iter().for_each(|start| measuring.timing.pools.put(self.pool, start));
            measuring.leave_unmeasured(device, &open.batch, open.is_unknown);
        }
    }
}
