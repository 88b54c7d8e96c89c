//! Keeps a slice to its share: the token bucket, turns, leases, and the bound of queued work.

pub mod fair_queue;
pub mod lease;
pub mod overdraft;
pub mod queue_bound;
pub mod refund;
pub mod settlement;
pub mod token_bucket;
