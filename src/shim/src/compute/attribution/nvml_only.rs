//! Cost of launches where only NVML measures: with `GPU_CORE_METER=nvml`, and while timing events fail.
//!
//! All launches of a process on a device have one cost. NVML tells for each window how long the process used the GPU.
//! The process settles the difference to the time that its launches prepaid, and adjusts the cost. Each process that
//! launches asks NVML itself, because no other process knows the prepaid time.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::nvml_schedule::{LINGER, next_call};
use super::source::LoggedSources;
use super::utilization_windows::UtilizationReader;
use crate::os::clock::now as clock_now;
use crate::os::time_word::TimeWord;
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicBool, Ordering};
use gpuslice_policy::compute::attribution::nvml_only::{FIRST_COST, NvmlCostModel, PrepaymentHistory};
use gpuslice_policy::compute::attribution::nvml_windows::{self, Sample};
use gpuslice_policy::compute::attribution::source::{Measured, Source, Why};
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::measuring::batch::Batch;
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};
use parking_lot::Mutex;

/// Interval between two questions to NVML. Its windows last a sixth of a second; windows that are read too often
/// are joined.
pub(crate) const ASK_EVERY: WallTime = WallTime::from_millis(100);
/// After 20 windows with launches in which the process was never listed, NVML does not know it by its number.
const EMPTY_WINDOWS: u32 = 20;

/// The launches of a process on one device, as NVML tells them.
#[derive(Debug)]
pub(crate) struct NvmlOnly {
    /// Cost of a launch.
    cost: TimeWord<GpuTime>,
    /// Instant of the last prepaid launch; the beginning of the clock before the first.
    launched: TimeWord<Monotonic>,
    /// True if NVML attributes time to this process, as of its last answer. Read by threads that leave launches unmeasured.
    is_attributed: AtomicBool,
    /// Prepaid launches of the last seconds. Threads add to it, and the thread that asks NVML reads the part of a window. Locked
    /// for moments only, never across a call of NVML.
    course: Mutex<PrepaymentHistory>,
    /// Locked by the thread that asks NVML, for as long as the question takes. Launches do not wait for it.
    attribution: Mutex<Attribution>,
}

#[derive(Debug)]
struct Attribution {
    open: Option<UtilizationReader>,
    next: Monotonic,
    cost_model: NvmlCostModel,
    is_listed: bool,
    empty_windows: u32,
}

impl Default for NvmlOnly {
    fn default() -> Self {
        Self {
            cost: TimeWord::new(FIRST_COST),
            launched: TimeWord::zero(),
            is_attributed: AtomicBool::new(true),
            course: Mutex::default(),
            attribution: Mutex::new(Attribution {
                open: None,
                next: Monotonic::BEGIN,
                cost_model: NvmlCostModel::new(true),
                is_listed: false,
                empty_windows: 0,
            }),
        }
    }
}

impl NvmlOnly {
    /// Returns the cost of a launch as an estimate.
    pub(crate) fn estimate(&self) -> Estimate {
        let cost = self.cost.get();
        let mut estimate = Estimate::default();
        (estimate.charged, estimate.duration) = (cost, cost.wall_if_alone());
        estimate
    }

    /// Counts prepaid launches that go to the driver.
    pub(crate) fn add_prepaid(&self, batch: &Batch) {
        let (now, mut course) = (clock_now(), self.course.lock());
        course.add(now, batch.launches(), batch.prepaid());
        self.launched.set(now);
    }

    /// Returns true if used time is counted as NVML reports it. Otherwise the prepaid time counts.
    pub(crate) fn is_attributed(&self) -> bool {
        self.is_attributed.load(Ordering::Relaxed)
    }

    /// Returns true if NVML still has to be asked about launches.
    pub(crate) fn is_waiting(&self) -> bool {
        clock_now().since(self.launched.get()) < LINGER
    }

    /// Stops: events measure again. Events also settle the launches that lie in NVML's next windows. If NVML settled these
    /// windows too, the launches would be charged twice.
    pub(crate) fn stop(&self) {
        if self.launched.get() != Monotonic::BEGIN
            && let Some(mut attribution) = self.attribution.try_lock()
        {
            self.launched.set(Monotonic::BEGIN);
            attribution.open = None;
        }
    }

    /// Closes NVML, if nothing was launched for [`LINGER`].
    pub(crate) fn close_idle(&self) {
        if let Some(mut attribution) = self.attribution.try_lock().filter(|_| !self.is_waiting()) {
            attribution.open = None;
        }
    }

    /// Asks NVML if that is due, and settles the answer.
    ///
    /// If another thread asks, this call does nothing, because that thread settles the window. The instant of the next question
    /// is moved on after the answer, because NVML may take long and all processes share its lock.
    pub(crate) fn tick(&self, slice: &Slice, sources: &LoggedSources, gpu: SliceDevice) {
        let (Some(mut attribution), now) = (self.attribution.try_lock(), clock_now()) else { return };
        if now < attribution.next {
            return;
        }
        attribution.next = now.saturating_add(ASK_EVERY);
        let measured = match self.read_window(&mut attribution, slice, gpu) {
            Ok(()) => Measured::by(Source::Nvml),
            Err(why) => {
                attribution.open = None;
                Measured { source: Source::Nvml, why: Some(why) }
            }
        };
        self.is_attributed.store(measured.why.is_none(), Ordering::Relaxed);
        sources.report(slice, gpu, measured);
        attribution.next = attribution.next.max(next_call(now, measured.why));
    }

    fn read_window(&self, attribution: &mut Attribution, slice: &Slice, gpu: SliceDevice) -> Result<(), Why> {
        let reader = match &mut attribution.open {
            Some(reader) => reader,
            closed => closed.insert(UtilizationReader::open(gpu)?),
        };
        let Some((window, uses)) = reader.window()? else { return Ok(()) };
        if !reader.knows_own_pid() {
            return Err(Why::Numbers);
        }
        let own = nvml_windows::of_process(&uses, window, std::process::id());
        // A window that was cut is not settled: NVML's mean also covers the part before it, whose prepayments may be forgotten.
        if window.is_cut { Ok(()) } else { self.learn(attribution, slice, gpu, &own) }
    }

    /// Settles a window's use against the prepaid time of its launches.
    ///
    /// Nothing is settled until NVML has named this process once. Example: the driver numbers processes of another namespace, and
    /// this process never appears. Each window would then show no use, and a settlement would give back all prepaid time.
    fn learn(
        &self,
        attribution: &mut Attribution,
        slice: &Slice,
        gpu: SliceDevice,
        sample: &Sample,
    ) -> Result<(), Why> {
        let prepaid = self.course.lock().within(sample.from, sample.to);
        attribution.is_listed |= sample.processes > 0;
        if prepaid.launches > 0 && !attribution.is_listed {
            attribution.empty_windows = attribution.empty_windows.saturating_add(1);
        }
        // The windows without use have lowered the cost, so it is set back.
        if attribution.empty_windows >= EMPTY_WINDOWS && !attribution.is_listed {
            self.cost.set(FIRST_COST);
            return Err(Why::Numbers);
        }
        let difference = attribution.cost_model.learn(sample, prepaid);
        self.cost.set(attribution.cost_model.cost());
        if attribution.is_listed {
            let (device, used) = (gpu.device, prepaid.time.changed_by(difference));
            slice.member().settle(device, difference, clock_now());
            slice.member().count_used(device, used);
        }
        Ok(())
    }
}
