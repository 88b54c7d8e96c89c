//! Paces one slice's use of GPU time: estimates, measures, attributes and charges it.
//!
//! A launch passes these steps:
//!
//! 1. The thread looks up an estimate of its cost ([`cost`]).
//! 2. The thread pays the estimate from its lease, and takes a new lease from the slice's word when it is the process's
//!    turn ([`limiter`]).
//! 3. The thread records timing events around batches of launches ([`measuring::batch`]), and bounds the work in flight
//!    ([`limiter::queue_bound`]).
//! 4. The worker lays the measured intervals on one time line ([`measuring::event_clock`]), across processes
//!    ([`measuring::peer_intervals`]).
//! 5. The worker charges the newly covered time, less the time of co-tenants ([`attribution`]). The estimates learn from
//!    it.
//! 6. The worker settles the difference to the prepaid time ([`limiter::settlement`]).
//!
//! Devices whose kernels wait for each other are throttled together ([`coupling`]). A launch is admitted early if such a
//! kernel may wait for it ([`limiter::overdraft`]).
//!
//! Folders, lowest first: `cost`, `measuring`, `attribution`, `limiter`; then `coupling`.
//!
//! GPU time, wall time and instants of the monotonic clock have their own types ([`time`](crate::time)). Times of events
//! have another type, [`EventTime`](measuring::event_clock::EventTime), because they lie on another time line.

pub mod attribution;
pub mod cost;
pub mod coupling;
pub mod limiter;
pub mod measuring;
