//! Work that a call submits to a stream.

use crate::driver_calls::streams::Stream;
use gpuslice_policy::compute::cost::estimate::Key;

/// Work that a call submits to a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    /// Whose cost is learned.
    pub(crate) key: Key,
    /// What kind of work it is.
    pub(crate) kind: Kind,
    /// Where it goes.
    pub(crate) stream: Stream,
}

/// What kind of work a launch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A kernel.
    Kernel,
    /// A kernel that may begin before the one ahead of it in its stream has ended, or that lets another begin so: an event
    /// between the two would keep that one waiting.
    Chained,
    /// An executable graph.
    Graph,
    /// A copy on the device, or a fill: measured, and paced only where the settings say so.
    Copy,
}
