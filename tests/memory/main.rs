//! The charge of every family of memory to a quota, and the figures that a program sees of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

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
#[path = "../support/mod.rs"]
mod support;
