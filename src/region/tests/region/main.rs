//! Tests of a region with real processes.

#![cfg(not(loom))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers fail as their test does"
)]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

mod abi;
mod choice;
mod coupling;
mod debts;
mod figures;
mod grants;
mod hostile;
mod joining;
mod leaving;
mod life;
mod limits;
mod lost;
mod puppet;
mod quota;
mod reader;
mod time;
