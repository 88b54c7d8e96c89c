//! Calls of hooks to the part of the library that paces GPU time. Without a share they do nothing.

use crate::compute::{self, Compute, Launch};
use crate::driver_calls::contexts;
use crate::driver_calls::streams::Stream;
use crate::os::reentrancy::enter_or;
use crate::process::{self, Enforcement, Process};
use gpuslice_driver::types::{CUstream, Status, status};
use gpuslice_policy::compute::cost::estimate::Key;

/// Passes a call that submits work through the gate: the call waits until it is admitted, goes to the driver, and is measured.
/// `launch` describes the submitted work. The gate asks it only where GPU time is paced.
#[inline]
pub(super) fn gate(launch: impl FnOnce() -> Launch, call: impl FnOnce() -> Status) -> Status {
    match gatekeeper() {
        Gatekeeper::None => call(),
        Gatekeeper::Refuses => status::NOT_PERMITTED,
        Gatekeeper::Paces(compute) => compute::gate(compute, launch, call),
    }
}

/// Passes a call that submits work to several streams at once through the gate, which pays for each launch in turn.
pub(super) fn gate_all(launches: impl FnOnce() -> Vec<Launch>, call: impl FnOnce() -> Status) -> Status {
    match gatekeeper() {
        Gatekeeper::None => call(),
        Gatekeeper::Refuses => status::NOT_PERMITTED,
        Gatekeeper::Paces(compute) => compute::gate_all(compute, launches, call),
    }
}

/// The part of the library that a call that submits work has to pass.
enum Gatekeeper {
    /// No part: the call goes to the driver unchanged.
    None,
    /// A limit that the library cannot enforce.
    Refuses,
    /// A slice whose GPU time is paced now.
    Paces(&'static Compute),
}

impl Gatekeeper {
    #[inline(always)]
    fn of(process: &'static Process) -> Self {
        if compute::is_to_pace(&process.compute) { Self::Paces(&process.compute) } else { Self::None }
    }
}

#[inline(always)]
fn gatekeeper() -> Gatekeeper {
    // Most launches come from a process that has joined.
    match process::joined() {
        Some(process) => Gatekeeper::of(process),
        None => match process::enforcement() {
            Enforcement::Off => Gatekeeper::None,
            Enforcement::Failed => Gatekeeper::Refuses,
            Enforcement::Active(process) => Gatekeeper::of(process),
        },
    }
}

/// Returns true if launches of this process are paced now.
pub(super) fn is_paced() -> bool {
    member().is_some_and(|compute| compute.is_pacing())
}

/// Makes a copy of `bytes` bytes from or to the host. If `is_sync`, the program waits for the copy and for the work before it in
/// the stream.
pub(super) fn host_copy(stream: Stream, bytes: u64, is_sync: bool, call: impl FnOnce() -> Status) -> Status {
    match member() {
        Some(compute) => compute::host_copy(compute, (stream, bytes, is_sync), call),
        None => call(),
    }
}

/// Ends the stream's open batch, and then makes a call after which the stream waits for something other than the GPU.
pub(super) fn ends_run(stream: Stream, call: impl FnOnce() -> Status) -> Status {
    if let Some(compute) = member() {
        compute::ends_run(compute, stream);
    }
    call()
}

/// Notes that a stream begins to record its calls instead of running them. Hooks call this before the driver.
pub(super) fn capture_begins(stream: CUstream) {
    tell(|compute| compute::capture_begins(compute, stream));
}

/// Forgets the estimate of `key`, because its work has changed and its cost has to be learned anew.
pub(super) fn forget(key: &Key) {
    tell(|compute| compute::forget(compute, key));
}

/// Notes that a stream is about to be destroyed.
pub(super) fn stream_ends(stream: CUstream) {
    tell(|compute| compute::stream_ends(compute, stream));
}

/// Makes a call that may load code into the current context.
pub(super) fn while_code_loads(call: impl FnOnce() -> Status) -> Status {
    let begin =
        |compute| contexts::current_context().and_then(|context| compute::code_load_begins(compute, context));
    let load = member().and_then(|compute| enter_or(|| begin(compute), None));
    let code = call();
    if let Some(load) = load {
        enter_or(|| drop(load), ());
    }
    code
}

/// Notes that the program has this context.
pub(super) fn context_seen(context: usize) {
    tell(|compute| compute::context_seen(compute, context));
}

fn tell(change: impl FnOnce(&'static Compute)) {
    if let Some(compute) = member() {
        enter_or(|| change(compute), ());
    }
}

fn member() -> Option<&'static Compute> {
    match process::enforcement() {
        Enforcement::Active(process) => Some(&process.compute),
        Enforcement::Off | Enforcement::Failed => None,
    }
}
