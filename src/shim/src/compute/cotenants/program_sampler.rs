//! Does a program use the GPU that is in no slice that this one sees?
//!
//! Beside such a program the time between two events contains the driver's turns for it, and nobody can take them off: each of
//! NVML's samples names one process and says how busy the whole GPU was. So that time counts as the slice's own, and the slice
//! stays within its share. NVML is only asked whether there is such a program, so that it can be said.
//!
//! One process of a slice asks, the one that is elected; the others have NVML closed. It asks once a second, and spends at most
//! a twentieth of its thread's time on it, however slow NVML is. Beside slices that publish what they do, nobody asks.

use crate::compute::attribution::nvml_only::NvmlOnly;
use crate::compute::attribution::utilization_windows::UtilizationReader;
use crate::compute::state::Compute;
use crate::os::clock::now as clock_now;
use crate::os::messages;
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use crate::slice::settings;
use core::sync::atomic::Ordering;
use core::time::Duration;
use gpuslice_policy::compute::attribution::source::{Measured, Source, Why};
use gpuslice_policy::compute::attribution::strangers::Strangers;
use gpuslice_policy::config::{CoreMeter, LogLevel};
use gpuslice_region::{Device, Uuid};

/// How often NVML is asked who uses the GPU, in nanoseconds.
const INTERVAL: u64 = 1_000_000_000;
/// For how long NVML stays open when nothing is under way: opening it takes tens of milliseconds, and a program may pause
/// after each request.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// How often it is tried where it could not be asked.
const AGAIN: u64 = 5_000_000_000;
/// NVML's part of the thread's time is at most one in so many.
const PART: u64 = 20;
/// The longest pause because of that.
const LONGEST: u64 = 1_000_000_000;
/// From whom nothing was heard for so long, others take over.
pub(crate) const PATIENCE: u64 = 1_500_000_000;

/// What this process knows of the programs on a device.
#[derive(Debug, Default)]
pub(crate) struct ProgramSampler {
    open: Option<UtilizationReader>,
    strangers: Strangers,
    /// When there is something to do next.
    next: u64,
    /// When it was asked last whether there is.
    asked: u64,
}

impl ProgramSampler {
    /// Nothing is under way: closes NVML if that is so for long. Whether it is open.
    pub(crate) fn rest(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.asked) >= linger() {
            self.close();
        }
        self.open.is_some()
    }

    fn close(&mut self) {
        (self.open, self.strangers) = (None, Strangers::default());
    }

    /// Does what is due.
    fn tick(&mut self, compute: &Compute, place: SliceDevice, now: u64) {
        let begins = core::mem::replace(&mut self.asked, now) == 0;
        if begins {
            // Programs that end sooner do not pay for opening NVML, for which all others on the machine wait.
            self.next = now.saturating_add(INTERVAL);
        }
        if now < self.next {
            return;
        }
        self.next = now.saturating_add(INTERVAL);
        if !is_wanted() {
            self.next = now.saturating_add(AGAIN);
            say(compute, place, Measured::by(Source::Events));
            return;
        }
        if !compute.member().renew_sampler_lease(place.device, now, PATIENCE) {
            self.close();
            return;
        }
        let looked = self.look(compute, place, now);
        let source = if self.strangers.are_there() { Source::Whole } else { Source::Events };
        say(compute, place, Measured { source, why: looked.err() });
        self.next = self.next.max(pause(now, looked.err()));
    }

    /// Asks NVML which processes were busy since it was asked last.
    fn look(&mut self, slice: &Slice, place: SliceDevice, now: u64) -> Result<(), Why> {
        let asker = match &mut self.open {
            Some(asker) => asker,
            closed => closed.insert(UtilizationReader::open(place)?),
        };
        let window = asker.window();
        if matches!(window, Err(why) if why != Why::Undated) {
            self.close();
        }
        if let Some((_, uses)) = window? {
            let members = slice.region().processes();
            let members = members.iter().map(|member| (member.pid_namespace, member.pid));
            self.strangers.look(&uses, members, now);
        }
        Ok(())
    }
}

impl Compute {
    /// Looks who else uses the GPUs, where it is time to.
    pub(crate) fn sample(&'static self) {
        if self.events_wanted() {
            self.blind.iter().for_each(NvmlOnly::stop);
        } else {
            let blind = self.pacers.iter().zip(&self.blind).filter(|(_, blind)| blind.is_waiting());
            blind.for_each(|(pacer, blind)| blind.tick(self, pacer.place));
        }
        if !self.by_events {
            return;
        }
        let Some(mut samplers) = self.samplers.try_lock() else { return };
        for (at, (pacer, sampler)) in self.pacers.iter().zip(samplers.iter_mut()).enumerate() {
            if self.sees_turns(at) {
                sampler.close();
            } else if pacer.is_pacing(self) {
                sampler.tick(self, pacer.place, clock_now());
                if sampler.strangers.are_there()
                    && let Some(mut neighbours) = self.neighbours.try_lock()
                {
                    neighbours.warn_if_alone(self, &Uuid(pacer.place.uuid));
                }
            }
        }
    }

    /// Whether NVML has still to say what became of launches that nothing else measures.
    pub(crate) fn is_blind_waiting(&self) -> bool {
        self.blind.iter().any(NvmlOnly::is_waiting)
    }

    /// Closes NVML and the regions beside the slice's own where nobody has asked for long. Whether any is open.
    pub(crate) fn close_samplers(&self) -> bool {
        self.blind.iter().for_each(NvmlOnly::rest);
        let now = clock_now();
        let sees = self.neighbours.lock().rest(linger(), now);
        let mut samplers = self.samplers.lock();
        samplers.iter_mut().filter_map(|sampler| sampler.rest(now).then_some(())).count() > 0 || sees
    }
}

/// [`LINGER`] in nanoseconds.
fn linger() -> u64 {
    u64::try_from(LINGER.as_nanos()).unwrap_or(0)
}

/// Until when NVML is to be left alone after it was asked from `now` on: by the clock, since it may have taken long.
pub(crate) fn pause(now: u64, why: Option<Why>) -> u64 {
    let end = clock_now();
    let pause = end.saturating_sub(now).saturating_mul(PART).min(LONGEST);
    end.saturating_add(if why.is_some() { AGAIN } else { pause })
}

/// Whether NVML may be asked at all.
fn is_wanted() -> bool {
    settings::settings().is_none_or(|settings| settings.config.core_meter == CoreMeter::Auto)
}

/// Says how time is measured, unless somebody says that events fail. Each way once in the log.
pub(crate) fn say(compute: &Compute, place: SliceDevice, measured: Measured) {
    let word = compute.region().measure_source(place.device);
    if word == measured.word() || Measured::of_word(word).source == Source::Failing {
        return;
    }
    compute.member().set_measure_source(place.device, measured.word());
    let way = 1_u64.wrapping_shl(measured.word());
    if compute.said_ways.fetch_or(way, Ordering::Relaxed) & way == 0 {
        let gpu = Uuid(place.uuid);
        messages::say(LogLevel::Info, &format_args!("gpuslice: {gpu}: GPU time is measured by {measured}."));
    }
}

/// Says that events measure, or that they fail, whatever was said before of the other.
pub(crate) fn overrule(slice: &Slice, device: Device, source: Source) {
    let said = Measured::of_word(slice.region().measure_source(device)).source;
    let is_news = match source {
        Source::Failing => said != Source::Failing,
        _ => matches!(said, Source::Unknown | Source::Failing),
    };
    if is_news {
        slice.member().set_measure_source(device, Measured::by(source).word());
    }
}
