//! The rows of the tables: work items, streams, events and clients.

use super::config::MAX_CONCURRENT;
use super::table::{Link, List, Row};

/// Codes of [`Item::kind`]. Zero is no kind, so a zeroed item is free.
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
    /// Destroyed by its owner, with work left to do.
    pub(crate) const CLOSING: u8 = 2;
}

/// Codes of [`StreamRow::phase`]: the state of the oldest item of a stream.
pub(super) mod phase {
    /// Unknown; it has not been looked at.
    pub(crate) const IDLE: u8 = 0;
    /// In the list of the engine that will run it.
    pub(crate) const READY: u8 = 1;
    /// On the multiprocessors or on a copy engine.
    pub(crate) const RUNNING: u8 = 2;
    /// In another stream's list of waiters.
    pub(crate) const WAITING: u8 = 3;
    /// Held back by the rules of the legacy default stream.
    pub(crate) const HELD: u8 = 4;
    /// The host has taken a host function and has not reported its end.
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
    /// Position in the order of all enqueued work of the device; 0 for a free item. It is written last.
    pub(super) order: u64,
    /// Time on the multiprocessors or on the copy engine.
    pub(super) duration: u64,
    /// Duration of everything enqueued on the stream so far, this item included, without waits for collectives.
    pub(super) total: u64,
    /// For a wait, the order that the target stream must reach. For a host function, the caller's token. For a kernel
    /// of a collective, its key.
    pub(super) wanted: u64,
    /// For a wait, the total at that order. For a kernel of a collective, its duration once the others run.
    pub(super) wanted_total: u64,
    /// For a wait, the target stream. For a record, the event.
    pub(super) target: Link,
    pub(super) target_generation: u32,
    /// Kernels for which this kernel's collective still waits. 0: it is in no collective, or the collective is complete.
    pub(super) unmet: u32,
    pub(super) reserved: u32,
    pub(super) stream: Link,
    pub(super) next: Link,
    /// Number of kernels in it.
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
    /// 0 for a free stream.
    pub(super) life: u8,
    pub(super) phase: u8,
    /// Whether it is in the list of streams to look at.
    pub(super) marked: u8,
    pub(super) items: List,
    pub(super) queued: u32,
    /// Queued items that do not run on the multiprocessors.
    pub(super) detours: u32,
    /// Streams that wait for an item of this one.
    pub(super) waiters: Link,
    pub(super) next_waiter: Link,
    /// Next in the client's list of kernels, of a copy engine, or of host functions.
    pub(super) next_ready: Link,
    pub(super) next_marked: Link,
    pub(super) next_of_client: Link,
    /// Order and total of the newest finished item.
    pub(super) done_order: u64,
    pub(super) done_total: u64,
    /// Order and total of the newest enqueued item.
    pub(super) last_order: u64,
    pub(super) last_total: u64,
    /// The item that `phase` is about while it is running or on the host.
    pub(super) phase_order: u64,
    /// End of running work: for a kernel, the client's busy time; for a copy, an instant.
    pub(super) ends: u64,
    /// The instant until which its events occupy it. A kernel that starts before that waits, and counts as running.
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
    /// The instant of its completion.
    pub(super) time: u64,
    /// 0 for a free event.
    pub(super) status: u8,
    pub(super) reserved: [u8; 3],
    /// Events with the same number are one event under several clients' names; 0 for an event that is not shared.
    pub(super) shared: u32,
}

/// One client: a context of a process. Time slices are between clients.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    /// Never reused; 0 for a free client.
    pub(super) serial: u32,
    pub(super) pid: u32,
    pub(super) legacy: Link,
    /// All streams, newest first.
    pub(super) streams: Link,
    /// Streams whose oldest item waits for the multiprocessors.
    pub(super) ready: List,
    /// Streams whose oldest item waits for the host.
    pub(super) host: List,
    pub(super) next_runnable: Link,
    /// Whether it is in the list of clients that wait for a slice.
    pub(super) waits_for_slice: u32,
    pub(super) running_count: u32,
    pub(super) running_fills: u32,
    pub(super) occupancy: u32,
    pub(super) queued: u32,
    /// Number of items in blocking streams.
    pub(super) queued_blocking: u32,
    /// Number of streams in phase held.
    pub(super) held: u32,
    /// Duration times occupancy of the work that has not started on the multiprocessors.
    pub(super) area: u64,
    pub(super) added_ns: u64,
    /// Time during which work of this client ran on the multiprocessors.
    pub(super) busy_ns: u64,
    /// The part of it with a kernel or a graph among the running work.
    pub(super) kernel_busy_ns: u64,
    /// Time during which a copy or a fill ran.
    pub(super) memory_busy_ns: u64,
    /// Durations of all finished kernels and graphs.
    pub(super) kernel_ns: u64,
    /// Number of finished kernels.
    pub(super) launches: u64,
    /// `busy_ns` and `memory_busy_ns` at the start of the utilisation window.
    pub(super) busy_mark: u64,
    pub(super) memory_mark: u64,
    pub(super) running: [Link; MAX_CONCURRENT],
}

impl Item {
    /// Returns true if it is of a collective, complete or not.
    fn is_collective(&self) -> bool {
        kind::computes(self.kind) && self.wanted_total != 0
    }

    /// Returns true if it is of a complete collective.
    pub(super) fn is_released(&self) -> bool {
        self.is_collective() && self.unmet == 0
    }

    /// Returns the shortest duration. The wait for a collective is no part of any total.
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
    /// All zero.
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

    /// Returns the streams with something on the multiprocessors.
    pub(super) fn running(&self) -> &[Link] {
        self.running.get(..self.running_count as usize).unwrap_or(&[])
    }

    /// Returns true if a slice would be of use.
    pub(super) fn runnable(&self) -> bool {
        self.running_count != 0 || self.ready.head != 0
    }
}
