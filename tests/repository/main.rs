//! The repository itself: imports between files, documents, examples, and the runs of tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(clippy::indexing_slicing, reason = "a test")]

mod dependencies;
mod documents;
mod examples;
mod hooks_page;
mod runs;
mod staged;
#[path = "../support/mod.rs"]
mod support;
