//! Shares of GPU time: paced launches, their measurement, the slice's part of a GPU that it shares, and the commands that show
//! and set shares.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(clippy::indexing_slicing, reason = "a test")]

mod attribution;
mod collectives;
mod command_line;
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
