//! Work that a call submits to a stream.

use crate::driver_calls::streams::Stream;
use gpuslice_policy::compute::cost::estimate::Key;

/// Work that a call submits to a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    /// Key of the work, by which its cost is learned.
    pub(crate) key: Key,
    /// The kind of work.
    pub(crate) kind: LaunchKind,
    /// Stream of the work.
    pub(crate) stream: Stream,
}

/// Kind of the work of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaunchKind {
    /// A kernel.
    Kernel,
    /// A kernel that may begin before the previous kernel in the stream has ended, or that lets the next kernel do so. An event
    /// between the two kernels would delay the second.
    Chained,
    /// An executable graph.
    Graph,
    /// A copy on the device, or a fill: measured, and paced only where the settings say so.
    Copy,
}
