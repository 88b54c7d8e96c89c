//! Runs of tests: their division, their counts, and the tests that decide nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(clippy::indexing_slicing, reason = "a test")]

mod counting;
mod division;
mod inconclusive;
#[path = "../support/mod.rs"]
mod support;
