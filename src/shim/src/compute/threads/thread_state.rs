//! State of one thread that launches: its credit, its copies of estimates and its streams.
//!
//! Its instants are readings of the time stamp counter, which costs a launch less than the monotonic clock.
//!
//! The state has no atomics. One thread at a time accesses it, through a guard of its slot ([`slot`](super::slot)).

use super::batching::Batching;
use super::stream_state::StreamState;
use crate::compute::measuring::meter::CodeLoad;
use crate::compute::measuring::state::MeasuringState;
use crate::compute::measuring::usage::UsageState;
use crate::driver_calls::contexts;
use crate::driver_calls::streams::Stream;
use crate::os::clock::{self, CycleInstant, Cycles};
use gpuslice_policy::compute::cost::thread_cache::Recent;
use gpuslice_policy::compute::limiter::lease::Lease;

/// State of a thread that launches.
#[derive(Debug)]
pub(crate) struct ThreadState {
    /// Credit, by device.
    pub(crate) leases: Vec<Lease>,
    /// Copies of estimates.
    pub(crate) cache: Recent,
    /// Instant at which the host last left the driver.
    pub(crate) left: CycleInstant,
    /// Sum of the host's time outside the driver. Each stream keeps the sum as of its last launch. The difference is the
    /// host's time outside the driver since that launch. The host could give the stream no work in that time.
    pub(crate) outside: Cycles,
    /// The streams on which the thread launches.
    pub(crate) streams: Vec<StreamState>,
    /// The stream of the last launch.
    last: usize,
    pub(super) batching: Batching,
    /// Number of ended streams and contexts, as the thread last read it.
    pub(crate) ends_seen: u64,
    /// Number of copies; wraps.
    pub(crate) copies: u32,
    /// Notes of launches that are in the driver and may load their kernels. If an exception or a jump leaves a launch, its note
    /// remains until the thread or the worker [forgets](Self::forget_code_loads) it.
    pub(crate) code_loads: Vec<CodeLoad>,
}

impl ThreadState {
    /// Makes the state of a thread before its first launch. `devices`: the number of the slice's devices.
    pub(crate) fn new(devices: usize) -> Self {
        Self {
            leases: vec![Lease::NONE; devices],
            cache: Recent::NONE,
            left: CycleInstant::now(),
            outside: Cycles::default(),
            streams: Vec::new(),
            last: 0,
            batching: Batching::default(),
            ends_seen: 0,
            copies: 0,
            code_loads: Vec::new(),
        }
    }

    /// Notes that the host enters the driver at `now`. It was outside the driver since `left`.
    #[inline]
    pub(crate) fn enter_driver(&mut self, now: CycleInstant) {
        self.outside = self.outside.plus(now.since(self.left));
        self.left = now;
    }

    /// Returns the place of a stream among the streams of this thread, if the thread has launched on it.
    ///
    /// A default stream is another stream in each context, under the same handle. So if the program has had several contexts, the
    /// current context counts too. With one context this function does not ask the driver, because that costs a tenth of a
    /// launch's budget.
    #[inline(always)]
    pub(crate) fn find_stream(&mut self, usage: &UsageState, stream: Stream) -> Option<usize> {
        let is_asked = stream.is_default() && !usage.contexts.is_only_one();
        let context = if is_asked { Some(contexts::current_context()?) } else { None };
        if self.streams.get(self.last).is_some_and(|state| state.is_of(stream, context)) {
            return Some(self.last);
        }
        self.find_other_stream(stream, context)
    }

    /// Searches for a stream. It first tries the place behind the last stream, because a program often uses its streams in turn.
    /// Then it searches all places, which is fast enough for tens of streams.
    #[inline(never)]
    fn find_other_stream(&mut self, stream: Stream, context: Option<usize>) -> Option<usize> {
        let next = self.last.wrapping_add(1);
        let is_next = self.streams.get(next).is_some_and(|state| state.is_of(stream, context));
        let mut streams = self.streams.iter();
        self.last = if is_next { next } else { streams.position(|state| state.is_of(stream, context))? };
        Some(self.last)
    }

    /// Adds a stream. Returns `None` if the driver does not report its context.
    #[cold]
    pub(crate) fn add_stream(&mut self, measuring: &MeasuringState, stream: Stream) -> Option<usize> {
        self.streams.push(StreamState::new(measuring, stream, self.outside, self.left)?);
        self.last = self.streams.len().saturating_sub(1);
        Some(self.last)
    }

    /// Forgets streams without an open batch, because streams have ended. The next launch on a stream looks it up again. An open
    /// batch in a context that has ended is not measured.
    ///
    /// The number of ends does not name the stream that has ended, so all streams are looked up again. That is rare and costs a
    /// few calls of the driver. A stream with an open batch has not ended: batches of an ended stream were closed or given up
    /// before. The exception is a thread's own default stream in an ended context, because no other thread can close its batch.
    ///
    /// The places of the remaining streams change.
    pub(crate) fn forget_ended(&mut self, measuring: &MeasuringState, ends: u64) {
        for stream in &mut self.streams {
            if measuring.timing.pools.context_of(stream.pool).is_none()
                && let Some(open) = stream.open.take()
            {
                stream.submit(measuring, open, None);
            }
        }
        self.streams.retain(|stream| stream.open.is_some());
        self.last = 0;
        self.ends_seen = ends;
    }

    /// Forgets the notes of launches that never returned. When a caller calls this, the thread is in no launch, or has just begun
    /// a launch.
    ///
    /// Otherwise no thread would poll the events of these contexts until this thread makes another launch of unknown cost.
    pub(crate) fn forget_code_loads(&mut self) {
        self.code_loads.clear();
    }

    /// Gives all credit back to the slice.
    pub(crate) fn return_credit(&mut self, usage: &UsageState) {
        for (lease, limiter) in self.leases.iter_mut().zip(&usage.limiters) {
            let credit = lease.end();
            if !credit.is_zero() {
                usage.member().give_back(limiter.gpu.device, credit, clock::now());
            }
        }
    }

    /// Returns true if the thread has credit that may have to be given back.
    pub(crate) fn has_credit(&self) -> bool {
        self.leases.iter().any(|lease| !lease.left().is_zero())
    }
}
