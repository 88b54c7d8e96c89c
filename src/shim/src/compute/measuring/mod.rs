//! Batches under way, their timing events, and what they are charged.

pub(super) mod contexts;
pub(super) mod device_usage;
pub(super) mod meter;
pub(super) mod usage;
pub(super) mod worker_status;
