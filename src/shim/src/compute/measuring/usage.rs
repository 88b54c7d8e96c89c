//! GPU time that this process uses: the limiter of each device, estimates, and the count of work under way.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::contexts::ProgramContexts;
use super::nvml_signal::NvmlSignal;
use super::timing_events::TimingEvents;
use super::worker_signal::WorkerSignal;
use crate::compute::attribution::nvml_only::NvmlOnly;
use crate::compute::attribution::source::{LoggedSources, override_source};
use crate::compute::limiter::device::DeviceLimiter;
use crate::compute::limiter::estimates::Estimates;
use crate::os::clock::now;
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use core::ops::Deref;
use core::sync::atomic::{AtomicUsize, Ordering, fence};
use gpuslice_policy::compute::attribution::source::Source;
use gpuslice_policy::compute::measuring::batch::Batch;
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};
use gpuslice_region::Device;

/// Part of the state of GPU time that does not use the meter.
#[derive(Debug)]
pub(crate) struct UsageState {
    slice: &'static Slice,
    /// Finds the state of the calling process, which may be a forked child. `None`: that process is a member of no slice.
    pub(crate) of_this_process: fn() -> Option<&'static Self>,
    /// One limiter for each device of the slice.
    pub(crate) limiters: Vec<DeviceLimiter>,
    pub(crate) estimates: Estimates,
    pub(crate) contexts: ProgramContexts,
    pub(crate) timing: TimingEvents,
    pub(crate) worker: WorkerSignal,
    pub(crate) nvml: NvmlSignal,
    pub(crate) sources: LoggedSources,
    /// Cost of launches that events do not measure, by device.
    pub(crate) nvml_only: Vec<NvmlOnly>,
    /// Number of pending batches, plus the open batches that other threads can close. An open batch on a thread's own default
    /// stream does not count: the worker could not close it, and would tick until the thread does.
    under_way: AtomicUsize,
}

impl Deref for UsageState {
    type Target = Slice;

    #[inline]
    fn deref(&self) -> &Slice {
        self.slice
    }
}

impl UsageState {
    /// Makes the state before any use. `of_this_process` finds the state of the calling process, also in a forked child.
    /// `has_events`: events measure GPU time.
    pub(crate) fn new(
        slice: &'static Slice,
        of_this_process: fn() -> Option<&'static Self>,
        has_events: bool,
    ) -> Self {
        let devices = slice.places();
        Self {
            slice,
            of_this_process,
            limiters: devices.iter().map(|gpu| DeviceLimiter::new(*gpu)).collect(),
            estimates: Estimates::new(),
            contexts: ProgramContexts::default(),
            timing: TimingEvents::new(has_events),
            worker: WorkerSignal::default(),
            nvml: NvmlSignal::default(),
            sources: LoggedSources::default(),
            nvml_only: devices.iter().map(|_| NvmlOnly::default()).collect(),
            under_way: AtomicUsize::new(0),
        }
    }

    /// Returns true if the slice has less than all of any device's time, or divides it with others.
    #[inline]
    pub(crate) fn is_pacing(&self) -> bool {
        !self.region().is_unlimited() && self.limiters.iter().any(|limiter| limiter.is_pacing(self))
    }

    /// Returns the region's number of the device at the place `at` among the limiters.
    pub(crate) fn device(&self, at: usize) -> Option<Device> {
        self.limiters.get(at).map(|limiter| limiter.gpu.device)
    }

    /// Counts a batch that was opened, or became pending. When a batch is closed, the thread adds the pending batch before it
    /// subtracts the open batch. So the number is never 0 in between, and the worker does not go to sleep.
    pub(crate) fn begin_work(&self) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts the end of an open or pending batch.
    pub(crate) fn end_work(&self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns true if a batch is open or pending.
    pub(crate) fn is_anything_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) != 0
    }

    /// Returns the NVML estimates of each device.
    pub(crate) fn by_nvml(&self) -> impl Iterator<Item = (&NvmlOnly, SliceDevice)> {
        self.nvml_only.iter().zip(&self.limiters).map(|(nvml_only, limiter)| (nvml_only, limiter.gpu))
    }

    /// While events measure nothing, notes the time that the other processes of the slice have used until now. NVML's windows
    /// need it.
    pub(crate) fn note_others(&self) {
        if self.timing.are_used() {
            return;
        }
        let waiting = self.by_nvml().filter(|(nvml_only, _)| nvml_only.is_waiting());
        waiting.for_each(|(nvml_only, gpu)| nvml_only.note_others(self, gpu));
    }

    /// Returns the NVML estimates of a device, while events measure nothing.
    pub(crate) fn nvml_only(&self, device: usize) -> Option<&NvmlOnly> {
        if self.timing.are_used() { None } else { self.nvml_only.get(device) }
    }

    /// Leaves a batch unmeasured. Its prepaid time stays charged. `holds_unknown`: launches of unknown cost wait for it.
    pub(crate) fn leave_unmeasured(&self, device: usize, batch: &Batch, holds_unknown: bool) {
        let Some(limiter) = self.limiters.get(device) else { return };
        // The time at which the batch ran is not known.
        self.member().settled(limiter.gpu.device, batch.prepaid(), Monotonic::BEGIN);
        self.member().count_launches(limiter.gpu.device, batch.launches().into());
        let used =
            self.nvml_only(device).map_or_else(|| batch.prepaid(), |nvml_only| nvml_only.add_prepaid(batch));
        self.member().count_used(limiter.gpu.device, used);
        if holds_unknown {
            limiter.finish_unknown(batch);
        }
    }

    /// Gives credit of the process back to the slice if no thread has added to it for `kept`. Returns true if credit is left.
    pub(crate) fn return_unspent(&self, kept: WallTime) -> bool {
        let mut is_left = false;
        for limiter in &self.limiters {
            // A thread that holds the lock is about to spend the credit. The worker does not wait for it, because that thread may
            // hold the lock while it waits for the slice's time.
            let Some(mut credit) = limiter.credit.try_lock() else { continue };
            let unspent = credit.take_unspent(now(), kept);
            if !unspent.is_zero() {
                self.member().give_back(limiter.gpu.device, unspent, now());
            }
            is_left |= !credit.is_empty();
        }
        is_left
    }

    /// Writes the time used until now to the region, once a second.
    pub(crate) fn note_second(&self, now: Monotonic) {
        self.limiters.iter().for_each(|limiter| self.member().note_second(limiter.gpu.device, now));
    }

    /// Writes to the region, for each device: the queued work, and whether work and launches of unknown cost are under way. If
    /// events fail, writes that too.
    pub(crate) fn report(&self) {
        let is_failing = self.timing.are_failing();
        for limiter in &self.limiters {
            if is_failing {
                override_source(self, limiter.gpu.device, Source::Failing);
            }
            // A blocked batch does not count as queued, but work on other devices may wait for it. So the region gets 1 ns.
            let is_running = limiter.is_running.load(Ordering::Relaxed);
            let least = if is_running { GpuTime::NANOSECOND } else { GpuTime::ZERO };
            let queued = limiter.queued.get().max(least);
            self.member().set_queued(limiter.gpu.device, queued);
        }
        for limiter in &self.limiters {
            self.report_work(limiter);
        }
    }

    /// Writes to the region whether work is under way on a device, and whether the cost of some of it is unknown.
    ///
    /// A thread that opens a batch first counts it and then calls `begin_work`. This function first calls `end_work` and then
    /// reads the count again. So if a batch is opened in between, at least one of the two calls `begin_work` last. On the side of
    /// the thread, the locked instructions of x86-64 act as the fence.
    ///
    /// Otherwise the region could say that a process with a batch has no work. If the process were then killed, its prepaid time
    /// would be refunded although the work has run.
    fn report_work(&self, limiter: &DeviceLimiter) {
        let device = limiter.gpu.device;
        if !self.is_anything_under_way() {
            self.member().end_work(device);
            fence(Ordering::SeqCst);
            if self.is_anything_under_way() {
                self.member().begin_work(device);
            }
        }
        // The lock is held across the write. Otherwise the write could remove the mark of a launch that was counted after `any`.
        let unknown = limiter.unknown.lock();
        self.member().set_unpredicted(device, unknown.any());
    }
}
