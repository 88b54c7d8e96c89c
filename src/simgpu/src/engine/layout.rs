//! The state of one simulated device: plain integers.

use super::config::{DeviceConfig, MAX_COPY_ENGINES};
use super::ids::ClientId;
use super::rows::{Client, EventRow, Item, StreamRow};
use super::table::{Link, List, Table};

/// Largest number of clients of one device.
pub(crate) const CLIENTS: usize = 128;
/// Largest number of streams of all clients of one device.
pub(crate) const STREAMS: usize = 4096;
/// Largest number of events of all clients of one device.
pub(crate) const EVENTS: usize = 65_536;
/// Largest number of queued work items of all clients of one device.
pub(crate) const ITEMS: usize = 131_072;
/// Number of busy milliseconds that are kept: more than a minute with four clients in turn.
pub(super) const SPANS: usize = 262_144;
/// Number of utilisation samples of the device that are kept: as many as the driver's own buffer holds.
pub(crate) const DEVICE_SAMPLES: usize = 120;
/// Number of windows with samples by process: the driver's ring for these has `GPUMON_SAMPLE_COUNT_PERFMON_UTIL`
/// entries.
pub(crate) const PROCESS_WINDOWS: usize = 72;
/// Number of utilisation samples of processes that are kept.
pub(crate) const PROCESS_SAMPLES: usize = 4096;

/// Number of removed clients whose figures are kept.
pub(super) const RETIRED: usize = 1024;

/// One copy engine.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyEngine {
    pub(super) current: Link,
    pub(super) reserved: u32,
    pub(super) waiting: List,
}

/// Busy time of one client within one millisecond.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct BusySpan {
    pub(super) ms: u64,
    pub(super) serial: u32,
    pub(super) busy_ns: u32,
}

/// Utilisation of the device in one window, in percent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceSample {
    /// End of the window, in microseconds.
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
    /// End of the window, in microseconds.
    pub(crate) timestamp_us: u64,
    /// The PID with which the process was registered.
    pub(crate) pid: u32,
    /// Time with a kernel or a fill of the process.
    pub(crate) sm: u32,
    /// Time with a copy or a fill of the process.
    pub(crate) memory: u32,
    /// Makes the size a multiple of eight.
    pub(crate) reserved: u32,
}

/// The figures of one client since it was registered.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientTruth {
    /// The client.
    pub(crate) id: ClientId,
    /// Instant of its registration.
    pub(crate) added_ns: u64,
    /// Instant of its removal; 0 while it lives.
    pub(crate) removed_ns: u64,
    /// Time during which at least one of its kernels, graphs or fills ran. It excludes slices of others and switches.
    /// Overlapping kernels count once.
    pub(crate) busy_ns: u64,
    /// The part of it with a kernel or graph among the running work.
    pub(crate) kernel_busy_ns: u64,
    /// Time during which one of its copies or fills ran.
    pub(crate) memory_busy_ns: u64,
    /// Durations of its finished kernels and graphs. Overlapping ones count each.
    pub(crate) kernel_ns: u64,
    /// Number of finished kernels, including those in graphs.
    pub(crate) launches: u64,
    /// The PID with which it was registered.
    pub(crate) pid: u32,
    /// Number of work items that have not finished. For a removed client they never will.
    pub(crate) queued: u32,
}

/// The whole state of one simulated device. It is valid when zeroed and contains no pointers. A process that holds it
/// exclusively may advance it.
#[repr(C)]
pub(crate) struct EngineState {
    pub(super) configured: u32,
    pub(super) last_serial: u32,
    pub(super) config: DeviceConfig,
    /// The instant that the state describes.
    pub(super) clock: u64,
    pub(super) last_order: u64,
    /// The client that has the multiprocessors.
    pub(super) owner: Link,
    /// Serial of the client that had the multiprocessors last.
    pub(super) last_owner: u32,
    /// Whether the owner has used them since its queues were last empty.
    pub(super) owner_active: u32,
    /// Queued kernels of collectives that wait for others, or will.
    pub(super) unmet: u32,
    /// End of the switch to the owner.
    pub(super) resume_at: u64,
    pub(super) slice_start: u64,
    /// The slice ends only while another client waits.
    pub(super) slice_end: u64,
    pub(super) runnable: List,
    pub(super) marked: List,
    pub(super) engines: [CopyEngine; MAX_COPY_ENGINES],
    pub(super) busy_ns: u64,
    pub(super) memory_busy_ns: u64,
    pub(super) retired_busy_ns: u64,
    pub(super) busy_mark: u64,
    pub(super) memory_mark: u64,
    /// The processes whose kernel or fill, and whose copy or fill, ran last. The engines keep their state.
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
    pub(super) streams: Table<StreamRow, STREAMS>,
    pub(super) events: Table<EventRow, EVENTS>,
    pub(super) items: Table<Item, ITEMS>,
    pub(super) spans: [BusySpan; SPANS],
}

const _: () = assert!(size_of::<EngineState>() <= 32 << 20);
const _: () = assert!(align_of::<EngineState>() == 8);

impl core::fmt::Debug for EngineState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EngineState").field("clock", &self.clock).finish_non_exhaustive()
    }
}
