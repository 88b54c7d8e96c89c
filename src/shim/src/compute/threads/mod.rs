//! What each thread keeps: its credit, its streams and its open batches.

pub(super) mod registry;
pub(super) mod stream_lookup;
pub(super) mod thread_state;
