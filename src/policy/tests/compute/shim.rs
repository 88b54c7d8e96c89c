//! A process of a slice: the control loop of the library, from the pure functions alone.

use std::collections::VecDeque;

use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::cost::table::Book;
use gpuslice_policy::compute::cost::thread_cache::{EPOCHS, Recent, epoch_of};
use gpuslice_policy::compute::limiter::lease::{self, Lease};
use gpuslice_policy::compute::limiter::overdraft::{self, Beside};
use gpuslice_policy::compute::limiter::queue_bound::{self, Ahead, UNKNOWN_WAIT, Unknown};
use gpuslice_policy::compute::limiter::settlement::Bill;
use gpuslice_policy::compute::measuring::batch::{OLD, Run, Spell};
use gpuslice_policy::compute::measuring::event_clock::{AT_FIRST, EventCost, Offset};
use gpuslice_policy::compute::measuring::peer_intervals::Reader;
use gpuslice_policy::compute::measuring::union::Union;
use gpuslice_policy::compute::measuring::when_alone::{self, Bracket, Sampler};

use crate::blind::Blind;
use crate::gpu::{Gpu, NEVER};
use crate::program::Kind;
use crate::slice::Slice;

/// What a launch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The slice's word, until then.
    Word(u64),
    /// Work that is queued ahead: until something is seen to end, or until then.
    Queue(u64),
    /// An unknown launch to be measured, until then.
    Unknown(u64),
}

/// What was paid for a launch.
#[derive(Debug, Clone, Copy)]
pub struct Paid {
    pub estimate: Estimate,
    pub is_known: bool,
}

/// A run and its events.
#[derive(Debug)]
pub struct Bracketed {
    pub run: Run,
    pub start: usize,
    pub end: usize,
    /// When the host recorded the start.
    pub opened: u64,
    pub is_unknown: bool,
    /// The host had waited for the stream.
    pub known_idle: bool,

    pub bill: Bill,
    /// Until when it has been charged while it ran.
    pub charged_to: u64,
    /// How much of its time has been charged.
    pub progress: u64,
    /// What the kernels really take.
    pub truth: u64,
}

/// How events are read: what differs between the GPU's clock and the host's.
#[derive(Debug, Clone, Copy)]
pub struct Readings {
    /// The GPU's clock gains so many nanoseconds in 2^20.
    pub drift: u64,
    /// Times are multiples of it.
    pub resolution: u64,
    /// Ahead of the host's clock.
    pub origin: u64,
}

impl Readings {
    pub fn of(self, time: u64) -> u64 {
        let time = time + (time >> 20) * self.drift + self.origin;
        time - time % self.resolution
    }
}

pub struct Shim {
    pub me: usize,
    pub client: usize,
    pub readings: Readings,
    pub book: Book,
    pub recent: Recent,
    pub epochs: [u64; EPOCHS],
    pub lease: Lease,
    pub open: Vec<Option<Bracketed>>,
    pub flights: Vec<VecDeque<Bracketed>>,
    pub union: Union,
    pub reader: Reader,
    pub offset: Offset,
    pub ahead: Ahead,
    /// When what is queued is expected to have ended.
    pub ends: u64,
    pub unknown: Unknown,
    pub sampler: Sampler,
    /// When the host last left the driver, and how long it has been outside in sum.
    pub left: u64,
    pub outside: u64,
    /// What that was at each stream's last launch.
    pub launched: Vec<u64>,
    /// When that was.
    pub last: Vec<u64>,
    /// Since when a stream is known to be empty.
    pub empty: Vec<Option<u64>>,
    /// When a stream that was empty had its first launch, and how long the host had been outside by then.
    pub spells: Vec<Option<(u64, u64, Spell)>>,
    /// Up to which place the ring has been read, and when places had been written over before.
    pub read_to: u64,
    /// What was paid for a launch that is inside the driver.
    pub entering: u64,
    /// Each stream's last event that was seen.
    pub last_end: Vec<u64>,
    /// Until when intervals of ours and of the slice's other processes reach.
    pub own_until: u64,
    pub others_until: u64,
    /// Until when intervals of the slice's other processes reach, whatever ours do.
    pub beside_until: u64,
    pub outstanding: u64,
    pub settled_at: u64,
    pub launches: u64,
    /// Kernels of 400 ms, give or take a few, whose end was measured.
    pub long_kernels: u64,
    /// What an event costs, and the events that tell it before they have passed; whether they were recorded.
    pub cost: EventCost,
    pub at_first: Vec<usize>,
    pub is_calibrated: bool,
    /// When each stream's last run was closed.
    pub closed: Vec<u64>,
    /// When each stream is predicted to be done with what was sent off.
    pub until: Vec<u64>,
    pub beside: Beside,
    /// How often something was taken.
    pub takes: u32,
    pub events: u64,
    /// Where nothing but NVML measures.
    pub blind: Option<Blind>,
}

impl Shim {
    pub fn new(me: usize, client: usize, streams: usize, readings: Readings, now: u64) -> Self {
        Self {
            me,
            client,
            readings,
            book: Book::new(256),
            recent: Recent::NONE,
            epochs: [0; EPOCHS],
            lease: Lease::NONE,
            open: (0..streams).map(|_| None).collect(),
            flights: (0..streams).map(|_| VecDeque::new()).collect(),
            union: Union::new(),
            reader: Reader::default(),
            offset: Offset::default(),
            ahead: Ahead::default(),
            ends: 0,
            unknown: Unknown::default(),
            sampler: Sampler::default(),
            left: now,
            outside: 0,
            launched: vec![0; streams],
            last: vec![0; streams],
            empty: vec![Some(now); streams],
            spells: vec![None; streams],
            read_to: 0,
            entering: 0,
            last_end: vec![0; streams],
            own_until: 0,
            others_until: 0,
            beside_until: 0,
            outstanding: 0,
            settled_at: now,
            launches: 0,
            long_kernels: 0,
            cost: EventCost::default(),
            at_first: Vec::new(),
            is_calibrated: false,
            closed: vec![0; streams],
            until: vec![0; streams],
            beside: Beside::default(),
            takes: 0,
            events: 0,
            blind: None,
        }
    }

    fn known(&mut self, kind: &Kind) -> Option<Estimate> {
        let epoch = self.epochs[epoch_of(kind.key.id())];
        if let Some(known) = self.recent.find(&kind.key, epoch) {
            return Some(*known);
        }
        let known = self.book.known(&kind.key)?;
        self.recent.keep(&kind.key, epoch, known);
        Some(known)
    }

    /// Before a launch: pays for it, or says what it has to wait for. `since` is when it first asked.
    pub fn admit(
        &mut self,
        (kind, stream): (&Kind, usize),
        since: u64,
        now: u64,
        slice: &mut Slice,
        gpu: &mut Gpu,
    ) -> Result<Paid, Wait> {
        if self.blind.is_some() {
            return self.admit_blindly(now, slice);
        }
        let known = self.known(kind);
        let waits = since + UNKNOWN_WAIT;
        if known.is_none() && !self.unknown.admits(&kind.key) && now < waits {
            self.close_all(now, gpu);
            slice.asks[self.me].wants = 0;
            return Err(Wait::Unknown(waits));
        }
        let estimate = known.unwrap_or_else(|| self.book.prior(&kind.key));
        let cost = estimate.charged;
        let (least, left) =
            (queue_bound::least(slice.ahead, slice.is_alone(self.me)), self.ends.saturating_sub(now));
        let is_at_end = least < queue_bound::LEAST && self.ahead.admits_at_end(cost, left);
        if !self.ahead.admits_within(cost, least) && !is_at_end {
            self.close_all(now, gpu);
            // Others have their turns meanwhile.
            slice.asks[self.me].wants = 0;
            let left = self.ends.saturating_sub(now).saturating_sub(queue_bound::AT_END);
            return Err(Wait::Queue(if least < queue_bound::LEAST && left > 0 { now + left } else { NEVER }));
        }
        if known.is_some() && self.lease.spend(cost) {
            slice.asks[self.me].wants = 0;
            return Ok(self.pay(known, estimate));
        }
        if known.is_some()
            && self.open.len() > 1
            && let Some(owed) = self.goes_beside(stream, &estimate, now)
        {
            let lacks = cost.saturating_sub(self.lease.left());
            slice.asks[self.me].wants = 0;
            slice.owe(self.me, lacks, now);
            self.beside = Beside::of(owed);
            self.outstanding += lacks;
            self.lease.fill(lacks);
            assert!(self.lease.spend(cost));
            return Ok(self.pay(known, estimate));
        }
        let lacks = self.lease.lacks(cost, slice.lease(self.me, now)).max(1).max(self.together(&estimate));
        if let Err(until) = slice.take(self.me, lacks, now) {
            self.close_all(now, gpu);
            return Err(Wait::Word(until));
        }
        if !self.is_busy() && self.open.iter().all(Option::is_none) {
            self.settled_at = now;
        }
        self.takes += 1;
        self.beside = Beside::default();
        self.lease.fill(lacks);
        self.outstanding += lacks;
        assert!(self.lease.spend(cost));
        Ok(self.pay(known, estimate))
    }

    /// What is owed if a launch goes with those that are under way although nothing is left to pay it with.
    fn goes_beside(&self, stream: usize, estimate: &Estimate, now: u64) -> Option<u64> {
        let ends = |stream: usize| {
            let open = self.open[stream].as_ref();
            open.map_or(self.until[stream], |open| {
                overdraft::done(self.until[stream], open.opened, open.run.plain())
            })
        };
        let last = (0..self.until.len()).map(ends).max().unwrap();
        self.beside.go(estimate, overdraft::done(ends(stream), now, estimate.plain), last)
    }

    /// How much to take at least so that launches that overlap go together.
    fn together(&self, estimate: &Estimate) -> u64 {
        if self.open.len() < 2 {
            return 0;
        }
        lease::together(estimate, self.takes.is_multiple_of(16)).unwrap_or(0)
    }

    pub fn pay(&mut self, known: Option<Estimate>, estimate: Estimate) -> Paid {
        self.entering = estimate.charged;
        Paid { estimate, is_known: known.is_some() }
    }

    /// A launch that was paid enters the driver: brackets are opened and closed.
    pub fn enter(&mut self, kind: &Kind, paid: &Paid, stream: usize, now: u64, gpu: &mut Gpu) {
        // Our own waiting was inside the driver's call.
        self.left = now;
        if self.blind.is_some() {
            return;
        }
        let gap = self.outside - self.launched[stream];
        let long = when_alone::long(kind.graph, self.cost.get());
        let mut bracket = Bracket::of(paid.is_known.then_some(&paid.estimate), long, gap);
        let may_be_empty = || {
            self.empty[stream].is_none()
                && self.spells[stream].as_ref().is_some_and(|(since, _, spell)| {
                    let run = self.open[stream].as_ref().map(|open| &open.run);
                    spell.may_have_ended(run, now - since, 2 * paid.estimate.plain)
                })
        };
        if bracket == Bracket::Together {
            if !self.sampler.is_due(&paid.estimate) {
                self.sampler.passes();
            } else if self.sampler.launch(&paid.estimate, may_be_empty) {
                bracket = Bracket::Alone;
            }
        }
        // Runs of streams that take turns would overlap, though their kernels do not.
        for other in (0..self.open.len()).filter(|other| *other != stream) {
            if self.empty[other].is_some() {
                self.close(other, now, gpu);
            }
        }
        let is_old = self.open[stream].as_ref().is_some_and(|open| now - open.opened >= OLD);
        if bracket == Bracket::Alone || is_old {
            self.close(stream, now, gpu);
        }
        if self.open[stream].is_none() {
            self.record(stream, bracket, now, gpu);
            self.open[stream].as_mut().unwrap().known_idle = self.empty[stream].take().is_some();
        } else if self.empty[stream].is_none() {
            self.open[stream].as_mut().unwrap().run.idle(gap);
        }
    }

    /// It leaves the driver, which gave it to the GPU.
    pub fn leave(
        &mut self,
        kind: &Kind,
        paid: &Paid,
        (stream, truth): (usize, u64),
        now: u64,
        gpu: &mut Gpu,
    ) {
        if self.blind.is_some() {
            self.launches += 1;
            return;
        }
        let open = self.open[stream].as_mut().unwrap();
        (self.launched[stream], self.last[stream]) = (self.outside, now);
        let is_idle = open.known_idle || open.opened >= self.until[stream];
        let is_first = self.spells[stream].is_none() && open.run.is_empty() && is_idle;
        if self.empty[stream].is_some() || is_first {
            self.spells[stream] = Some((now, self.outside, Spell::default()));
        }
        match self.empty[stream].take() {
            Some(since) => open.run.idle(now - since),
            None if open.run.is_empty() => {
                let delay = if open.known_idle {
                    when_alone::delay(open.opened - self.closed[stream], self.cost.get())
                } else {
                    0
                };
                open.run.lead((now - open.opened).saturating_sub(delay));
            }
            None => {}
        }
        if !paid.is_known {
            self.unknown.add(&kind.key);
            open.is_unknown = true;
        }
        open.truth += truth;
        (self.left, self.entering) = (now, 0);
        self.launches += 1;
        if open.run.add(&kind.key, &paid.estimate) {
            self.close(stream, now, gpu);
        }
    }

    /// The host enters the driver: it was outside until now.
    pub fn enters(&mut self, now: u64) {
        self.outside += now - self.left;
        self.left = now;
    }

    /// The host is back from waiting for a stream.
    pub fn waited(&mut self, stream: usize, now: u64) {
        // The other streams may have been empty all the while.
        let inside = now - self.left;
        self.outside += inside;
        self.left = now;
        self.empty[stream] = Some(now);
        let spell = self.spells[stream].take();
        if let Some(open) = &mut self.open[stream] {
            let all = spell
                .map(|(since, outside, spell)| spell.left(now - since - (self.launched[stream] - outside)));
            open.run.waited(all.unwrap_or(inside));
        }
        self.launched[stream] += inside;
    }

    fn record(&mut self, stream: usize, bracket: Bracket, now: u64, gpu: &mut Gpu) {
        let start = gpu.record(self.client, stream);
        self.events += 2;
        self.open[stream] = Some(Bracketed {
            run: Run::open(bracket, self.cost.get()),
            start,
            end: 0,
            opened: now,
            is_unknown: false,
            known_idle: false,
            bill: Bill::new(0),
            charged_to: 0,
            progress: 0,
            truth: 0,
        });
    }

    fn close(&mut self, stream: usize, now: u64, gpu: &mut Gpu) {
        if self.open[stream].is_none() {
            return;
        }
        if let (Some((since, outside, spell)), Some(open)) =
            (&mut self.spells[stream], &mut self.open[stream])
        {
            let inside = self.last[stream] - *since - (self.launched[stream] - *outside);
            spell.close(&mut open.run, inside);
        }
        match self.empty[stream] {
            Some(since) => self.open[stream].as_mut().unwrap().run.close(now - since),
            None => {
                self.enters(now);
                let idle = self.outside - self.launched[stream];
                self.open[stream].as_mut().unwrap().run.close(idle);
            }
        }
        let mut open = self.open[stream].take().unwrap();
        open.end = gpu.record(self.client, stream);
        self.closed[stream] = now;
        if !core::mem::replace(&mut self.is_calibrated, true) {
            self.at_first = (0..AT_FIRST).map(|_| gpu.record(self.client, stream)).collect();
        }
        open.bill = Bill::new(open.run.prepaid());
        self.until[stream] = overdraft::done(self.until[stream], open.opened, open.run.plain());
        self.ahead.add(open.run.prepaid());
        self.ends = self.ends.max(now) + open.run.prepaid();
        self.flights[stream].push_back(open);
    }

    pub fn close_all(&mut self, now: u64, gpu: &mut Gpu) {
        (0..self.open.len()).for_each(|stream| self.close(stream, now, gpu));
        self.spells.fill(None);
    }

    pub fn is_busy(&self) -> bool {
        self.flights.iter().any(|flights| !flights.is_empty())
    }

    /// What was prepaid and is not measured: credit, open runs and those under way.
    pub fn unmeasured(&self) -> u128 {
        let open = self.open.iter().flatten().map(|open| open.run.prepaid());
        let flights = self.flights.iter().flatten();
        let flying = flights.map(|flight| flight.bill.prepaid().saturating_sub(flight.bill.charged()));
        open.chain(flying).map(u128::from).sum::<u128>() + u128::from(self.lease.left() + self.entering)
    }

    /// What the work takes that is not measured yet.
    pub fn under_way(&self) -> u64 {
        self.open.iter().flatten().chain(self.flights.iter().flatten()).map(|bracketed| bracketed.truth).sum()
    }

    /// How much more the work under way takes than was paid for it.
    pub fn underpaid(&self) -> u64 {
        let open = self.open.iter().flatten();
        let all = open.chain(self.flights.iter().flatten());
        all.map(|bracketed| {
            bracketed.truth.saturating_sub(bracketed.run.prepaid().max(bracketed.bill.charged()))
        })
        .sum()
    }
}
