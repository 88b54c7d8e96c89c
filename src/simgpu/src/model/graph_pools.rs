//! Graph pools: the device memory for allocations of graphs, and the part of it that each executable graph holds.

use super::streams::StreamPlace;
use crate::engine::Ticket;

/// The graph pool of a device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GraphPool {
    /// Bytes of device memory that the pool has taken.
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used_high: u64,
}

/// Memory of a device's graph pool that an executable graph holds. It may outlive the executable.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// The most that the executable needs at once, in whole blocks.
    pub(crate) most: u64,
    /// Bytes of the executable's allocations that are not yet freed, in whole pages.
    pub(crate) kept: u64,
    /// True if memory is mapped at the executable's addresses.
    pub(crate) mapped: bool,
    /// The stream and the ticket of the newest launch. Until that launch is done, the executable needs all its memory.
    pub(crate) newest_launch: Option<(StreamPlace, Option<Ticket>)>,
    /// True if the program has destroyed the executable.
    pub(crate) ended: bool,
}
