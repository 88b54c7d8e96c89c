//! How is a launch paid that its thread's credit does not suffice for, and what does it wait for?
//!
//! For the slice's word, when it is not this process's turn or the share is used up: until the computed instant, or until
//! somebody rings. For work that is queued ahead, and for the measurement of an unknown launch: until the meter has seen
//! something end. Before every wait the thread's runs are closed, or the wait would be charged.

use crate::compute::attribution::nvml_only::NvmlOnly;
use crate::compute::launch::Launch;
use crate::compute::limiter::credit::CreditGuard;
use crate::compute::limiter::device::DeviceLimiter;
use crate::compute::state::Compute;
use crate::compute::threads::registry::OwnerGuard;
use crate::compute::threads::thread_state::StreamState;
use crate::compute::worker::thread::Helper;
use crate::os::clock;
use crate::slice::settings;
use core::sync::atomic::Ordering;
use core::time::Duration;
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::limiter::lease;
use gpuslice_policy::compute::limiter::overdraft::{self, Beside};
use gpuslice_policy::compute::limiter::queue_bound::{self, Ahead, UNKNOWN_WAIT};

/// How long a thread waits for another of its process that asks for both, before it looks again.
const BESIDE: Duration = Duration::from_millis(100);
/// What goes ahead at least where a lease is more, in nanoseconds of GPU time: 1 ms.
const AHEAD: u64 = 1_000_000;
/// How long a thread sleeps, in nanoseconds, before it looks whether another process has died: 0.1 s.
const NOTICED: u64 = 100_000_000;
/// The same where another device may have kept it, in nanoseconds: 2 ms.
const IN_STEP: u64 = 2_000_000;
/// How often it is looked whether the region is still there, in nanoseconds: 0.1 s. A look takes half a microsecond.
const LOOK_EVERY: u64 = 100_000_000;
/// How long, in nanoseconds, a launch waits while a kernel of its own process runs on and nothing ends: that kernel is charged
/// as it runs, so that the launch would never be due, and may wait for it.
const STUCK: u64 = 1_000_000_000;
/// How long work that is queued ahead is waited for before it is looked at again, whatever the meter says.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Pays for a launch, and waits before. The estimate it was paid by, and whether anything is known of it.
#[cold]
pub(crate) fn pay(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    (lane, device): (usize, usize),
    launch: &Launch,
) -> Option<(Estimate, bool)> {
    let pacer = compute.pacers.get(device)?;
    let began = clock::now();
    // What begins after a pause waits, and is counted, later.
    compute.member().note_second(pacer.place.device, began);
    let mut payer = Admission {
        compute,
        pacer,
        lane,
        device,
        began,
        throttled: 0,
        asks_since: u64::MAX,
        alone_since: 0,
        landings: 0,
        asking: None,
    };
    let paid = payer.pay(held, launch);
    payer.stop_asking();
    if payer.throttled > 0 {
        compute.member().count_throttled(pacer.place.device, payer.throttled);
    }
    paid
}

struct Admission {
    compute: &'static Compute,
    pacer: &'static DeviceLimiter,
    lane: usize,
    device: usize,
    began: u64,
    /// For how long it has waited for the share.
    throttled: u64,
    /// When it asked first; not yet: all ones.
    asks_since: u64,
    /// Since when it has been waiting for the share while nothing of its process ended; 0: it has not.
    alone_since: u64,
    /// How much had ended then.
    landings: u32,
    /// OwnerGuard while this thread asks for its process.
    asking: Option<CreditGuard<'static>>,
}

impl Admission {
    fn pay(&mut self, held: &mut OwnerGuard, launch: &Launch) -> Option<(Estimate, bool)> {
        let compute = self.compute;
        loop {
            // What is launched at the end is not measured, and nobody would see it end. Without its region nobody can say what
            // the slice may.
            if compute.helper.is_ending() || settings::is_refused() {
                return None;
            }
            let news = compute.helper.news();
            let blind = || compute.blind(self.device).map(NvmlOnly::estimate);
            let known = compute.look_up(held, &launch.key).or_else(blind);
            if known.is_none() && !self.may_go_unknown(launch) {
                // A round of the helper's lasts longer than eight small kernels do.
                let waited = clock::now().saturating_sub(self.began);
                let most = Duration::from_nanos(UNKNOWN_WAIT.saturating_sub(waited));
                self.wait(held, |helper, compute| helper.look_for_news(compute, news, most));
                continue;
            }
            let estimate = known.unwrap_or_else(|| compute.prior(&launch.key));
            if !self.pacer.admits(estimate.charged)
                && let Some(most) = self.queue_is_full(estimate.charged)
            {
                self.wait(held, |helper, compute| helper.wait_for_news(compute, news, most));
                continue;
            }
            let credit = held.leases.get_mut(self.device)?;
            if known.is_some() && credit.spend(estimate.charged) {
                return Some((estimate, true));
            }
            if self.take(held, &estimate, known.is_some())
                && held.leases.get_mut(self.device)?.spend(estimate.charged)
            {
                return Some((estimate, known.is_some()));
            }
        }
    }

    /// Lets others of this process ask.
    fn stop_asking(&mut self) {
        if self.asking.is_some() && self.throttled > 0 {
            self.compute.member().withdraw_request(self.pacer.place.device);
        }
        self.asking = None;
    }

    /// Waits until something has ended or was measured. Others of this process and of the slice may ask meanwhile.
    fn wait(&mut self, held: &mut OwnerGuard, until: impl FnOnce(&Helper, &'static Compute)) {
        self.stop_asking();
        self.close(held);
        let compute = self.compute;
        held.meanwhile(|| until(&compute.helper, compute));
    }

    /// Whether a launch of which nothing is known may be under way beside those that are.
    fn may_go_unknown(&self, launch: &Launch) -> bool {
        let is_late = clock::now().saturating_sub(self.began) >= UNKNOWN_WAIT;
        is_late || !self.compute.events_wanted() || self.pacer.unknown.lock().admits(&launch.key)
    }

    /// Lets a launch go that ends beside what is under way, and so takes no time of its own, although its thread has
    /// nothing left. What it costs is owed.
    fn owe(&self, held: &mut OwnerGuard, estimate: &Estimate) -> bool {
        // On a single stream nothing runs beside, whatever part of its time a launch is charged for. And who gives way takes
        // nothing in advance.
        if self.pacer.lanes.load(Ordering::Relaxed) < 2 || self.pacer.gives_way() {
            return false;
        }
        let now = clock::now();
        let Some(own) = held.lanes.get(self.lane) else { return false };
        let done = overdraft::done(own.done(), now, estimate.plain);
        let others = held.lanes.iter().filter(|lane| lane.device == Some(self.device));
        let last =
            others.map(StreamState::done).max().unwrap_or(0).max(self.pacer.until.load(Ordering::Relaxed));
        let Some(credit) = held.leases.get_mut(self.device) else { return false };
        let lacks = estimate.charged.saturating_sub(credit.left());
        let more = |owed| Beside::of(owed).go(estimate, done, last);
        if self.pacer.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return false;
        }
        self.compute.member().overdraw(self.pacer.place.device, lacks, now);
        credit.fill(lacks);
        true
    }

    /// How long to wait at most for what is queued before a launch of this cost that is not admitted; none where it may go
    /// all the same, since that is about to end.
    #[cold]
    #[inline(never)]
    fn queue_is_full(&self, cost: u64) -> Option<Duration> {
        if !self.pacer.queues_little() {
            return Some(LOOK_AGAIN);
        }
        let queued = self.pacer.queued.load(Ordering::Relaxed);
        let left = self.compute.queue_lasts(self.device, clock::now());
        let most = Duration::from_nanos(left.saturating_sub(queue_bound::AT_END));
        let is_at_end = Ahead::of(queued).admits_at_end(cost, left);
        (!is_at_end).then(|| if most.is_zero() { LOOK_AGAIN } else { most.min(LOOK_AGAIN) })
    }

    /// Takes what lacks of the slice's time, or waits and looks again.
    fn take(&mut self, held: &mut OwnerGuard, estimate: &Estimate, is_known: bool) -> bool {
        let (member, device) = (self.compute.member(), self.pacer.place.device);
        if self.asking.is_none() {
            self.asking = self.pacer.asking.begin();
        }
        let Some(credit) = held.leases.get_mut(self.device) else { return true };
        let now = clock::now();
        let least = member.least_lease(device, now);
        self.pacer.set_alone(least.is_alone);
        let room = self.pacer.room.load(Ordering::Relaxed);
        let size = lease::beside(self.compute.part_of(least.time), room);
        let lacks = credit.lacks(estimate.charged, size).max(1);
        // By itself, without what it would leave for others.
        let needs = estimate.charged.saturating_sub(credit.left()).max(1);
        if let Some(pot) = &mut self.asking {
            self.pacer.asking.look(now);
            if pot.credit.left() >= lacks {
                credit.fill(pot.credit.share(lacks));
                return true;
            }
        }
        if is_known && self.owe(held, estimate) {
            return true;
        }
        let Some(pot) = &mut self.asking else { return self.take_beside(held, (lacks, needs)) };
        let lanes = self.pacer.lanes.load(Ordering::Relaxed);
        let amount = lacks.saturating_sub(pot.credit.left()).max(pot.together(estimate, lanes));
        let Some(paid) = self.ask(held, (amount, needs)) else { return false };
        if let (Some(pot), Some(credit)) = (&mut self.asking, held.leases.get_mut(self.device)) {
            pot.take(paid, clock::now());
            credit.fill(pot.credit.share(lacks));
        }
        true
    }

    /// Another thread of this process asks: waits for it, or asks beside one that never came back.
    fn take_beside(&mut self, held: &mut OwnerGuard, (lacks, needs): (u64, u64)) -> bool {
        let asking = &self.pacer.asking;
        if !asking.is_left(clock::now()) {
            self.close(held);
            self.asking = self.timed(|| held.meanwhile(|| asking.begin_soon(BESIDE)));
            return false;
        }
        let Some(paid) = self.ask(held, (lacks, needs)) else { return false };
        if let Some(credit) = held.leases.get_mut(self.device) {
            credit.fill(paid);
        }
        true
    }

    /// Asks for so much of the slice's time, of which the launch itself `needs` so much, or waits. What was paid.
    fn ask(&mut self, held: &mut OwnerGuard, (amount, needs): (u64, u64)) -> Option<u64> {
        let (member, device) = (self.compute.member(), self.pacer.place.device);
        // Read before it is asked, so that no ring is lost in between.
        let bell = member.wake_sequence(device);
        // Not one by one where they are small: what waits for them is charged.
        let least = needs.max(amount.min(AHEAD));
        let now = clock::now();
        if !self.compute.is_anything_under_way() {
            member.idle_until_now(device, now);
        }
        self.look_after_region(now);
        self.asks_since = self.asks_since.min(now);
        match member.acquire_since(device, amount, self.asks_since, now) {
            Ok(()) => {
                self.pacer.owed.store(0, Ordering::Relaxed);
                Some(amount)
            }
            Err(_) if self.is_stuck(now) => {
                member.overdraw(device, amount, now);
                Some(amount)
            }
            // Who gives way takes nothing in advance.
            Err(_)
                if !self.pacer.gives_way()
                    && member.overdraw_for_peer(device, least, self.asks_since, now) =>
            {
                Some(least)
            }
            Err(until) => {
                self.close(held);
                self.compute.look_while_asking(self.pacer);
                // What the dead ask for, or have paid for, is not waited for longer than it takes to notice.
                // Nor what was waited for on another device, whose bell is another one, or what is to go for its sake.
                let looks_soon = member.is_coupled(device, now) || member.has_peer_overrun(device, now);
                let most = if looks_soon { IN_STEP } else { NOTICED };
                let until = until.min(now.saturating_add(most));
                self.timed(|| held.meanwhile(|| member.sleep(device, bell, until)));
                let _noticed = self.compute.region().reap_if_due(clock::now());
                None
            }
        }
    }

    /// Whether it may wait for what waits for it. Then it goes, and what it costs is owed.
    fn is_stuck(&mut self, now: u64) -> bool {
        let compute = self.compute;
        let landings = self.pacer.landings.load(Ordering::Relaxed);
        // Without events nothing is charged as it runs.
        let is_alone =
            landings == self.landings && compute.is_anything_under_way() && compute.events_wanted();
        if self.alone_since == 0 || !is_alone {
            (self.alone_since, self.landings) = (now, landings);
        }
        now.saturating_sub(self.alone_since) >= STUCK
    }

    /// Whether the region is still there is seen by who uses it, now and then.
    fn look_after_region(&self, now: u64) {
        let last = self.pacer.looked.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= LOOK_EVERY {
            self.pacer.looked.store(now, Ordering::Relaxed);
            self.compute.look();
        }
    }

    fn timed<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let before = clock::now();
        let done = wait();
        self.throttled = self.throttled.saturating_add(clock::now().saturating_sub(before)).max(1);
        done
    }

    /// Closes the thread's runs before it waits.
    fn close(&self, held: &mut OwnerGuard) {
        held.close_all(self.compute);
    }
}
