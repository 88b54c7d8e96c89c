//! What is charged to a quota, and what a program sees of it: every family of memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod arrays;
mod charge;
mod context_sizes;
mod contexts;
mod graphs;
mod imports;
mod limits;
mod modules;
mod naive;
mod neighbours;
mod oversubscribe;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
