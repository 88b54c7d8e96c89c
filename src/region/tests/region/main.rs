//! Does a region do what it promises to real processes?

#![cfg(not(loom))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers fail as their test does"
)]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

mod abi;
mod debts;
mod figures;
mod hostile;
mod joining;
mod leaving;
mod life;
mod limits;
mod lost;
mod puppet;
mod quota;
mod reader;
mod step;
mod time;
mod told;
