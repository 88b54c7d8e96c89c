//! Measures GPU time: batches between timing events, the clock of the events, and the union of busy intervals.

pub mod batch;
pub mod event_clock;
pub mod overlap;
pub mod peer_intervals;
pub mod union;
pub mod verdict;
pub mod when_alone;
