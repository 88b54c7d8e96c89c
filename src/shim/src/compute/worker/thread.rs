//! Who looks at what is under way?
//!
//! A thread of ours, started with the first run that is opened: once a millisecond while anything is under way, and
//! asleep otherwise. Signals are blocked in it, since they are the program's. It ends before the driver is torn
//! down at the process's exit. While NVML keeps it, launches that wait look at the events themselves.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::compute::cotenants::program_sampler::LINGER;
use crate::compute::measuring::worker_status::WorkerStatus;
use crate::compute::state::Compute;
use crate::compute::threads::registry::RemoteAccess;
use crate::driver_calls::capture_mode::{self, apart};
use crate::os::clock::{self, Both};
use crate::os::reentrancy::shielded;
use crate::os::signals::{without_signals, without_signals_but};
use crate::os::{asymmetric_fence, futex, messages, thread};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use gpuslice_policy::arbiter;
use gpuslice_policy::compute::measuring::batch::OLD;
use gpuslice_policy::config::LogLevel;
use gpuslice_region::sigbus_forwarding;
use parking_lot::{Condvar, Mutex};

/// How often it looks where nothing asks for more.
const ROUND: Duration = Duration::from_nanos(arbiter::STEP);
/// Who waits looks itself when the thread has not come round for so long.
const LATE: Duration = Duration::from_millis(2);
/// How long those wait who leave it to another to watch: not so short that many who do keep a processor busy.
const UNWATCHED: Duration = Duration::from_millis(10);
/// How long it waits before it looks for the first time.
const AT_ONCE: Duration = Duration::from_micros(50);
/// How long the end of the process waits for a round to end.
const AT_EXIT: Duration = Duration::from_millis(100);
/// After so many rounds without anything under way it sleeps.
const IDLE_ROUNDS: u32 = 20;
/// How long a thread keeps credit that it does not spend, in nanoseconds.
const KEPT: u64 = 50_000_000;

/// The meter's thread.
#[derive(Debug, Default)]
pub(crate) struct Helper {
    life: WorkerStatus,
    sleeps: AtomicBool,
    ends: AtomicBool,
    bed: Mutex<()>,
    /// OwnerGuard by the thread while it may be inside the driver.
    round: Mutex<()>,
    alarm: Condvar,
    /// Rounds in which something has ended.
    news: AtomicU32,
    /// Rounds that have ended.
    rounds: AtomicU32,
    /// Until when one of those who wait sees to it that the rounds go on, on the monotonic clock.
    watched: AtomicU64,
}

impl Helper {
    /// Starts the thread if it does not run, and wakes it if it sleeps.
    #[inline]
    pub(crate) fn ensure(&self, compute: &'static Compute) {
        if self.life.is_to_begin() {
            self.start(compute);
        }
        self.wake();
    }

    /// Wakes the thread if it sleeps.
    pub(crate) fn wake(&self) {
        // SeqCst: either this sees that it is about to sleep, or it sees what there is to do.
        core::sync::atomic::fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::Relaxed) {
            let _bed = self.bed.lock();
            self.alarm.notify_one();
        }
    }

    /// Whether the process is ending: nothing is looked at any more.
    pub(crate) fn is_ending(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// What to [wait](Self::wait_for_news) with: to be read before it is looked what there is, so that no news is missed.
    pub(crate) fn news(&self) -> u32 {
        self.news.load(Ordering::Acquire)
    }

    /// Waits until something has ended since the news were read, or for so long.
    pub(crate) fn wait_for_news(&self, compute: &'static Compute, before: u32, most: Duration) {
        if !self.life.is_on() {
            // Nobody looks but those who wait.
            gpuslice_region::pause(ROUND.min(most));
            let _is_busy = in_peace(|| look(compute));
            return;
        }
        self.wake();
        if most < LATE || !self.begins_watch() {
            // Who watches may have left by then, and what is waited for may have ended where nobody tells it.
            futex::wait(&self.news, before, most.min(UNWATCHED));
            return;
        }
        let rounds = self.rounds.load(Ordering::Relaxed);
        futex::wait(&self.news, before, LATE);
        self.watched.store(0, Ordering::Relaxed);
        let is_late = self.rounds.load(Ordering::Relaxed) == rounds && self.news() == before;
        if is_late && !self.is_ending() && harvest_here(compute) > 0 {
            self.tell();
        }
    }

    /// The same for what may end at any moment, and while the GPU has nothing else to do: looks itself, at first after next
    /// to no time.
    pub(crate) fn look_for_news(&self, compute: &'static Compute, before: u32, most: Duration) {
        if !self.life.is_on() || !self.begins_watch() {
            return self.wait_for_news(compute, before, most);
        }
        let (mut waited, mut pause) = (Duration::ZERO, AT_ONCE);
        while waited < LATE.min(most) && self.news() == before && !self.is_ending() {
            futex::wait(&self.news, before, pause);
            waited = waited.saturating_add(pause);
            pause = pause.saturating_mul(2);
            if self.news() == before && !self.is_ending() && harvest_here(compute) > 0 {
                self.tell();
            }
        }
        self.watched.store(0, Ordering::Relaxed);
    }

    /// Looks once on a thread of the program's, unless another does.
    pub(crate) fn look_here(&self, compute: &'static Compute) {
        if !self.is_ending() && harvest_here(compute) > 0 {
            self.tell();
        }
    }

    /// Whether the calling thread is the one that watches: who is woken each time for nothing should be one only. One that
    /// never comes back is replaced.
    fn begins_watch(&self) -> bool {
        let (now, late) = (clock::now(), u64::try_from(LATE.as_nanos()).unwrap_or(0));
        let watched = self.watched.load(Ordering::Relaxed);
        let until = now.saturating_add(late.saturating_mul(2));
        now >= watched
            && self.watched.compare_exchange(watched, until, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn tell(&self) {
        self.news.fetch_add(1, Ordering::Release);
        futex::wake(&self.news, i32::MAX);
    }

    #[cold]
    fn start(&self, compute: &'static Compute) {
        clock::compare_first();
        if !self.life.begins() {
            return;
        }
        let started = without_signals(|| thread::spawn(compute, 256 << 10, main));
        if let Err(error) = started {
            self.life.cannot_begin();
            let text = format_args!(
                "gpuslice: no thread can be started ({error}); GPU time is measured only while launches wait."
            );
            messages::say(LogLevel::Warn, &text);
        }
        end_with_process(compute);
    }
}

/// Looks at the events on a thread of the program's, unless another does. How many flights have ended.
fn harvest_here(compute: &'static Compute) -> usize {
    in_peace(|| compute.meter.try_harvest(compute))
}

/// Looks on a thread of the program's: a handler that leaves by a jump would keep the meter's lock for good, and what the
/// program captures is not to be spoilt.
fn in_peace<T>(look: impl FnOnce() -> T) -> T {
    /// What the thread's own instructions raise: blocked, it would end the process.
    const OWN: [libc::c_int; 6] =
        [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    without_signals_but(&OWN, || apart(look))
}

/// The thread.
extern "C" fn main(argument: *mut c_void) -> *mut c_void {
    thread::set_name(c"gpuslice");
    // SAFETY: started by `spawn` with the slice.
    if let Some(compute) = unsafe { thread::argument_of::<Compute>(argument) } {
        compute.helper.life.live(|| live(compute));
    }
    ptr::null_mut()
}

/// A thread that prepares the fence and ends.
extern "C" fn once(_: *mut c_void) -> *mut c_void {
    thread::set_name(c"gpuslice-once");
    let _prepared = shielded(asymmetric_fence::prepare);
    ptr::null_mut()
}

fn live(compute: &'static Compute) {
    let helper = &compute.helper;
    capture_mode::exchange_capture_mode(capture_mode::RELAXED);
    // It takes tens of milliseconds, in which the first launches wait to be measured: so a thread that ends with it. Where
    // there is none, all keep their fences.
    let _done = thread::spawn(compute, 64 << 10, once);
    // After that thread was made, which needs no signal.
    sigbus_forwarding::register_thread();
    let begun = Both::read();
    let mut idle = 0_u32;
    while !helper.ends.load(Ordering::Relaxed) {
        sigbus_forwarding::unblock();
        let is_busy = {
            let _round = helper.round.lock();
            !helper.ends.load(Ordering::Relaxed) && look(compute)
        };
        helper.rounds.fetch_add(1, Ordering::Relaxed);
        idle = if is_busy { 0 } else { idle.saturating_add(1) };
        if idle < IDLE_ROUNDS {
            gpuslice_region::pause(compute.round());
            continue;
        }
        clock::compare(begun);
        compute.leave_chairs();
        let is_open = compute.close_samplers();
        let mut bed = helper.bed.lock();
        helper.sleeps.store(true, Ordering::Relaxed);
        core::sync::atomic::fence(Ordering::SeqCst);
        let is_needed = compute.is_anything_under_way() || compute.is_asking();
        if !is_needed && !helper.ends.load(Ordering::Relaxed) {
            match is_open {
                true => drop(helper.alarm.wait_for(&mut bed, LINGER)),
                false => helper.alarm.wait(&mut bed),
            }
        }
        helper.sleeps.store(false, Ordering::Relaxed);
        idle = 0;
    }
    compute.leave_chairs();
}

/// One round. Whether there is anything left to look at.
fn look(compute: &'static Compute) -> bool {
    // Before anything of this second is counted.
    compute.note_second(clock::now());
    let kept = tidy(compute);
    if compute.meter.harvest(compute) > 0 {
        compute.helper.tell();
    }
    let is_busy = kept || compute.is_anything_under_way() || compute.is_blind_waiting();
    if is_busy {
        compute.sample();
    }
    compute.report();
    compute.arbitrate();
    is_busy || compute.is_asking()
}

/// Closes runs that their threads have left open, and takes credit back from threads that do not spend it. Whether
/// there is anything left to do.
fn tidy(compute: &'static Compute) -> bool {
    let mut left = compute.empty_pots(KEPT);
    let mut holders = 0_usize;
    for shared in compute.seats.all().into_iter().filter(|shared| !shared.is_free()) {
        let mut seat = match shared.look_after() {
            RemoteAccess::Now(seat) => seat,
            RemoteAccess::Clean => continue,
            RemoteAccess::Busy => {
                (left, holders) = (true, holders.saturating_add(1));
                continue;
            }
        };
        let (now, ended) = (clock::cycles(), shared.has_ended());
        seat.give_up_missed(compute);
        seat.close_where(compute, |lane| {
            let age = lane.open.as_ref().map_or(0, |open| clock::between(now, open.since));
            lane.is_shared() && (age >= OLD || ended)
        });
        if ended {
            // Nobody can close these any more.
            seat.abandon(compute);
        }
        let is_quiet = clock::between(now, seat.left) >= KEPT;
        if ended || is_quiet {
            seat.end_leases(compute);
        }
        let is_left =
            seat.has_credit() || seat.lanes.iter().any(|lane| lane.open.is_some() && lane.is_shared());
        left |= seat.has_credit();
        holders = holders.saturating_add(usize::from(!ended && !is_quiet));
        if is_left || !is_quiet {
            drop(seat);
        } else {
            seat.leave_clean();
        }
        if ended {
            compute.seats.cleared(shared);
        }
    }
    compute.holders.store(holders, Ordering::Relaxed);
    left
}

/// Has the thread end before the driver is torn down: what is registered last is called first, and the driver was
/// initialised before.
fn end_with_process(compute: &'static Compute) {
    unsafe extern "C" {
        fn __cxa_atexit(
            function: unsafe extern "C" fn(*mut c_void),
            argument: *mut c_void,
            library: *mut c_void,
        ) -> libc::c_int;
    }
    unsafe extern "C" fn end(argument: *mut c_void) {
        let _ended = shielded(|| {
            // SAFETY: registered below with it.
            let registered = unsafe { thread::argument_of::<Compute>(argument) };
            // A forked child may not have joined, and will not now. Registered once more by each process of a chain of
            // forks; once is enough.
            let is_first = |compute: &&Compute| !compute.helper.ends.swap(true, Ordering::Relaxed);
            if let Some(compute) = registered.and_then(|compute| (compute.of_this_process)()).filter(is_first)
            {
                let helper = &compute.helper;
                helper.wake();
                // Kept for good: no round begins any more.
                core::mem::forget(helper.round.try_lock_for(AT_EXIT));
            }
        });
    }
    // SAFETY: the function stays: the library is never unloaded. A failure leaves everything as it is.
    unsafe { __cxa_atexit(end, ptr::from_ref(compute).cast_mut().cast(), ptr::null_mut()) };
}
