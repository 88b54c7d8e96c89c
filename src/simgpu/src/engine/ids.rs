//! Names of clients, streams, events and work, and the errors of calls that use them.

use super::config::Direction;

/// A registered client of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientId {
    pub(super) link: u32,
    pub(super) serial: u32,
}

impl ClientId {
    /// Returns the client's number. A device never reuses a number.
    pub(crate) fn serial(self) -> u32 {
        self.serial
    }
}

/// A stream. Every client has the legacy default stream from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamId {
    pub(super) link: u32,
    pub(super) generation: u32,
}

/// An event. Other clients may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EventId {
    pub(super) link: u32,
    pub(super) generation: u32,
}

macro_rules! packed {
    ($name:ident, $stamp:ident) => {
        impl $name {
            /// Returns the name as one word. The word is never 0 for an existing object.
            #[must_use]
            pub(crate) fn to_bits(self) -> u64 {
                u64::from(self.$stamp) << 32 | u64::from(self.link)
            }

            /// Returns the name in a word. If the engine never handed out the word, it names nothing.
            #[must_use]
            pub(crate) fn from_bits(bits: u64) -> Self {
                let low = u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
                let high = u32::try_from(bits >> 32).unwrap_or(0);
                Self { link: low, $stamp: high }
            }
        }
    };
}
packed!(ClientId, serial);
packed!(StreamId, generation);
packed!(EventId, generation);

/// One piece of enqueued work. It is done when this work and everything enqueued before it on its stream is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The stream on which the work was enqueued.
    pub(crate) stream: StreamId,
    pub(super) order: u64,
    pub(super) total: u64,
}

/// Relation of a stream to the client's legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// A stream of this kind and the legacy stream wait for each other. Per-thread default streams are of this kind.
    Blocking,
    /// The stream and the legacy stream do not wait for each other.
    NonBlocking,
}

/// A collective: kernels or graphs on any devices that wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Collective {
    /// Kernels with the same key wait for each other.
    pub(crate) key: u64,
    /// Number of kernels that must run at the same time.
    pub(crate) kernels: u32,
}

/// Work that can be enqueued. Occupancy is the part of the device that a kernel fills, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// One kernel that takes `ns` nanoseconds without interruption.
    Kernel {
        /// The kernel's duration.
        ns: u64,
        /// 1 to 1000. Kernels of one client overlap while the sum is at most 1000.
        occupancy: u16,
    },
    /// A kernel or graph of a collective. It keeps the device busy until enough kernels of the collective run, and
    /// then for `ns` nanoseconds more.
    Collective {
        /// The collective.
        collective: Collective,
        /// Duration after enough kernels run, in nanoseconds.
        ns: u64,
        /// Number of the graph's kernels; 1 for a kernel.
        nodes: u32,
        /// 1 to 1000: the part of the device that the kernel fills, in thousandths.
        occupancy: u16,
    },
    /// One launch of a graph.
    Graph {
        /// Sum of the durations of the graph's kernels along its longest path.
        kernels_ns: u64,
        /// Number of the graph's kernels. There is a gap between two kernels.
        nodes: u32,
        /// 1 to 1000: the part of the device that the graph fills, in thousandths.
        occupancy: u16,
    },
    /// A fill, or a copy inside the device. It occupies all multiprocessors.
    Fill {
        /// Bytes written.
        bytes: u64,
    },
    /// A copy on a copy engine, beside kernels.
    Copy {
        /// The copy's direction.
        direction: Direction,
        /// Bytes moved.
        bytes: u64,
    },
    /// Records the instant in an event.
    Record(EventId),
    /// Holds the stream until a record of the event is complete. This is the event's newest record at the time of the call. An
    /// event without a record holds nothing.
    Wait(EventId),
    /// Holds the stream until this work is done.
    After(Ticket),
    /// Holds the stream until the host has run a function and reported it.
    Host {
        /// The caller's word for the function.
        token: u64,
    },
    /// No work. Its ticket is done when all work that was enqueued before it on the stream is done.
    Marker,
}

/// A due host function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostCall {
    /// The stream that waits for the function.
    pub(crate) stream: StreamId,
    /// The caller's word from [`Work::Host`].
    pub(crate) token: u64,
}

/// The reason why an object could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The table is full.
    Full,
    /// The client or stream does not exist, or was removed.
    Gone,
}

/// The reason why nothing was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnqueueError {
    /// The stream does not exist, or was removed.
    NoStream,
    /// The event does not exist, or was removed.
    NoEvent,
    /// The queue is full. The caller sleeps until the instant in this error, and then tries again.
    WouldBlock {
        /// Instant of the caller's clock.
        retry_at: u64,
    },
}

/// The name does not exist, or was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownId;

/// State of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventStatus {
    /// The event was never recorded. It counts as complete, and has no time.
    Fresh,
    /// The newest record is not complete.
    Pending,
    /// Complete since this instant of the device's clock.
    Done {
        /// A multiple of the configured resolution.
        time_ns: u64,
    },
}

/// The reason why there is no time between two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElapsedError {
    /// An event does not exist, or was removed.
    NoEvent,
    /// An event was never recorded.
    NotRecorded,
    /// An event is not complete.
    NotReady,
}

/// A thing for whose completion a caller can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// One piece of work.
    Ticket(Ticket),
    /// All work of a stream so far. For the legacy default stream this includes the blocking streams.
    Stream(StreamId),
    /// The newest record of an event.
    Event(EventId),
    /// All work of a client so far.
    Client(ClientId),
}

/// Tells whether a target is complete, and otherwise how the caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The target is complete.
    Done,
    /// The target is not complete before this instant, unless a caller enqueues or removes something. The caller
    /// sleeps until then, and asks again.
    NotBefore(u64),
    /// The target is not complete until a host function has run ([`super::EngineState::next_host_call`]).
    NeedsHost,
}
