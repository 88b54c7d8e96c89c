//! The words that the processes of a slice share, as in the region.

use gpuslice_policy::compute::attribution::correction;
use gpuslice_policy::compute::limiter::fair_queue::{self, Ask};
use gpuslice_policy::compute::limiter::lease;
use gpuslice_policy::compute::limiter::overdraft;
use gpuslice_policy::compute::limiter::queue_bound;
use gpuslice_policy::compute::limiter::token_bucket::{self, RateLimit};
use gpuslice_policy::compute::measuring::overlap::Overlap;
use gpuslice_policy::compute::measuring::peer_intervals::{Interval, IntervalEntry};
use gpuslice_policy::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};

use crate::debt::Debt;

/// Number of places in the ring.
pub const PLACES: u64 = 1024;

#[derive(Debug)]
pub struct Slice {
    pub rate_limit: RateLimit,
    pub paid_until: Monotonic,
    /// The instant from which on time is free.
    free_from: Monotonic,
    /// The instant up to which overdrafts are paid.
    overdrawn_until: Monotonic,
    /// The expected value of the word.
    pub debt: Debt,
    /// The largest debt at a payment.
    pub owed_at_take: i128,
    pub places: u64,
    pub ring: Vec<IntervalEntry>,
    pub asks: Vec<Ask>,
    /// The next look of each waiting process.
    looks: Vec<Monotonic>,
    pub virtual_time: GpuTime,
    pub factor: u32,
    /// True if published intervals are replayed, which corrects the errors of the factor.
    pub is_replayed: bool,
    /// True if nothing distinguishes the slice's time from the time of its neighbours.
    pub unattributed: bool,
    pub overlap: Overlap,
    /// Sum of the prepaid and settled GPU time.
    pub paid: i128,
    /// Sum of the measured GPU time.
    pub measured: i128,
    /// The use that the slice reports. A replay can only increase it.
    pub used: GpuTime,
    /// Time that a replay refunded and that still counts as used.
    pub overcounted: GpuTime,
    /// GPU time that processes had prepaid when they died.
    pub lost: i128,
    /// Sum of the GPU time that each process took.
    pub taken: Vec<GpuTime>,
    /// Sum of the GPU time that each process took, corrected by the measurements.
    pub got: Vec<GpuTimeChange>,
    /// The largest single payment of each process.
    pub dearest: Vec<GpuTime>,
    /// Sum of the GPU time of an arbiter's wall credits.
    pub given: GpuTime,
    /// True if a refund has moved the word since the last look.
    pub refunded: bool,
    /// Wall time that launches waited.
    pub throttled: WallTime,
    /// Sum of the time that processes prepaid which only NVML measures.
    pub prepaid: GpuTime,
    /// Largest queued work of a process.
    pub queue_bound: GpuTime,
}

impl Slice {
    pub fn new(rate_limit: RateLimit, processes: usize) -> Self {
        Self {
            rate_limit,
            paid_until: Monotonic::BEGIN,
            free_from: Monotonic::BEGIN,
            overdrawn_until: Monotonic::BEGIN,
            debt: Debt::new(rate_limit),
            owed_at_take: 0,
            places: 0,
            ring: vec![IntervalEntry::default(); PLACES as usize],
            asks: vec![Ask::default(); processes],
            looks: vec![Monotonic::BEGIN; processes],
            virtual_time: GpuTime::ZERO,
            factor: correction::WHOLE_FACTOR,
            is_replayed: false,
            unattributed: false,
            overlap: Overlap::default(),
            paid: 0,
            measured: 0,
            used: GpuTime::ZERO,
            overcounted: GpuTime::ZERO,
            lost: 0,
            taken: vec![GpuTime::ZERO; processes],
            got: vec![GpuTimeChange::NONE; processes],
            dearest: vec![GpuTime::ZERO; processes],
            given: GpuTime::ZERO,
            refunded: false,
            throttled: WallTime::ZERO,
            prepaid: GpuTime::ZERO,
            queue_bound: queue_bound::MOST_BOUND,
        }
    }

    /// Returns true if no other process uses the slice.
    pub fn is_alone(&self, me: usize) -> bool {
        self.asks.iter().enumerate().all(|(other, ask)| other == me || ask.virtual_service.is_zero())
    }

    /// Returns the smallest payment of a process.
    pub fn lease(&self, me: usize, now: Monotonic) -> GpuTime {
        let others = self
            .seen(now)
            .enumerate()
            .filter(|(other, ask)| *other != me && !ask.requested.is_zero())
            .count();
        let situation = lease::Situation {
            rate_limit: self.rate_limit,
            is_coupled: false,
            has_cotenants: self.factor < correction::WHOLE_FACTOR || self.unattributed,
            waiting: others,
            is_alone: self.asks.len() == 1,
        };
        lease::size_for(&situation, 1, self.queue_bound)
    }

    /// Takes time for a process. If that fails, returns the instant of the next try.
    pub fn take(&mut self, me: usize, amount: GpuTime, now: Monotonic) -> Result<(), Monotonic> {
        if self.asks[me].requested.is_zero() {
            let served = fair_queue::start(
                self.asks[me].virtual_service,
                self.virtual_time,
                self.rate_limit,
                self.seen(now),
            );
            self.asks[me].virtual_service = served;
        }
        self.looks[me] = Monotonic::BEGIN;
        self.asks[me].requested = amount;
        let served = self.asks[me].virtual_service;
        let before = fair_queue::before(me, served, self.seen(now));
        let free_since = token_bucket::free_since(self.paid_until, self.free_from, now);
        if let Some(until) = fair_queue::wait(free_since, before, now, self.rate_limit) {
            self.looks[me] = until;
            return Err(until);
        }
        self.owed_at_take = self.owed_at_take.max(self.debt.owed(now, self.rate_limit));
        self.prepay(me, amount, now);
        self.dearest[me] = self.dearest[me].max(amount);
        self.virtual_time = self.virtual_time.max(served);
        self.asks[me] = Ask { virtual_service: served + amount, requested: GpuTime::ZERO };
        Ok(())
    }

    /// Charges a process for time before it is used.
    fn prepay(&mut self, me: usize, amount: GpuTime, now: Monotonic) {
        let charge = GpuTimeChange::charge(amount);
        self.set_paid_until(token_bucket::prepay(self.paid_until, now, amount, self.rate_limit), now);
        self.debt.settle(charge, now, self.rate_limit);
        self.paid += i128::from(amount.nanos());
        self.taken[me] += amount;
        self.got[me] = self.got[me].saturating_add(charge);
    }

    /// Returns the requests of all processes, as other processes count them.
    pub fn seen(&self, now: Monotonic) -> impl Iterator<Item = Ask> + Clone {
        self.asks.iter().zip(&self.looks).map(move |(ask, looks)| ask.of_one_that(*looks, now))
    }

    fn set_paid_until(&mut self, paid_until: Monotonic, now: Monotonic) {
        self.paid_until = paid_until;
        self.free_from = token_bucket::free_from(self.free_from, paid_until, now);
    }

    /// Records the debt of a launch without credit. Returns false if the budget of overdrafts does not pay for it.
    pub fn owe(&mut self, me: usize, amount: GpuTime, now: Monotonic) -> bool {
        let Some(until) = overdraft::admit(self.overdrawn_until, now, amount, self.rate_limit) else {
            return false;
        };
        self.overdrawn_until = until;
        self.prepay(me, amount, now);
        self.asks[me].virtual_service += amount;
        true
    }

    pub fn settle(&mut self, difference: GpuTimeChange, now: Monotonic) {
        self.set_paid_until(token_bucket::settle(self.paid_until, now, difference, self.rate_limit), now);
        self.debt.settle(difference, now, self.rate_limit);
        self.paid += i128::from(difference.nanos());
        self.refunded |= difference.is_refund();
    }

    /// Gives the slice wall time.
    pub fn give(&mut self, wall_credit: WallTime, now: Monotonic) {
        self.set_paid_until(self.paid_until - wall_credit, now);
        self.debt.give(wall_credit, now, self.rate_limit);
        self.given += self.rate_limit.gpu(wall_credit);
        self.refunded = true;
    }

    pub fn change(&mut self, rate_limit: RateLimit, now: Monotonic) {
        self.set_paid_until(token_bucket::change(self.paid_until, now, self.rate_limit, rate_limit), now);
        self.debt.change(now, self.rate_limit, rate_limit);
        self.rate_limit = rate_limit;
        self.refunded = true;
    }

    /// Publishes an interval. Returns its place.
    pub fn publish(&mut self, interval: Interval) -> u64 {
        let place = self.places;
        self.places += 1;
        self.ring[(place % PLACES) as usize] = IntervalEntry::new(place, interval);
        place
    }
}
