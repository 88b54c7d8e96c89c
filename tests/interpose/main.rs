//! Every way to the driver: linking, look-ups, other preloads, drivers of several series.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod bypass;
mod lookup;
mod preload;
mod reach;
mod real_driver;
mod smoke;
#[path = "../support/mod.rs"]
mod support;
