//! Exports, look-ups and statuses beside those of NVIDIA's own libraries, which `ci/drivers.sh` fetches, without a GPU.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod audit;
mod lookup;
mod real_driver;
#[path = "../support/mod.rs"]
mod support;
