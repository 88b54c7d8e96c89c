//! Batches under way, their timing events, and their charges.

pub(super) mod contexts;
pub(super) mod device_usage;
pub(super) mod event_times;
pub(super) mod meter;
pub(super) mod nvml_signal;
pub(super) mod pending_batch;
pub(super) mod state;
pub(super) mod stream_queue;
pub(super) mod timing_events;
pub(super) mod usage;
pub(super) mod worker_signal;
pub(super) mod worker_status;
