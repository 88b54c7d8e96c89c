//! What is paid for a launch where nothing but NVML measures (`GPU_CORE_METER=nvml`), and while events fail?
//!
//! All launches of a process on a device cost the same, and what NVML says of the process is settled against it. So every
//! process that launches asks for itself: nobody else knows what it has prepaid.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::compute::attribution::utilization_windows::UtilizationReader;
use crate::compute::cotenants::program_sampler::{LINGER, pause, say};
use crate::compute::state::Compute;
use crate::os::clock::now as clock_now;
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpuslice_policy::compute::attribution::nvml_only::{Coarse, Course, FIRST};
use gpuslice_policy::compute::attribution::nvml_windows::{self, Sample};
use gpuslice_policy::compute::attribution::source::{Measured, Source, Why};
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::measuring::batch::Run;
use parking_lot::Mutex;

/// How often NVML is asked, in nanoseconds: windows are a sixth of a second, and what is asked often is put together.
const INTERVAL: u64 = 100_000_000;
/// After so many windows with launches in which it was never listed, NVML does not know this process by its number.
const DENIALS: u32 = 20;

/// What a process knows of its launches on a device.
#[derive(Debug)]
pub(crate) struct NvmlOnly {
    /// What a launch costs, in nanoseconds.
    cost: AtomicU64,
    /// When launches were prepaid last.
    launched: AtomicU64,
    /// Whether NVML has not failed to say of late what became of them.
    is_told: AtomicBool,
    course: Mutex<Course>,
    /// The meter's thread has it. Launches do not wait for it.
    asking: Mutex<Asking>,
}

#[derive(Debug)]
struct Asking {
    open: Option<UtilizationReader>,
    next: u64,
    coarse: Coarse,
    is_listed: bool,
    denials: u32,
}

impl Default for NvmlOnly {
    fn default() -> Self {
        Self {
            cost: AtomicU64::new(FIRST),
            launched: AtomicU64::new(0),
            is_told: AtomicBool::new(true),
            course: Mutex::default(),
            asking: Mutex::new(Asking {
                open: None,
                next: 0,
                coarse: Coarse::new(true),
                is_listed: false,
                denials: 0,
            }),
        }
    }
}

impl NvmlOnly {
    /// What a launch costs.
    pub(crate) fn estimate(&self) -> Estimate {
        let cost = self.cost.load(Ordering::Relaxed);
        let mut estimate = Estimate::default();
        (estimate.charged, estimate.plain) = (cost, cost);
        estimate
    }

    /// Launches that go to the driver have been prepaid.
    pub(crate) fn prepaid(&self, run: &Run) {
        let (now, mut course) = (clock_now(), self.course.lock());
        course.add(now, run.launches(), run.prepaid());
        self.launched.store(now, Ordering::Relaxed);
    }

    /// Whether what launches used is counted as NVML tells it. Otherwise what was prepaid counts.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    /// Whether NVML is still to be asked what became of launches.
    pub(crate) fn is_waiting(&self) -> bool {
        let idle = clock_now().saturating_sub(self.launched.load(Ordering::Relaxed));
        u128::from(idle) < LINGER.as_nanos()
    }

    /// Events measure again: what NVML says from now on is of launches that are settled otherwise.
    pub(crate) fn stop(&self) {
        if self.launched.load(Ordering::Relaxed) != 0
            && let Some(mut asking) = self.asking.try_lock()
        {
            self.launched.store(0, Ordering::Relaxed);
            asking.open = None;
        }
    }

    /// Nothing was launched for long: NVML is closed.
    pub(crate) fn rest(&self) {
        if let Some(mut asking) = self.asking.try_lock().filter(|_| !self.is_waiting()) {
            asking.open = None;
        }
    }

    /// Asks NVML, where it is time to, and settles what it says.
    pub(crate) fn tick(&self, compute: &Compute, place: SliceDevice) {
        let (Some(mut asking), now) = (self.asking.try_lock(), clock_now()) else { return };
        if now < asking.next {
            return;
        }
        asking.next = now.saturating_add(INTERVAL);
        let measured = match self.step(&mut asking, compute, place) {
            Ok(()) => Measured::by(Source::Nvml),
            Err(why) => {
                asking.open = None;
                Measured { source: Source::Nvml, why: Some(why) }
            }
        };
        self.is_told.store(measured.why.is_none(), Ordering::Relaxed);
        say(compute, place, measured);
        asking.next = asking.next.max(pause(now, measured.why));
    }

    fn step(&self, asking: &mut Asking, compute: &Compute, place: SliceDevice) -> Result<(), Why> {
        let asker = match &mut asking.open {
            Some(asker) => asker,
            closed => closed.insert(UtilizationReader::open(place)?),
        };
        let Some((window, uses)) = asker.window()? else { return Ok(()) };
        if !asker.names_us() {
            return Err(Why::Numbers);
        }
        let own = nvml_windows::of_process(&uses, window, std::process::id());
        if window.is_cut { Ok(()) } else { self.learn(asking, compute, place, &own) }
    }

    fn learn(
        &self,
        asking: &mut Asking,
        slice: &Slice,
        place: SliceDevice,
        sample: &Sample,
    ) -> Result<(), Why> {
        let prepaid = self.course.lock().within(sample.from, sample.to);
        asking.is_listed |= sample.processes > 0;
        if prepaid.launches > 0 && !asking.is_listed {
            asking.denials = asking.denials.saturating_add(1);
        }
        if asking.denials >= DENIALS && !asking.is_listed {
            self.cost.store(FIRST, Ordering::Relaxed);
            return Err(Why::Numbers);
        }
        let difference = asking.coarse.learn(sample, prepaid);
        self.cost.store(asking.coarse.cost(), Ordering::Relaxed);
        if asking.is_listed {
            let (device, used) = (place.device, prepaid.time.saturating_add_signed(difference));
            slice.member().settle(device, difference, clock_now());
            slice.member().count_used(device, used);
        }
        Ok(())
    }
}
