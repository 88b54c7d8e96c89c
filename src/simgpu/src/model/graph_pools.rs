//! Graph pools, and their memory that executables hold.

use super::streams::StreamPlace;
use crate::engine::Ticket;

/// The graph pool of a device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GraphPool {
    /// Bytes of device memory that it has.
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used_high: u64,
}

/// Memory of a device's graph pool that an executable holds. The executable may be destroyed.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// Largest need of the executable, in whole blocks.
    pub(crate) most: u64,
    /// Bytes of its living allocations, in whole pages.
    pub(crate) kept: u64,
    /// True if memory is mapped for it.
    pub(crate) mapped: bool,
    /// The stream and the ticket of its newest launch. It needs all its memory until that launch is done.
    pub(crate) newest_launch: Option<(StreamPlace, Option<Ticket>)>,
    /// True if the executable was destroyed.
    pub(crate) ended: bool,
}
