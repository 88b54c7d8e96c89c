//! Shares of GPU time: paced launches, their measurement, and the slice's part of a GPU that it shares.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod attribution;
mod collectives;
mod hosts;
mod jumps;
mod measuring;
mod pacing;
mod processes;
mod sandbox;
mod shown_utilization;
mod streams_and_contexts;
#[path = "../support/mod.rs"]
mod support;
