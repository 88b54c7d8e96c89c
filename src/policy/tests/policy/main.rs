//! Properties of the arithmetic of memory, of configurations and of the division of a GPU, with random steps and contents.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test: it ends where something is wrong"
)]

mod addresses;
mod arbiter;
mod arrays;
mod blocks;
mod graph;
mod pool;
mod properties;
