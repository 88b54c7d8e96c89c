//! A process of a slice: the control loop of the library, made of the pure functions alone.

use std::collections::VecDeque;

use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::cost::table::EstimateTable;
use gpuslice_policy::compute::cost::thread_cache::{EPOCHS, Recent, epoch_of};
use gpuslice_policy::compute::limiter::lease::{self, Lease};
use gpuslice_policy::compute::limiter::overdraft;
use gpuslice_policy::compute::limiter::queue_bound::{self, QueuedWork, UNKNOWN_WAIT, Unknown};
use gpuslice_policy::compute::limiter::settlement::Settlement;
use gpuslice_policy::compute::measuring::batch::{Batch, Spell};
use gpuslice_policy::compute::measuring::event_clock::{ClockOffset, EventCost, EventTime};
use gpuslice_policy::compute::measuring::peer_intervals::{ContextEnds, RingReader};
use gpuslice_policy::compute::measuring::union::BusyUnion;
use gpuslice_policy::compute::measuring::when_alone::Sampler;
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

use crate::gpu::Gpu;
use crate::nvml_only::NvmlOnly;
use crate::program::Kind;
use crate::slice::Slice;

/// The reason of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The slice's word, until an instant.
    Word(Monotonic),
    /// Queued work: until some work is seen to end, or until an instant.
    Queue(Monotonic),
    /// An unknown launch that is being measured, until an instant.
    Unknown(Monotonic),
}

/// The payment of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Paid {
    pub estimate: Estimate,
    pub is_known: bool,
}

/// A batch with its events.
#[derive(Debug)]
pub struct TimedBatch {
    pub batch: Batch,
    /// Number of the context in its process.
    pub context: usize,
    pub start: usize,
    pub end: usize,
    /// The instant at which the host recorded the start.
    pub opened: Monotonic,
    pub is_unknown: bool,
    /// True if the host had waited for the stream before.
    pub known_idle: bool,

    pub settlement: Settlement,
    /// The instant up to which the batch was charged while it ran.
    pub charged_to: Monotonic,
    /// The part of the batch's time that was charged.
    pub progress: WallTime,
    /// The true duration of the batch's kernels.
    pub truth: GpuTime,
}

/// Properties of event times: the differences between the GPU's clock and the host's clock.
#[derive(Debug, Clone, Copy)]
pub struct Readings {
    /// Drift of the GPU's clock, in nanoseconds per 2^20 nanoseconds.
    pub drift: u64,
    /// Resolution of times.
    pub resolution: u64,
    /// Offset to the host's clock.
    pub origin: u64,
}

impl Readings {
    pub fn of(self, time: u64) -> EventTime {
        let time = time + (time >> 20) * self.drift + self.origin;
        EventTime::new(time - time % self.resolution)
    }
}

pub struct Shim {
    pub me: usize,
    pub client: usize,
    /// Number of contexts. The streams belong to them in turn.
    pub contexts: usize,
    pub readings: Readings,
    pub table: EstimateTable,
    pub recent: Recent,
    pub epochs: [u64; EPOCHS],
    pub lease: Lease,
    pub open: Vec<Option<TimedBatch>>,
    pub pending: Vec<VecDeque<TimedBatch>>,
    pub union: BusyUnion,
    pub reader: RingReader,
    pub offset: ClockOffset,
    pub queued_work: QueuedWork,
    /// The expected end of the queued work.
    pub ends: Monotonic,
    pub unknown: Unknown,
    pub sampler: Sampler,
    /// The instant at which the host last left the driver, and the sum of its times outside.
    pub left: Monotonic,
    pub outside: WallTime,
    /// The sum of the host's times outside the driver, at each stream's last launch.
    pub launched: Vec<WallTime>,
    /// The instant of each stream's last launch.
    pub last: Vec<Monotonic>,
    /// The instant since which a stream is known to be empty.
    pub empty: Vec<Option<Monotonic>>,
    /// For a stream that was empty, the instant of the first launch into it, and the host's time outside at that instant.
    pub spells: Vec<Option<(Monotonic, WallTime, Spell)>>,
    /// The place up to which the process has read the ring.
    pub read_to: u64,
    /// The payment of a launch inside the driver.
    pub entering: GpuTime,
    /// The last observed event of each stream.
    pub last_end: Vec<EventTime>,
    /// The end of the intervals of this process and of its siblings.
    pub own_until: Monotonic,
    pub others_until: Monotonic,
    /// The ends of the intervals of the slice's contexts.
    pub context_ends: ContextEnds,
    pub outstanding: GpuTime,
    pub settled_at: Monotonic,
    pub launches: u64,
    /// Kernels of about 400 ms with a measured end.
    pub long_kernels: u64,
    /// The cost of an event, the events that measure it before they pass, and whether they were recorded.
    pub cost: EventCost,
    pub at_first: Vec<usize>,
    pub is_calibrated: bool,
    /// The instant at which each stream's last batch was closed.
    pub closed: Vec<Monotonic>,
    /// The predicted end of each stream's submitted work.
    pub until: Vec<Monotonic>,
    /// Number of payments.
    pub takes: u32,
    pub events: u64,
    /// The state of a process that only NVML measures.
    pub nvml_only: Option<NvmlOnly>,
}

impl Shim {
    pub fn new(me: usize, client: usize, streams: usize, readings: Readings, now: Monotonic) -> Self {
        Self {
            me,
            client,
            contexts: 1,
            readings,
            table: EstimateTable::new(256),
            recent: Recent::NONE,
            epochs: [0; EPOCHS],
            lease: Lease::NONE,
            open: (0..streams).map(|_| None).collect(),
            pending: (0..streams).map(|_| VecDeque::new()).collect(),
            union: BusyUnion::new(),
            reader: RingReader::default(),
            offset: ClockOffset::default(),
            queued_work: QueuedWork::default(),
            ends: Monotonic::BEGIN,
            unknown: Unknown::default(),
            sampler: Sampler::default(),
            left: now,
            outside: WallTime::ZERO,
            launched: vec![WallTime::ZERO; streams],
            last: vec![Monotonic::BEGIN; streams],
            empty: vec![Some(now); streams],
            spells: vec![None; streams],
            read_to: 0,
            entering: GpuTime::ZERO,
            last_end: vec![EventTime::BEGIN; streams],
            own_until: Monotonic::BEGIN,
            others_until: Monotonic::BEGIN,
            context_ends: ContextEnds::default(),
            outstanding: GpuTime::ZERO,
            settled_at: now,
            launches: 0,
            long_kernels: 0,
            cost: EventCost::default(),
            at_first: Vec::new(),
            is_calibrated: false,
            closed: vec![Monotonic::BEGIN; streams],
            until: vec![Monotonic::BEGIN; streams],
            takes: 0,
            events: 0,
            nvml_only: None,
        }
    }

    fn known(&mut self, kind: &Kind) -> Option<Estimate> {
        let epoch = self.epochs[epoch_of(kind.key.id())];
        if let Some(known) = self.recent.find(&kind.key, epoch) {
            return Some(*known);
        }
        let known = self.table.known(&kind.key)?;
        self.recent.keep(&kind.key, epoch, known);
        Some(known)
    }

    /// Pays for a launch. If that fails, returns the reason to wait. `since` is the instant of the first request.
    ///
    /// First come the bounds: on launches of unknown cost, then on queued work. A launch of known cost is then paid from the
    /// lease. If the lease has too little, such a launch may go beside other streams' work on debt. Otherwise the lease
    /// takes time from the slice.
    pub fn admit(
        &mut self,
        (kind, stream): (&Kind, usize),
        since: Monotonic,
        now: Monotonic,
        slice: &mut Slice,
        gpu: &mut Gpu,
    ) -> Result<Paid, Wait> {
        if self.nvml_only.is_some() {
            return self.admit_without_events(now, slice);
        }
        let known = self.known(kind);
        let waits = since + UNKNOWN_WAIT;
        if known.is_none() && !self.unknown.admits(&kind.key) && now < waits {
            self.close_all(now, gpu);
            slice.asks[self.me].requested = GpuTime::ZERO;
            return Err(Wait::Unknown(waits));
        }
        let estimate = known.unwrap_or_else(|| self.table.prior(&kind.key));
        let cost = estimate.charged;
        let (least, left) =
            (queue_bound::least(slice.queue_bound, slice.is_alone(self.me)), self.ends.since(now));
        let is_at_end = least < queue_bound::LEAST_BOUND && self.queued_work.admits_at_end(cost, left);
        if !self.queued_work.admits_within(cost, least) && !is_at_end {
            self.close_all(now, gpu);
            // Other processes have their turns meanwhile.
            slice.asks[self.me].requested = GpuTime::ZERO;
            let left = self.ends.since(now) - queue_bound::AT_END;
            let is_bounded = least < queue_bound::LEAST_BOUND && !left.is_zero();
            return Err(Wait::Queue(if is_bounded { now + left } else { Monotonic::NEVER }));
        }
        if known.is_some() && self.lease.spend(cost) {
            slice.asks[self.me].requested = GpuTime::ZERO;
            return Ok(self.pay(known, estimate));
        }
        let owed = cost.saturating_sub(self.lease.left());
        if known.is_some()
            && self.open.len() > 1
            && self.ends_with_others(stream, &estimate, now)
            && slice.owe(self.me, owed, now)
        {
            slice.asks[self.me].requested = GpuTime::ZERO;
            self.outstanding += owed;
            self.lease.fill(owed);
            assert!(self.lease.spend(cost));
            return Ok(self.pay(known, estimate));
        }
        let lacks = self
            .lease
            .shortfall(cost, slice.lease(self.me, now))
            .max(GpuTime::NANOSECOND)
            .max(self.together(&estimate));
        if let Err(until) = slice.take(self.me, lacks, now) {
            self.close_all(now, gpu);
            return Err(Wait::Word(until));
        }
        if !self.is_busy() && self.open.iter().all(Option::is_none) {
            self.settled_at = now;
        }
        self.takes += 1;
        self.lease.fill(lacks);
        self.outstanding += lacks;
        assert!(self.lease.spend(cost));
        Ok(self.pay(known, estimate))
    }

    /// Returns true if a launch would run beside other work and end with it.
    fn ends_with_others(&self, stream: usize, estimate: &Estimate, now: Monotonic) -> bool {
        let ends = |stream: usize| {
            let open = self.open[stream].as_ref();
            open.map_or(self.until[stream], |open| {
                overdraft::done(self.until[stream], open.opened, open.batch.predicted())
            })
        };
        let last = (0..self.until.len()).map(ends).max().unwrap();
        let done = overdraft::done(ends(stream), now, estimate.duration);
        overdraft::ends_with_others(estimate, done, last)
    }

    /// Returns the smallest payment with which overlapping launches start together.
    fn together(&self, estimate: &Estimate) -> GpuTime {
        if self.open.len() < 2 {
            return GpuTime::ZERO;
        }
        lease::together(estimate, self.takes.is_multiple_of(16)).unwrap_or_default()
    }

    pub fn pay(&mut self, known: Option<Estimate>, estimate: Estimate) -> Paid {
        self.entering = estimate.charged;
        Paid { estimate, is_known: known.is_some() }
    }

    pub fn is_busy(&self) -> bool {
        self.pending.iter().any(|pending| !pending.is_empty())
    }

    /// Returns the prepaid time that is not measured: the credit, open batches, and batches in flight.
    pub fn unmeasured(&self) -> u128 {
        let open = self.open.iter().flatten().map(|open| open.batch.prepaid());
        let pending = self.pending.iter().flatten();
        let in_flight =
            pending.map(|timed| timed.settlement.prepaid().saturating_sub(timed.settlement.charged()));
        let times = open.chain(in_flight).chain([self.lease.left(), self.entering]);
        times.map(|time| u128::from(time.nanos())).sum()
    }

    /// Returns the true duration of the work that is not measured.
    pub fn under_way(&self) -> GpuTime {
        let all = self.open.iter().flatten().chain(self.pending.iter().flatten());
        all.map(|timed| timed.truth).fold(GpuTime::ZERO, GpuTime::saturating_add)
    }

    /// Returns the true duration of the work in flight, minus its payment.
    pub fn underpaid(&self) -> GpuTime {
        let open = self.open.iter().flatten();
        let all = open.chain(self.pending.iter().flatten());
        all.map(|timed| timed.truth - timed.batch.prepaid().max(timed.settlement.charged()))
            .fold(GpuTime::ZERO, GpuTime::saturating_add)
    }
}
