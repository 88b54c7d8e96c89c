//! Structs of the compute ledger.
//!
//! The words of one device lie together, so that only valid devices need space in the file. A word that many processes
//! change has a line of 128 bytes to itself.

use crate::{
    layout::constants::{INTERVALS, SECONDS},
    sync::atomics::{Published64, WakeSeq, Word32, Word64},
};
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

/// Gives words a line of 128 bytes, because processors fetch lines of 64 bytes in pairs.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct Line<T>(pub(crate) T);

/// The compute ledger of one device.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(4096)))]
pub(crate) struct DeviceTime<const SLOTS: usize> {
    /// The instant up to which the slice's GPU time is paid.
    pub(crate) paid: Line<PaidWords>,
    /// Virtual service time of the process that paid last.
    pub(crate) virtual_time: Line<Word64<GpuTime>>,
    /// The futex on which throttled processes sleep.
    pub(crate) wake_seq: Line<WakeSeq>,
    /// Two sums in one word: the length of busy intervals, and the part of it that was newly covered.
    pub(crate) overlap: Line<Word64>,
    /// Words that every process reads and few processes write.
    pub(crate) control: Line<ControlWords>,
    /// The lease of the process that samples NVML.
    pub(crate) sampler: Line<SamplerWords>,
    /// Payments that coupled devices need to know of.
    pub(crate) coupling: Line<CouplingWords>,
    /// Intervals in which the GPU was busy for the slice.
    pub(crate) intervals: IntervalRing,
    /// Intervals in which the GPU was busy for slices of other directories, written by the node agent.
    pub(crate) relayed: IntervalRing,
    /// Ring of usage samples, one a second.
    pub(crate) history: [UsageSample; SECONDS],
    /// The processes, by slot.
    pub(crate) processes: [ProcessTime; SLOTS],
}

/// Instants of the token bucket, on the monotonic clock.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct PaidWords {
    /// The instant up to which GPU time is paid.
    pub(crate) until: Word64<Monotonic>,
    /// The instant from which GPU time is free.
    pub(crate) free_from: Word64<Monotonic>,
}

/// The way in which GPU time is measured and limited.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct ControlWords {
    /// The slice's own part of the time between two events, in millionths; 0: not measured, and all of it counts.
    pub(crate) correction_millionths: Word32,
    /// The source of measured GPU time: the word of `gpuslice_policy::compute::attribution::source`.
    pub(crate) measure_source: Word32,
    /// The rate that the arbiter of the GPU grants the slice: the word of `gpuslice_policy::arbiter::grant_word`.
    pub(crate) grant: Word64,
    /// When the node agent last divided the GPU, on the monotonic clock; 0: never.
    pub(crate) divided_at: Word64<Monotonic>,
    /// When NVML last told the node agent of programs on the GPU that publish nothing, on the monotonic clock; 0: never.
    pub(crate) programs_at: Word64<Monotonic>,
}

/// The process that looks at co-tenants and samples NVML.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct SamplerWords {
    /// Slot of the process, and when it renewed the lease, in one word.
    pub(crate) lease: Word64,
}

/// Payments of a device that coupled devices need to know of.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct CouplingWords {
    /// When a process last paid, on the monotonic clock.
    pub(crate) last_payment_at: Word64<Monotonic>,
    /// When the last long throttle began.
    pub(crate) throttled_from: Word64<Monotonic>,
    /// When the last long throttle ended. Written after `throttled_from`.
    pub(crate) throttled_until: Published64<Monotonic>,
    /// Until when the device is throttled together with the other coupled devices.
    pub(crate) coupled_until: Word64<Monotonic>,
    /// When a process last saw a batch that runs far longer than predicted, and so may wait for another device.
    pub(crate) overrun_seen_at: Word64<Monotonic>,
    /// When a launch last went beyond the share because a batch on another device may wait for it.
    pub(crate) overdraft_at: Word64<Monotonic>,
    /// The instant up to which overdrafts of any kind are paid: `gpuslice_policy::compute::limiter::overdraft`.
    pub(crate) overdraft_paid_until: Word64<Monotonic>,
    /// Round of this device's last payment: `gpuslice_policy::compute::coupling::next_round`.
    pub(crate) round: Word64,
}

/// A ring of busy intervals.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct IntervalRing {
    /// Number of intervals that were published.
    pub(crate) head: Line<Word64>,
    /// The last intervals: number n lies in slot n modulo the number of slots.
    pub(crate) slots: [IntervalSlot; INTERVALS],
}

#[cfg(test)]
impl Default for IntervalRing {
    fn default() -> Self {
        Self { head: Line::default(), slots: core::array::from_fn(|_| IntervalSlot::default()) }
    }
}

/// One interval in which the GPU was busy.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(32)))]
pub(crate) struct IntervalSlot {
    /// Number of the interval plus 1.
    pub(crate) ticket: Published64,
    /// When the GPU began, on the monotonic clock.
    pub(crate) start: Word64<Monotonic>,
    /// Length, context, and whether the work goes on.
    pub(crate) packed: Word64,
    /// Computed from the other three words, so that a reader never takes the words of two intervals for one interval.
    pub(crate) checksum: Word64,
}

/// Sums over all processes of the slice at the start of a second.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(32)))]
pub(crate) struct UsageSample {
    /// The second of the monotonic clock plus 1; 0 while a process writes the sample.
    pub(crate) second: Published64,
    /// GPU time charged until then, in nanoseconds.
    pub(crate) charged_ns: Word64<GpuTime>,
    /// Wall time that launches were throttled until then, in nanoseconds.
    pub(crate) throttled_ns: Word64<WallTime>,
}

/// The state of one process on one device.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct ProcessTime {
    /// GPU time that the process was served, as virtual time.
    pub(crate) virtual_service: Word64<GpuTime>,
    /// GPU time that the process waits for, in nanoseconds; 0: it does not wait.
    pub(crate) requested_ns: Word64<GpuTime>,
    /// Until when the process sleeps unless it is woken; 0: it does not sleep; all ones: it is about to sleep.
    pub(crate) sleep_deadline: Published64<Monotonic>,
    /// Prepaid GPU time that is neither settled nor refunded, in nanoseconds.
    pub(crate) unsettled_ns: Word64<GpuTime>,
    /// When the process last settled.
    pub(crate) settled_at: Word64<Monotonic>,
    /// Predicted GPU time of work under way, in nanoseconds, with the bits [`UNPREDICTED`] and [`WORK_UNDER_WAY`].
    pub(crate) queued_ns: Word64,
    /// Counters of this process and of earlier processes in the slot. Sums over slots therefore never fall.
    pub(crate) counts: UsageCounts,
    /// Values of `counts` when this process joined.
    pub(crate) at_join: UsageCounts,
    /// Bytes beyond the quota that the process holds in host memory.
    pub(crate) spilled_bytes: Word64,
    /// Bytes that the process holds for contexts.
    pub(crate) context_bytes: Word64,
}

/// The bit of [`ProcessTime::queued_ns`] for work under way without a prediction.
pub(crate) const UNPREDICTED: u64 = 1 << 63;

/// The bit of [`ProcessTime::queued_ns`] for work that may be under way. The work may have a prediction or none, and may be
/// submitted only in part.
pub(crate) const WORK_UNDER_WAY: u64 = 1 << 62;

impl ProcessTime {
    /// Returns the predicted GPU time of work under way.
    pub(crate) fn queued(&self) -> GpuTime {
        GpuTime::from_nanos(self.queued_ns.get() & !(UNPREDICTED | WORK_UNDER_WAY))
    }
}

/// Counters that only grow.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct UsageCounts {
    /// GPU time charged, in nanoseconds.
    pub(crate) charged_ns: Word64<GpuTime>,
    /// Wall time that launches were throttled, in nanoseconds.
    pub(crate) throttled_ns: Word64<WallTime>,
    /// GPU time of copies, in nanoseconds.
    pub(crate) copied_ns: Word64<GpuTime>,
    /// Launches.
    pub(crate) launches: Word64,
}

#[cfg(test)]
impl<const SLOTS: usize> Default for DeviceTime<SLOTS> {
    fn default() -> Self {
        Self {
            paid: Default::default(),
            virtual_time: Default::default(),
            wake_seq: Default::default(),
            overlap: Default::default(),
            control: Default::default(),
            sampler: Default::default(),
            coupling: Default::default(),
            intervals: Default::default(),
            relayed: Default::default(),
            history: core::array::from_fn(|_| UsageSample::default()),
            processes: core::array::from_fn(|_| ProcessTime::default()),
        }
    }
}
