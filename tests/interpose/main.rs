//! Every way to the driver: linking, look-ups, other preloads, and ways past the library.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod all_entries;
mod bypass;
mod entry_points;
mod preload;
#[path = "../support/mod.rs"]
mod support;
