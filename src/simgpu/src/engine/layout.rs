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
/// Number of busy milliseconds that the state keeps. They cover more than a minute if four clients take turns.
pub(super) const SPANS: usize = 262_144;
/// Number of utilisation samples of the device that the state keeps. The driver's own buffer holds as many.
pub(crate) const DEVICE_SAMPLES: usize = 120;
/// Number of windows with samples by process. The driver's ring for these samples has `GPUMON_SAMPLE_COUNT_PERFMON_UTIL` entries.
pub(crate) const PROCESS_WINDOWS: usize = 72;
/// Number of utilisation samples of processes that the state keeps.
pub(crate) const PROCESS_SAMPLES: usize = 4096;

/// Number of removed clients whose figures the state keeps.
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
    /// When the client was registered.
    pub(crate) added_ns: u64,
    /// When the client was removed; 0 while it lives.
    pub(crate) removed_ns: u64,
    /// Time in which at least one of the client's kernels, graphs or fills ran. It excludes other clients' slices, and switches.
    /// Overlapping kernels count once.
    pub(crate) busy_ns: u64,
    /// The part of `busy_ns` in which a kernel or graph ran.
    pub(crate) kernel_busy_ns: u64,
    /// Time in which at least one of the client's copies or fills ran.
    pub(crate) memory_busy_ns: u64,
    /// Sum of the durations of the client's finished kernels and graphs. Overlapping ones count separately.
    pub(crate) kernel_ns: u64,
    /// Number of the client's finished kernels, including kernels in graphs.
    pub(crate) launches: u64,
    /// The PID with which the client was registered.
    pub(crate) pid: u32,
    /// Number of work items that have not finished. Those of a removed client never finish.
    pub(crate) queued: u32,
}

/// The whole state of one simulated device. It contains no pointers, and is valid when zeroed. A process may change it only
/// while it holds the file's lock.
#[repr(C)]
pub(crate) struct EngineState {
    pub(super) configured: u32,
    pub(super) last_serial: u32,
    pub(super) config: DeviceConfig,
    /// The instant that the state describes.
    pub(super) clock: u64,
    pub(super) last_order: u64,
    /// The client that uses the multiprocessors.
    pub(super) owner: Link,
    /// Serial of the client that used the multiprocessors last.
    pub(super) last_owner: u32,
    /// 1 if the owner has used the multiprocessors since its queues were last empty.
    pub(super) owner_active: u32,
    /// Number of queued kernels whose collectives are not complete.
    pub(super) unmet: u32,
    /// End of the switch to the owner.
    pub(super) resume_at: u64,
    pub(super) slice_start: u64,
    /// End of the present slice. It has an effect only while another client waits.
    pub(super) slice_end: u64,
    pub(super) runnable: List,
    pub(super) marked: List,
    pub(super) engines: [CopyEngine; MAX_COPY_ENGINES],
    pub(super) busy_ns: u64,
    pub(super) memory_busy_ns: u64,
    pub(super) retired_busy_ns: u64,
    pub(super) busy_mark: u64,
    pub(super) memory_mark: u64,
    /// The processes that last used the engines: one for kernels and fills, one for copies and
    /// fills. The engines keep their state.
    pub(super) on_compute: u32,
    pub(super) on_memory: u32,
    /// End of the present utilisation window; 0 before the first window.
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
