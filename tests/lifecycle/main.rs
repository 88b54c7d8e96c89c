//! Ends of processes and contexts, faults of the region's file, and lack of memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod deaths;
mod file_faults;
mod lifetimes;
mod one_slice;
mod starved;
#[path = "../support/mod.rs"]
mod support;
