//! GPU time: the admission of launches, and the measurement of their cost.
//!
//! A launch enters through [`gate`](admission::gate::gate). Its thread pays for it from its credit (`threads`). If the
//! credit is spent, the thread takes more from the slice's words in the region (`admission::slow_path`). The launch
//! belongs to a batch between two timing events. The library's own thread (`worker`) polls the events, charges the
//! measured time and settles the difference (`measuring`). `gpuslice_policy::compute` has all the arithmetic.
//!
//! Three kinds of threads run this code:
//!
//! - A thread that launches has its own state, behind a lock that costs the thread almost nothing (`threads::slot`). It never
//!   waits for the worker's lock, because the driver may block the worker for long.
//! - The worker takes the state of a thread that has stopped launching, and closes its batches.
//! - A thread that ends a stream or a context takes the states of other threads, one after the other, and closes batches there.
//!
//! Folders, lowest first. A module imports from its own folder and from folders earlier in this list;
//! `tests/repository/dependencies` checks that.
//!
//! 1. `launch`: the work that a call submits.
//! 2. `limiter`: the limiter of each device, the credit of the process, and estimates of the cost of launches.
//! 3. `attribution`: sources of the measured GPU time, and NVML as the only source.
//! 4. `measuring`: batches under way, their timing events, and their charges.
//! 5. `threads`: the state of each thread: its credit, its streams and its open batches.
//! 6. `cotenants`: other slices and other programs on the same GPUs.
//! 7. `state`: one value that holds the state of the folders above.
//! 8. `worker`: the library's own thread, and how launches wait for it.
//! 9. `admission`: the gate of a launch, and notices of other calls.

mod admission;
mod attribution;
mod cotenants;
mod launch;
mod limiter;
mod measuring;
mod state;
mod threads;
mod worker;

pub(crate) use admission::copies::{ends_run, host_copy};
pub(crate) use admission::gate::{gate, gate_all, is_to_pace};
pub(crate) use admission::lifecycle::{
    capture_begins, code_load_begins, context_ends, context_left, context_seen, forget, green_handle_ends,
    stream_ends,
};
pub(crate) use admission::synchronisation::{Waits, waits};
pub(crate) use launch::{Launch, LaunchKind};
pub(crate) use state::Compute;
