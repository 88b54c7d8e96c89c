//! Notices of hooks: a capture begins, a graph changes, a stream or a context ends.

use crate::compute::measuring::meter::CodeLoad;
use crate::compute::state::Compute;
use crate::compute::threads::stream_state::StreamState;
use crate::driver_calls::capture_mode::relaxed_if_capturing;
use gpuslice_driver::types::CUstream;
use gpuslice_policy::compute::cost::estimate::Key;

/// Notes, before the driver is called, that a stream begins to record its calls instead of running them.
///
/// Batches on the stream are closed before that, while the library can still record an event. A later event would invalidate the
/// program's capture, so the batches could not be measured.
pub(crate) fn capture_begins(compute: &'static Compute, stream: CUstream) {
    close_everywhere(compute, |state| state.stream.is_named(stream));
}

/// Notes that a key means other work from now on. The library learns its cost again.
pub(crate) fn forget(compute: &Compute, key: &Key) {
    compute.estimates.invalidate(key);
}

/// Notes that a stream is about to be destroyed.
///
/// The batches are closed first, and the end is counted afterwards. A thread that sees the new number forgets streams without an
/// open batch. If a batch could not be closed, its slot is marked before the count. So its thread gives the batch up and records
/// nothing in the ended stream.
pub(crate) fn stream_ends(compute: &'static Compute, stream: CUstream) {
    close_everywhere(compute, |state| state.stream.is_named(stream));
    compute.contexts.count_end();
}

/// Notes that the program has this context. If the program has several contexts, a launch on a default stream asks the driver for
/// the current context.
pub(crate) fn context_seen(compute: &Compute, context: usize) {
    compute.contexts.add(context);
}

/// Notes that a context, or one use of it, is about to be destroyed. No thread polls its events meanwhile. Returns the context's
/// number. `None`: nothing was launched in the context.
///
/// The batches are closed before the last poll, so that the poll sees their events as well. If the worker polled during the
/// destruction, it would use events that the driver is freeing.
///
/// Only the driver's status tells whether the context has ended. So this function forgets nothing, and [`context_left`] decides.
pub(crate) fn context_ends(compute: &'static Compute, context: usize) -> Option<u64> {
    let pool = compute.timing.pools.known(context)?;
    close_everywhere(compute, |state| state.pool == pool);
    relaxed_if_capturing(|| compute.meter.suspend_context(compute, pool));
    Some(pool)
}

/// Notes that a call is about to load code into a context. No thread polls the context's events until the result is dropped.
/// `None`: nothing was launched in the context.
pub(crate) fn code_load_begins(compute: &'static Compute, context: usize) -> Option<CodeLoad> {
    Some(compute.meter.begin_code_load(compute.timing.pools.known(context)?))
}

/// Notes that a green context is about to be destroyed. `handle` is its handle as a `CUcontext`. Batches on its default streams
/// are closed. Work in flight continues in the primary context, and the events that time it belong to that context.
///
/// The green context has a number only if its own events time it. Without a number there is no event to forget, and the count
/// alone makes the threads look up their streams again.
pub(crate) fn green_handle_ends(compute: &'static Compute, handle: usize) -> Option<u64> {
    close_everywhere(compute, |state| state.context == handle);
    compute.contexts.count_end();
    context_ends(compute, handle)
}

/// Notes that the call that may destroy a context has returned. `ended`: the context and its events are gone.
/// Otherwise the context remains, for other users.
///
/// The order is: forget the events, count the end, let the meter continue. A thread that sees the count finds no events of the
/// context any more, and gives up its batch in it. The meter continues last, and leaves the context's batches unmeasured. If it
/// continued first, it would read events that do not exist.
pub(crate) fn context_left(compute: &'static Compute, pool: u64, ended: bool) {
    if ended {
        // This comes first: from here on no thread gets an event of the context.
        compute.timing.pools.end(pool);
        compute.contexts.count_end();
    }
    compute.meter.resume_context(compute, pool, ended);
}

/// Closes batches of all threads on the streams that `is_meant` accepts, except batches that only their own threads can close.
/// Waits for a launch in progress, because its thread may have an open batch on the stream. That thread would later record the
/// closing event in a stream that is gone.
///
/// The loop skips threads that have nothing to close, because each access makes all threads of the process pass a fence. The
/// program orders its launches on a stream before the end of the stream. So a batch that this check misses is on another stream.
fn close_everywhere(compute: &'static Compute, is_meant: impl Fn(&StreamState) -> bool) {
    for slot in compute.threads.all() {
        let is_mine = slot.is_mine();
        if !is_mine && slot.is_clean() {
            continue;
        }
        if let Some(mut state) = slot.acquire_remote() {
            state.close_where(compute, |stream| is_meant(stream) && (is_mine || stream.is_shared()));
        }
    }
}
