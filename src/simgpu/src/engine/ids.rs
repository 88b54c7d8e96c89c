//! What callers hold in their hands: names of clients, streams, events and work, and what can be refused.

use super::config::Direction;

/// A registered client of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientId {
    pub(super) link: u32,
    pub(super) serial: u32,
}

impl ClientId {
    /// Its number, never used twice on a device.
    pub(crate) fn serial(self) -> u32 {
        self.serial
    }
}

/// A stream. Every client has one from the start, the legacy default stream.
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
            /// The name as one word, never 0 for one that was handed out.
            #[must_use]
            pub(crate) fn to_bits(self) -> u64 {
                u64::from(self.$stamp) << 32 | u64::from(self.link)
            }

            /// The name from its word. A word that was never handed out is a name that nobody has.
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

/// One enqueued piece of work: done when everything enqueued before it on its stream is, and it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The stream that it was enqueued on.
    pub(crate) stream: StreamId,
    pub(super) order: u64,
    pub(super) total: u64,
}

/// How a stream stands to the client's legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// Waits for it, and it waits for this one. Per-thread default streams too.
    Blocking,
    /// Does not know of it.
    NonBlocking,
}

/// Kernels, or graphs, that wait for each other, on whatever devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meeting {
    /// Which one: those with the same key wait for each other.
    pub(crate) key: u64,
    /// How many have to run.
    pub(crate) kernels: u32,
}

/// What can be enqueued. Occupancy is the share of the device that a kernel fills, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// One kernel that takes `ns` nanoseconds when nobody interrupts it.
    Kernel {
        /// Its duration.
        ns: u64,
        /// 1 to 1000; kernels of one client overlap while the sum is at most 1000.
        occupancy: u16,
    },
    /// A kernel or a graph that keeps the device busy until enough of its meeting run, and for so long after it.
    Meet {
        /// Whom it waits for.
        meeting: Meeting,
        /// As for a kernel or a graph, from then on.
        ns: u64,
        /// How many kernels it has.
        nodes: u32,
        /// As for a kernel.
        occupancy: u16,
    },
    /// One launch of a graph.
    Graph {
        /// The sum of its kernels' durations along the longest path.
        kernels_ns: u64,
        /// How many kernels it has; between two there is a gap.
        nodes: u32,
        /// As for a kernel.
        occupancy: u16,
    },
    /// A fill, or a copy inside the device: fills the multiprocessors.
    Fill {
        /// Bytes written.
        bytes: u64,
    },
    /// A copy on a copy engine, beside kernels.
    Copy {
        /// Which way.
        direction: Direction,
        /// Bytes moved.
        bytes: u64,
    },
    /// Notes the instant in an event.
    Record(EventId),
    /// Holds the stream until the newest record of the event at the time of the call is complete. An
    /// event that was never recorded holds nothing.
    Wait(EventId),
    /// Holds the stream until the work is done.
    After(Ticket),
    /// Holds the stream until the host has run a function and said so.
    Host {
        /// What the caller wants to be told with it.
        token: u64,
    },
    /// Nothing; its ticket says when everything before it is done.
    Marker,
}

/// A host function that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostCall {
    /// The stream that it holds.
    pub(crate) stream: StreamId,
    /// The caller's word from [`Work::Host`].
    pub(crate) token: u64,
}

/// Why something could not be made: every place is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The table is full.
    Full,
    /// The client or stream does not exist (any more).
    Gone,
}

/// Why nothing was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnqueueError {
    /// The stream does not exist (any more).
    NoStream,
    /// The event does not exist (any more).
    NoEvent,
    /// The queue is full. There is no room before this instant: sleep until then and try again.
    WouldBlock {
        /// On the caller's clock.
        retry_at: u64,
    },
}

/// The name means nothing (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventStatus {
    /// Never recorded: counts as complete, has no time.
    Fresh,
    /// The newest record has not been reached.
    Pending,
    /// Complete since this instant, as the device's clock shows it.
    Done {
        /// A multiple of the configured resolution.
        time_ns: u64,
    },
}

/// Why there is no time between two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElapsedError {
    /// An event does not exist (any more).
    NoEvent,
    /// An event was never recorded.
    NotRecorded,
    /// An event is not complete.
    NotReady,
}

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// One piece of work.
    Ticket(Ticket),
    /// All work of a stream so far; for the legacy default stream, of the blocking streams as well.
    Stream(StreamId),
    /// The newest record of an event.
    Event(EventId),
    /// All work of a client so far.
    Client(ClientId),
}

/// When a target is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// It is.
    Done,
    /// Not before this instant, if nothing is enqueued or removed meanwhile: sleep until then, ask again.
    NotBefore(u64),
    /// Not before a host function is run ([`super::EngineState::next_host_call`]) and finished.
    NeedsHost,
}
