//! Names of clients, streams, events and work, and the errors of calls with them.

use super::config::Direction;

/// A registered client of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientId {
    pub(super) link: u32,
    pub(super) serial: u32,
}

impl ClientId {
    /// Returns its number, never reused on a device.
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
            /// Returns the name as one word. It is never 0 for an existing name.
            #[must_use]
            pub(crate) fn to_bits(self) -> u64 {
                u64::from(self.$stamp) << 32 | u64::from(self.link)
            }

            /// Returns the name of a word. A word that was never handed out names nothing.
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

/// One piece of enqueued work. It is done when it and everything enqueued before it on its stream is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The stream on which it was enqueued.
    pub(crate) stream: StreamId,
    pub(super) order: u64,
    pub(super) total: u64,
}

/// Relation of a stream to the client's legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// Each waits for the other. Per-thread default streams are of this kind.
    Blocking,
    /// Neither waits for the other.
    NonBlocking,
}

/// A collective: kernels or graphs that wait for each other, on any devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Collective {
    /// Kernels with the same key wait for each other.
    pub(crate) key: u64,
    /// Number of kernels that must run at once.
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
    /// for `ns` nanoseconds after that.
    Collective {
        /// The collective.
        collective: Collective,
        /// Duration from then on, in nanoseconds.
        ns: u64,
        /// Number of its kernels.
        nodes: u32,
        /// 1 to 1000: the part of the device that it fills, in thousandths.
        occupancy: u16,
    },
    /// One launch of a graph.
    Graph {
        /// The sum of its kernels' durations along the longest path.
        kernels_ns: u64,
        /// Number of its kernels. There is a gap between two.
        nodes: u32,
        /// 1 to 1000: the part of the device that it fills, in thousandths.
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
    /// Holds the stream until the event's newest record at the time of the call is complete. An event without a
    /// record holds nothing.
    Wait(EventId),
    /// Holds the stream until this work is done.
    After(Ticket),
    /// Holds the stream until the host has run a function and reported it.
    Host {
        /// The caller's word for the function.
        token: u64,
    },
    /// No work. Its ticket is done when everything before it is done.
    Marker,
}

/// A due host function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostCall {
    /// The stream that it holds.
    pub(crate) stream: StreamId,
    /// The caller's word from [`Work::Host`].
    pub(crate) token: u64,
}

/// The reason why an object could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The table is full.
    Full,
    /// The client or stream does not exist, or no longer exists.
    Gone,
}

/// The reason why nothing was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnqueueError {
    /// The stream does not exist, or no longer exists.
    NoStream,
    /// The event does not exist, or no longer exists.
    NoEvent,
    /// The queue is full. The caller sleeps until this instant and tries again.
    WouldBlock {
        /// Instant of the caller's clock.
        retry_at: u64,
    },
}

/// The name does not exist, or no longer exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownId;

/// State of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventStatus {
    /// Never recorded. It counts as complete and has no time.
    Fresh,
    /// The newest record has not been reached.
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
    /// An event does not exist, or no longer exists.
    NoEvent,
    /// An event was never recorded.
    NotRecorded,
    /// An event is not complete.
    NotReady,
}

/// Work that can be waited for.
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

/// Completion of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The target is complete.
    Done,
    /// The target is not complete before this instant if nothing is enqueued or removed meanwhile. The caller sleeps until
    /// then and asks again.
    NotBefore(u64),
    /// The target is not complete before a host function has run ([`super::EngineState::next_host_call`]).
    NeedsHost,
}
