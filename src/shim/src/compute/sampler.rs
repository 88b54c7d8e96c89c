//! How much of the time between events was the slice's own, by what NVML sees of it?
//!
//! One process of a slice asks, the one that is elected; the others have NVML closed. It asks ten times a second at most,
//! and spends at most a twentieth of its thread's time on it, however slow NVML is. A window is compared with what the
//! slice's events covered a little later, when these have been read.

use super::Compute;
use super::blind::Blind;
use super::clock::now as clock_now;
use super::samples::Asker;
use super::whose::Whose;
use crate::lifecycle;
use crate::notice;
use crate::slice::{Place, Slice};
use core::sync::atomic::Ordering;
use core::time::Duration;
use gpuslice_policy::compute::sight::{Clocks, Closed, Use, Window, Windows};
use gpuslice_policy::compute::source::{Measured, Source, Why};
use gpuslice_policy::compute::trim::{ONE, Trim};
use gpuslice_policy::config::{CoreMeter, LogLevel};
use gpuslice_region::{Device, Uuid};

/// How often NVML is asked, in nanoseconds: windows are a sixth of a second, and what is asked often is put together.
pub(super) const INTERVAL: u64 = 100_000_000;
/// For how long NVML stays open when nothing is under way: opening it takes tens of milliseconds, and a program may pause
/// after each request.
pub(super) const LINGER: Duration = Duration::from_secs(2);
/// How often it is tried where it could not be asked.
const AGAIN: u64 = 5_000_000_000;
/// NVML's part of the thread's time is at most one in so many.
const PART: u64 = 20;
/// The longest pause because of that.
const LONGEST: u64 = 1_000_000_000;
/// From whom nothing was heard for so long, others take over.
pub(super) const PATIENCE: u64 = 1_500_000_000;
/// So long after its end a window's events have been read.
const READ: u64 = 25_000_000;
/// After so many windows in a row that say nothing of the slice, what was learned does not hold any more.
const MISSES: u32 = 6;
/// NVML cuts percents off, as far as anybody has seen.
const ROUNDED_DOWN: bool = true;

/// What this process knows of NVML's samples of a device.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    open: Option<Open>,
    /// When there is something to do next.
    next: u64,
    /// When it was asked last whether there is.
    asked: u64,
}

/// NVML, while it is open.
#[derive(Debug)]
struct Open {
    asker: Asker,
    whose: Whose,
    windows: Windows,
    /// A window that has ended, with its entries.
    ended: Option<(Vec<Use>, Window)>,
    misses: u32,
}

impl Sampler {
    /// Nothing is under way: closes NVML if that is so for long. Whether it is open.
    pub(crate) fn rest(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.asked) >= linger() {
            self.close();
        }
        self.open.is_some()
    }

    fn close(&mut self) {
        self.open = None;
    }
}

impl Compute {
    /// Asks NVML, where it is time to.
    pub(super) fn sample(&self, slice: &'static Slice) {
        if self.events_wanted() {
            self.blind.iter().for_each(Blind::stop);
        } else {
            let blind = self.pacers.iter().zip(&self.blind).filter(|(_, blind)| blind.is_waiting());
            blind.for_each(|(pacer, blind)| blind.tick(slice, pacer.place));
        }
        if !self.by_events {
            return;
        }
        let Some(mut samplers) = self.samplers.try_lock() else { return };
        for (at, (pacer, sampler)) in self.pacers.iter().zip(samplers.iter_mut()).enumerate() {
            if self.sees_turns(slice, at) {
                sampler.close();
            } else if pacer.is_pacing(slice) {
                let covered = |from, to| self.meter.covered(slice, at, (from, to));
                tick(slice, pacer.place, sampler, covered, clock_now());
                let sees_strangers = sampler.open.as_ref().is_some_and(|open| open.whose.sees_strangers());
                if sees_strangers {
                    self.warn_if_alone(slice, at);
                }
            }
        }
    }

    /// Whether NVML has still to say what became of launches that nothing else measures.
    pub(super) fn is_blind_waiting(&self) -> bool {
        self.blind.iter().any(Blind::is_waiting)
    }

    /// Closes NVML and the regions beside the slice's own where nobody has asked for long. Whether any is open.
    pub(super) fn close_samplers(&self) -> bool {
        self.blind.iter().for_each(Blind::rest);
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

/// Does what is due. `covered` says how much of a stretch of time the slice's events cover.
fn tick(slice: &Slice, place: Place, state: &mut Sampler, covered: impl FnOnce(u64, u64) -> u64, now: u64) {
    state.asked = now;
    if now < state.next {
        return;
    }
    state.next = now.saturating_add(INTERVAL);
    if !is_wanted() {
        state.next = now.saturating_add(AGAIN);
        say(slice, place, Measured::by(Source::Events));
        return;
    }
    if !slice.member().elect(place.device, now, PATIENCE) {
        state.close();
        return;
    }
    match state.step(slice, place, covered, now) {
        Ok(true) => say(slice, place, Measured::by(Source::Trimmed)),
        Ok(false) => {}
        Err(why) => {
            forget(slice, place, now);
            say(slice, place, Measured { source: Source::Events, why: Some(why) });
        }
    }
    state.next = state.next.max(pause(now, None));
}

/// Until when NVML is to be left alone after it was asked from `now` on: by the clock, since it may have taken long.
pub(super) fn pause(now: u64, why: Option<Why>) -> u64 {
    let end = clock_now();
    let pause = end.saturating_sub(now).saturating_mul(PART).min(LONGEST);
    end.saturating_add(if why.is_some() { AGAIN } else { pause })
}

/// Whether samples may be used at all.
fn is_wanted() -> bool {
    lifecycle::settings().is_none_or(|settings| settings.config.core_meter == CoreMeter::Auto)
}

impl Sampler {
    /// One step: NVML is opened, asked, or a window is learned from. Whether one was.
    fn step(
        &mut self,
        slice: &Slice,
        place: Place,
        covered: impl FnOnce(u64, u64) -> u64,
        now: u64,
    ) -> Result<bool, Why> {
        let open = match &mut self.open {
            Some(open) => open,
            closed => {
                let asker = Asker::open(place).inspect_err(|_why| self.next = now.saturating_add(AGAIN))?;
                closed.insert(Open::new(asker))
            }
        };
        open.whose.look(slice, now);
        if let Some((uses, window)) = open.ended.take() {
            let covered = covered(window.from, window.to);
            return open.learn(slice, place, (&uses, window), covered, now);
        }
        let asked = open.ask();
        if let Some((_, window)) = &open.ended {
            self.next = window.to.saturating_add(READ);
        }
        asked.map(|()| false).inspect_err(|_why| {
            self.close();
            self.next = now.saturating_add(AGAIN);
        })
    }
}

impl Open {
    fn new(asker: Asker) -> Self {
        Self { asker, whose: Whose::new(), windows: Windows::default(), ended: None, misses: 0 }
    }

    /// Asks NVML what is new.
    fn ask(&mut self) -> Result<(), Why> {
        let since = self.windows.since(clocks());
        let uses = self.asker.uses(since)?;
        match self.windows.close(&uses, clocks()) {
            Closed::Window(window) => self.ended = Some((uses, window)),
            Closed::NothingNew => {}
            Closed::Undated => return Err(Why::Undated),
        }
        Ok(())
    }

    /// Learns from a window. An error only once nothing could be learned for long.
    fn learn(
        &mut self,
        slice: &Slice,
        place: Place,
        (uses, window): (&[Use], Window),
        covered: u64,
        now: u64,
    ) -> Result<bool, Why> {
        match self.whose.judge(slice, place, (uses, window), covered) {
            Ok(None) => Ok(false),
            Ok(Some(sample)) => {
                self.misses = 0;
                let member = slice.member();
                let mut trim = member.trim(place.device, now, ROUNDED_DOWN);
                trim.learn(&sample, covered);
                member.set_trim(place.device, &trim);
                member.set_factor(place.device, trim.factor());
                Ok(true)
            }
            Err(why) => {
                self.misses = self.misses.saturating_add(1);
                if self.misses < MISSES { Ok(false) } else { Err(why) }
            }
        }
    }
}

/// Nothing is attributed: all of the time between events counts.
fn forget(slice: &Slice, place: Place, now: u64) {
    let member = slice.member();
    if slice.region().factor(place.device) != ONE {
        let last = member.trim(place.device, now, ROUNDED_DOWN).words()[3];
        // The window that was learned last stays known, so that none is learned twice.
        member.set_trim(place.device, &Trim::from_words([0, 0, 0, last], now, ROUNDED_DOWN));
        member.set_factor(place.device, ONE);
    }
}

/// Says how time is measured, unless somebody says that events fail. Each way once in the log.
pub(super) fn say(slice: &Slice, place: Place, measured: Measured) {
    let word = slice.region().meter(place.device);
    if word == measured.word() || Measured::of_word(word).source == Source::Failing {
        return;
    }
    slice.member().set_meter(place.device, measured.word());
    let way = 1_u64.wrapping_shl(measured.word());
    if slice.compute.said_ways.fetch_or(way, Ordering::Relaxed) & way == 0 {
        let gpu = Uuid(place.uuid);
        notice::say(LogLevel::Info, &format_args!("gpuslice: {gpu}: GPU time is measured by {measured}."));
    }
}

/// Says that events measure, or that they fail, whatever was said before of the other.
pub(super) fn overrule(slice: &Slice, device: Device, source: Source) {
    let said = Measured::of_word(slice.region().meter(device)).source;
    let is_news = match source {
        Source::Failing => said != Source::Failing,
        _ => matches!(said, Source::Unknown | Source::Failing),
    };
    if is_news {
        slice.member().set_meter(device, Measured::by(source).word());
    }
}

/// What time it is, by all clocks that NVML may use.
pub(super) fn clocks() -> Clocks {
    let read = |clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes to the structure given.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
    };
    Clocks {
        monotonic: read(libc::CLOCK_MONOTONIC),
        wall: read(libc::CLOCK_REALTIME),
        boot: read(libc::CLOCK_BOOTTIME),
    }
}
