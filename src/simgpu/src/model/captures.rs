//! Captures of streams into graphs.

/// `CUstreamCaptureMode`.
pub(crate) mod mode {
    pub(crate) const GLOBAL: u32 = 0;
    pub(crate) const RELAXED: u32 = 2;
}

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The graph that the capture makes.
    pub(crate) graph: u64,
    /// The stream on which it began and must end.
    pub(crate) origin: u64,
    /// The capture's mode.
    pub(crate) mode: u32,
    /// The thread that began it.
    pub(crate) thread: i32,
    /// Set by a call that cannot be captured. The capture then fails.
    pub(crate) invalid: bool,
    /// True if the program made the graph before.
    pub(crate) borrowed: bool,
}

/// Part of a stream or an event in a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    /// Number of the capture.
    pub(crate) capture: u64,
    /// The nodes that the next node depends on.
    pub(crate) after: Vec<u64>,
}
