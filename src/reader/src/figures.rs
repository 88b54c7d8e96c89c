//! The structures that a caller in C gets. `include/gpuslice_read.h` has the same layout.
//!
//! New fields come at the end of a structure, eight bytes at a time. So older callers find the fields that they know.

use crate::boundary::Plain;
use gpuslice_policy::compute::attribution::source::Measured;
use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_region::ProcessView;

/// The memory limit of a device without a memory limit.
pub(crate) const NO_LIMIT: u64 = u64::MAX;

/// `struct gpuslice_device_figures`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct DeviceFigures {
    pub(crate) uuid: [u8; 16],
    pub(crate) total: u64,
    pub(crate) memory_limit: u64,
    pub(crate) held: u64,
    pub(crate) held_by_dead: u64,
    pub(crate) peak: u64,
    pub(crate) refused: u64,
    pub(crate) unmet: u64,
    pub(crate) spilled: u64,
    pub(crate) burst_ns: u64,
    pub(crate) used_ns: u64,
    pub(crate) throttled_ns: u64,
    pub(crate) queued_ns: u64,
    pub(crate) copied_ns: u64,
    pub(crate) launches: u64,
    pub(crate) paid_until_ns: u64,
    pub(crate) read_at_ns: u64,
    pub(crate) number: u32,
    pub(crate) share_permille: u32,
    pub(crate) policy: u32,
    pub(crate) priority: u32,
    pub(crate) weight: u32,
    pub(crate) oversubscribe: u32,
    pub(crate) meter: u32,
    pub(crate) factor_millionths: u32,
    pub(crate) held_by_contexts: u64,
}

/// `struct gpuslice_process_figures`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ProcessFigures {
    pub(crate) start: u64,
    pub(crate) pid_namespace: u64,
    pub(crate) held: u64,
    pub(crate) refused: u64,
    pub(crate) spilled: u64,
    pub(crate) used_ns: u64,
    pub(crate) throttled_ns: u64,
    pub(crate) queued_ns: u64,
    pub(crate) copied_ns: u64,
    pub(crate) launches: u64,
    pub(crate) slot: u32,
    pub(crate) pid: u32,
    pub(crate) held_by_contexts: u64,
}

// SAFETY: `Plain` needs `repr(C)` and integers without padding. Each field lies at a multiple of its size, and an even
// number of four-byte fields lies between fields of eight bytes. So there is no padding.
unsafe impl Plain for DeviceFigures {
    const FIRST_SIZE: usize = 176;
}

// SAFETY: `Plain` needs `repr(C)` and integers without padding. Each field lies at a multiple of its size, and an even
// number of four-byte fields lies between fields of eight bytes. So there is no padding.
unsafe impl Plain for ProcessFigures {
    const FIRST_SIZE: usize = 88;
}

impl DeviceFigures {
    /// Returns the figures of the device with this number.
    pub(crate) fn of(number: u32, read: &gpuslice_region::DeviceFigures) -> Self {
        let (limits, time) = (read.limits, read.time);
        Self {
            uuid: read.uuid.0,
            total: read.total,
            memory_limit: limits.memory.unwrap_or(NO_LIMIT),
            held: read.held,
            held_by_dead: read.held_by_dead,
            peak: read.peak,
            refused: read.quota_denials,
            unmet: read.device_denials,
            spilled: read.spilled,
            burst_ns: limits.burst.nanos(),
            used_ns: time.used.nanos(),
            throttled_ns: time.throttled.nanos(),
            queued_ns: time.queued.nanos(),
            copied_ns: time.copied.nanos(),
            launches: time.launches,
            paid_until_ns: read.paid_until.nanos(),
            read_at_ns: read.read_at.nanos(),
            number,
            share_permille: limits.cores_permille,
            policy: match limits.sharing.policy {
                CorePolicy::Fixed => 0,
                CorePolicy::Equal => 1,
                CorePolicy::BestEffort => 2,
            },
            priority: match limits.sharing.priority {
                Priority::Normal => 0,
                Priority::High => 1,
                Priority::Low => 2,
            },
            weight: limits.sharing.weight,
            oversubscribe: limits.oversubscribe.into(),
            // The word has a reason beside the source. The figure has the source alone.
            meter: Measured::by(Measured::of_word(read.measure_source).source).word(),
            factor_millionths: read.correction,
            held_by_contexts: read.contexts,
        }
    }
}

impl ProcessFigures {
    /// Returns the figures that a process has published for a device.
    pub(crate) fn of(device: usize, process: &ProcessView) -> Self {
        let of = |figures: &[u64]| figures.get(device).copied().unwrap_or(0);
        let time = process.time.get(device).copied().unwrap_or_default();
        Self {
            start: process.start,
            pid_namespace: process.pid_namespace,
            held: of(&process.held),
            refused: process.quota_denials.get(device).copied().unwrap_or(0).into(),
            spilled: of(&process.spilled),
            used_ns: time.used.nanos(),
            throttled_ns: time.throttled.nanos(),
            queued_ns: time.queued.nanos(),
            copied_ns: time.copied.nanos(),
            launches: time.launches,
            slot: u32::try_from(process.slot).unwrap_or(u32::MAX),
            pid: process.pid,
            held_by_contexts: of(&process.contexts),
        }
    }
}
