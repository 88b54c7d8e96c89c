//! Timing events: a pool of events for each context, and calls that record and read events.
//!
//! A caller makes these calls within [`relaxed_if_capturing`](super::capture_mode::relaxed_if_capturing), so that they do not
//! invalidate the program's captures.

use super::contexts::within;
use super::streams::Stream;
use core::ffi::c_uint;
use core::ptr;
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{CUevent, Status, status};
use gpuslice_policy::compute::measuring::event_clock::nanoseconds;
use parking_lot::Mutex;

/// Number of events that a context has ready while work is under way: enough for 32 batches. A program opens fewer batches
/// between two polls of the worker, so its threads need not create events.
const READY_EVENTS: usize = 64;

/// A timing event of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event(usize);

impl Event {
    fn handle(self) -> CUevent {
        ptr::with_exposed_provenance_mut(self.0)
    }
}

/// The events of this process that are not in use, by context.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pools: Mutex<EventPools>,
}

#[derive(Debug, Default)]
struct EventPools {
    /// Last number that was given to a context. Each number is used once. So a context that gets the handle of an ended context
    /// has another number.
    last: u64,
    all: Vec<EventPool>,
}

#[derive(Debug)]
struct EventPool {
    number: u64,
    context: usize,
    free: Vec<Event>,
    /// True if a caller of [`is_first`](Events::is_first) measures the duration of an event in the context.
    is_calibrated: bool,
}

impl Events {
    /// Returns the number of a context. A context without a number gets a new one.
    pub(crate) fn number_of(&self, context: usize) -> u64 {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.all.iter().find(|pool| pool.context == context) {
            return pool.number;
        }
        pools.last = pools.last.saturating_add(1);
        let number = pools.last;
        pools.all.push(EventPool { number, context, free: Vec::new(), is_calibrated: false });
        number
    }

    /// Returns the context of a number, as long as the context exists.
    pub(crate) fn context_of(&self, number: u64) -> Option<usize> {
        self.pools.lock().all.iter().find(|pool| pool.number == number).map(|pool| pool.context)
    }

    /// Returns an event for use in a context.
    pub(crate) fn get(&self, number: u64) -> Result<Event, Status> {
        let (context, kept) = {
            let mut pools = self.pools.lock();
            let pool = pools.all.iter_mut().find(|pool| pool.number == number);
            let Some(pool) = pool else { return Err(status::INVALID_CONTEXT) };
            (pool.context, pool.free.pop())
        };
        kept.map_or_else(|| within(context, create).unwrap_or(Err(status::INVALID_CONTEXT)), Ok)
    }

    /// Creates events until [`READY_EVENTS`] are ready for a context, which must be current. Errors are ignored, because a launch
    /// that finds no ready event creates one and handles the error.
    pub(crate) fn refill(&self, number: u64) {
        let lacks = |pools: &EventPools| {
            let pool = pools.all.iter().find(|pool| pool.number == number);
            pool.map_or(0, |pool| READY_EVENTS.saturating_sub(pool.free.len()))
        };
        let lacking = lacks(&self.pools.lock());
        (0..lacking).map_while(|_| create().ok()).for_each(|event| self.put(number, event));
    }

    /// Returns true at the first call for a context. The caller then measures the duration of an event in that context.
    pub(crate) fn is_first(&self, number: u64) -> bool {
        let mut pools = self.pools.lock();
        let pool = pools.all.iter_mut().find(|pool| pool.number == number);
        pool.is_some_and(|pool| !core::mem::replace(&mut pool.is_calibrated, true))
    }

    /// Puts back an event that is not in use any more.
    pub(crate) fn put(&self, number: u64, event: Event) {
        if let Some(pool) = self.pools.lock().all.iter_mut().find(|pool| pool.number == number) {
            pool.free.push(event);
        }
    }

    /// Forgets a context that ends, and its events.
    pub(crate) fn end(&self, number: u64) {
        self.pools.lock().all.retain(|pool| pool.number != number);
    }

    /// Returns the number of a context, if it has one.
    pub(crate) fn known(&self, context: usize) -> Option<u64> {
        self.pools.lock().all.iter().find(|pool| pool.context == context).map(|pool| pool.number)
    }
}

fn create() -> Result<Event, Status> {
    /// `CU_EVENT_DEFAULT`: the event measures time.
    const FLAGS: c_uint = 0;
    let function = slot::real::<real::cuEventCreate>(Symbol::cuEventCreate).ok_or(status::NOT_SUPPORTED)?;
    let mut event: CUevent = ptr::null_mut();
    // SAFETY: the function needs an output that is valid for writes: `event` is on this stack.
    let code = unsafe { function(&raw mut event, FLAGS) };
    ok(code).map(|()| Event(event.expose_provenance()))
}

/// Records an event in a stream.
pub(crate) fn record(event: Event, stream: Stream) -> Result<(), Status> {
    let function = if stream.per_thread {
        slot::real::<real::cuEventRecord_ptsz>(Symbol::cuEventRecord_ptsz)
    } else {
        slot::real::<real::cuEventRecord>(Symbol::cuEventRecord)
    };
    let function = function.ok_or(status::NOT_SUPPORTED)?;
    // SAFETY: the function requires an event and a stream that exist. The event is the library's. The stream is the program's:
    // before it ends, the library closes or gives up all batches on it.
    ok(unsafe { function(event.handle(), stream.handle) })
}

/// Returns true if the GPU has passed an event.
pub(crate) fn has_passed(event: Event) -> Result<bool, Status> {
    let function = slot::real::<real::cuEventQuery>(Symbol::cuEventQuery).ok_or(status::NOT_SUPPORTED)?;
    // SAFETY: the function requires an event that exists: it is the library's.
    match unsafe { function(event.handle()) } {
        status::NOT_READY => Ok(false),
        code => ok(code).map(|()| true),
    }
}

/// Returns the nanoseconds from one event to another. The GPU must have passed both.
pub(crate) fn elapsed(from: Event, to: Event) -> Result<i64, Status> {
    let function =
        slot::real::<real::cuEventElapsedTime>(Symbol::cuEventElapsedTime).ok_or(status::NOT_SUPPORTED)?;
    let mut milliseconds = 0.0_f32;
    // SAFETY: the function requires events that exist, and an output that is valid for writes. The events are the library's, and
    // the output is the local `milliseconds`.
    let code = unsafe { function(&raw mut milliseconds, from.handle(), to.handle()) };
    ok(code).and_then(|()| nanoseconds(milliseconds).ok_or(status::UNKNOWN))
}

fn ok(code: Status) -> Result<(), Status> {
    if code == status::SUCCESS { Ok(()) } else { Err(code) }
}
