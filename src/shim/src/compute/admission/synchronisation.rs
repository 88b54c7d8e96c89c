//! What does a run learn of the program's own waits?
//!
//! A stream that the host has waited for is empty: what it is charged for begins with its next launch. Other calls in which
//! the host spends its time count as time outside.

use crate::compute::state::Compute;
use crate::compute::threads::registry;
use crate::compute::threads::thread_state::StreamState;
use crate::driver_calls::contexts;
use crate::driver_calls::streams::Stream;
use crate::os::clock;
use crate::os::reentrancy::quietly;
use gpuslice_driver::types::{Status, status};

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// A stream, by the handle that the caller gave, and whether the default one is the thread's own.
    Stream(Stream),
    /// Everything in the current context.
    Context,
    /// Something that is not told: time that the host spends outside.
    Other,
}

/// A call in which the program waits for the GPU.
pub(crate) fn waits(compute: &'static Compute, what: Waits, call: impl FnOnce() -> Status) -> Status {
    if !compute.is_pacing() {
        return call();
    }
    let code = if what == Waits::Other { call() } else { timed(compute, what, call) };
    if code == status::SUCCESS {
        quietly(|| compute.look_at_unknown(), ());
    }
    code
}

/// The same for what says which streams are empty afterwards.
fn timed(compute: &'static Compute, what: Waits, call: impl FnOnce() -> Status) -> Status {
    if let Some(mut seat) = registry::hold(compute) {
        seat.enters(clock::cycles());
    }
    let code = call();
    if code == status::SUCCESS
        && let Some(mut seat) = registry::hold(compute)
    {
        let context = contexts::current_context();
        seat.waited(|lane: &StreamState| match what {
            Waits::Stream(stream) if stream.is_default() => {
                lane.stream == stream && Some(lane.context) == context
            }
            Waits::Stream(stream) => lane.stream == stream,
            Waits::Context => Some(lane.context) == context,
            Waits::Other => false,
        });
    }
    code
}
