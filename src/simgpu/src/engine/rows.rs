//! The rows of the tables: work items, streams, events and clients.

use super::config::MAX_CONCURRENT;
use super::table::{Link, List, Row};

/// Codes of [`Item::kind`]. Zero is not a code, so a zeroed item is free.
pub(super) mod kind {
    pub(crate) const KERNEL: u8 = 1;
    pub(crate) const GRAPH: u8 = 2;
    pub(crate) const FILL: u8 = 3;
    pub(crate) const COPY: u8 = 4;
    pub(crate) const RECORD: u8 = 5;
    pub(crate) const WAIT: u8 = 6;
    pub(crate) const HOST: u8 = 7;
    pub(crate) const MARKER: u8 = 8;

    /// Returns true if an item of this kind runs on the multiprocessors.
    pub(crate) fn computes(kind: u8) -> bool {
        matches!(kind, KERNEL | GRAPH | FILL)
    }
}

/// Codes of [`StreamRow::ordering`].
pub(super) mod ordering {
    pub(crate) const LEGACY: u8 = 1;
    pub(crate) const BLOCKING: u8 = 2;
    pub(crate) const NON_BLOCKING: u8 = 3;
}

/// Codes of [`StreamRow::life`].
pub(super) mod life {
    pub(crate) const OPEN: u8 = 1;
    /// The owner has destroyed the stream, and work is left.
    pub(crate) const CLOSING: u8 = 2;
}

/// Codes of [`StreamRow::phase`]: the state of the oldest item of a stream.
pub(super) mod phase {
    /// Unknown: the engine has not looked at the item.
    pub(crate) const IDLE: u8 = 0;
    /// The item is in the list of the engine that will run it.
    pub(crate) const READY: u8 = 1;
    /// The item is on the multiprocessors or on a copy engine.
    pub(crate) const RUNNING: u8 = 2;
    /// The stream is in the list of waiters of another stream.
    pub(crate) const WAITING: u8 = 3;
    /// The rules of the legacy default stream hold the item.
    pub(crate) const HELD: u8 = 4;
    /// The caller has taken the host function and has not reported its end.
    pub(crate) const ON_HOST: u8 = 5;
}

/// Codes of [`EventRow::status`].
pub(super) mod status {
    pub(crate) const FRESH: u8 = 1;
    pub(crate) const PENDING: u8 = 2;
    pub(crate) const DONE: u8 = 3;
}

/// One piece of queued work.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Item {
    /// Position in the order of all enqueued work of the device; 0 for a free item. This word is written last.
    pub(super) order: u64,
    /// Time on the multiprocessors or on the copy engine.
    pub(super) duration: u64,
    /// Duration of everything enqueued on the stream up to this item, without waits for collectives.
    pub(super) total: u64,
    /// For a wait, the order that the target stream must reach. For a host function, the caller's token. For a kernel
    /// of a collective, its key.
    pub(super) wanted: u64,
    /// For a wait, the total at that order. For a kernel of a collective, its duration once the others run.
    pub(super) wanted_total: u64,
    /// For a wait, the target stream. For a record, the event.
    pub(super) target: Link,
    pub(super) target_generation: u32,
    /// Number of kernels for which the item's collective still waits. 0: it is in no collective, or its collective is complete.
    pub(super) unmet: u32,
    pub(super) reserved: u32,
    pub(super) stream: Link,
    pub(super) next: Link,
    /// Number of kernels in the item.
    pub(super) launches: u32,
    pub(super) occupancy: u16,
    pub(super) kind: u8,
    pub(super) engine: u8,
}

/// One stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamRow {
    pub(super) generation: u32,
    pub(super) client: Link,
    pub(super) ordering: u8,
    /// Code of [`life`]; 0 for a free stream.
    pub(super) life: u8,
    pub(super) phase: u8,
    /// 1 if the stream is in the list of streams to look at.
    pub(super) marked: u8,
    pub(super) items: List,
    pub(super) queued: u32,
    /// Number of queued items that do not run on the multiprocessors.
    pub(super) detours: u32,
    /// The first stream that waits for an item of this stream.
    pub(super) waiters: Link,
    pub(super) next_waiter: Link,
    /// The next stream in the client's list of kernels, in a copy engine's list, or in the list of host functions.
    pub(super) next_ready: Link,
    pub(super) next_marked: Link,
    pub(super) next_of_client: Link,
    /// Order and total of the newest item that is done.
    pub(super) done_order: u64,
    pub(super) done_total: u64,
    /// Order and total of the newest enqueued item.
    pub(super) last_order: u64,
    pub(super) last_total: u64,
    /// Order of the item to which `phase` belongs, while the item is running or on the host.
    pub(super) phase_order: u64,
    /// End of running work. For a kernel it is a value of the client's busy time, for a copy an instant.
    pub(super) ends: u64,
    /// The instant until which event records occupy the stream. A kernel that starts before it waits, and counts as running.
    pub(super) passes: u64,
}

/// One event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventRow {
    pub(super) generation: u32,
    pub(super) client: Link,
    /// The stream on which the newest record was enqueued.
    pub(super) stream: Link,
    pub(super) stream_generation: u32,
    pub(super) order: u64,
    pub(super) total: u64,
    /// The instant at which the newest record completed.
    pub(super) time: u64,
    /// Code of [`status`]; 0 for a free event.
    pub(super) status: u8,
    pub(super) reserved: [u8; 3],
    /// Events with the same number are one event under the names of several clients. 0: the event is not shared.
    pub(super) shared: u32,
}

/// One client: a context of a process. Time slices are between clients.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    /// The client's number, which is never reused; 0 for a free row.
    pub(super) serial: u32,
    pub(super) pid: u32,
    pub(super) legacy: Link,
    /// The newest stream of the client. The streams link to each other.
    pub(super) streams: Link,
    /// Streams whose oldest item waits for the multiprocessors.
    pub(super) ready: List,
    /// Streams whose oldest item waits for the host.
    pub(super) host: List,
    pub(super) next_runnable: Link,
    /// 1 if the client is in the list of clients that wait for a slice.
    pub(super) waits_for_slice: u32,
    pub(super) running_count: u32,
    pub(super) running_fills: u32,
    pub(super) occupancy: u32,
    pub(super) queued: u32,
    /// Number of the client's items in blocking streams.
    pub(super) queued_blocking: u32,
    /// Number of the client's streams in the phase held.
    pub(super) held: u32,
    /// Sum of duration times occupancy over the work that has not started on the multiprocessors.
    pub(super) area: u64,
    pub(super) added_ns: u64,
    /// Time during which work of this client ran on the multiprocessors.
    pub(super) busy_ns: u64,
    /// The part of `busy_ns` in which a kernel or a graph ran.
    pub(super) kernel_busy_ns: u64,
    /// Time in which a copy or a fill of the client ran.
    pub(super) memory_busy_ns: u64,
    /// Sum of the durations of all finished kernels and graphs.
    pub(super) kernel_ns: u64,
    /// Number of finished kernels.
    pub(super) launches: u64,
    /// `busy_ns` and `memory_busy_ns` at the start of the utilisation window.
    pub(super) busy_mark: u64,
    pub(super) memory_mark: u64,
    pub(super) running: [Link; MAX_CONCURRENT],
}

impl Item {
    /// Returns true if the item belongs to a collective, complete or not.
    fn is_collective(&self) -> bool {
        kind::computes(self.kind) && self.wanted_total != 0
    }

    /// Returns true if the item belongs to a complete collective.
    pub(super) fn is_released(&self) -> bool {
        self.is_collective() && self.unmet == 0
    }

    /// Returns the shortest duration of the item. The wait for a collective is not a part of any total.
    pub(super) fn foreseen(&self) -> u64 {
        if self.is_collective() { self.wanted_total } else { self.duration }
    }
}

impl Row for Item {
    fn cleared(&self) -> Self {
        Self::default()
    }
    fn live(&self) -> bool {
        self.order != 0
    }
    fn next_free(&mut self) -> &mut Link {
        &mut self.next
    }
}

impl Row for StreamRow {
    fn cleared(&self) -> Self {
        Self { generation: self.generation.wrapping_add(1), ..Self::default() }
    }
    fn live(&self) -> bool {
        self.life != 0
    }
    fn next_free(&mut self) -> &mut Link {
        &mut self.next_ready
    }
}

impl Row for EventRow {
    fn cleared(&self) -> Self {
        Self { generation: self.generation.wrapping_add(1), ..Self::default() }
    }
    fn live(&self) -> bool {
        self.status != 0
    }
    fn next_free(&mut self) -> &mut Link {
        &mut self.stream
    }
}

impl Row for Client {
    fn cleared(&self) -> Self {
        Self::NONE
    }
    fn live(&self) -> bool {
        self.serial != 0
    }
    fn next_free(&mut self) -> &mut Link {
        &mut self.next_runnable
    }
}

impl Client {
    /// A free row: all words are zero.
    pub(super) const NONE: Self = Self {
        serial: 0,
        pid: 0,
        legacy: 0,
        streams: 0,
        ready: List { head: 0, tail: 0 },
        host: List { head: 0, tail: 0 },
        next_runnable: 0,
        waits_for_slice: 0,
        running_count: 0,
        running_fills: 0,
        occupancy: 0,
        queued: 0,
        queued_blocking: 0,
        held: 0,
        area: 0,
        added_ns: 0,
        busy_ns: 0,
        kernel_busy_ns: 0,
        memory_busy_ns: 0,
        kernel_ns: 0,
        launches: 0,
        busy_mark: 0,
        memory_mark: 0,
        running: [0; MAX_CONCURRENT],
    };

    /// Returns the streams whose oldest items are on the multiprocessors.
    pub(super) fn running(&self) -> &[Link] {
        self.running.get(..self.running_count as usize).unwrap_or(&[])
    }

    /// Returns true if the client could use a slice.
    pub(super) fn runnable(&self) -> bool {
        self.running_count != 0 || self.ready.head != 0
    }
}
