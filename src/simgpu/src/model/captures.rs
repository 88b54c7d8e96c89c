//! Captures of streams into graphs.

/// `CUstreamCaptureMode`.
pub(crate) mod mode {
    pub(crate) const GLOBAL: u32 = 0;
    pub(crate) const RELAXED: u32 = 2;
}

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The graph that the capture fills.
    pub(crate) graph: u64,
    /// The stream on which the capture began, and on which it must end.
    pub(crate) origin: u64,
    /// The capture's mode.
    pub(crate) mode: u32,
    /// The thread that began the capture.
    pub(crate) thread: i32,
    /// True after a call that cannot be captured. The end of the capture then fails.
    pub(crate) invalid: bool,
    /// True if the program made the graph before the capture and gave it to the capture.
    pub(crate) borrowed: bool,
}

/// A capture, as a stream or an event that belongs to it refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    /// Number of the capture.
    pub(crate) capture: u64,
    /// The nodes that the next captured node must wait for.
    pub(crate) after: Vec<u64>,
}
