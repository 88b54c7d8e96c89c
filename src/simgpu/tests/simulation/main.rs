//! Tests of the simulated driver as programs load it: its answers, its reports, and what happens to the memory of dead processes.
//!
//! The tests need the staged libraries (`ci/stage.sh`) and a C compiler.
#![allow(
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test: it counts, fails, and says what it skips"
)]

mod deaths;
mod nvml;
mod programs;
mod support;
