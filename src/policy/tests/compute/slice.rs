//! The words that the processes of a slice share, as in the region.

use gpuslice_policy::compute::attribution::correction;
use gpuslice_policy::compute::limiter::fair_queue::{self, Ask};
use gpuslice_policy::compute::limiter::lease;
use gpuslice_policy::compute::limiter::overdraft;
use gpuslice_policy::compute::limiter::queue_bound;
use gpuslice_policy::compute::limiter::token_bucket::{self, RateLimit};
use gpuslice_policy::compute::measuring::overlap::Overlap;
use gpuslice_policy::compute::measuring::peer_intervals::{Interval, IntervalEntry};
use gpuslice_policy::time::GpuTimeChange;

use crate::debt::Debt;
use gpuslice_policy::time::literals::ns;

/// Number of places in the ring.
pub const PLACES: u64 = 1024;

#[derive(Debug)]
pub struct Slice {
    pub terms: RateLimit,
    pub paid_until: u64,
    /// The instant from which on time is free.
    free_from: u64,
    /// The instant up to which overdrafts are paid.
    overdrawn_until: u64,
    /// The expected value of the word.
    pub debt: Debt,
    /// The largest debt at a payment.
    pub owed_at_take: i128,
    pub places: u64,
    pub ring: Vec<IntervalEntry>,
    pub asks: Vec<Ask>,
    /// The next look of each waiting process.
    looks: Vec<u64>,
    pub virtual_time: u64,
    pub factor: u32,
    /// True if published intervals are replayed, which corrects the errors of the factor.
    pub is_replayed: bool,
    /// True if nothing tells the slice's time from that of its neighbours.
    pub unattributed: bool,
    pub overlap: Overlap,
    /// Sum of the prepaid and settled GPU time.
    pub paid: i128,
    /// Sum of the measured GPU time.
    pub measured: i128,
    /// The use that the slice reports. A replay only increases it.
    pub used: u64,
    /// Time that a replay refunded and that counts as used.
    pub overcounted: u64,
    /// GPU time that processes had prepaid when they died.
    pub lost: i128,
    /// Sum of the GPU time that each process took.
    pub taken: Vec<u64>,
    /// Sum of the GPU time that each process took, corrected by the measurements.
    pub got: Vec<i64>,
    /// The largest single payment of each process.
    pub dearest: Vec<u64>,
    /// Sum of the GPU time of an arbiter's gifts.
    pub given: u64,
    /// True if a refund has moved the word since the last look.
    pub refunded: bool,
    /// Wall time that launches waited.
    pub throttled: u64,
    /// Largest queued work of a process.
    pub ahead: u64,
}

impl Slice {
    pub fn new(terms: RateLimit, processes: usize) -> Self {
        Self {
            terms,
            paid_until: 0,
            free_from: 0,
            overdrawn_until: 0,
            debt: Debt::new(terms),
            owed_at_take: 0,
            places: 0,
            ring: vec![IntervalEntry::default(); PLACES as usize],
            asks: vec![Ask::default(); processes],
            looks: vec![0; processes],
            virtual_time: 0,
            factor: correction::ONE,
            is_replayed: false,
            unattributed: false,
            overlap: Overlap::default(),
            paid: 0,
            measured: 0,
            used: 0,
            overcounted: 0,
            lost: 0,
            taken: vec![0; processes],
            got: vec![0; processes],
            dearest: vec![0; processes],
            given: 0,
            refunded: false,
            throttled: 0,
            ahead: queue_bound::MOST.nanos(),
        }
    }

    /// Returns true if no other process uses it.
    pub fn is_alone(&self, me: usize) -> bool {
        self.asks.iter().enumerate().all(|(other, ask)| other == me || ask.served == ns(0))
    }

    /// Returns the smallest payment of a process.
    pub fn lease(&self, me: usize, now: u64) -> u64 {
        let others =
            self.seen(now).enumerate().filter(|(other, ask)| *other != me && ask.wants > ns(0)).count();
        let size = if others > 0 {
            lease::turn_among(self.terms, others + 1)
        } else if self.factor < correction::ONE || self.unattributed {
            lease::turn(self.terms)
        } else if self.asks.len() > 1 {
            lease::size(self.terms)
        } else {
            lease::alone(self.terms)
        };
        (lease::beside(size, ns(self.ahead))).nanos()
    }

    /// Takes time for a process. On failure it returns the instant of the next try.
    pub fn take(&mut self, me: usize, amount: u64, now: u64) -> Result<(), u64> {
        if self.asks[me].wants == ns(0) {
            let served =
                fair_queue::start(self.asks[me].served, ns(self.virtual_time), self.terms, self.seen(now));
            self.asks[me].served = served;
        }
        self.looks[me] = 0;
        self.asks[me].wants = ns(amount);
        let served = self.asks[me].served;
        let before = fair_queue::before(me, served, self.seen(now));
        let free_since = token_bucket::free_since(ns(self.paid_until), ns(self.free_from), ns(now));
        if let Some(until) = fair_queue::wait(free_since, before, ns(now), self.terms) {
            self.looks[me] = until.nanos();
            return Err(until.nanos());
        }
        self.owed_at_take = self.owed_at_take.max(self.debt.owed(now, self.terms));
        self.set_paid_until(
            (token_bucket::prepay(ns(self.paid_until), ns(now), ns(amount), self.terms)).nanos(),
            now,
        );
        self.debt.settle(amount as i64, now, self.terms);
        self.paid += i128::from(amount);
        self.taken[me] += amount;
        self.got[me] += amount as i64;
        self.dearest[me] = self.dearest[me].max(amount);
        self.virtual_time = self.virtual_time.max(served.nanos());
        self.asks[me] = Ask { served: served + ns(amount), wants: ns(0) };
        Ok(())
    }

    /// Returns the requests of all processes, as each of them sees them.
    pub fn seen(&self, now: u64) -> impl Iterator<Item = Ask> + Clone {
        self.asks.iter().zip(&self.looks).map(move |(ask, looks)| ask.of_one_that(ns(*looks), ns(now)))
    }

    fn set_paid_until(&mut self, paid_until: u64, now: u64) {
        self.paid_until = paid_until;
        self.free_from = (token_bucket::free_from(ns(self.free_from), ns(paid_until), ns(now))).nanos();
    }

    /// Records the debt of a launch without credit. Returns false if the budget of overdrafts does not pay for it.
    pub fn owe(&mut self, me: usize, amount: u64, now: u64) -> bool {
        let Some(until) = overdraft::admit(ns(self.overdrawn_until), ns(now), ns(amount), self.terms) else {
            return false;
        };
        self.overdrawn_until = until.nanos();
        self.set_paid_until(
            (token_bucket::prepay(ns(self.paid_until), ns(now), ns(amount), self.terms)).nanos(),
            now,
        );
        self.debt.settle(amount as i64, now, self.terms);
        self.paid += i128::from(amount);
        self.taken[me] += amount;
        self.got[me] += amount as i64;
        self.asks[me].served += ns(amount);
        true
    }

    pub fn settle(&mut self, difference: GpuTimeChange, now: u64) {
        self.set_paid_until(
            (token_bucket::settle(ns(self.paid_until), ns(now), difference, self.terms)).nanos(),
            now,
        );
        self.debt.settle(difference.nanos(), now, self.terms);
        self.paid += i128::from(difference.nanos());
        self.refunded |= difference.is_refund();
    }

    /// Gives wall time away.
    pub fn give(&mut self, gift: u64, now: u64) {
        self.set_paid_until(self.paid_until - gift, now);
        self.debt.give(gift, now, self.terms);
        self.given += self.terms.gpu(ns(gift)).nanos();
        self.refunded = true;
    }

    pub fn change(&mut self, terms: RateLimit, now: u64) {
        self.set_paid_until(
            (token_bucket::change(ns(self.paid_until), ns(now), self.terms, terms)).nanos(),
            now,
        );
        self.debt.change(now, self.terms, terms);
        self.terms = terms;
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
