//! When may a launch go, and what did it cost?
//!
//! A launch comes in through [`gate`](gate::gate). It is paid from its thread's credit (`seat`, `threads`), which is taken
//! from the slice's words in the region when it runs out (`pay`), and belongs to a run between two timing events
//! (`events`). A thread of ours (`helper`) looks at the events (`meter`), charges what was measured (`account`) and settles
//! the difference. The arithmetic of all of it is `gpuslice_policy::compute`.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

mod account;
mod arbiter;
mod asking;
mod blind;
mod copies;
mod gate;
mod helper;
mod life;
mod meter;
pub(crate) mod neighbours;
mod pay;
mod sampler;
mod samples;
mod seat;
mod slicing;
mod threads;
mod told;
mod waits;

pub(crate) use copies::{ends_run, host_copy};
pub(crate) use gate::{gate, gate_all};
pub(crate) use told::{
    capture_begins, context_ends, context_left, context_seen, forget, stream_ends, view_ends,
};
pub(crate) use waits::{Waits, waits};

use crate::driver_calls::events::Events;
use crate::driver_calls::streams::Stream;
use crate::os::clock::now;
use crate::os::messages;
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use crate::slice::settings;
use account::Flight;
use arbiter::Steward;
use asking::Asking;
use blind::Blind;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::compute::attribution::source::Source;
use gpuslice_policy::compute::cost::estimate::{Estimate, Key};
use gpuslice_policy::compute::cost::table::Book;
use gpuslice_policy::compute::cost::thread_cache::{EPOCHS, epoch_of};
use gpuslice_policy::compute::limiter::queue_bound::{self, Ahead, Unknown};
use gpuslice_policy::compute::measuring::batch::Run;
use gpuslice_policy::compute::measuring::verdict::{Lesson, Verdict};
use gpuslice_policy::config::{CoreMeter, LogLevel};
use gpuslice_region::Device;
use helper::Helper;
use meter::Meter;
use neighbours::Neighbours;
use once_cell::race::OnceBox;
use parking_lot::Mutex;
use sampler::Sampler;
use seat::Seat;
use slicing::Sight;
use std::path::PathBuf;
use threads::Seats;
use told::Contexts;

/// Work that a call submits to a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    /// Whose cost is learned.
    pub(crate) key: Key,
    /// What kind of work it is.
    pub(crate) kind: Kind,
    /// Where it goes.
    pub(crate) stream: Stream,
}

/// What kind of work a launch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A kernel.
    Kernel,
    /// A kernel that may begin before the one ahead of it in its stream has ended, or that lets another begin so: an event
    /// between the two would keep that one waiting.
    Chained,
    /// An executable graph.
    Graph,
    /// A copy on the device, or a fill: measured, and paced only where the settings say so.
    Copy,
}

/// A device whose time is paced.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Which one.
    pub(crate) place: SliceDevice,
    /// Which thread of this process asks for GPU time.
    asking: Asking,
    /// When it was looked last whether the region is still there.
    looked: AtomicU64,
    /// How often something has ended, or nobody will see its end; wraps.
    landings: AtomicU32,
    /// Streams that it launches on, as seen lately.
    lanes: AtomicUsize,
    /// Predicted GPU time of closed runs that have not been seen to end, in nanoseconds.
    queued: AtomicU64,
    /// When the last of them is predicted to end, on the monotonic clock.
    until: AtomicU64,
    /// Whether the GPU was at one when it was looked at last, queued or set aside.
    runs: AtomicBool,
    /// What launches owe that went beside others since the slice's time was paid for last, in nanoseconds of GPU time.
    owed: AtomicU64,
    /// The room that other slices leave for that; as heard at the helper's last round.
    room: AtomicU64,
    /// Whether no other process of the slice uses the device, as seen when the slice's time was last taken.
    is_alone: AtomicBool,
    /// The bound of queued time for short launches that follows from both.
    least_ahead: AtomicU64,
    /// Launches under way of which nothing is known.
    unknown: Mutex<Unknown>,
}

impl Pacer {
    /// Whether the slice has less than all of the device's time now, or divides it with others.
    #[inline]
    fn is_pacing(&self, slice: &Slice) -> bool {
        slice.region().is_paced(self.place.device)
    }

    /// Whether a launch of this cost may follow what is queued ahead.
    #[inline]
    fn admits(&self, cost: u64) -> bool {
        let least = self.least_ahead.load(Ordering::Relaxed);
        Ahead::of(self.queued.load(Ordering::Relaxed)).admits_within(cost, least)
    }

    /// So much less of its work is queued; what is left.
    fn less_queued(&self, by: u64) -> u64 {
        let less = |queued: u64| Some(queued.saturating_sub(by));
        let before = self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.unwrap_or(0).saturating_sub(by)
    }

    /// Whether other slices leave less room than usual for what is queued.
    fn gives_way(&self) -> bool {
        self.room.load(Ordering::Relaxed) < queue_bound::LEAST
    }

    /// Whether they, or other processes of the slice, leave less room than usual.
    fn queues_little(&self) -> bool {
        self.least_ahead.load(Ordering::Relaxed) < queue_bound::LEAST
    }

    /// Other slices leave so much room for what is queued.
    fn leave_room(&self, room: u64) {
        self.room.store(room, Ordering::Relaxed);
        self.bound_queue();
    }

    /// Whether no other process of the slice uses the device.
    fn set_alone(&self, is_alone: bool) {
        self.is_alone.store(is_alone, Ordering::Relaxed);
        self.bound_queue();
    }

    fn bound_queue(&self) {
        let least =
            queue_bound::least(self.room.load(Ordering::Relaxed), self.is_alone.load(Ordering::Relaxed));
        self.least_ahead.store(least, Ordering::Relaxed);
    }
}

/// What a process knows of the GPU time that it uses.
#[derive(Debug)]
pub(crate) struct Compute {
    /// The slice whose time it is.
    slice: &'static Slice,
    /// The state of the process that asks, which is a forked child perhaps; none where it is a member of no slice.
    of_this_process: fn() -> Option<&'static Self>,
    pacers: Vec<Pacer>,
    seats: Seats,
    /// Made by the first launch that is paced: it is the largest thing of all.
    book: OnceBox<Mutex<Book>>,
    /// Each counts up whenever an estimate of those whose epoch it is has changed.
    epochs: [AtomicU64; EPOCHS],
    /// When what a key stands for has changed last, of those whose epoch it is, on the monotonic clock.
    doubted: [AtomicU64; EPOCHS],
    /// Whether the driver lets events of the primary context tell the time of green ones: until it has refused to.
    views_differ: AtomicBool,
    /// Streams and contexts that have ended.
    ends: AtomicU64,
    /// Contexts that the program has had.
    contexts: Mutex<Contexts>,
    /// Whether that is one, which is then current where any is.
    one_context: AtomicBool,
    events: Events,
    meter: Meter,
    helper: Helper,
    /// Runs that are open and flights that have not landed.
    under_way: AtomicUsize,
    /// Threads that launch, as seen lately.
    holders: AtomicUsize,
    paces_copies: bool,
    /// Whether GPU time is measured by events at all.
    by_events: bool,
    /// Whether a launch returns when its kernel has ended.
    launches_block: bool,
    /// When what is queued is expected to have ended, on the monotonic clock, by device; kept where other slices leave less
    /// room than usual.
    queue_ends: Box<[AtomicU64]>,
    /// What is known where it is not, by device.
    blind: Vec<Blind>,
    /// When an event failed last, on the monotonic clock; 0 while none has.
    failed_at: AtomicU64,
    said: AtomicBool,
    /// What is known of NVML's samples, by device.
    samplers: Mutex<Vec<Sampler>>,
    /// The regions beside the slice's own.
    neighbours: Mutex<Neighbours>,
    /// What is known of the time slicing between them, by device.
    sights: Mutex<Vec<Sight>>,
    /// What is known of other slices.
    steward: Mutex<Steward>,
    /// Whether processes may run at the same time on a GPU, through the daemon of MPS: there are no turns then.
    shares_contexts: bool,
    /// The ways of measuring that were said in the log: a bit each, by the low bits of their words.
    said_ways: AtomicU64,
    /// Runs that turned out to have gaps.
    gaps: AtomicU64,
    /// For how long an event keeps its stream, in nanoseconds of GPU time; 0 before that is known.
    event_cost: AtomicU64,
}

/// For how long no event is tried after one has failed, in nanoseconds.
const AFTER_FAILURE: u64 = 1_000_000_000;
/// Estimates that a process keeps: 40 bytes each.
const ESTIMATES: usize = 16 << 10;

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
        let pacer = |place: &SliceDevice| Pacer {
            place: *place,
            asking: Asking::default(),
            looked: AtomicU64::new(0),
            landings: AtomicU32::new(0),
            lanes: AtomicUsize::new(0),
            queued: AtomicU64::new(0),
            until: AtomicU64::new(0),
            runs: AtomicBool::new(false),
            owed: AtomicU64::new(0),
            room: AtomicU64::new(u64::MAX),
            is_alone: AtomicBool::new(true),
            least_ahead: AtomicU64::new(queue_bound::LEAST),
            unknown: Mutex::default(),
        };
        let config = settings::settings().map(|settings| &settings.config);
        let by_events = config.is_none_or(|config| config.core_meter != CoreMeter::Nvml);
        Self {
            slice,
            of_this_process,
            queue_ends: places.iter().map(|_| AtomicU64::new(0)).collect(),
            blind: places.iter().map(|_| Blind::default()).collect(),
            pacers: places.iter().map(pacer).collect(),
            seats: Seats::default(),
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
            sights: Mutex::new(places.iter().map(|_| Sight::default()).collect()),
            samplers: Mutex::new(places.iter().map(|_| Sampler::default()).collect()),
        }
    }

    /// Whether the slice has less than all of any device's time, or divides it with others.
    #[inline]
    pub(crate) fn is_pacing(&self) -> bool {
        !self.region().is_unlimited() && self.pacers.iter().any(|pacer| pacer.is_pacing(self))
    }

    fn book(&self) -> &Mutex<Book> {
        self.book.get_or_init(|| Box::new(Mutex::new(Book::new(ESTIMATES))))
    }

    /// The context whose events tell the time of another: of a green one the primary, which it runs in and which lives on.
    fn home_of(&self, context: usize) -> usize {
        if self.views_differ.load(Ordering::Acquire) { context } else { self.owner_of(context) }
    }

    #[inline]
    fn epoch(&self, key: &Key) -> u64 {
        self.epochs.get(epoch_of(key.id())).map_or(0, |epoch| epoch.load(Ordering::Acquire))
    }

    /// A key stands for something else from now on.
    fn doubt(&self, key: &Key) {
        if let Some(doubted) = self.doubted.get(epoch_of(key.id())) {
            doubted.store(now(), Ordering::Relaxed);
        }
        if let Some(book) = self.book.get() {
            book.lock().doubt(key);
        }
        self.has_changed(key.id());
    }

    /// Whether a key stood for something else when a run was opened then.
    fn is_doubted(&self, key: &Key, opened: u64) -> bool {
        let doubted = self.doubted.get(epoch_of(key.id()));
        doubted.is_some_and(|doubted| doubted.load(Ordering::Relaxed) >= opened)
    }

    /// The estimate of the key with this id has changed.
    fn has_changed(&self, id: u64) {
        if let Some(epoch) = self.epochs.get(epoch_of(id)) {
            // Release: who sees the new number sees the estimate.
            epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// What is known of a key; a copy is kept by the thread.
    fn look_up(&self, seat: &mut Seat, key: &Key) -> Option<Estimate> {
        let epoch = self.epoch(key);
        if let Some(known) = seat.recent.find(key, epoch) {
            return Some(*known);
        }
        let known = self.book().lock().known(key)?;
        seat.recent.keep(key, epoch, known);
        Some(known)
    }

    fn prior(&self, key: &Key) -> Estimate {
        self.book().lock().prior(key)
    }

    /// Whether events are to be recorded: they are wanted and have not failed lately.
    fn events_wanted(&self) -> bool {
        let failed_at = self.failed_at.load(Ordering::Relaxed);
        self.by_events && (failed_at == 0 || now().saturating_sub(failed_at) >= AFTER_FAILURE)
    }

    /// What is paid by while events measure nothing; none while they do.
    fn blind(&self, device: usize) -> Option<&Blind> {
        if self.events_wanted() { None } else { self.blind.get(device) }
    }

    /// An event could not be made, recorded or read.
    fn event_failed(&self, code: Status) {
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

    /// Whether a run is open or a flight has not landed.
    fn is_anything_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) != 0
    }

    /// How much of a lease a thread takes: where very many launch, what they hold together must not keep them all waiting.
    fn part_of(&self, lease: u64) -> u64 {
        /// So many threads hold whole leases.
        const WHOLE: usize = 8;
        let holders = self.holders.load(Ordering::Relaxed).checked_div(WHOLE).unwrap_or(0).max(1);
        lease.checked_div(u64::try_from(holders).unwrap_or(1)).unwrap_or(lease)
    }

    fn began(&self) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }

    fn ended(&self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }

    /// A closed run is on its way.
    fn sent_off(&self, flight: Flight) {
        if let Some(pacer) = self.pacers.get(flight.device) {
            let prepaid = flight.run.prepaid();
            let before = pacer.queued.fetch_add(prepaid, Ordering::Relaxed);
            if before == 0 || pacer.queues_little() {
                self.queue_grows(pacer, flight.device, (before, prepaid));
            }
        }
        self.began();
        self.meter.send_off(flight);
        self.helper.wake();
    }

    /// A stream is predicted to be busy until then.
    fn is_busy_until(&self, device: usize, until: u64) {
        if let Some(pacer) = self.pacers.get(device) {
            pacer.until.fetch_max(until, Ordering::Relaxed);
        }
    }

    /// There is something in a queue that was empty, or one that others leave little room for has become longer.
    #[cold]
    #[inline(never)]
    fn queue_grows(&self, pacer: &Pacer, device: usize, (before, prepaid): (u64, u64)) {
        if before == 0 {
            // Who gives way to this slice is to see at once that it has work, not at the helper's next round.
            self.member().set_queued(pacer.place.device, prepaid);
        }
        if pacer.queues_little() {
            let now = now();
            self.expect_end(
                device,
                now.saturating_add(self.queue_lasts(device, now)).saturating_add(prepaid),
            );
        }
    }

    /// What is queued is expected to have ended then.
    fn expect_end(&self, device: usize, at: u64) {
        if let Some(ends) = self.queue_ends.get(device) {
            ends.store(at, Ordering::Relaxed);
        }
    }

    /// How long it is until then, in nanoseconds.
    fn queue_lasts(&self, device: usize, now: u64) -> u64 {
        self.queue_ends.get(device).map_or(0, |ends| ends.load(Ordering::Relaxed).saturating_sub(now))
    }

    /// It has ended then, or nobody will see its end.
    fn landed(&self, flight: &Flight, ended: u64) {
        if let Some(pacer) = self.pacers.get(flight.device) {
            pacer.landings.fetch_add(1, Ordering::Relaxed);
            let left = pacer.less_queued(flight.queued());
            if pacer.queues_little() {
                self.expect_end(flight.device, ended.saturating_add(left));
            }
        }
        self.ended();
    }

    /// It waits for something else than the GPU: nobody is to wait for it.
    fn set_aside(&self, device: usize, run: &Run, keeps_others: bool) {
        let Some(pacer) = self.pacers.get(device) else { return };
        pacer.less_queued(run.prepaid());
        if keeps_others {
            run.parts().for_each(|part| pacer.unknown.lock().done(&part.key));
        }
    }

    /// It is the GPU's to do after all.
    fn is_ahead_again(&self, device: usize, run: &Run) {
        if let Some(pacer) = self.pacers.get(device) {
            pacer.queued.fetch_add(run.prepaid(), Ordering::Relaxed);
        }
    }

    /// A run is not measured: what was prepaid for it stands.
    fn unmeasured(&self, device: usize, run: &Run, is_unknown: bool) {
        let Some(pacer) = self.pacers.get(device) else { return };
        // When it ran nobody knows.
        self.member().settled(pacer.place.device, run.prepaid(), 0);
        self.member().count_launches(pacer.place.device, run.launches().into());
        let blind = self.blind(device);
        if let Some(blind) = blind {
            blind.prepaid(run);
        }
        if blind.is_none_or(|blind| !blind.is_told()) {
            self.member().count_used(pacer.place.device, run.prepaid());
        }
        if is_unknown {
            run.parts().for_each(|part| pacer.unknown.lock().done(&part.key));
        }
    }

    /// A launch of which nothing is known has left.
    fn unknown_left(&self, device: usize, key: &Key) {
        if let Some(pacer) = self.pacers.get(device) {
            let mut unknown = pacer.unknown.lock();
            unknown.add(key);
            self.member().set_unpredicted(pacer.place.device, true);
        }
    }

    /// Estimates follow what was measured, charged and [own](Book::measure).
    fn learn(&self, flight: &Flight, (charged, own): (u64, u64), verdict: Verdict) {
        let run = &flight.run;
        if matches!(verdict.lesson, Lesson::Alone | Lesson::Run) {
            let outcome = run.outcome(charged, verdict.length);
            let mut book = self.book().lock();
            for part in run.parts() {
                let changed = match verdict.lesson {
                    Lesson::Alone => book.measure(&part.key, charged, (own, verdict.length)),
                    _ => book.measure_run(part, &outcome),
                };
                if self.is_doubted(&part.key, flight.opened) {
                    // It was something else still: better than nothing, but the next one is believed.
                    book.doubt(&part.key);
                }
                changed.into_iter().flatten().for_each(|id| self.has_changed(id));
            }
        }
        if let Some(pacer) = self.pacers.get(flight.device).filter(|_| flight.keeps_others()) {
            run.parts().for_each(|part| pacer.unknown.lock().done(&part.key));
        }
        if verdict.lesson == Lesson::Gaps {
            self.gaps.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives back what threads have taken together and not spent for so long. Whether there is anything left.
    fn empty_pots(&self, kept: u64) -> bool {
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
    fn note_second(&self, now: u64) {
        self.pacers.iter().for_each(|pacer| self.member().note_second(pacer.place.device, now));
    }

    /// Tells the region how much is under way, and that events fail.
    fn report(&self) {
        let fails = self.by_events && !self.events_wanted();
        for pacer in &self.pacers {
            if fails {
                sampler::overrule(self, pacer.place.device, Source::Failing);
            }
            // What nobody here waits for any more may be what other devices wait for.
            let least = u64::from(pacer.runs.load(Ordering::Relaxed));
            let queued = pacer.queued.load(Ordering::Relaxed).max(least);
            self.member().set_queued(pacer.place.device, queued);
        }
        self.report_unknown();
    }

    /// Tells the region whether anything is under way, and whether nothing is known of some of it.
    fn report_unknown(&self) {
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
            // Held, so that a launch that leaves meanwhile is not forgotten.
            let unknown = pacer.unknown.lock();
            self.member().set_unpredicted(device, unknown.any());
        }
    }

    /// The region's number of a device.
    fn place(&self, device: usize) -> Option<Device> {
        self.pacers.get(device).map(|pacer| pacer.place.device)
    }

    /// The program has waited, and may end before the helper's next round: then a launch of which nothing is known would be
    /// charged as if it still ran.
    fn look_at_unknown(&'static self) {
        if self.pacers.iter().any(|pacer| pacer.unknown.lock().any()) {
            self.helper.look_here(self);
            self.report();
        }
    }
}
