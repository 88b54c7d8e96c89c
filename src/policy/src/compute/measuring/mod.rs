//! How GPU time is measured: batches of launches between timing events, and the union of busy intervals.

pub mod batch;
pub mod event_clock;
pub mod overlap;
pub mod peer_intervals;
pub mod union;
pub mod verdict;
pub mod when_alone;
