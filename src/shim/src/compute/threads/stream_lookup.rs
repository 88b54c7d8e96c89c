//! The lane of a launch: one thread's use of one stream.

use crate::compute::state::Compute;
use crate::compute::threads::registry::OwnerGuard;
use crate::driver_calls::capture_mode;
use crate::driver_calls::streams::Stream;
use crate::os::reentrancy::quietly;
use core::sync::atomic::Ordering;

/// The lane of a call on a stream. None where the call is captured, and where nobody knows whose the stream is. Not to be
/// called within a phase: what is rare is one of its own.
#[inline(always)]
pub(crate) fn lane_for(held: &mut OwnerGuard, compute: &'static Compute, stream: Stream) -> Option<usize> {
    // Relaxed: whoever begins a capture or ends a stream is ordered with this call by the program, or not at all.
    let is_rare = capture_mode::is_open() || compute.ends.load(Ordering::Relaxed) != held.ends_seen;
    if is_rare && !is_to_run(held, compute, stream) {
        return None;
    }
    match held.lane_of(compute, stream) {
        Some(lane) => Some(lane),
        None => first_lane_for(held, compute, stream),
    }
}

/// The thread launches on the stream for the first time.
#[cold]
#[inline(never)]
fn first_lane_for(held: &mut OwnerGuard, compute: &'static Compute, stream: Stream) -> Option<usize> {
    quietly(|| held.add_lane(compute, stream), None)
}

/// Looks around where something is captured or a stream has ended. False: the launch is captured and costs nothing.
#[cold]
fn is_to_run(held: &mut OwnerGuard, compute: &'static Compute, stream: Stream) -> bool {
    let look = || {
        let ends = compute.ends.load(Ordering::Acquire);
        if ends != held.ends_seen {
            held.give_up_missed(compute);
            held.forget_ended(compute, ends);
        }
        !(capture_mode::is_open() && stream.may_capture())
    };
    quietly(look, true)
}
