//! Checks the output of `ci/dist.sh`: its files, its installation and upgrade, and that a second run makes the same bytes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

mod archive;
mod debian;
mod images;
mod layouts;
mod release;
#[path = "../support/mod.rs"]
mod support;
mod wheel;
