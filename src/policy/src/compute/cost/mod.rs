//! Cost of launches: the estimates, the table of a process, and the cache of a thread.

pub mod estimate;
pub mod table;
pub mod thread_cache;
