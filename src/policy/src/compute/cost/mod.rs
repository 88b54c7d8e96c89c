//! What launches cost: estimates, and where they are kept.

pub mod estimate;
pub mod table;
pub mod thread_cache;
