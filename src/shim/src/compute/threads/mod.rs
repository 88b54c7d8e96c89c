//! State of each thread: its credit, its streams and its open batches.

pub(super) mod batches;
pub(super) mod batching;
pub(super) mod occupancy;
pub(super) mod open_batch;
pub(super) mod registry;
pub(super) mod slot;
pub(super) mod stream_lookup;
pub(super) mod stream_state;
pub(super) mod thread_state;
