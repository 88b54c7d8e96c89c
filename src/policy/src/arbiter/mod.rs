//! Divides the time of one GPU among the slices that use it.
//!
//! Slices with `fixed` need no division. For `equal`, `best-effort` and priorities, one process looks at all slices of a
//! GPU: the arbiter. It repeats these steps:
//!
//! 1. It reads the figures of each region ([`demand::SliceFigures`]).
//! 2. It estimates the [`demand`] of each slice.
//! 3. It [allocates](allocate::allocate) the GPU. The [`budget`] is the sum of the rates that it may give.
//! 4. It writes a [`Grant`] to each slice.
//!
//! [`Arbiter::look`] is a pure function of the figures: equal figures give equal results.
//!
//! # Settings
//!
//! - `GPU_CORE_PERCENT` is a limit under every policy, and a guarantee under none. With `equal` and `best-effort` it is
//!   the whole GPU unless it is set. So no other policy lifts an operator's limit.
//! - A `fixed` slice gets its limit if the limits of all `fixed` slices fit and no slice of higher priority needs the
//!   time. Its unused time is lent.
//! - `equal` slices divide by weight the time that `fixed` slices of their priority leave.
//! - `best-effort` slices divide by priority and weight the time that all others leave.
//! - Priorities come before policies, but `best-effort` is always last.
//!
//! No slice starves. A tenth of the GPU is kept, and divided evenly over all slices that have work, whatever their class
//! and weight ([`allocate`]). Only a slice that had the GPU until now may wait for its part. Otherwise kernels of other
//! slices would run between requests that follow each other closely. That would cost 5 % of the time, and up to a tenth of
//! the 99th percentile.
//!
//! # Rates under the driver's time slicing
//!
//! A rate limits the slice's own ledger. It does not give the slice the GPU. The driver gives turns of a few milliseconds
//! to processes with queued work, evenly over processes. So rates divide the GPU only while launches wait for rates and not
//! for queues. The sum of the rates must therefore be a little less than the GPU's capacity ([`budget`]).
//!
//! An idle slice keeps the rate that it would have with full demand. So its first launches are not delayed. They share the
//! GPU with the queued work of the others until the next look reduces the others' rates. Queued work is bounded for each
//! process, so this takes 20 ms with one borrowing process, and 4 ms for each of several.
//!
//! A program that waits for each of its small kernels loses its turn at each wait. It uses less than its part although it
//! could use more. The arbiter lends the rest.
//!
//! Two mechanisms keep the GPU busy:
//!
//! - *Wall credit.* Launches may wait for their share while hardly any work is queued. Then the arbiter moves `paid_until`
//!   of all slices back by the same wall time, which the first waiting launch needs. Virtual time jumps in the same way in
//!   fair queueing when no flow is served. The order of debts stays, and debts for the turns of others do not leave the GPU
//!   idle. A wall credit never lifts a slice above a limit below the whole GPU.
//! - *Budget.* The budget grows.
//!
//! Lent time is not saved up. A slice that has recently used more than its part saves at most one turn of 4 ms.
//!
//! # High priority
//!
//! A slice of high priority gets the GPU at the first look that finds queued work of it. It keeps the GPU until half a
//! millisecond after the last look that finds such work ([`demand`]). Its recent use reserves nothing.
//!
//! While a slice of high priority exists, busy or not, the others yield. When high-priority work arrives, their queued work
//! gets every other turn of the driver. So they queue at most 3 ms or one longer launch, take leases of 1 ms, and save up 1
//! ms. They get no wall credit while high-priority work is in flight: the next request would wait for the launches.
//!
//! # Schedule
//!
//! The worker thread of the elected process looks every [`ARBITER_STEP`], or every [`STEP_BESIDE_HIGH`], while a slice has
//! demand. Without demand it does not look. A look reads a few words of each region. It writes a word if the result has
//! changed, or if the word will soon be [stale](grant_word::GRANT_LASTS). A rate that changes by less than 1/64 stays.
//!
//! # Words
//!
//! For each device of a region, beside `cores_permille` and `burst`, which keep the configured values:
//!
//! | word | content | writer |
//! |---|---|---|
//! | `policy`, `weight`, `priority` | as configured | the first process, `gpuslice set` |
//! | `grant` | [`grant_word::encode`]: rate, burst, queue bound, time | the arbiter |
//!
//! [`grant_word::current`] gives the rate limit that a slice may use. The arbiter writes the word by compare-and-swap. The
//! region then converts the slice's debt or savings to the new rate limit. The gate uses the lower of its own queue bound
//! and the granted one ([`queue_bound`](crate::compute::limiter::queue_bound)). A wall credit is a refund of wall time that
//! no process owns, and it wakes sleepers. If the word is stale, each slice has its own limit, and the driver's turns
//! divide the GPU. So without an arbiter nothing is lent and nothing is kept, and all slices go on.
//!
//! [`demand::SliceFigures`] consists of words that exist for other purposes: `used`, `throttled` and `queued` of
//! `TimeUsed`, `paid_until`, and whether a process waits. A process waits if its `requested_ns` is above 0 and its
//! `sleep_deadline` is not more than 10 ms old. The reader leaves out `queued` of a process whose `used` has not changed
//! for 100 ms. The arbiter leaves it out for a whole slice without progress.
//!
//! # Election
//!
//! The processes of all slices in one directory elect the arbiter. They map a file `arbiter` there, with one
//! [`grant_word::claim_lease`] for each GPU, by UUID. A process asks for the lease at its first launch and at each tick of
//! its worker. It gives up the lease (0) when it has no work in flight. A killed or stopped process loses the lease after
//! [`grant_word::ARBITER_SILENCE`]. The next arbiter starts from the figures that it reads, within 300 ms in all. Until
//! then the last grants hold, so no slice starves. If two arbiters write at once, each write is only a rate, and the next
//! look corrects it. A region that cannot be opened takes no part, so its GPU time makes the GPU look smaller.

pub mod allocate;
pub mod budget;
pub mod demand;
pub mod grant_word;
mod look;
pub mod schedule;

pub use grant_word::Grant;
pub use look::{Arbiter, MOST_SLICES, SharingSlice, SliceSettings};
pub use schedule::{ARBITER_STEP, STEP_BESIDE_HIGH};
