//! Cost of launches if only NVML measures: with `GPU_CORE_METER=nvml`, and while timing events fail.
//!
//! All launches of a process on a device have one cost. Kernels that events measured before they failed are the exception. NVML
//! reports, for each window, the time for which the slice used the GPU. The process owes its part of the difference to the
//! prepaid time, and its next launches pay this debt. Each process that launches asks NVML itself, because no other process knows
//! the prepaid time of a window.
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
use gpuslice_policy::compute::attribution::nvml_only::{FIRST_COST, Learned, NvmlCostModel};
use gpuslice_policy::compute::attribution::nvml_windows::{self, Use, Window};
use gpuslice_policy::compute::attribution::prepayments::PrepaymentHistory;
use gpuslice_policy::compute::attribution::source::{Measured, Source, Why};
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::measuring::batch::Batch;
use gpuslice_policy::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};
use parking_lot::Mutex;

/// Interval between two questions to NVML. Its windows last a sixth of a second. If the library asks more often, it joins
/// the parts.
pub(crate) const ASK_EVERY: WallTime = WallTime::from_millis(100);

/// The cost of a process's launches on one device, as NVML measures it.
#[derive(Debug)]
pub(crate) struct NvmlOnly {
    /// Cost of a launch.
    cost: TimeWord<GpuTime>,
    /// Instant of the last prepaid launch; the beginning of the clock before the first.
    launched: TimeWord<Monotonic>,
    /// Prepaid launches of the last seconds. Threads that launch add to it. The thread that asks NVML reads the part of a window.
    /// No thread holds the lock across a call of NVML.
    course: Mutex<PrepaymentHistory>,
    /// Locked by the thread that asks NVML, for as long as the question takes. Launches do not wait for it.
    attribution: Mutex<Attribution>,
}

#[derive(Debug)]
struct Attribution {
    open: Option<UtilizationReader>,
    next: Monotonic,
    cost_model: NvmlCostModel,
}

impl Attribution {
    /// Opens NVML, if it is closed.
    fn open(&mut self, gpu: SliceDevice) -> Result<(), Why> {
        if self.open.is_none() {
            self.open = Some(UtilizationReader::open(gpu)?);
        }
        Ok(())
    }
}

impl Default for NvmlOnly {
    fn default() -> Self {
        Self {
            cost: TimeWord::new(FIRST_COST),
            launched: TimeWord::zero(),
            course: Mutex::default(),
            attribution: Mutex::new(Attribution {
                open: None,
                next: Monotonic::BEGIN,
                cost_model: NvmlCostModel::new(true),
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

    /// Adds prepaid launches to the history. Returns the time that the caller counts as used.
    pub(crate) fn add_prepaid(&self, batch: &Batch) -> GpuTime {
        let (now, mut course) = (clock_now(), self.course.lock());
        self.launched.set(now);
        course.add(now, batch.launches(), batch.prepaid())
    }

    /// Adds to the history the time that the other processes of the slice have used until now.
    pub(crate) fn note_others(&self, slice: &Slice, gpu: SliceDevice) {
        let sum = slice.member().time_used_beside(gpu.device).used;
        self.course.lock().add_beside(clock_now(), sum);
    }

    /// Returns true if a launch is so recent that the library still has to ask NVML about it.
    pub(crate) fn is_waiting(&self) -> bool {
        clock_now().since(self.launched.get()) < LINGER
    }

    /// Stops the measurement by NVML, because events measure again. Events also settle the launches that lie in NVML's next
    /// windows. If NVML's answers settled these windows too, the launches would be charged twice.
    pub(crate) fn stop(&self, slice: &Slice, gpu: SliceDevice) {
        if self.launched.get() != Monotonic::BEGIN
            && let Some(mut attribution) = self.attribution.try_lock()
        {
            self.launched.set(Monotonic::BEGIN);
            self.close(&mut attribution, slice, gpu);
        }
    }

    /// Closes NVML and settles the debt at once, if the process has launched nothing for [`LINGER`]. It cannot expect that a
    /// launch will soon pay the debt.
    pub(crate) fn close_idle(&self, slice: &Slice, gpu: SliceDevice) {
        if let Some(mut attribution) = self.attribution.try_lock().filter(|_| !self.is_waiting()) {
            self.close(&mut attribution, slice, gpu);
        }
    }

    fn close(&self, attribution: &mut Attribution, slice: &Slice, gpu: SliceDevice) {
        attribution.open = None;
        self.settle(attribution.cost_model.take_owed(), slice, gpu);
        self.course.lock().pause();
    }

    /// Settles the debt of the process at its end. If another thread is asking NVML, the debt is lost.
    ///
    /// The function does not touch the history, because the exit may have interrupted a thread that holds its lock.
    pub(crate) fn end(&self, slice: &Slice, gpu: SliceDevice) {
        if let Some(mut attribution) = self.attribution.try_lock() {
            pay(attribution.cost_model.take_owed(), slice, gpu);
        }
    }

    /// Asks NVML if that is due, and settles the answer.
    ///
    /// If another thread is asking, this call does nothing, because that thread settles the window. The instant of the next
    /// question is set after the answer, because NVML may take long and all processes share its lock.
    pub(crate) fn tick(&self, slice: &Slice, sources: &LoggedSources, gpu: SliceDevice) {
        let (Some(mut attribution), now) = (self.attribution.try_lock(), clock_now()) else { return };
        if now < attribution.next {
            return;
        }
        attribution.next = now.saturating_add(ASK_EVERY);
        let opened = attribution.open(gpu);
        // The time of the opening does not delay the next question: until the second answer the cost of launches is a guess.
        let asked = clock_now();
        let read = opened.and_then(|()| self.read_window(&mut attribution, slice, gpu));
        if read.is_err() {
            attribution.open = None;
        }
        let measured = Measured { source: Source::Nvml, why: read.err() };
        sources.report(slice, gpu, measured);
        attribution.next = attribution.next.max(next_call(asked, measured.why));
    }

    fn read_window(&self, attribution: &mut Attribution, slice: &Slice, gpu: SliceDevice) -> Result<(), Why> {
        let Some(reader) = &mut attribution.open else { return Ok(()) };
        let Some((window, uses)) = reader.window()? else { return Ok(()) };
        if !reader.knows_own_pid() {
            return Err(Why::Numbers);
        }
        // A window that was cut is not settled. NVML's mean also covers the time before the cut, and the history may not have
        // the prepayments of that time any more.
        if window.is_cut { Ok(()) } else { self.learn(attribution, (slice, gpu), window, &uses) }
    }

    /// Learns the cost of launches from the use in a window, and settles the part that no later launch pays.
    fn learn(
        &self,
        attribution: &mut Attribution,
        (slice, gpu): (&Slice, SliceDevice),
        window: Window,
        uses: &[Use],
    ) -> Result<(), Why> {
        let (known, own) = (slice.member().numbers_beside(), std::process::id());
        let samples = (
            &nvml_windows::of_processes(uses, window, |number| number == own),
            &nvml_windows::of_processes(uses, window, |number| known.contains(&number)),
        );
        let prepaid = self.course.lock().within(window.from, window.to);
        let learned = attribution.cost_model.learn(samples, &prepaid, clock_now());
        self.cost.set(attribution.cost_model.cost());
        match learned {
            Learned::Nothing => {}
            Learned::Unknown => return Err(Why::Numbers),
            Learned::Settled(change) => self.settle(change, slice, gpu),
        }
        Ok(())
    }

    /// Settles a change, and counts it as used time.
    fn settle(&self, change: GpuTimeChange, slice: &Slice, gpu: SliceDevice) {
        if change.is_none() {
            return;
        }
        let mut course = self.course.lock();
        course.uncount(change.min(GpuTimeChange::NONE).amount());
        course.count(clock_now(), change.max(GpuTimeChange::NONE).amount());
        drop(course);
        pay(change, slice, gpu);
    }
}

/// Charges or refunds a change, and counts a charge as used time.
fn pay(change: GpuTimeChange, slice: &Slice, gpu: SliceDevice) {
    slice.member().settle(gpu.device, change, clock_now());
    slice.member().count_used(gpu.device, change.max(GpuTimeChange::NONE).amount());
}
