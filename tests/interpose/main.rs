//! Every way to the driver: linking, look-ups, other preloads, and ways past the library.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod bypass;
mod preload;
mod reach;
mod smoke;
#[path = "../support/mod.rs"]
mod support;
