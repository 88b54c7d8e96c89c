//! The simulated driver as programs load it: what it gives them, what it reports, and what is left of dead processes.
//!
//! Needs the staged libraries (`ci/stage.sh`) and a C compiler.
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
