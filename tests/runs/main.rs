//! Which test belongs to which run, what a run counts, and when a timed test decides nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(clippy::indexing_slicing, reason = "a test")]

mod counting;
mod division;
mod inconclusive;
#[path = "../support/mod.rs"]
mod support;
