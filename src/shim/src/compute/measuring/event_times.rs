//! Times of a context's events on one time line, and the offset of that line to the monotonic clock.
//!
//! The driver gives the time between two events as a 32-bit float of milliseconds. Such a float is exact only for short times:
//! after an hour it has steps of a quarter of a millisecond. So a batch is timed from a base event of its context, and the base
//! is replaced after a second.
//!
//! Only a thread that holds the lock of the meter's state uses these types.

use super::pending_batch::PendingBatch;
use crate::driver_calls::events::{self, Event, Events};
use crate::os::clock;
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::compute::measuring::event_clock::{ClockOffset, EventCost, EventEpoch, EventTime};
use gpuslice_policy::time::{Monotonic, WallTime};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The time line of a context.
#[derive(Debug)]
pub(crate) struct EventTimes {
    /// The base event. No batch uses it.
    event: Event,
    base: EventEpoch,
    /// Offset from the line to the monotonic clock.
    pub(crate) offset: ClockOffset,
}

/// The time lines of all contexts, by the contexts' numbers.
pub(crate) type ContextTimes = BTreeMap<u64, EventTimes>;

impl EventTimes {
    /// Makes a time line. Its base is an event that the GPU has passed and that no thread records again.
    fn from(event: Event, now: Monotonic) -> Self {
        Self { event, base: EventEpoch::new(now), offset: ClockOffset::default() }
    }

    fn time(&self, event: Event) -> Result<EventTime, Status> {
        events::elapsed(self.event, event).map(|elapsed| self.base.time(elapsed))
    }

    /// Replaces the base, if that is due, by an event of a batch that the GPU has just passed. The batch gets a spare event.
    ///
    /// The batch's event serves as the base, because to record an extra event would occupy a stream. The function gets the
    /// distance and the spare event before it changes anything. If the driver refuses one of them, base and batch stay as they
    /// are.
    fn renew(&mut self, pools: &Events, pool: u64, passed: &mut Event, now: Monotonic) -> Result<(), Status> {
        if self.base.is_due(now) {
            let elapsed = events::elapsed(self.event, *passed)?;
            let spare = pools.get(pool)?;
            self.base.replace(elapsed, now);
            let old = core::mem::replace(&mut self.event, core::mem::replace(passed, spare));
            pools.put(pool, old);
        }
        Ok(())
    }
}

/// Reads the events of a batch that the GPU has passed. Returns true if the batch has ended.
pub(crate) fn read_events(
    batch: &mut PendingBatch,
    pools: &Events,
    contexts: &mut ContextTimes,
    cost: &mut EventCost,
) -> Result<bool, Status> {
    Ok((batch.began.is_some() || read_start(batch, pools, contexts)?)
        && (batch.ended.is_some() || read_end(batch, pools, contexts, cost)?))
}

/// Reads the opening event of a batch, and returns true if the GPU has passed it.
fn read_start(batch: &mut PendingBatch, pools: &Events, contexts: &mut ContextTimes) -> Result<bool, Status> {
    let (pool, start) = (batch.closed.pool, &mut batch.closed.start);
    if !events::has_passed(*start)? {
        return Ok(false);
    }
    let now = clock::now();
    let (times, began) = match contexts.entry(pool) {
        Entry::Occupied(times) => {
            let began = times.get().time(*start)?;
            (times.into_mut(), began)
        }
        // The first batch of a context gives its opening event as the base, so it begins at the origin of the line.
        Entry::Vacant(none) => {
            let spare = pools.get(pool)?;
            let times = none.insert(EventTimes::from(*start, now));
            *start = spare;
            let began = times.base.time(0);
            (times, began)
        }
    };
    // The GPU passed the event after its record and before this instant, so these two instants bound the offset.
    times.offset.recorded(batch.closed.opened, began);
    times.offset.passed(now, began);
    batch.began = Some(began);
    // The base is renewed before the end is read: after a long pause the time from the old base would be too coarse.
    times.renew(pools, pool, start, now)?;
    Ok(true)
}

/// Reads the closing event of a batch, and returns true if the GPU has passed it and the calibration events behind it. A stream
/// passes its events in order, so the function asks the driver about the last event only.
fn read_end(
    batch: &mut PendingBatch,
    pools: &Events,
    contexts: &mut ContextTimes,
    cost: &mut EventCost,
) -> Result<bool, Status> {
    let closed = &mut batch.closed;
    if !events::has_passed(closed.calibration.last().copied().unwrap_or(closed.end))? {
        return Ok(false);
    }
    for (one, other) in closed.calibration.iter().zip(closed.calibration.iter().skip(1)) {
        cost.adjacent(WallTime::from_nanos(events::elapsed(*one, *other)?.unsigned_abs()));
    }
    let now = clock::now();
    let times = contexts.get_mut(&closed.pool).ok_or(status::INVALID_CONTEXT)?;
    let ended = times.time(closed.end)?;
    times.offset.passed(now, ended);
    batch.ended = Some(ended);
    times.renew(pools, closed.pool, &mut closed.end, now)?;
    Ok(true)
}
