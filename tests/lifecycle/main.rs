//! Ends of processes and contexts, memory that dead processes leave, faults of the region's file, and lack of memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(clippy::indexing_slicing, reason = "a test")]

mod deaths;
mod file_faults;
mod leaving;
mod lifetimes;
mod one_slice;
mod starved;
#[path = "../support/mod.rs"]
mod support;
