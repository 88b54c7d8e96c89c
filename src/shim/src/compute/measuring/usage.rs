//! GPU time that this process uses: the limiter of each device, estimates, and whether anything is under way.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::contexts::ProgramContexts;
use super::timing_events::TimingEvents;
use super::worker_signal::WorkerSignal;
use crate::compute::attribution::nvml_only::NvmlOnly;
use crate::compute::attribution::source::{LoggedSources, override_source};
use crate::compute::limiter::device::DeviceLimiter;
use crate::compute::limiter::estimates::Estimates;
use crate::os::clock::now;
use crate::slice::handle::Slice;
use core::ops::Deref;
use core::sync::atomic::{AtomicUsize, Ordering, fence};
use gpuslice_policy::compute::attribution::source::Source;
use gpuslice_policy::compute::measuring::batch::Run;
use gpuslice_region::Device;

/// The part of the state of GPU time that needs no meter.
#[derive(Debug)]
pub(crate) struct UsageState {
    slice: &'static Slice,
    /// The state of the process that asks, which is a forked child perhaps. None where it is a member of no slice.
    pub(crate) of_this_process: fn() -> Option<&'static Self>,
    /// One for each device of the slice.
    pub(crate) limiters: Vec<DeviceLimiter>,
    pub(crate) estimates: Estimates,
    pub(crate) contexts: ProgramContexts,
    pub(crate) timing: TimingEvents,
    pub(crate) worker: WorkerSignal,
    pub(crate) sources: LoggedSources,
    /// Launches that events do not measure, by device.
    pub(crate) nvml_only: Vec<NvmlOnly>,
    /// Open and pending batches.
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
    /// No use yet. `of_this_process` finds the state of the process that asks, also in a forked child. `has_events`: events
    /// measure GPU time.
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

    /// The region's number of the device at this place among the limiters.
    pub(crate) fn device(&self, at: usize) -> Option<Device> {
        self.limiters.get(at).map(|limiter| limiter.gpu.device)
    }

    /// A batch was opened, or became pending.
    pub(crate) fn begin_work(&self) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }

    /// An open or pending batch has ended.
    pub(crate) fn end_work(&self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns true if a batch is open or pending.
    pub(crate) fn is_anything_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) != 0
    }

    /// The estimates by NVML of a device, while events measure nothing.
    pub(crate) fn nvml_only(&self, device: usize) -> Option<&NvmlOnly> {
        if self.timing.are_used() { None } else { self.nvml_only.get(device) }
    }

    /// A batch is not measured: its prepaid time stands. `holds_unknown`: launches of unknown cost wait for it.
    pub(crate) fn leave_unmeasured(&self, device: usize, run: &Run, holds_unknown: bool) {
        let Some(limiter) = self.limiters.get(device) else { return };
        // When the batch ran is not known.
        self.member().settled(limiter.gpu.device, run.prepaid(), 0);
        self.member().count_launches(limiter.gpu.device, run.launches().into());
        let nvml_only = self.nvml_only(device);
        if let Some(nvml_only) = nvml_only {
            nvml_only.add_prepaid(run);
        }
        if nvml_only.is_none_or(|nvml_only| !nvml_only.is_attributed()) {
            self.member().count_used(limiter.gpu.device, run.prepaid());
        }
        if holds_unknown {
            limiter.finish_unknown(run);
        }
    }

    /// Gives credit of the process back that no thread has spent for `kept` nanoseconds. Whether any is left.
    pub(crate) fn return_unspent(&self, kept: u64) -> bool {
        let mut is_left = false;
        for limiter in &self.limiters {
            // A thread that holds the lock is about to spend it.
            let Some(mut credit) = limiter.credit.try_lock() else { continue };
            let unspent = credit.take_unspent(now(), kept);
            if unspent > 0 {
                self.member().give_back(limiter.gpu.device, unspent, now());
            }
            is_left |= !credit.is_empty();
        }
        is_left
    }

    /// Writes the time used until now to the region, once a second.
    pub(crate) fn note_second(&self, now: u64) {
        self.limiters.iter().for_each(|limiter| self.member().note_second(limiter.gpu.device, now));
    }

    /// Writes to the region how much is queued, whether events fail, and whether anything is under way.
    pub(crate) fn report(&self) {
        let is_failing = self.timing.are_failing();
        for limiter in &self.limiters {
            if is_failing {
                override_source(self, limiter.gpu.device, Source::Failing);
            }
            // A blocked batch, which no launch here waits for, may be one that other devices wait for.
            let least = u64::from(limiter.is_running.load(Ordering::Relaxed));
            let queued = limiter.queued.load(Ordering::Relaxed).max(least);
            self.member().set_queued(limiter.gpu.device, queued);
        }
        for limiter in &self.limiters {
            self.report_work(limiter);
        }
    }

    /// Writes to the region whether anything is under way on a device, and whether the cost of some of it is unknown.
    ///
    /// A thread counts a batch first and writes `begin_work` then. This writes `end_work` first and looks at the count then. So a
    /// batch that is opened in between is written by one of the two.
    fn report_work(&self, limiter: &DeviceLimiter) {
        let device = limiter.gpu.device;
        if !self.is_anything_under_way() {
            self.member().end_work(device);
            fence(Ordering::SeqCst);
            if self.is_anything_under_way() {
                self.member().begin_work(device);
            }
        }
        // Locked, so that a launch that goes to the driver meanwhile is not overwritten.
        let unknown = limiter.unknown.lock();
        self.member().set_unpredicted(device, unknown.any());
    }
}
