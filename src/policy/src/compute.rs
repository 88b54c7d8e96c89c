//! How is a share of GPU time kept?
//!
//! What is counted is nanoseconds of GPU time. A launch is prepaid by an estimate ([`cost`],
//! kept in a [`book`]) from its thread's credit
//! ([`lease`]), which comes from the slice's word ([`bucket`]) when it is the process's [`turn`]. Launches are bracketed
//! by events ([`run`]), of which so many are under way ([`queue`]). Measured intervals are laid on one line
//! ([`timeline`]), across processes ([`ring`]); what they newly cover, less the neighbours' part ([`replay`]), is
//! charged and learned, and the difference to what was prepaid is settled ([`bill`]).
//!
//! Instants and spans are plain `u64` nanoseconds, as in the shared words and the driver's figures that they come from
//! and go to: an instant is of the monotonic clock, a span of GPU time unless its name or text says otherwise.

pub mod beside;
pub mod bill;
pub mod book;
pub mod bucket;
pub mod coarse;
pub mod cost;
pub mod lease;
pub mod overlap;
pub mod queue;
pub mod recent;
pub mod replay;
pub mod ring;
pub mod run;
pub mod sight;
pub mod source;
pub mod step;
pub mod strangers;
pub mod timeline;
pub mod trim;
pub mod turn;
