//! The stream of a call, among those of its thread.

use super::slot::OwnerGuard;
use crate::compute::measuring::state::MeasuringState;
use crate::driver_calls::capture_mode;
use crate::driver_calls::streams::Stream;
use crate::os::reentrancy::quietly;

/// The place of a call's stream among those of its thread. None where the call is captured, and where the driver does not say whose
/// the stream is. Not to be called within a phase: its rare parts are phases of their own.
#[inline(always)]
pub(crate) fn stream_for(
    held: &mut OwnerGuard,
    measuring: &'static MeasuringState,
    stream: Stream,
) -> Option<usize> {
    // The program orders the begin of a capture with this call, or not at all.
    let is_rare = capture_mode::is_open() || measuring.contexts.ends() != held.ends_seen;
    if is_rare && !is_to_run(held, measuring, stream) {
        return None;
    }
    match held.find_stream(measuring, stream) {
        Some(at) => Some(at),
        None => first_use(held, measuring, stream),
    }
}

/// The thread launches on the stream for the first time.
#[cold]
#[inline(never)]
fn first_use(held: &mut OwnerGuard, measuring: &'static MeasuringState, stream: Stream) -> Option<usize> {
    quietly(|| held.add_stream(measuring, stream), None)
}

/// A capture is open somewhere, or a stream has ended. False: the call is captured and costs nothing.
#[cold]
fn is_to_run(held: &mut OwnerGuard, measuring: &'static MeasuringState, stream: Stream) -> bool {
    let look = || {
        let ends = measuring.contexts.ends_acquired();
        if ends != held.ends_seen {
            held.give_up_pending();
            held.forget_ended(measuring, ends);
        }
        !(capture_mode::is_open() && stream.may_capture())
    };
    quietly(look, true)
}
