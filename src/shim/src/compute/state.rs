//! State of the GPU time of this process.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::compute::attribution::nvml_only::NvmlOnly;
use crate::compute::cotenants::arbiter_client::ArbiterClient;
use crate::compute::cotenants::program_sampler::{self, ProgramSampler};
use crate::compute::cotenants::slices::Cotenants;
use crate::compute::cotenants::slicing_replay::SlicingReplay;
use crate::compute::limiter::device::DeviceLimiter;
use crate::compute::measuring::contexts::Contexts;
use crate::compute::measuring::meter::Meter;
use crate::compute::threads::registry::ThreadRegistry;
use crate::compute::worker::thread::Helper;
use crate::driver_calls::events::Events;
use crate::os::clock::now;
use crate::os::messages;
use crate::slice::handle::Slice;
use crate::slice::settings;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::compute::attribution::source::Source;
use gpuslice_policy::compute::cost::table::Book;
use gpuslice_policy::compute::cost::thread_cache::EPOCHS;
use gpuslice_policy::config::{CoreMeter, LogLevel};
use gpuslice_region::Device;
use once_cell::race::OnceBox;
use parking_lot::Mutex;
use std::path::PathBuf;

/// What a process knows of the GPU time that it uses.
#[derive(Debug)]
pub(crate) struct Compute {
    /// The slice whose time it is.
    pub(crate) slice: &'static Slice,
    /// The state of the process that asks, which is a forked child perhaps; none where it is a member of no slice.
    pub(crate) of_this_process: fn() -> Option<&'static Self>,
    pub(crate) pacers: Vec<DeviceLimiter>,
    pub(crate) seats: ThreadRegistry,
    /// Made by the first launch that is paced: it is the largest thing of all.
    pub(crate) book: OnceBox<Mutex<Book>>,
    /// Each counts up whenever an estimate of those whose epoch it is has changed.
    pub(crate) epochs: [AtomicU64; EPOCHS],
    /// When what a key stands for has changed last, of those whose epoch it is, on the monotonic clock.
    pub(crate) doubted: [AtomicU64; EPOCHS],
    /// Whether the driver lets events of the primary context tell the time of green ones: until it has refused to.
    pub(crate) views_differ: AtomicBool,
    /// Streams and contexts that have ended.
    pub(crate) ends: AtomicU64,
    /// Contexts that the program has had.
    pub(crate) contexts: Mutex<Contexts>,
    /// Whether that is one, which is then current where any is.
    pub(crate) one_context: AtomicBool,
    pub(crate) events: Events,
    pub(crate) meter: Meter,
    pub(crate) helper: Helper,
    /// Runs that are open and flights that have not landed.
    pub(crate) under_way: AtomicUsize,
    /// Threads that launch, as seen lately.
    pub(crate) holders: AtomicUsize,
    pub(crate) paces_copies: bool,
    /// Whether GPU time is measured by events at all.
    pub(crate) by_events: bool,
    /// Whether a launch returns when its kernel has ended.
    pub(crate) launches_block: bool,
    /// When what is queued is expected to have ended, on the monotonic clock, by device; kept where other slices leave less
    /// room than usual.
    pub(crate) queue_ends: Box<[AtomicU64]>,
    /// What is known where it is not, by device.
    pub(crate) blind: Vec<NvmlOnly>,
    /// When an event failed last, on the monotonic clock; 0 while none has.
    pub(crate) failed_at: AtomicU64,
    pub(crate) said: AtomicBool,
    /// What is known of NVML's samples, by device.
    pub(crate) samplers: Mutex<Vec<ProgramSampler>>,
    /// The regions beside the slice's own.
    pub(crate) neighbours: Mutex<Cotenants>,
    /// What is known of the time slicing between them, by device.
    pub(crate) sights: Mutex<Vec<SlicingReplay>>,
    /// What is known of other slices.
    pub(crate) steward: Mutex<ArbiterClient>,
    /// Whether processes may run at the same time on a GPU, through the daemon of MPS: there are no turns then.
    pub(crate) shares_contexts: bool,
    /// The ways of measuring that were said in the log: a bit each, by the low bits of their words.
    pub(crate) said_ways: AtomicU64,
    /// Runs that turned out to have gaps.
    pub(crate) gaps: AtomicU64,
    /// For how long an event keeps its stream, in nanoseconds of GPU time; 0 before that is known.
    pub(crate) event_cost: AtomicU64,
}

/// For how long no event is tried after one has failed, in nanoseconds.
const AFTER_FAILURE: u64 = 1_000_000_000;

/// Whether the program has asked the driver for that, as people do who look for a fault.
fn launches_block() -> bool {
    std::env::var_os("CUDA_LAUNCH_BLOCKING").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Whether the daemon of MPS has its pipes where programs look for them.
fn shares_contexts() -> bool {
    let named = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map(PathBuf::from);
    named.unwrap_or_else(|| PathBuf::from("/tmp/nvidia-mps")).join("control").exists()
}

impl Deref for Compute {
    type Target = Slice;

    #[inline]
    fn deref(&self) -> &Slice {
        self.slice
    }
}

impl Compute {
    /// `of_this_process`: finds the state of the process that asks, also in a forked child.
    pub(crate) fn new(slice: &'static Slice, of_this_process: fn() -> Option<&'static Self>) -> Self {
        let places = slice.places();
        let config = settings::settings().map(|settings| &settings.config);
        let by_events = config.is_none_or(|config| config.core_meter != CoreMeter::Nvml);
        Self {
            slice,
            of_this_process,
            queue_ends: places.iter().map(|_| AtomicU64::new(0)).collect(),
            blind: places.iter().map(|_| NvmlOnly::default()).collect(),
            pacers: places.iter().map(|place| DeviceLimiter::new(*place)).collect(),
            seats: ThreadRegistry::default(),
            book: OnceBox::new(),
            epochs: [const { AtomicU64::new(0) }; EPOCHS],
            doubted: [const { AtomicU64::new(0) }; EPOCHS],
            views_differ: AtomicBool::new(false),
            ends: AtomicU64::new(0),
            contexts: Mutex::default(),
            one_context: AtomicBool::new(false),
            events: Events::default(),
            meter: Meter::default(),
            helper: Helper::default(),
            under_way: AtomicUsize::new(0),
            holders: AtomicUsize::new(0),
            paces_copies: config.is_some_and(|config| config.core_copies),
            by_events,
            launches_block: launches_block(),
            failed_at: AtomicU64::new(0),
            said: AtomicBool::new(false),
            gaps: AtomicU64::new(0),
            event_cost: AtomicU64::new(0),
            neighbours: Mutex::default(),
            steward: Mutex::default(),
            shares_contexts: shares_contexts(),
            said_ways: AtomicU64::new(0),
            sights: Mutex::new(places.iter().map(|_| SlicingReplay::default()).collect()),
            samplers: Mutex::new(places.iter().map(|_| ProgramSampler::default()).collect()),
        }
    }

    /// Whether the slice has less than all of any device's time, or divides it with others.
    #[inline]
    pub(crate) fn is_pacing(&self) -> bool {
        !self.region().is_unlimited() && self.pacers.iter().any(|pacer| pacer.is_pacing(self))
    }

    /// The context whose events tell the time of another: of a green one the primary, which it runs in and which lives on.
    pub(crate) fn home_of(&self, context: usize) -> usize {
        if self.views_differ.load(Ordering::Acquire) { context } else { self.owner_of(context) }
    }

    /// Whether events are to be recorded: they are wanted and have not failed lately.
    pub(crate) fn events_wanted(&self) -> bool {
        let failed_at = self.failed_at.load(Ordering::Relaxed);
        self.by_events && (failed_at == 0 || now().saturating_sub(failed_at) >= AFTER_FAILURE)
    }

    /// What is paid by while events measure nothing; none while they do.
    pub(crate) fn blind(&self, device: usize) -> Option<&NvmlOnly> {
        if self.events_wanted() { None } else { self.blind.get(device) }
    }

    /// An event could not be made, recorded or read.
    pub(crate) fn event_failed(&self, code: Status) {
        /// `CUDA_ERROR_DEINITIALIZED`: the process ends.
        const DEINITIALIZED: Status = 4;
        /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
        const DESTROYED: Status = 709;
        /// `CUDA_ERROR_INVALID_HANDLE`: the stream has ended.
        const NO_SUCH_STREAM: Status = 400;
        /// From `CUDA_ERROR_ILLEGAL_ADDRESS` to `CUDA_ERROR_LAUNCH_FAILED`: a kernel has broken its context, in which every
        /// call fails from then on. Other contexts go on.
        const BROKEN: [Status; 9] = [700, 702, 710, 714, 715, 716, 717, 718, 719];
        let is_of_one =
            matches!(code, status::INVALID_CONTEXT | status::CAPTURE_INVALIDATED | NO_SUCH_STREAM)
                || BROKEN.contains(&code);
        if is_of_one || matches!(code, DEINITIALIZED | DESTROYED) {
            return;
        }
        self.failed_at.store(now().max(1), Ordering::Relaxed);
        if !self.said.swap(true, Ordering::Relaxed) {
            let text = format_args!(
                "gpuslice: timing events fail (status {code}): what launches cost is taken from estimates and from NVML meanwhile."
            );
            messages::say(LogLevel::Warn, &text);
        }
    }

    /// How much of a lease a thread takes: where very many launch, what they hold together must not keep them all waiting.
    pub(crate) fn part_of(&self, lease: u64) -> u64 {
        /// So many threads hold whole leases.
        const WHOLE: usize = 8;
        let holders = self.holders.load(Ordering::Relaxed).checked_div(WHOLE).unwrap_or(0).max(1);
        lease.checked_div(u64::try_from(holders).unwrap_or(1)).unwrap_or(lease)
    }

    /// Gives back what threads have taken together and not spent for so long. Whether there is anything left.
    pub(crate) fn empty_pots(&self, kept: u64) -> bool {
        let mut left = false;
        for pacer in &self.pacers {
            // Who has it is about to spend it.
            let Some(mut pot) = pacer.asking.begin() else { continue };
            let unspent = pot.unspent(now(), kept);
            if unspent > 0 {
                self.member().give_back(pacer.place.device, unspent, now());
            }
            left |= !pot.is_empty();
        }
        left
    }

    /// Tells the region what has been used until now, once a second.
    pub(crate) fn note_second(&self, now: u64) {
        self.pacers.iter().for_each(|pacer| self.member().note_second(pacer.place.device, now));
    }

    /// Tells the region how much is under way, and that events fail.
    pub(crate) fn report(&self) {
        let fails = self.by_events && !self.events_wanted();
        for pacer in &self.pacers {
            if fails {
                program_sampler::overrule(self, pacer.place.device, Source::Failing);
            }
            // What nobody here waits for any more may be what other devices wait for.
            let least = u64::from(pacer.runs.load(Ordering::Relaxed));
            let queued = pacer.queued.load(Ordering::Relaxed).max(least);
            self.member().set_queued(pacer.place.device, queued);
        }
        self.report_unknown();
    }

    /// Tells the region whether anything is under way, and whether nothing is known of some of it.
    pub(crate) fn report_unknown(&self) {
        for pacer in &self.pacers {
            let device = pacer.place.device;
            if !self.is_anything_under_way() {
                self.member().end_work(device);
                // A run may have been opened in between. It was counted before that was told.
                core::sync::atomic::fence(Ordering::SeqCst);
                if self.is_anything_under_way() {
                    self.member().begin_work(device);
                }
            }
            // OwnerGuard, so that a launch that leaves meanwhile is not forgotten.
            let unknown = pacer.unknown.lock();
            self.member().set_unpredicted(device, unknown.any());
        }
    }

    /// The region's number of a device.
    pub(crate) fn place(&self, device: usize) -> Option<Device> {
        self.pacers.get(device).map(|pacer| pacer.place.device)
    }

    /// The program has waited, and may end before the helper's next round: then a launch of which nothing is known would be
    /// charged as if it still ran.
    pub(crate) fn look_at_unknown(&'static self) {
        if self.pacers.iter().any(|pacer| pacer.unknown.lock().any()) {
            self.helper.look_here(self);
            self.report();
        }
    }
}
