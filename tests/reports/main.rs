//! The devices, processes and memory that programs are shown.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod identity;
mod processes;
mod reports;
#[path = "../support/mod.rs"]
mod support;
