//! Which plain integers make up the state of one simulated device.

use super::config::{Config, MAX_COPY_ENGINES};
use super::ids::ClientId;
use super::rows::{Client, Event, Item, Stream};
use super::table::{Link, List, Table};

/// Clients of one device at a time.
pub(crate) const CLIENTS: usize = 128;
/// Streams of all clients of one device.
pub(crate) const STREAMS: usize = 4096;
/// Events of all clients of one device.
pub(crate) const EVENTS: usize = 65_536;
/// Work items queued by all clients of one device.
pub(crate) const ITEMS: usize = 131_072;
/// Busy milliseconds that are remembered: more than a minute of four clients taking turns.
pub(super) const SPANS: usize = 262_144;
/// Utilisation samples of the device that are remembered, as many as the driver's own buffer holds.
pub(crate) const DEVICE_SAMPLES: usize = 120;
/// Windows that can be asked for by process: what the driver's ring for this holds, `GPUMON_SAMPLE_COUNT_PERFMON_UTIL`.
pub(crate) const PROCESS_WINDOWS: usize = 72;
/// Utilisation samples of processes that are remembered.
pub(crate) const PROCESS_SAMPLES: usize = 4096;

/// Removed clients whose deeds are remembered.
pub(super) const RETIRED: usize = 1024;

/// One copy engine.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyEngine {
    pub(super) current: Link,
    pub(super) reserved: u32,
    pub(super) waiting: List,
}

/// How long one client was busy within one millisecond.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) ms: u64,
    pub(super) serial: u32,
    pub(super) busy_ns: u32,
}

/// Utilisation of the device in one window, in percent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceSample {
    /// End of the window, microseconds.
    pub(crate) timestamp_us: u64,
    /// Time with a kernel or a fill.
    pub(crate) gpu: u32,
    /// Time with a copy or a fill.
    pub(crate) memory: u32,
}

/// Utilisation of the device by one process in one window, in percent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessSample {
    /// End of the window, microseconds.
    pub(crate) timestamp_us: u64,
    /// The process, as it was registered.
    pub(crate) pid: u32,
    /// Time with a kernel or a fill of the process.
    pub(crate) sm: u32,
    /// Time with a copy or a fill of the process.
    pub(crate) memory: u32,
    /// Keeps the size a multiple of eight.
    pub(crate) reserved: u32,
}

/// What one client has done since it was registered.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientTruth {
    /// Who.
    pub(crate) id: ClientId,
    /// When it was registered.
    pub(crate) added_ns: u64,
    /// When it was removed; 0: it lives.
    pub(crate) removed_ns: u64,
    /// Time during which at least one kernel, graph or fill of it was running. Slices of others and
    /// switches are not in it, overlapping kernels count once.
    pub(crate) busy_ns: u64,
    /// The part of it during which not only fills were running.
    pub(crate) kernel_busy_ns: u64,
    /// Time during which a copy or a fill of it was running.
    pub(crate) memory_busy_ns: u64,
    /// Durations of its finished kernels and graphs, overlapping ones counted each.
    pub(crate) kernel_ns: u64,
    /// Kernels that finished, those in graphs too.
    pub(crate) launches: u64,
    /// The process, as it was registered.
    pub(crate) pid: u32,
    /// Work that is not finished, or never was.
    pub(crate) queued: u32,
}

/// The whole state of one simulated device. Valid when zeroed. Whoever holds it exclusively may move it
/// forward, in any process; it contains no pointers.
#[repr(C)]
pub(crate) struct EngineState {
    pub(super) configured: u32,
    pub(super) last_serial: u32,
    pub(super) config: Config,
    /// The instant that the state describes.
    pub(super) clock: u64,
    pub(super) last_order: u64,
    /// The client that has the multiprocessors.
    pub(super) owner: Link,
    /// Serial of the client that had them last.
    pub(super) last_owner: u32,
    /// Whether the owner has used them since it last ran dry.
    pub(super) owner_active: u32,
    /// Queued kernels that wait for others, or will.
    pub(super) unmet: u32,
    /// When the switch to the owner is over.
    pub(super) resume_at: u64,
    pub(super) slice_start: u64,
    /// Holds while another client waits.
    pub(super) slice_end: u64,
    pub(super) runnable: List,
    pub(super) poked: List,
    pub(super) engines: [CopyEngine; MAX_COPY_ENGINES],
    pub(super) busy_ns: u64,
    pub(super) memory_busy_ns: u64,
    pub(super) retired_busy_ns: u64,
    pub(super) busy_mark: u64,
    pub(super) memory_mark: u64,
    /// The process whose kernel or fill ran last, and the one whose copy or fill did: their state stays on the engines.
    pub(super) on_compute: u32,
    pub(super) on_memory: u32,
    /// End of the utilisation window in progress; 0 before the first.
    pub(super) sample_at: u64,
    pub(super) device_sampled: u64,
    pub(super) process_sampled: u64,
    pub(super) span_count: u64,
    pub(super) retired_count: u64,
    pub(super) device_samples: [DeviceSample; DEVICE_SAMPLES],
    pub(super) process_samples: [ProcessSample; PROCESS_SAMPLES],
    pub(super) retired: [ClientTruth; RETIRED],
    pub(super) clients: Table<Client, CLIENTS>,
    pub(super) streams: Table<Stream, STREAMS>,
    pub(super) events: Table<Event, EVENTS>,
    pub(super) items: Table<Item, ITEMS>,
    pub(super) spans: [Span; SPANS],
}

const _: () = assert!(size_of::<EngineState>() <= 32 << 20);
const _: () = assert!(align_of::<EngineState>() == 8);

impl core::fmt::Debug for EngineState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EngineState").field("clock", &self.clock).finish_non_exhaustive()
    }
}
