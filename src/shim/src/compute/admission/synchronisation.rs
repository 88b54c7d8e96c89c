//! Calls in which the program waits for the GPU.
//!
//! After the host has waited for a stream, the stream is empty. So a batch on it is charged from its next launch on. Time that
//! the host spends in other calls counts as time outside the driver.

use crate::compute::state::Compute;
use crate::compute::threads::stream_state::StreamState;
use crate::compute::worker::waiting;
use crate::driver_calls::contexts;
use crate::driver_calls::streams::Stream;
use crate::os::clock::CycleInstant;
use crate::os::reentrancy::enter_or;
use gpuslice_driver::types::{Status, status};

/// The object that a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// A stream, by the caller's handle. [`Stream`] also tells whether the default stream is the thread's own.
    Stream(Stream),
    /// All work in the current context.
    Context,
    /// Another object. After such a wait the library knows of no stream that it is empty.
    Other,
}

/// Makes a call in which the program waits for the GPU.
///
/// After the wait, the thread polls the events of unknown launches at once. The next launch can then pay by a measurement, and
/// need not wait for the worker's tick. And if the program ends now, its last launch is not charged as if it still ran.
pub(crate) fn waits(compute: &'static Compute, what: Waits, call: impl FnOnce() -> Status) -> Status {
    if !compute.is_pacing() {
        return call();
    }
    let code = if what == Waits::Other { call() } else { timed(compute, what, call) };
    if code == status::SUCCESS {
        enter_or(|| waiting::poll_unknown(compute), ());
    }
    code
}

/// Makes a call after which streams are empty, and notes that.
///
/// The thread gives up its state during the call, because the wait may take minutes. So the worker can close the thread's batches
/// meanwhile. Work in an open batch would be charged only after the wait.
fn timed(compute: &'static Compute, what: Waits, call: impl FnOnce() -> Status) -> Status {
    if let Some(mut held) = compute.acquire_own() {
        held.enter_driver(CycleInstant::now());
    }
    let code = call();
    if code == status::SUCCESS
        && let Some(mut held) = compute.acquire_own()
    {
        let context = contexts::current_context();
        held.host_synchronised(|state: &StreamState| match what {
            Waits::Stream(stream) if stream.is_default() => {
                state.stream == stream && Some(state.context) == context
            }
            Waits::Stream(stream) => state.stream == stream,
            Waits::Context => Some(state.context) == context,
            Waits::Other => false,
        });
    }
    code
}
