//! Packages that users install: the chart, and the output of `ci/dist.sh`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test"
)]

mod charts;
mod dist;
#[path = "../support/mod.rs"]
mod support;
