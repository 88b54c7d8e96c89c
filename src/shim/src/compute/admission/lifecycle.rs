//! Notices of hooks: captures that begin, graphs that change, streams and contexts that end.

use crate::compute::measuring::contexts::Contexts;
use crate::compute::state::Compute;
use crate::compute::threads::thread_state;
use crate::driver_calls::capture_mode::apart;
use core::sync::atomic::Ordering;
use gpuslice_driver::types::CUstream;
use gpuslice_policy::compute::cost::estimate::Key;

/// A stream begins to record its calls instead of running them: told before the driver.
pub(crate) fn capture_begins(compute: &'static Compute, stream: CUstream) {
    close_everywhere(compute, |lane| lane.stream.is_named(stream));
}

/// What a key stands for has changed: its cost has to be learned anew.
pub(crate) fn forget(compute: &Compute, key: &Key) {
    compute.doubt(key);
}

/// A stream is about to be destroyed.
pub(crate) fn stream_ends(compute: &'static Compute, stream: CUstream) {
    close_everywhere(compute, |lane| lane.stream.is_named(stream));
    compute.ends.fetch_add(1, Ordering::AcqRel);
}

/// The program has this context: launches on a default stream ask for the current one only where there are several.
pub(crate) fn context_seen(compute: &Compute, context: usize) {
    let mut seen = compute.contexts.lock();
    *seen = match *seen {
        Contexts::None => Contexts::One(context),
        Contexts::One(first) if first == context => Contexts::One(first),
        _ => Contexts::Several,
    };
    compute.one_context.store(matches!(*seen, Contexts::One(_)), Ordering::Relaxed);
}

/// A context is about to be destroyed, or one use of it: nobody looks at its events meanwhile. Our number for it; none
/// where nothing was launched in it.
pub(crate) fn context_ends(compute: &'static Compute, context: usize) -> Option<u64> {
    let pool = compute.events.known(context)?;
    close_everywhere(compute, |lane| lane.pool == pool);
    apart(|| compute.meter.rest(compute, pool));
    Some(pool)
}

/// A green context is about to be destroyed, by the handle that it has as a context: runs on its default streams are closed.
/// What is under way goes on in the primary context, and so do the events that tell of it.
pub(crate) fn view_ends(compute: &'static Compute, view: usize) -> Option<u64> {
    close_everywhere(compute, |lane| lane.context == view);
    compute.ends.fetch_add(1, Ordering::AcqRel);
    context_ends(compute, view)
}

/// It has ended, and its events with it, or it lives on: others use it as well.
pub(crate) fn context_left(compute: &'static Compute, pool: u64, ended: bool) {
    if ended {
        // First: from then on nobody asks for an event of it.
        compute.events.end(pool);
        compute.ends.fetch_add(1, Ordering::AcqRel);
    }
    compute.meter.resume(compute, pool, ended);
}

/// Closes runs of all threads, but for those that only their own threads can close. A launch under way is waited for: its
/// thread may have an open run on the stream as well, and would mark its end in one that is gone.
fn close_everywhere(compute: &'static Compute, is_meant: impl Fn(&thread_state::StreamState) -> bool) {
    for shared in compute.seats.all() {
        let is_mine = shared.is_mine();
        if !is_mine && shared.is_clean() {
            continue;
        }
        if let Some(mut seat) = shared.wait_and_hold() {
            seat.close_where(compute, |lane| is_meant(lane) && (is_mine || lane.is_shared()));
        }
    }
}
