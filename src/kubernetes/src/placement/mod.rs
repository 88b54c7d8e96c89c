//! Chooses GPUs for the containers of a pod. No function here waits, or calls another process.

mod evict;
mod place;
mod used;

pub use evict::{Evictable, evict};
pub use place::{Order, place, score};
pub use used::{Room, Used, take};
