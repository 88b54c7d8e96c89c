//! What has the GPU done of what was sent off?
//!
//! Once a millisecond, while work is under way, the events of closed runs are looked at, each lane's first in, first out.
//! What has been measured is laid on the slice's line of time; what it newly covers is charged and learned, and the
//! difference to what was prepaid is settled. A run that has begun and not ended is charged as it runs.
//!
//! The meter's lock is taken by its own thread, and by threads that end a context. One that launches never waits for it:
//! it takes it only where it is free, while that thread is late. Since its own thread may be kept in the driver for long,
//! what becomes of a context is left where the next round finds it.

#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::compute::measuring::device_usage::{DeviceUsage, PendingBatch};
use crate::compute::state::Compute;
use crate::driver_calls::contexts::within;
use crate::driver_calls::events::{self, Event};
use crate::os::clock;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::compute::limiter::queue_bound;
use gpuslice_policy::compute::measuring::event_clock::{Base, EventCost, Offset};
use parking_lot::{Mutex, MutexGuard};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// Everything that is on its way, and what is known of the past.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    numbers: AtomicU64,
    /// Sent off and not yet looked at.
    incoming: Mutex<Vec<PendingBatch>>,
    endings: Mutex<Endings>,
    works: Mutex<MeterState>,
}

/// What becomes of contexts, by their numbers.
#[derive(Debug, Default)]
struct Endings {
    /// Those that may be ending: their events are not looked at. One that several calls may end is named by each.
    resting: Vec<u64>,
    /// Those that have ended, and of whose work nobody knows it yet.
    ended: Vec<u64>,
}

#[derive(Debug, Default)]
struct MeterState {
    /// By lane, in the order in which they were sent off.
    lanes: BTreeMap<u64, StreamQueue>,
    /// By the number of the context.
    contexts: BTreeMap<u64, EventTimes>,
    accounts: Vec<DeviceUsage>,
    /// What an event costs.
    cost: EventCost,
}

#[derive(Debug, Default)]
struct StreamQueue {
    flights: VecDeque<PendingBatch>,
    /// The last event that was seen.
    last_end: u64,
    /// Since when there is nothing in it, on the monotonic clock; 0 while there is.
    empty: u64,
    device: usize,
    /// When something of it was seen to run or to end, or came when there was nothing, on the monotonic clock.
    moved: u64,
    /// Whether some of it was set aside.
    is_aside: bool,
    /// Whether its first flight was under way on the GPU when it was looked at last.
    has_begun: bool,
}

/// How long a lane's last event is remembered once it has no work, in nanoseconds.
const REMEMBERED: u64 = 1_000_000_000;
/// How long a call that may end a context waits for a round.
const ROUND_ENDS: Duration = Duration::from_secs(2);
/// How long it waits once it is over: a round that is not kept in the driver ends within that.
const NEWS_HEARD: Duration = Duration::from_millis(10);
/// How long a lane counts as one in use, in nanoseconds.
const LATELY: u64 = 100_000_000;

/// Where a context's events lie in time.
#[derive(Debug)]
struct EventTimes {
    /// The event that others are told from; belongs to nobody else.
    event: Event,
    base: Base,
    offset: Offset,
}

impl Meter {
    /// A number that nobody else has.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// A run was closed.
    pub(crate) fn send_off(&self, flight: PendingBatch) {
        self.incoming.lock().push(flight);
    }

    /// Looks at what is under way. How many flights have ended, or lanes are waited for no more.
    pub(crate) fn harvest(&self, compute: &'static Compute) -> usize {
        self.harvested(self.works.lock(), compute)
    }

    /// The same, unless another thread does.
    pub(crate) fn try_harvest(&self, compute: &'static Compute) -> usize {
        self.works.try_lock().map_or(0, |works| self.harvested(works, compute))
    }

    fn harvested(&self, mut works: MutexGuard<'_, MeterState>, compute: &'static Compute) -> usize {
        works.receive(compute, self);
        works.round(compute, self)
    }

    /// A context is about to end: what is under way in it is looked at once more, and then not until it is known whether
    /// it has.
    pub(crate) fn rest(&self, compute: &'static Compute, pool: u64) {
        let works = self.works_soon(compute, ROUND_ENDS);
        let works = works.map(|mut works| {
            works.receive(compute, self);
            works.round(compute, self);
            works
        });
        self.endings.lock().resting.push(pool);
        drop(works);
    }

    /// What is under way in it is not measured any more, or looked at again. A round that is kept in the driver hears of it
    /// when it is back.
    pub(crate) fn resume(&self, compute: &'static Compute, pool: u64, ended: bool) {
        {
            let mut endings = self.endings.lock();
            if let Some(at) = endings.resting.iter().position(|resting| *resting == pool) {
                endings.resting.swap_remove(at);
            }
            if !ended {
                return;
            }
            endings.ended.push(pool);
        }
        // At once where it can be: the process may end before the next round.
        if let Some(mut works) = self.works_soon(compute, NEWS_HEARD) {
            works.receive(compute, self);
        }
    }

    /// Waits for a round to end: it may be kept in the driver for as long as code is loaded. Not once the process ends.
    fn works_soon(&self, compute: &Compute, most: Duration) -> Option<MutexGuard<'_, MeterState>> {
        let most = if compute.helper.is_ending() { Duration::ZERO } else { most };
        self.works.try_lock_for(most)
    }

    /// Whether nobody is to look at what is under way in a context.
    fn is_resting(&self, pool: u64) -> bool {
        self.endings.lock().resting.contains(&pool)
    }
}

impl MeterState {
    /// Takes over what was sent off, and what is known of contexts.
    fn receive(&mut self, compute: &'static Compute, meter: &Meter) {
        // First: what was sent off before a context ended is then among what is taken over.
        let ended = core::mem::take(&mut meter.endings.lock().ended);
        while self.accounts.len() < compute.pacers.len() {
            let device = compute.pacers.get(self.accounts.len()).map(|pacer| pacer.place.device);
            let place = device.map_or(0, |device| compute.member().interval_head(device));
            self.accounts.push(DeviceUsage::new(place));
        }
        for flight in core::mem::take(&mut *meter.incoming.lock()) {
            let queue = self.lanes.entry(flight.lane).or_default();
            queue.device = flight.device;
            if queue.flights.is_empty() {
                queue.moved = clock::now();
            }
            queue.flights.push_back(flight);
        }
        for pool in ended {
            self.end_context(compute, pool);
        }
    }

    /// Looks at the events of all lanes, then charges what they say.
    fn round(&mut self, compute: &'static Compute, meter: &Meter) -> usize {
        if !self.has_read_others(compute) {
            return 0;
        }
        let Self { lanes, contexts, cost, .. } = self;
        for queue in lanes.values_mut() {
            let Some(pool) = queue.flights.front().map(|flight| flight.pool) else { continue };
            if meter.is_resting(pool) {
                continue;
            }
            let context = compute.events.context_of(pool);
            let look = || {
                compute.events.refill(pool);
                queue.look(compute, contexts, cost)
            };
            let looked = context.and_then(|context| within(context, look));
            if let Err(code) = looked.unwrap_or(Err(status::INVALID_CONTEXT)) {
                compute.event_failed(code);
                // What cannot be asked for is not waited for, or all behind it would wait as well.
                queue
                    .flights
                    .iter_mut()
                    .find(|flight| flight.ended.is_none())
                    .into_iter()
                    .for_each(PendingBatch::give_up);
            }
        }
        compute.event_cost.store(cost.get(), Ordering::Relaxed);
        let busy = lanes.iter().filter(|(_, queue)| !queue.flights.is_empty());
        let numbers: Vec<u64> = busy.map(|(number, _)| *number).collect();
        let (mut others, mut ended) = (numbers.len(), 0_usize);
        for number in numbers {
            ended = ended.saturating_add(self.charge_lane(compute, number, others == 1));
            let is_done = self.lanes.get(&number).is_none_or(|queue| queue.flights.is_empty());
            others = others.saturating_sub(usize::from(is_done));
        }
        let now = clock::now();
        self.lanes.retain(|_, queue| {
            queue.empty = match queue.empty {
                _ if !queue.flights.is_empty() => 0,
                0 => now,
                since => since,
            };
            queue.is_of_the_last(REMEMBERED, now)
        });
        for (at, pacer) in compute.pacers.iter().enumerate() {
            let is_busy = |queue: &&StreamQueue| queue.device == at && queue.is_of_the_last(LATELY, now);
            pacer.lanes.store(self.lanes.values().filter(is_busy).count(), Ordering::Relaxed);
            let runs = self.lanes.values().any(|queue| queue.device == at && queue.is_running());
            pacer.runs.store(runs, Ordering::Relaxed);
        }
        ended
    }

    /// Whether all that other processes of the slice have published is on our lines.
    fn has_read_others(&mut self, compute: &'static Compute) -> bool {
        let now = clock::now();
        self.accounts.iter_mut().zip(&compute.pacers).all(|(account, pacer)| {
            let device = pacer.place.device;
            account.read(compute, device, compute.member().interval_head(device), now)
        })
    }

    /// Charges a lane's flights that have ended, and what runs of the next. `is_only`: no other lane has any.
    fn charge_lane(&mut self, compute: &'static Compute, number: u64, is_only: bool) -> usize {
        let mut ended = 0_usize;
        let Some(queue) = self.lanes.get_mut(&number) else { return 0 };
        while let Some(mut flight) = queue.flights.pop_front() {
            let offset = self.contexts.get(&flight.pool).map(|times| times.offset).unwrap_or_default();
            let account = self.accounts.get_mut(flight.device);
            let Some(end) = flight.ended else {
                if let (Some(account), Some(began)) =
                    (account, flight.began.and_then(|began| offset.instant(began)))
                {
                    account.charge_running(compute, &mut flight, began, is_only);
                }
                queue.flights.push_front(flight);
                break;
            };
            match (account, flight.began) {
                (Some(account), Some(began)) if !flight.is_given_up() => {
                    let before = core::mem::replace(&mut queue.last_end, end);
                    if account.settle(
                        compute,
                        &mut flight,
                        (before, began, end),
                        (offset, self.cost, is_only),
                    ) {
                        queue.last_end = 0;
                    }
                }
                _ => flight.unmeasured(compute),
            }
            let at = offset.instant(end).unwrap_or_else(clock::now);
            compute.landed(&flight, at);
            compute.events.put(flight.pool, flight.start);
            compute.events.put(flight.pool, flight.end);
            flight.behind.iter().for_each(|event| compute.events.put(flight.pool, *event));
            ended = ended.saturating_add(1);
        }
        let changed = queue.set_aside(compute, ended > 0);
        ended.saturating_add(usize::from(changed))
    }

    fn end_context(&mut self, compute: &'static Compute, pool: u64) {
        self.contexts.remove(&pool);
        for queue in self.lanes.values_mut() {
            if queue.flights.front().is_none_or(|flight| flight.pool != pool) {
                continue;
            }
            for flight in queue.flights.drain(..) {
                flight.unmeasured(compute);
                compute.landed(&flight, clock::now());
            }
            queue.last_end = 0;
        }
    }
}

impl StreamQueue {
    /// Whether it has had work within so many nanoseconds.
    fn is_of_the_last(&self, nanoseconds: u64, now: u64) -> bool {
        self.empty == 0 || now.saturating_sub(self.empty) < nanoseconds
    }

    /// Whether the GPU is at its first.
    fn is_running(&self) -> bool {
        self.flights.front().is_some_and(|flight| flight.began.is_some())
    }

    /// Nobody waits for what is held up by something else than the GPU, until that has come. Whether somebody may have
    /// waited until now.
    fn set_aside(&mut self, compute: &Compute, has_moved: bool) -> bool {
        let is_running = self.is_running();
        let Some(front) = self.flights.front() else { return false };
        let now = clock::now();
        let has_begun = core::mem::replace(&mut self.has_begun, is_running);
        if has_moved || self.has_begun != has_begun {
            self.moved = now;
            if core::mem::take(&mut self.is_aside) {
                self.flights.iter_mut().for_each(|flight| flight.is_ahead_again(compute));
            }
            return false;
        }
        // What runs for much longer than it ever did may wait for what waits for it.
        let takes = if self.has_begun { front.run.plain() } else { 0 };
        if now.saturating_sub(self.moved) < queue_bound::HELD_UP.saturating_add(takes) {
            return false;
        }
        self.is_aside = true;
        let mut any = false;
        for flight in &mut self.flights {
            any |= flight.set_aside(compute);
        }
        any
    }

    /// Looks at events up to the first that the GPU has not passed.
    fn look(
        &mut self,
        compute: &Compute,
        contexts: &mut BTreeMap<u64, EventTimes>,
        cost: &mut EventCost,
    ) -> Result<(), Status> {
        for flight in &mut self.flights {
            if flight.began.is_none() {
                if !events::has_passed(flight.start)? {
                    break;
                }
                let now = clock::now();
                let (times, began) = match contexts.entry(flight.pool) {
                    Entry::Occupied(times) => {
                        let began = times.get().time(flight.start)?;
                        (times.into_mut(), began)
                    }
                    Entry::Vacant(none) => {
                        let spare = compute.events.get(flight.pool)?;
                        let times = none.insert(EventTimes::from(flight.start, now));
                        flight.start = spare;
                        let began = times.base.time(0);
                        (times, began)
                    }
                };
                times.offset.recorded(flight.opened, began);
                times.offset.passed(now, began);
                flight.began = Some(began);
                // After an hour without work a float would tell the end to a quarter of a millisecond.
                times.renew(compute, flight.pool, &mut flight.start, now)?;
            }
            if flight.ended.is_none() {
                if !events::has_passed(flight.behind.last().copied().unwrap_or(flight.end))? {
                    break;
                }
                for (one, other) in flight.behind.iter().zip(flight.behind.iter().skip(1)) {
                    cost.adjacent(events::elapsed(*one, *other)?.unsigned_abs());
                }
                let now = clock::now();
                let times = contexts.get_mut(&flight.pool).ok_or(status::INVALID_CONTEXT)?;
                let ended = times.time(flight.end)?;
                times.offset.passed(now, ended);
                flight.ended = Some(ended);
                times.renew(compute, flight.pool, &mut flight.end, now)?;
            }
        }
        Ok(())
    }
}

impl EventTimes {
    /// EventTimes are told from this event, which the GPU has passed and nobody records again.
    fn from(event: Event, now: u64) -> Self {
        Self { event, base: Base::new(now), offset: Offset::default() }
    }

    fn time(&self, event: Event) -> Result<u64, Status> {
        events::elapsed(self.event, event).map(|elapsed| self.base.time(elapsed))
    }

    /// Takes times from another event from time to time: one of a flight's, which the GPU has just passed.
    fn renew(&mut self, compute: &Compute, pool: u64, passed: &mut Event, now: u64) -> Result<(), Status> {
        if self.base.is_due(now) {
            let elapsed = events::elapsed(self.event, *passed)?;
            let spare = compute.events.get(pool)?;
            self.base.replace(elapsed, now);
            let old = core::mem::replace(&mut self.event, core::mem::replace(passed, spare));
            compute.events.put(pool, old);
        }
        Ok(())
    }
}
