//! Lookup of a call's stream among the streams of its thread.

use super::slot::OwnerGuard;
use crate::compute::measuring::state::MeasuringState;
use crate::driver_calls::capture_mode;
use crate::driver_calls::streams::Stream;
use crate::os::reentrancy::enter_or;

/// Returns the place of a call's stream among the streams of its thread. Returns `None` if the call is captured, or if the driver
/// does not report the stream's context. The caller must be outside any phase, because rare parts of the function are phases.
///
/// The usual launch compares one shared number with the thread's own copy. If they are equal, no stream has ended. Without this
/// check a thread could take a new stream for an ended stream with the same handle. Example: the new stream is in another
/// context, where the driver refuses the events.
///
/// A place is valid until the thread calls this function again, which may forget streams.
#[inline(always)]
pub(crate) fn stream_for(
    held: &mut OwnerGuard,
    measuring: &'static MeasuringState,
    stream: Stream,
) -> Option<usize> {
    // No ordering is needed. If the program does not order the start of a capture with this call, both outcomes are correct.
    let is_rare = capture_mode::is_open() || measuring.contexts.ends() != held.ends_seen;
    if is_rare && !handle_capture_or_end(held, measuring, stream) {
        return None;
    }
    match held.find_stream(measuring, stream) {
        Some(at) => Some(at),
        None => first_use(held, measuring, stream),
    }
}

/// Adds a stream on which the thread launches for the first time.
#[cold]
#[inline(never)]
fn first_use(held: &mut OwnerGuard, measuring: &'static MeasuringState, stream: Stream) -> Option<usize> {
    enter_or(|| held.add_stream(measuring, stream), None)
}

/// Handles an open capture or an ended stream. Returns false if the call is captured, and so costs no GPU time.
///
/// The number is read once more with acquire. So this thread sees the mark that another thread has set before it counted the
/// end. Marked batches are given up first, because `forget_ended` keeps streams with an open batch, and must not keep an ended
/// stream.
#[cold]
fn handle_capture_or_end(held: &mut OwnerGuard, measuring: &'static MeasuringState, stream: Stream) -> bool {
    let look = || {
        let ends = measuring.contexts.ends_acquired();
        if ends != held.ends_seen {
            held.give_up_pending();
            held.forget_ended(measuring, ends);
        }
        !(capture_mode::is_open() && stream.may_capture())
    };
    enter_or(look, true)
}
