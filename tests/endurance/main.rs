//! Slices through thousands of deaths, and through programs that come and go.
//!
//! Each test needs the whole machine for a while, so each takes `support::machine()`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test: it ends where something is wrong"
)]

mod churn;
mod crash;
#[path = "../support/mod.rs"]
mod support;
