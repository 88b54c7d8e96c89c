//! Chooses GPUs for the containers of a pod. Nothing here waits, or asks anybody.

mod place;
mod used;

pub use place::{Order, place, score};
pub use used::{Room, Used, take};
