//! Graph pools, and what executables hold of them.

use super::streams::StreamPlace;
use crate::engine::Ticket;

/// The graph pool of a device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GraphPool {
    /// Device memory that it has.
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used_high: u64,
}

/// What an executable, living or gone, has to do with the graph pool of a device.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// What it needs at the most, in blocks.
    pub(crate) most: u64,
    /// Pages of its allocations that live.
    pub(crate) kept: u64,
    /// Whether memory is mapped for it.
    pub(crate) mapped: bool,
    /// Its newest launch, and the ticket once there is one: it needs everything until that is done.
    pub(crate) flight: Option<(StreamPlace, Option<Ticket>)>,
    /// Whether the executable was destroyed.
    pub(crate) ended: bool,
}
