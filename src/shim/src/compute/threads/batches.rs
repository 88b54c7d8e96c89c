//! Batches of one thread: their opening, their launches and their closing.
//!
//! Example: a thread launches 40 small kernels on a stream. It records an event before the first kernel, and an event behind the
//! last kernel. The meter divides the time between the two events among the 40 kernels. A kernel that is long, unknown, or chosen
//! by the sampler is a batch of its own.

use super::open_batch::OpenBatch;
use super::stream_state::StreamState;
use super::thread_state::ThreadState;
use crate::compute::launch::{Launch, LaunchKind};
use crate::compute::measuring::state::MeasuringState;
use crate::os::clock::{CycleInstant, Cycles};
use crate::os::reentrancy::enter_or;
use gpuslice_policy::compute::cost::estimate::{Estimate, Key};
use gpuslice_policy::compute::measuring::batch::OLDEST_BATCH;
use gpuslice_policy::compute::measuring::when_alone::{SPARSE_GAP, Timing};
use gpuslice_policy::time::{GpuTime, WallTime};

impl ThreadState {
    /// Returns true if a launch with the estimate `known` joins the open batch of its stream, as most launches do. Otherwise the
    /// caller [prepares](Self::prepare_batch) a batch before the launch.
    ///
    /// The function returns false for each of these reasons:
    /// - the launch is long or its estimate is uncertain, so it is measured alone;
    /// - the host has paused for so long that the GPU can pass two events meanwhile, so events cost nothing;
    /// - the batch is old;
    /// - a batch of a stream that was empty may be open;
    /// - a batch of the legacy default stream may be open, and this stream waits for that stream;
    /// - the sampler may want to measure the launch alone.
    ///
    /// The function runs in each launch, so it reads only words of this thread. It may return false too often. Then
    /// `prepare_batch` checks more closely, and may continue the same batch.
    #[inline(always)]
    pub(crate) fn joins_open_batch(
        &mut self,
        at: usize,
        known: &Estimate,
        kind: LaunchKind,
        now: CycleInstant,
    ) -> bool {
        let long = self.batching.long(kind);
        let Some(stream) = self.streams.get_mut(at) else { return false };
        let Some(open) = &mut stream.open else { return false };
        let gap = self.outside.minus(stream.outside_at_launch);
        let joins = Timing::is_together(known, long)
            && gap.is_less_than(SPARSE_GAP)
            && now.since(open.since).is_less_than(OLDEST_BATCH)
            && !self.batching.has_idle
            && !(self.batching.has_legacy && stream.joins_legacy)
            && (kind == LaunchKind::Chained || !self.batching.sampler.is_due(known));
        if joins {
            self.batching.sampler.passes();
            // After a wait for the stream, `note_first` counts the time up to the launch's return. So the gap is not added here.
            if stream.empty_since.is_none() {
                open.gaps = open.gaps.plus(gap);
            }
        }
        joins
    }

    /// Prepares for a launch that does not simply join a batch: closes batches that must not continue, and opens a batch for the
    /// launch.
    ///
    /// The time between the events of a batch must contain only its own work. So the thread closes these batches:
    /// - batches of the legacy default stream, because their events would wait for other streams;
    /// - batches that the thread has left, because the time of its work elsewhere would count;
    /// - batches of streams that were empty. Example: kernels run on two streams by turns. If both batches stayed open, their
    ///   intervals would overlap although the kernels do not.
    ///
    /// Too many batches only cost time for their events, a few microseconds each.
    pub(crate) fn prepare_batch(
        &mut self,
        measuring: &MeasuringState,
        at: usize,
        known: Option<&Estimate>,
        kind: LaunchKind,
    ) {
        let now = CycleInstant::now();
        let does_block = measuring.timing.launches_block;
        self.batching.set_event_cost(measuring.timing.cost());
        let Some(stream) = self.streams.get(at) else { return };
        // The gap is computed before any batch is closed, because each close adds to `outside`.
        let gap = self.outside.minus(stream.outside_at_launch);
        let pause = gap.wall_time();
        let mut timing =
            if does_block { Timing::Single } else { self.batching.choose(known, kind, pause, stream, now) };
        self.batching.note_gaps(measuring.estimates.gaps());
        if stream.joins_legacy {
            self.close_legacy(measuring);
        }
        self.close_others(measuring, at, now);
        let open = self.streams.get(at).and_then(|stream| stream.open.as_ref());
        let is_old = open.is_some_and(|open| now.since(open.since).wall_time() >= OLDEST_BATCH);
        if timing == Timing::Single || is_old {
            self.close(measuring, at, now);
        }
        // The next chained launch may begin before this launch has ended, also after a pause of the host. So the pause is
        // ignored.
        if kind == LaunchKind::Chained && !does_block {
            timing = Timing::of(known, self.batching.long(kind), WallTime::ZERO);
        }
        self.open_or_continue(measuring, at, timing, gap);
    }

    /// Closes batches of other streams that the thread has left, or whose streams were empty.
    fn close_others(&mut self, measuring: &MeasuringState, at: usize, now: CycleInstant) {
        // `can_close_at_once` is the last condition, because it takes a lock that all threads share.
        self.close_each(measuring, now, |other, stream| {
            other != at && stream.is_left(now) && stream.can_close_at_once(measuring)
        });
        if self.batching.has_idle {
            let is_idle = |stream: &StreamState| stream.open.is_some() && stream.empty_since.is_some();
            self.close_each(measuring, now, |other, stream| {
                other != at && is_idle(stream) && stream.can_close_at_once(measuring)
            });
            let mut others = self.streams.iter().enumerate().filter(|(other, _)| *other != at);
            self.batching.has_idle = others.any(|(_, stream)| is_idle(stream));
        }
    }

    /// Opens a batch for the next launch, or adds the host's pause to the open batch.
    ///
    /// After a wait for the stream it does not add the pause: `note_first` counts the whole time up to the launch's return.
    fn open_or_continue(&mut self, measuring: &MeasuringState, at: usize, timing: Timing, gap: Cycles) {
        let Some(stream) = self.streams.get_mut(at) else { return };
        match &mut stream.open {
            Some(open) if stream.empty_since.is_none() => open.gaps = open.gaps.plus(gap),
            Some(_) => {}
            None => {
                stream.open = Some(stream.new_batch(measuring, timing));
                // The batch is counted before this write: see `UsageState::report_work`.
                if let Some(device) = stream.device.and_then(|device| measuring.device(device)) {
                    measuring.member().begin_work(device);
                }
                self.batching.has_legacy |= stream.stream.is_legacy();
            }
        }
    }

    /// Closes batches of the legacy default stream, before a call puts work into a stream that this stream waits for.
    ///
    /// An event in the legacy default stream waits for all earlier work in such streams, and all later work in them waits for the
    /// event. So the thread records the event at the point at which the program itself changes from one stream to another.
    ///
    /// Otherwise the event would come later, for example when the worker closes the old batch. Two streams that run side by side
    /// would then wait for each other at that point, although the program does not ask for that.
    pub(crate) fn close_legacy(&mut self, measuring: &MeasuringState) {
        if self.batching.has_legacy {
            self.close_where(measuring, |stream| {
                stream.stream.is_legacy() && stream.can_close_at_once(measuring)
            });
            let is_open = |stream: &StreamState| stream.stream.is_legacy() && stream.open.is_some();
            self.batching.has_legacy = self.streams.iter().any(is_open);
        }
    }

    /// Opens the batch of a copy that is measured and not paid for.
    ///
    /// Its prepaid time is zero, because the thread has taken nothing from its lease. The function first closes the batch of the
    /// kernels before the copy. Otherwise the copy's time would change their estimates.
    pub(crate) fn begin_copy(&mut self, measuring: &MeasuringState, at: usize, key: &Key, known: Estimate) {
        self.close(measuring, at, CycleInstant::now());
        let Some(stream) = self.streams.get_mut(at) else { return };
        let mut open = stream.new_batch(measuring, Timing::Single);
        let mut unpaid = known;
        unpaid.charged = GpuTime::ZERO;
        open.batch.add(key, &unpaid);
        open.is_copy = true;
        stream.open = Some(open);
    }

    /// Closes the batch of a copy after the call. `is_made`: the driver has accepted the copy.
    ///
    /// If the driver has refused it, the opening event goes back to its pool first. A batch without an opening event gets no
    /// closing event and is not measured. Otherwise the estimate would learn that a copy takes no time.
    pub(crate) fn end_copy(&mut self, measuring: &MeasuringState, at: usize, is_made: bool) {
        let now = CycleInstant::now();
        if let Some(stream) = self.streams.get_mut(at)
            && let Some(open) = &mut stream.open
        {
            open.first_launch_returned(now);
            if let Some(start) = open.start.take_if(|_| !is_made) {
                measuring.timing.pools.put(stream.pool, start);
            }
        }
        self.close(measuring, at, now);
    }

    /// Marks the open batch of a stream as one launch of unknown cost. The caller does this before it adds the launch, because
    /// the addition fills the batch and submits it.
    pub(crate) fn mark_unknown(&mut self, at: usize) {
        if let Some(open) = self.streams.get_mut(at).and_then(|stream| stream.open.as_mut()) {
            open.is_unknown = true;
        }
    }

    /// Adds a launch to the open batch of its stream, after the call, and closes a full batch. Returns `None` if no batch is
    /// open.
    ///
    /// The launch is added after the call, because the library knows only then that work was submitted. The thread keeps its
    /// state across the call, so no other thread closes the batch in between.
    #[inline(always)]
    pub(crate) fn note_launch(
        &mut self,
        measuring: &MeasuringState,
        at: usize,
        launch: &Launch,
        estimate: &Estimate,
    ) -> Option<()> {
        let now = CycleInstant::now();
        self.left = now;
        let stream = self.streams.get_mut(at)?;
        (stream.outside_at_launch, stream.launched_at) = (self.outside, now);
        if stream.is_at_first() {
            stream.note_first(now, measuring.timing.launches_block);
        }
        let open = stream.open.as_mut()?;
        if open.batch.add(&launch.key, estimate) {
            self.close_full(measuring, at, launch.kind, now);
        }
        Some(())
    }

    /// Closes a full batch in a phase of its own, unless a chained launch is likely to follow.
    ///
    /// The caller is outside any phase, but the close calls the driver and allocates, so it needs a phase. `left` is read again
    /// after the close. Otherwise the time of the close, which is the library's, would count as a pause of the program.
    #[cold]
    #[inline(never)]
    fn close_full(&mut self, measuring: &MeasuringState, at: usize, kind: LaunchKind, now: CycleInstant) {
        // Another chained launch is likely to follow.
        let open = self.streams.get(at).and_then(|stream| stream.open.as_ref());
        if kind == LaunchKind::Chained && open.is_some_and(|open| open.batch.can_go_on()) {
            return;
        }
        enter_or(|| self.close(measuring, at, now), ());
        self.left = CycleInstant::now();
    }

    /// Closes the open batch of a stream, and submits it.
    ///
    /// The batch needs the time for which the stream may have been idle. Example: a thread launches 1 ms of kernels, and computes
    /// for 9 ms before the worker closes the batch. The events are 10 ms apart, and the slice must pay for 1 ms only. The idle
    /// time has three parts: pauses between launches, slow launches of a busy period, and the time since the last launch.
    pub(crate) fn close(&mut self, measuring: &MeasuringState, at: usize, now: CycleInstant) {
        let stream = self.streams.get_mut(at);
        let Some(stream) = stream.filter(|stream| stream.open.is_some()) else { return };
        if stream.empty_since.is_none() {
            // The time until now counts as outside the driver. Calls of the driver follow.
            self.outside = self.outside.plus(now.since(self.left));
            self.left = now;
        }
        let idle = match stream.empty_since {
            Some(since) => now.since(since).wall_time(),
            // During the thread's work on other streams, this stream may have been idle.
            None => now.since(stream.launched_at).wall_time(),
        };
        if let Some(mut open) = stream.open.take() {
            open.batch.add_idle_between(open.gaps.wall_time());
            if let Some(since) = &mut stream.busy_since {
                let inside = since.inside(stream.launched_at, stream.outside_at_launch);
                since.spell.close(&mut open.batch, inside);
            }
            open.batch.close(idle);
            stream.submit(measuring, open, Some(now));
        }
    }

    /// Closes all batches that [can be closed at once](StreamState::can_close_at_once), before the thread waits.
    ///
    /// An open batch would get its closing event after the wait, and the slice could pay for the wait as for GPU time. Example:
    /// after a kernel of 1 ms the thread has no credit for 100 ms. The two events would be 101 ms apart.
    ///
    /// A batch that stays open counts as old, so no launch joins it after the wait. [`close`](Self::close) counts the time since
    /// its last launch as idle.
    #[cold]
    pub(crate) fn close_all(&mut self, measuring: &MeasuringState) {
        self.close_where(measuring, |stream| stream.open.is_some() && stream.can_close_at_once(measuring));
        for stream in &mut self.streams {
            // The wait would count as time inside the driver.
            stream.busy_since = None;
            if let Some(open) = &mut stream.open {
                open.since = CycleInstant::BEGIN;
            }
        }
    }

    /// Closes the batches of the streams that `is_meant` accepts.
    pub(crate) fn close_where(
        &mut self,
        measuring: &MeasuringState,
        is_meant: impl Fn(&StreamState) -> bool,
    ) {
        self.close_each(measuring, CycleInstant::now(), |_, stream| is_meant(stream));
    }

    fn close_each(
        &mut self,
        measuring: &MeasuringState,
        now: CycleInstant,
        is_meant: impl Fn(usize, &StreamState) -> bool,
    ) {
        for at in 0..self.streams.len() {
            if self.streams.get(at).is_some_and(|stream| is_meant(at, stream)) {
                self.close(measuring, at, now);
            }
        }
    }

    /// Gives up the open batches, because streams have ended while no thread could close the batches on them. The library must
    /// not record events in these streams any more, and the batches' prepaid time stays charged.
    ///
    /// The streams stay in the list with their places, because a launch of this thread under way may use such a place.
    pub(crate) fn give_up(&mut self, measuring: &MeasuringState) {
        for stream in &mut self.streams {
            if let Some(open) = stream.open.take() {
                stream.submit(measuring, open, None);
            }
        }
    }

    /// Drops all batches of a thread that has ended. Batches that only that thread could close are not measured. The caller has
    /// closed all other batches before.
    pub(crate) fn abandon(&mut self, measuring: &MeasuringState) {
        self.streams.drain(..).for_each(|stream| stream.abandon(measuring));
    }

    /// Notes that the host has waited for the streams that `is_meant` accepts, so these streams are empty. The host entered the
    /// driver at `self.left`.
    ///
    /// The wait counts differently for two kinds of streams. The other streams may have been empty all the time, so the whole
    /// wait counts as a pause of the host. The awaited streams had work until the wait ended. Only the part of the wait beyond
    /// their predicted work may have been idle.
    ///
    /// If the wait counted as a pause for all streams, the time in which an awaited kernel runs would count as idle.
    pub(crate) fn host_synchronised(&mut self, is_meant: impl Fn(&StreamState) -> bool) {
        let now = CycleInstant::now();
        // The other streams may have been empty during the whole wait, so it is added to the time outside the driver.
        let inside = now.since(self.left);
        self.enter_driver(now);
        for stream in self.streams.iter_mut().filter(|stream| is_meant(stream)) {
            let since = stream.busy_since.take();
            if let Some(OpenBatch { batch, .. }) = &mut stream.open {
                let all = since.map(|since| since.spell.left(since.inside(now, stream.outside_at_launch)));
                batch.host_synchronised(all.unwrap_or_else(|| inside.wall_time()));
            }
            // `host_synchronised` accounts for this wait, so the next gap of the stream begins after it.
            stream.outside_at_launch = stream.outside_at_launch.plus(inside);
            stream.empty_since = Some(now);
        }
        self.batching.has_idle = self.streams.len() > 1;
    }
}
