//! GPU time: when a launch may go, and how its cost is measured.
//!
//! A launch comes in through [`gate`](gate::gate). It is paid from its thread's credit (`seat`, `threads`). When the credit runs out,
//! the thread takes more from the slice's words in the region (`pay`). The launch belongs to a run between two timing events. The
//! library's own thread (`helper`) polls the events (`meter`), charges the measured time (`account`) and settles the difference.
//! `gpuslice_policy::compute` has all the arithmetic.

mod account;
mod arbiter;
mod asking;
mod blind;
mod contexts;
mod copies;
mod estimates;
mod gate;
mod helper;
mod in_flight;
mod lanes;
mod launch;
mod life;
mod meter;
mod neighbours;
mod pacer;
mod pay;
mod sampler;
mod samples;
mod seat;
mod slicing;
mod state;
mod threads;
mod told;
mod waits;

pub(crate) use copies::{ends_run, host_copy};
pub(crate) use gate::{gate, gate_all, is_to_pace};
pub(crate) use launch::{Kind, Launch};
pub(crate) use state::Compute;
pub(crate) use told::{
    capture_begins, context_ends, context_left, context_seen, forget, stream_ends, view_ends,
};
pub(crate) use waits::{Waits, waits};
