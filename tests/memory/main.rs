//! The charge of every family of memory to a quota, the payers of shared memory, and the figures that a program sees.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(clippy::indexing_slicing, reason = "a test")]

mod arrays;
mod beside;
mod charge;
mod context_sizes;
mod contexts;
mod device_full;
mod graphs;
mod imports;
mod limits;
mod modules;
mod oversubscribe;
mod quota_traps;
mod refusals;
mod sharing;
#[path = "../support/mod.rs"]
mod support;
