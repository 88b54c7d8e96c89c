//! The command line, as seen from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(clippy::indexing_slicing, reason = "a test")]

mod cdi;
mod commands;
mod containers;
mod doctor;
mod help;
mod run;
mod slices;
mod status;
#[path = "../support/mod.rs"]
mod support;
