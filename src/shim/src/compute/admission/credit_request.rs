//! Credit for a launch whose thread has too little: from the process, from the slice's words in the region, or as debt.
//!
//! Example: a slice has 50 % of the GPU and has used its share. The thread asks the region for a lease of 1 ms, and
//! the region answers with the instant at which the lease is due. The thread sleeps until that instant, or until a
//! process of the slice refunds time. Before each wait the thread closes its batches. Otherwise the slice would be
//! charged for the wait as for GPU time.
//!
//! The thread admits three kinds of launches without credit, as a debt:
//! - a launch that overlaps others, and so takes no time of its own;
//! - a launch that a kernel of the process may wait for;
//! - a launch that a kernel on another device may wait for.
//!
//! One budget of the slice pays for all three ([`overdraft`]).

use crate::compute::limiter::credit::CreditGuard;
use crate::compute::limiter::device::DeviceLimiter;
use crate::compute::state::Compute;
use crate::compute::threads::slot::OwnerGuard;
use crate::compute::threads::stream_state::StreamState;
use crate::compute::worker::thread::ensure;
use crate::os::clock;
use core::sync::atomic::Ordering;
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::limiter::lease;
use gpuslice_policy::compute::limiter::overdraft;
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

/// Interval at which a waiting thread looks for changes that wake no thread: 0.1 s. Examples: another process dies, the
/// thread that holds the lock never returns, or the region is gone. A check of the region takes half a microsecond.
const RECHECK: WallTime = WallTime::from_millis(100);
/// Longest sleep of a throttled thread if work on another device may delay it: 2 ms.
const RECHECK_COUPLED: WallTime = WallTime::from_millis(2);
/// Time for which a launch waits while a kernel of its own process runs and no batch ends. The kernel is charged while
/// it runs, so the launch would never be due. But the kernel may wait for this launch.
const STUCK: WallTime = WallTime::from_millis(1_000);

/// The request of a thread for credit on one device, over all of its waits.
///
/// The region has one request for each process and device. So one thread of a process requests at a time, under the lock of the
/// process's credit. The thread keeps the lock across its waits for the share, and the others wait for the lock.
#[derive(Debug)]
pub(super) struct CreditRequest {
    compute: &'static Compute,
    limiter: &'static DeviceLimiter,
    /// Place of the device among the limiters.
    device: usize,
    /// Place of the launch's stream among the streams of the thread.
    stream: usize,
    /// Time for which the thread has waited for the share.
    throttled: WallTime,
    /// Instant at which the thread first asked the region.
    asked_since: Option<Monotonic>,
    /// Instant since which the thread waits while no batch of its process ends, and the number of completions at that instant.
    stuck_since: Option<(Monotonic, u32)>,
    /// Held while this thread requests for its process.
    guard: Option<CreditGuard<'static>>,
}

/// GPU time that a thread lacks.
#[derive(Debug, Clone, Copy)]
struct Shortfall {
    /// Time that is missing for the launch and for the next lease.
    with_lease: GpuTime,
    /// Time that is missing for the launch alone.
    launch: GpuTime,
}

impl CreditRequest {
    /// Makes a request before its first step. Returns `None` for a device that has no limiter.
    pub(super) fn new(compute: &'static Compute, device: usize, stream: usize) -> Option<Self> {
        let limiter = compute.limiters.get(device)?;
        Some(Self {
            compute,
            limiter,
            device,
            stream,
            throttled: WallTime::ZERO,
            asked_since: None,
            stuck_since: None,
            guard: None,
        })
    }

    /// Returns the limiter of the device.
    pub(super) fn limiter(&self) -> &'static DeviceLimiter {
        self.limiter
    }

    /// Takes credit for a launch, or waits. Returns true if the thread's lease was filled. Returns false if the caller has to try
    /// again.
    ///
    /// The thread tries the cheapest source first: the credit of the process, then a debt for overlap, then the region. One
    /// thread of the process asks the region at a time. A thread that gets a lease for overlapping launches leaves the rest of it
    /// in the process's credit, for the other threads.
    ///
    /// The debt for overlap comes before the wait for the lock. Example: eight threads launch side by side. One of them holds the
    /// lock and waits for the share. The others can still launch as debt. Otherwise their streams would be idle.
    pub(super) fn acquire_credit(
        &mut self,
        held: &mut OwnerGuard,
        estimate: &Estimate,
        is_known: bool,
    ) -> bool {
        let (member, device) = (self.compute.member(), self.limiter.gpu.device);
        if self.guard.is_none() {
            self.guard = self.limiter.credit.try_lock();
        }
        let Some(credit) = held.leases.get_mut(self.device) else { return true };
        let now = clock::now();
        let situation = member.lease_situation(device, now);
        self.limiter.set_alone(situation.is_alone);
        let size = lease::size_for(&situation, self.compute.threads.active(), self.limiter.room.get());
        let shortfall = Shortfall {
            with_lease: credit.shortfall(estimate.charged, size).max(GpuTime::NANOSECOND),
            launch: estimate.charged.saturating_sub(credit.left()).max(GpuTime::NANOSECOND),
        };
        if let Some(process) = &mut self.guard {
            self.limiter.credit.renew(now);
            if process.lease.left() >= shortfall.with_lease {
                credit.fill(process.lease.share(shortfall.with_lease));
                return true;
            }
        }
        if is_known && self.overdraw(held, estimate) {
            return true;
        }
        let Some(process) = &mut self.guard else { return self.request_unserialised(held, shortfall) };
        let streams = self.limiter.streams.load(Ordering::Relaxed);
        let amount = shortfall.with_lease.saturating_sub(process.lease.left());
        let amount = amount.max(process.least_for_overlap(estimate, streams));
        let Some(paid) = self.request(held, amount, shortfall.launch) else { return false };
        if let (Some(process), Some(credit)) = (&mut self.guard, held.leases.get_mut(self.device)) {
            process.add(paid, clock::now());
            credit.fill(process.lease.share(shortfall.with_lease));
        }
        true
    }

    /// Lets other threads of this process request.
    ///
    /// A request that has waited is published in the region. The thread withdraws it before it releases the lock, because the
    /// next thread publishes its own request in the same words. A later withdrawal would remove the request of the next thread,
    /// and no refund would wake that thread.
    pub(super) fn release(&mut self) {
        if self.guard.is_some() && !self.throttled.is_zero() {
            self.compute.member().withdraw_request(self.limiter.gpu.device);
        }
        self.guard = None;
    }

    /// Ends the request, and counts the time for which the thread was throttled.
    pub(super) fn end(&mut self) {
        self.release();
        if !self.throttled.is_zero() {
            self.compute.member().count_throttled(self.limiter.gpu.device, self.throttled);
        }
    }

    /// Admits a launch as debt if it ends while other work in flight still runs, so that it takes no time of its own.
    ///
    /// On a single stream nothing overlaps. A slice that must yield takes nothing in advance. The prediction may be wrong; the
    /// budget of overdrafts bounds that error.
    fn overdraw(&self, held: &mut OwnerGuard, estimate: &Estimate) -> bool {
        let limiter = self.limiter;
        if limiter.streams.load(Ordering::Relaxed) < 2 || limiter.must_yield() {
            return false;
        }
        let now = clock::now();
        let Some(own) = held.streams.get(self.stream) else { return false };
        let done = overdraft::done(own.predicted_end(), now, estimate.duration);
        let streams = held.streams.iter().filter(|stream| stream.device == Some(self.device));
        let last = streams.map(StreamState::predicted_end).max().unwrap_or_default();
        let last = last.max(limiter.busy_until.get());
        let Some(credit) = held.leases.get_mut(self.device) else { return false };
        let missing = estimate.charged.saturating_sub(credit.left());
        let goes = overdraft::ends_with_others(estimate, done, last)
            && self.compute.member().overdraw(limiter.gpu.device, missing, now);
        if goes {
            credit.fill(missing);
        }
        goes
    }

    /// Waits while another thread of this process requests. If that thread never returned, requests without the lock.
    ///
    /// A thread may leave its wait by `longjmp` while it holds the lock, and then nothing releases the lock. Without this
    /// exception all other threads of the process would wait for ever. Threads that request without the lock share one request in
    /// the region. So one thread may withdraw the request of another. The other thread then wakes up by its own time limit
    /// instead of a refund.
    fn request_unserialised(&mut self, held: &mut OwnerGuard, shortfall: Shortfall) -> bool {
        let lock = &self.limiter.credit;
        if !lock.is_abandoned(clock::now()) {
            held.close_all(self.compute);
            self.guard = self.timed(|| held.unlocked(|| lock.try_lock_for(RECHECK.duration())));
            return false;
        }
        let Some(paid) = self.request(held, shortfall.with_lease, shortfall.launch) else { return false };
        if let Some(credit) = held.leases.get_mut(self.device) {
            credit.fill(paid);
        }
        true
    }

    /// Asks the region for `amount` of the slice's time, of which the launch itself needs `launch`. Returns the time
    /// that was paid. `None`: the thread has waited, and the caller tries again.
    ///
    /// If the slice has no time, the launch may still be admitted as debt, because a kernel may wait for it. The thread asks the
    /// region first, because a launch that can be paid must not use the budget of overdrafts. The debt covers the launch, or up
    /// to one millisecond for shorter launches. It does not cover a whole turn.
    fn request(&mut self, held: &mut OwnerGuard, amount: GpuTime, launch: GpuTime) -> Option<GpuTime> {
        let (member, device) = (self.compute.member(), self.limiter.gpu.device);
        // The thread reads the number before the request, so that it misses no wake-up in between. If a process refunds time
        // after the request, the number differs, and the sleep ends at once.
        let sequence = member.wake_sequence(device);
        // A debt covers several small launches, because a kernel that waits for them is charged meanwhile.
        let least = launch.max(amount.min(lease::MOST_ALONE));
        let now = clock::now();
        if !self.compute.is_anything_under_way() {
            member.idle_until_now(device, now);
        }
        self.check_region(now);
        let since = *self.asked_since.get_or_insert(now);
        match member.acquire_since(device, amount, since, clock::now) {
            Ok(()) => Some(amount),
            Err(_) if self.poll_stuck(now) && member.overdraw(device, least, now) => Some(least),
            Err(_) if !self.limiter.must_yield() && member.overdraw_for_peer(device, least, since, now) => {
                Some(least)
            }
            Err(until) => {
                self.sleep(held, sequence, until, now);
                None
            }
        }
    }

    /// Sleeps until the time is due at `until`, or a process of the slice changes something.
    ///
    /// Two changes wake no thread, so the sleep is bounded. A process may die that has paid or requested time. Or work on another
    /// device may wait for this launch, and that device has a wake-up word of its own.
    ///
    /// After the sleep the thread looks for dead processes itself. Perhaps all threads that could find a dead process sleep here.
    /// The dead process would then keep its prepaid time and its turn.
    fn sleep(&mut self, held: &mut OwnerGuard, sequence: u32, until: Monotonic, now: Monotonic) {
        let (member, device) = (self.compute.member(), self.limiter.gpu.device);
        held.close_all(self.compute);
        if self.limiter.is_divided(self.compute) {
            // The worker must run, because perhaps no other process can be the arbiter.
            ensure(self.compute);
        }
        let looks_soon = member.is_coupled(device, now) || member.has_peer_overrun(device, now);
        let most = if looks_soon { RECHECK_COUPLED } else { RECHECK };
        let until = until.min(now.saturating_add(most));
        self.timed(|| held.unlocked(|| member.sleep(device, sequence, until)));
        let _noticed = self.compute.region().reap_if_due(clock::now());
    }

    /// Returns true if no batch of the process has ended for [`STUCK`] while work is under way: that work may wait for this
    /// launch. Then the caller admits the launch as debt, if the budget of overdrafts pays for it. Without events running work is
    /// not charged. So the launch is admitted when the slice's debt is paid, and the function returns false.
    ///
    /// Example: a kernel spins until another kernel of the process has written a flag. The spinning kernel is charged while it
    /// runs. So the slice's debt grows faster than the share pays it, and the other kernel would never be admitted.
    ///
    /// The time starts again whenever a batch ends, because then the GPU makes progress without this launch.
    fn poll_stuck(&mut self, now: Monotonic) -> bool {
        let completions = self.limiter.completions.load(Ordering::Relaxed);
        let may_be_stuck = self.compute.is_anything_under_way() && self.compute.timing.are_used();
        let since = self.stuck_since.filter(|(_, before)| *before == completions && may_be_stuck);
        let (since, _) = *self.stuck_since.insert(since.unwrap_or((now, completions)));
        now.since(since) >= STUCK
    }

    /// Checks that the region still exists, at most once in [`RECHECK`].
    fn check_region(&self, now: Monotonic) {
        let last = self.limiter.region_checked_at.get();
        if now.since(last) >= RECHECK {
            self.limiter.region_checked_at.set(now);
            self.compute.check();
        }
    }

    /// Waits, and adds the time of the wait to the throttled time.
    ///
    /// It adds a nanosecond at least. [`release`](Self::release) withdraws the request only if the thread has waited. A clock
    /// that shows no progress must not hide a wait.
    fn timed<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let before = clock::now();
        let done = wait();
        self.throttled = self.throttled.saturating_add(clock::now().since(before)).max(WallTime::NANOSECOND);
        done
    }
}
