//! What does a thread know of its launches: its credit, the streams that it launches on, its open runs?
//!
//! All instants are cycles of `clock`, but for the one at which a run was opened: that is compared with events.

use crate::compute::launch::{Kind, Launch};
use crate::compute::measuring::device_usage::PendingBatch;
use crate::compute::state::Compute;
use crate::driver_calls::capture_mode::{self, apart};
use crate::driver_calls::contexts::{self, within};
use crate::driver_calls::events::{self, Event};
use crate::driver_calls::streams::{self, Stream};
use crate::os::clock;
use core::sync::atomic::Ordering;
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::compute::cost::estimate::{Estimate, Key};
use gpuslice_policy::compute::cost::thread_cache::Recent;
use gpuslice_policy::compute::limiter::lease::Lease;
use gpuslice_policy::compute::limiter::overdraft;
use gpuslice_policy::compute::measuring::batch::{OLD, RETURN, Run, Spell};
use gpuslice_policy::compute::measuring::event_clock::AT_FIRST;
use gpuslice_policy::compute::measuring::when_alone::{self, Bracket, SPARSE, Sampler};

/// How many launches are predicted to be queued where a stream counts as busy: two. By one it is about to run empty.
const BACKLOG: u64 = 2;

/// Of so many runs with gaps at a time the sampler is told: it chooses the next launch after fewer.
const MOST_TOLD: usize = 16;

/// A run into which nothing was launched for so long, in nanoseconds, while its thread launched elsewhere, is closed: 2 ms.
const LEFT: u64 = 2_000_000;

/// `CUDA_ERROR_INVALID_HANDLE`: what a driver says of an event in a stream of another context.
const NOT_OF_THIS_CONTEXT: Status = 400;

/// What a thread keeps.
#[derive(Debug)]
pub(crate) struct ThreadState {
    /// Credit, by device.
    pub(crate) leases: Vec<Lease>,
    /// Copies of estimates.
    pub(crate) recent: Recent,
    /// Chooses launches to be measured alone.
    sampler: Sampler,
    /// Of how many runs with gaps it has been told.
    gaps_told: u64,
    /// When the host left the driver last.
    pub(crate) left: u64,
    /// For how long it has been outside in sum.
    pub(crate) outside: u64,
    /// The streams that it launches on.
    pub(crate) lanes: Vec<StreamState>,
    /// The lane of the last launch.
    last: usize,
    /// Whether a lane may have an open run on a stream that is known to be empty.
    pub(crate) idle_runs: bool,
    /// Whether a run may be open on a legacy default stream.
    legacy_runs: bool,
    /// Which ends of streams it has heard of.
    pub(crate) ends_seen: u64,
    /// Copies so far.
    pub(crate) copies: u32,
    /// From how many nanoseconds on a kernel, and a graph, is measured alone. As it was when a run was opened last.
    long: [u64; 2],
}

/// A stream as one thread uses it.
#[derive(Debug)]
pub(crate) struct StreamState {
    /// The stream.
    pub(crate) stream: Stream,
    /// Whether it waits for the legacy default stream, and is another one.
    pub(crate) joins_legacy: bool,
    /// Its context.
    pub(crate) context: usize,
    /// The context whose events tell of it: of a green one the primary.
    home: usize,
    /// Our number for that.
    pub(crate) pool: u64,
    /// Its device, as a place in `Compute::pacers`; none where nobody paces.
    pub(crate) device: Option<usize>,
    /// A number of its own: flights of a lane end in order.
    pub(crate) number: u64,
    /// How long the host had been outside at the last launch.
    pub(crate) launched: u64,
    /// When that was.
    last: u64,
    /// BusySince when the stream is known to be empty.
    pub(crate) empty: Option<u64>,
    /// BusySince when the stream has work that was empty before; none if that is not known.
    spell: Option<BusySince>,
    /// When the stream is predicted to be done with the runs that were closed, on the monotonic clock.
    until: u64,
    /// How long it took to close the last run, in nanoseconds, and when that was done.
    closing: u64,
    closed: u64,
    /// Whether its first run is to tell what an event costs in its context.
    calibrates: bool,
    /// The run that launches go into.
    pub(crate) open: Option<OpenBatch>,
}

/// When a stream that was empty had its first launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BusySince {
    at: u64,
    /// How long the host had been outside in sum.
    outside: u64,
    spell: Spell,
}

impl BusySince {
    /// For how many nanoseconds the host was inside the driver until `now`, when it had been outside for `outside` in sum.
    fn inside(&self, now: u64, outside: u64) -> u64 {
        clock::between(now.saturating_sub(self.at), outside.saturating_sub(self.outside))
    }
}

/// A run that is not closed.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    pub(crate) run: Run,
    /// Recorded before its first launch; none where events fail.
    start: Option<Event>,
    /// When that was, on the monotonic clock and in cycles.
    opened: u64,
    pub(crate) since: u64,
    /// How long after that it passes where the stream is known to be empty, in nanoseconds.
    delay: u64,
    /// For how long the host was outside between its launches.
    gaps: u64,
    /// Whether the host had waited for the stream.
    known_idle: bool,
    /// Whether it is a launch of which nothing is known.
    pub(crate) is_unknown: bool,
    /// Whether it is a copy that nobody pays for.
    is_copy: bool,
}

impl ThreadState {
    pub(crate) fn new(compute: &'static Compute) -> Self {
        Self {
            leases: vec![Lease::NONE; compute.pacers.len()],
            recent: Recent::NONE,
            sampler: Sampler::default(),
            gaps_told: 0,
            left: clock::cycles(),
            outside: 0,
            lanes: Vec::new(),
            last: 0,
            idle_runs: false,
            legacy_runs: false,
            ends_seen: 0,
            copies: 0,
            long: [0; 2],
        }
    }

    /// The host enters the driver: it was outside until now.
    #[inline]
    pub(crate) fn enters(&mut self, now: u64) {
        self.outside = self.outside.saturating_add(now.saturating_sub(self.left));
        self.left = now;
    }

    /// The lane of a stream, if this thread has launched on it.
    #[inline(always)]
    pub(crate) fn lane_of(&mut self, compute: &Compute, stream: Stream) -> Option<usize> {
        let is_asked = stream.is_default() && !compute.one_context.load(Ordering::Relaxed);
        let context = if is_asked { Some(contexts::current_context()?) } else { None };
        if self.lanes.get(self.last).is_some_and(|lane| lane.is_of(stream, context)) {
            return Some(self.last);
        }
        self.other_lane_of(stream, context)
    }

    #[inline(never)]
    fn other_lane_of(&mut self, stream: Stream, context: Option<usize>) -> Option<usize> {
        // Streams that are used in turn follow each other.
        let next = self.last.wrapping_add(1);
        let is_next = self.lanes.get(next).is_some_and(|lane| lane.is_of(stream, context));
        let mut lanes = self.lanes.iter();
        self.last = if is_next { next } else { lanes.position(|lane| lane.is_of(stream, context))? };
        Some(self.last)
    }

    /// Makes a lane for a stream. None where the driver does not say whose it is.
    #[cold]
    pub(crate) fn add_lane(&mut self, compute: &'static Compute, stream: Stream) -> Option<usize> {
        let context = streams::stream_context(stream.handle)?;
        let home = compute.home_of(context);
        let handle = contexts::context_device(home)?;
        let device = compute.pacers.iter().position(|pacer| pacer.place.handle == handle);
        let pool = compute.events.number_of(home);
        self.lanes.push(StreamState {
            stream,
            joins_legacy: !stream.is_legacy()
                && (stream.is_default() || streams::waits_for_legacy(stream.handle)),
            context,
            home,
            pool,
            device,
            number: compute.meter.next_number(),
            launched: self.outside,
            last: self.left,
            empty: None,
            spell: None,
            until: 0,
            closing: 0,
            closed: 0,
            calibrates: compute.events.is_first(pool),
            open: None,
        });
        self.last = self.lanes.len().saturating_sub(1);
        Some(self.last)
    }

    /// Streams have ended: lanes that lead to none are forgotten. What is open in a context that has ended nobody measures.
    pub(crate) fn forget_ended(&mut self, compute: &'static Compute, ends: u64) {
        for lane in &mut self.lanes {
            if compute.events.context_of(lane.pool).is_none()
                && let Some(open) = lane.open.take()
            {
                lane.send_off(compute, open, None);
            }
        }
        self.lanes.retain(|lane| lane.open.is_some());
        self.last = 0;
        self.ends_seen = ends;
    }

    /// Whether a launch of which so much is known goes into the run that is open on its lane: as most do. Otherwise the
    /// lane is to be [opened anew](Self::reopen) before it.
    #[inline(always)]
    pub(crate) fn goes_on(&mut self, at: usize, known: &Estimate, kind: Kind, now: u64) -> bool {
        let long = self.long(kind);
        let Some(lane) = self.lanes.get_mut(at) else { return false };
        let Some(open) = &mut lane.open else { return false };
        let gap = self.outside.saturating_sub(lane.launched);
        let goes_on = Bracket::is_together(known, long)
            && clock::took_less(gap, SPARSE)
            && clock::took_less(now.saturating_sub(open.since), OLD)
            && !self.idle_runs
            && !(self.legacy_runs && lane.joins_legacy)
            && (kind == Kind::Chained || !self.sampler.is_due(known));
        if goes_on {
            self.sampler.passes();
            if lane.empty.is_none() {
                open.gaps = open.gaps.wrapping_add(gap);
            }
        }
        goes_on
    }

    /// From how many nanoseconds on a launch is measured alone because it is long. A chained one never is.
    #[inline(always)]
    const fn long(&self, kind: Kind) -> u64 {
        let [kernel, graph] = self.long;
        match kind {
            Kind::Chained => u64::MAX,
            Kind::Graph => graph,
            Kind::Kernel | Kind::Copy => kernel,
        }
    }

    /// Before a launch on a lane: runs are closed and opened as its bracket asks.
    pub(crate) fn reopen(
        &mut self,
        compute: &'static Compute,
        at: usize,
        known: Option<&Estimate>,
        kind: Kind,
    ) {
        let now = clock::cycles();
        let cost = compute.event_cost.load(Ordering::Relaxed);
        self.long = [false, true].map(|is_graph| when_alone::long(is_graph, cost));
        let long = self.long(kind);
        let Some(lane) = self.lanes.get_mut(at) else { return };
        let gap = self.outside.saturating_sub(lane.launched);
        let mut bracket = Bracket::of(known, long, clock::between(gap, 0));
        if compute.launches_block {
            bracket = Bracket::Alone;
        }
        if bracket == Bracket::Together
            && kind != Kind::Chained
            && let Some(known) = known
            && self.sampler.launch(known, || lane.may_be_empty(now, known))
        {
            bracket = Bracket::Alone;
        }
        let gaps = compute.gaps.load(Ordering::Relaxed);
        (self.gaps_told..gaps).take(MOST_TOLD).for_each(|_| self.sampler.gaps());
        self.gaps_told = gaps;
        if lane.joins_legacy {
            self.leave_legacy(compute);
        }
        // What these were given since says nothing of how long they took, and they may not be used again for long.
        for other in (0..self.lanes.len()).filter(|other| *other != at) {
            if self.lanes.get(other).is_some_and(|other| other.is_left(now)) {
                self.close(compute, other, now);
            }
        }
        if core::mem::take(&mut self.idle_runs) {
            // Runs of streams that take turns would overlap, though their kernels do not.
            for other in (0..self.lanes.len()).filter(|other| *other != at) {
                if self.lanes.get(other).is_some_and(|lane| lane.empty.is_some()) {
                    self.close(compute, other, now);
                }
            }
        }
        let Some(lane) = self.lanes.get(at) else { return };
        let is_old = lane.open.as_ref().is_some_and(|open| clock::between(now, open.since) >= OLD);
        if bracket == Bracket::Alone || is_old {
            self.close(compute, at, now);
        }
        // Behind a pause of the host, too, another may follow that begins before this one has ended.
        if kind == Kind::Chained && !compute.launches_block {
            bracket = Bracket::of(known, long, 0);
        }
        let Some(lane) = self.lanes.get_mut(at) else { return };
        match &mut lane.open {
            Some(open) if lane.empty.is_none() => open.gaps = open.gaps.wrapping_add(gap),
            Some(_) => {}
            None => {
                lane.open = Some(lane.opened(compute, bracket));
                // After it was counted: see `Compute::report_unknown`.
                lane.device
                    .and_then(|device| compute.place(device))
                    .into_iter()
                    .for_each(|device| compute.member().begin_work(device));
                self.legacy_runs |= lane.stream.is_legacy();
            }
        }
        compute.helper.ensure(compute);
    }

    /// Before anything goes into a stream that the legacy default stream waits for. A mark in that one waits for all that was
    /// put into such streams before it and keeps all that follows: so it is made where the program itself goes from one to
    /// the other.
    pub(crate) fn leave_legacy(&mut self, compute: &'static Compute) {
        if core::mem::take(&mut self.legacy_runs) {
            self.close_where(compute, |lane| lane.stream.is_legacy());
        }
    }

    /// Before a copy that is measured and not paid for.
    pub(crate) fn begin_copy(&mut self, compute: &'static Compute, at: usize, key: &Key, known: Estimate) {
        self.close(compute, at, clock::cycles());
        let Some(lane) = self.lanes.get_mut(at) else { return };
        let mut open = lane.opened(compute, Bracket::Alone);
        let mut unpaid = known;
        unpaid.charged = 0;
        open.run.add(key, &unpaid);
        open.is_copy = true;
        lane.open = Some(open);
    }

    /// After it.
    pub(crate) fn end_copy(&mut self, compute: &'static Compute, at: usize, is_made: bool) {
        let now = clock::cycles();
        if let Some(lane) = self.lanes.get_mut(at)
            && let Some(open) = &mut lane.open
        {
            open.lead(now);
            if let Some(start) = open.start.take_if(|_| !is_made) {
                compute.events.put(lane.pool, start);
            }
        }
        self.close(compute, at, now);
        compute.helper.ensure(compute);
    }

    /// Closes a lane's run: what it measures is on its way.
    pub(crate) fn close(&mut self, compute: &'static Compute, at: usize, now: u64) {
        let Some(lane) = self.lanes.get_mut(at).filter(|lane| lane.open.is_some()) else { return };
        if lane.empty.is_none() {
            self.outside = self.outside.saturating_add(now.saturating_sub(self.left));
            self.left = now;
        }
        let idle = match lane.empty {
            Some(since) => clock::between(now, since),
            // What the thread did elsewhere was not for this stream.
            None => clock::between(now, lane.last),
        };
        if let Some(mut open) = lane.open.take() {
            open.run.idle(clock::between(open.gaps, 0));
            if let Some(since) = &mut lane.spell {
                since.spell.close(&mut open.run, since.inside(lane.last, lane.launched));
            }
            open.run.close(idle);
            lane.send_off(compute, open, Some(now));
        }
    }

    /// Streams have ended and nobody could close the runs that were open on them: no mark may be made there any more, and
    /// what was prepaid stands.
    pub(crate) fn give_up(&mut self, compute: &'static Compute) {
        for lane in &mut self.lanes {
            if let Some(open) = lane.open.take() {
                lane.send_off(compute, open, None);
            }
        }
    }

    /// Closes all runs, before a wait.
    #[cold]
    pub(crate) fn close_all(&mut self, compute: &'static Compute) {
        let now = clock::cycles();
        (0..self.lanes.len()).for_each(|at| self.close(compute, at, now));
        // The wait would count as time inside the driver.
        self.lanes.iter_mut().for_each(|lane| lane.spell = None);
    }

    /// Closes the runs of a stream, or of all streams of a context.
    pub(crate) fn close_where(&mut self, compute: &'static Compute, is_meant: impl Fn(&StreamState) -> bool) {
        let now = clock::cycles();
        for at in 0..self.lanes.len() {
            if self.lanes.get(at).is_some_and(&is_meant) {
                self.close(compute, at, now);
            }
        }
    }

    /// Nothing is known of the launch that the lane's open run is for.
    pub(crate) fn is_unknown(&mut self, at: usize) {
        if let Some(open) = self.lanes.get_mut(at).and_then(|lane| lane.open.as_mut()) {
            open.is_unknown = true;
        }
    }

    /// After a launch: it belongs to the lane's run, which is closed when it is full. None where nothing measures it.
    #[inline(always)]
    pub(crate) fn launched(
        &mut self,
        compute: &'static Compute,
        at: usize,
        launch: &Launch,
        estimate: &Estimate,
    ) -> Option<()> {
        let now = clock::cycles();
        self.left = now;
        let lane = self.lanes.get_mut(at)?;
        (lane.launched, lane.last) = (self.outside, now);
        if lane.is_at_first() {
            lane.began(now, compute.launches_block);
        }
        let open = lane.open.as_mut()?;
        if open.run.add(&launch.key, estimate) {
            self.is_full(compute, at, launch.kind, now);
        }
        Some(())
    }

    #[cold]
    #[inline(never)]
    fn is_full(&mut self, compute: &'static Compute, at: usize, kind: Kind, now: u64) {
        // Another chained one is likely to follow.
        let open = self.lanes.get(at).and_then(|lane| lane.open.as_ref());
        if kind == Kind::Chained && open.is_some_and(|open| open.run.can_go_on()) {
            return;
        }
        crate::os::reentrancy::quietly(|| self.close(compute, at, now), ());
        self.left = clock::cycles();
    }

    /// The host is back from a wait for the streams that are meant. It entered the driver at `self.left`.
    pub(crate) fn waited(&mut self, is_meant: impl Fn(&StreamState) -> bool) {
        let now = clock::cycles();
        // The other streams may have been empty all the while.
        let inside = now.saturating_sub(self.left);
        self.enters(now);
        for lane in self.lanes.iter_mut().filter(|lane| is_meant(lane)) {
            let spell = lane.spell.take();
            if let Some(open) = &mut lane.open {
                let all = spell.map(|since| since.spell.left(since.inside(now, lane.launched)));
                open.run.waited(all.unwrap_or_else(|| clock::between(inside, 0)));
            }
            lane.launched = lane.launched.saturating_add(inside);
            lane.empty = Some(now);
        }
        self.idle_runs = self.lanes.len() > 1;
    }

    /// Gives all credit back to the slice.
    pub(crate) fn end_leases(&mut self, compute: &Compute) {
        for (lease, pacer) in self.leases.iter_mut().zip(&compute.pacers) {
            let credit = lease.end();
            if credit > 0 {
                compute.member().give_back(pacer.place.device, credit, clock::now());
            }
        }
    }

    /// The thread has ended: what only it could close is not measured.
    pub(crate) fn abandon(&mut self, compute: &'static Compute) {
        for lane in self.lanes.drain(..) {
            if let (Some(open), Some(device)) = (lane.open, lane.device) {
                open.start.into_iter().for_each(|start| compute.events.put(lane.pool, start));
                compute.unmeasured(device, &open.run, open.is_unknown);
            }
        }
    }

    /// Whether there is credit that may have to be given back.
    pub(crate) fn has_credit(&self) -> bool {
        self.leases.iter().any(|lease| lease.left() > 0)
    }
}

impl OpenBatch {
    /// Its first launch has left the driver.
    fn lead(&mut self, now: u64) {
        self.run.lead(clock::between(now, self.since).saturating_sub(self.delay));
    }
}

impl StreamState {
    #[inline(always)]
    fn is_of(&self, stream: Stream, context: Option<usize>) -> bool {
        self.stream == stream && context.is_none_or(|context| self.context == context)
    }

    /// Whether a launch is the first since its run was opened, or since its stream was last known to be empty.
    #[inline(always)]
    fn is_at_first(&self) -> bool {
        self.open.as_ref().is_some_and(|open| self.empty.is_some() || open.run.is_empty())
    }

    /// Whether it has an open run into which nothing was launched for a while.
    fn is_left(&self, now: u64) -> bool {
        let is_used = self.open.as_ref().is_some_and(|open| !open.run.is_empty());
        is_used && self.empty.is_none() && clock::between(now, self.last) >= LEFT
    }

    /// Whether anybody but the thread itself can record in the stream.
    pub(crate) fn is_shared(&self) -> bool {
        // The thread's own default stream means another one to every thread.
        !self.stream.per_thread
    }

    /// When the stream is predicted to be done with all that this thread has launched on it, on the monotonic clock.
    pub(crate) fn done(&self) -> u64 {
        let open = self.open.as_ref();
        open.map_or(self.until, |open| overdraft::done(self.until, open.opened, open.run.plain()))
    }

    /// Whether the stream may have run empty since it had its first launch: see [`Spell::may_have_ended`].
    fn may_be_empty(&self, now: u64, known: &Estimate) -> bool {
        let Some(since) = self.spell.as_ref().filter(|_| self.empty.is_none()) else { return false };
        let run = self.open.as_ref().map(|open| &open.run);
        since.spell.may_have_ended(run, clock::between(now, since.at), known.plain.saturating_mul(BACKLOG))
    }

    /// The first launch since the run was opened, or since the stream was empty, has left the driver. `has_ended`: it leaves
    /// it only when its kernel has ended.
    #[cold]
    fn began(&mut self, now: u64, has_ended: bool) {
        let Some(open) = &mut self.open else { return };
        let is_idle = open.known_idle || open.opened >= self.until;
        if self.empty.is_some() || self.spell.is_none() && open.run.is_empty() && is_idle {
            self.spell = Some(BusySince { at: now, outside: self.launched, spell: Spell::default() });
        }
        match self.empty.take() {
            Some(since) => open.run.idle(clock::between(now, since)),
            // Its code may have been loaded first where nothing is known of it.
            None if has_ended && !open.is_unknown => {}
            None => open.lead(now),
        }
    }

    /// Whether its events are of another context than it is. Then that does not go, and lanes are made anew.
    fn is_foreign(&self, compute: &Compute) -> bool {
        let is_foreign = self.home != self.context;
        if is_foreign && !compute.views_differ.swap(true, Ordering::AcqRel) {
            compute.ends.fetch_add(1, Ordering::AcqRel);
        }
        is_foreign
    }

    fn opened(&mut self, compute: &Compute, bracket: Bracket) -> OpenBatch {
        let (opened, before) = (clock::now(), clock::cycles());
        let start = compute.events_wanted().then(|| self.record(compute)).and_then(Result::ok);
        let after = start.map_or(before, |(_, returned)| returned);
        let start = start.map(|(event, _)| event);
        if self.is_shared() {
            compute.began();
        }
        let known_idle = self.empty.take().is_some();
        let cost = compute.event_cost.load(Ordering::Relaxed);
        OpenBatch {
            run: Run::open(bracket, cost),
            start,
            opened,
            // An event and a kernel reach the GPU at about the same place of their calls: from return to return it is as long as
            // from one to the other. A call that was held up may have been so before or after that.
            since: if clock::took_less(after.saturating_sub(before), RETURN) { after } else { before },
            delay: if known_idle { when_alone::delay(clock::between(after, self.closed), cost) } else { 0 },
            gaps: 0,
            known_idle,
            is_unknown: false,
            is_copy: false,
        }
    }

    /// Records an event in the stream, or says once that it cannot be done. The event, and when the driver returned, in cycles.
    fn record(&self, compute: &Compute) -> Result<(Event, u64), Status> {
        let may_capture = capture_mode::is_open();
        let recorded = apart(|| {
            if may_capture && self.stream.may_capture() {
                return Err(status::CAPTURE_INVALIDATED);
            }
            let event = compute.events.get(self.pool)?;
            // It may be another thread that closes the run: a default stream is the current context's, and of other
            // streams the driver wants some context to be current.
            // And a green context can be current to one thread at a time.
            let current = if self.stream.is_default() { self.context } else { self.home };
            let recorded = within(current, || {
                let recorded = events::record(event, self.stream);
                recorded.map(|()| clock::cycles())
            });
            let recorded = recorded.map(|recorded| {
                recorded.map_err(|code| match code {
                    NOT_OF_THIS_CONTEXT if self.is_foreign(compute) => status::INVALID_CONTEXT,
                    _ => code,
                })
            });
            let recorded = recorded.unwrap_or(Err(status::INVALID_CONTEXT));
            recorded.inspect_err(|_| compute.events.put(self.pool, event)).map(|returned| (event, returned))
        });
        recorded.inspect_err(|code| compute.event_failed(*code))
    }

    /// Records events one right behind the other, which tell what one costs.
    #[cold]
    fn calibrate(&self, compute: &Compute) -> Vec<Event> {
        (0..AT_FIRST).map_while(|_| self.record(compute).ok()).map(|(event, _)| event).collect()
    }

    /// The closing event is recorded, where it may be, and the meter told. The run was closed at `closed`; none where no
    /// mark may be made.
    fn send_off(&mut self, compute: &'static Compute, open: OpenBatch, closed: Option<u64>) {
        self.until = overdraft::done(self.until, open.opened, open.run.plain());
        let OpenBatch { mut run, start, opened, known_idle, is_unknown, is_copy, .. } = open;
        let Some(device) = self.device else { return };
        let end =
            start.filter(|_| closed.is_some() && !run.is_empty()).and_then(|_| self.record(compute).ok());
        let end = end.map(|(event, _)| event);
        match (start, end) {
            (Some(start), Some(end)) => {
                self.closed = clock::cycles();
                let took = closed.map_or(0, |closed| clock::between(self.closed, closed));
                let before = core::mem::replace(&mut self.closing, took);
                // Only the excess over the last call shows a host that was held up; the rest is the driver's usual time.
                run.late(took.saturating_sub(before));
                let told = (opened, known_idle, is_unknown);
                compute.is_busy_until(device, self.until);
                let calibrates = core::mem::take(&mut self.calibrates);
                let behind = if calibrates { self.calibrate(compute) } else { Vec::new() };
                let flight = PendingBatch::new(self, device, run, (start, end), told).followed_by(behind);
                compute.sent_off(if is_copy { flight.of_copy() } else { flight });
            }
            (start, _) => {
                start.into_iter().for_each(|start| compute.events.put(self.pool, start));
                if !is_copy {
                    compute.unmeasured(device, &run, is_unknown);
                }
            }
        }
        // After the flight was counted: in between nothing would seem to be under way.
        if self.is_shared() {
            compute.ended();
        }
    }
}
