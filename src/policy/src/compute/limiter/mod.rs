//! How a share of GPU time is kept.

pub mod fair_queue;
pub mod lease;
pub mod overdraft;
pub mod queue_bound;
pub mod refund;
pub mod settlement;
pub mod token_bucket;
