//! When does a timed test decide nothing?
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod inconclusive;
#[path = "../support/mod.rs"]
mod support;
