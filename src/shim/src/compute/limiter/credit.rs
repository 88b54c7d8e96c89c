//! Credit of the whole process on one device, and the lock under which one thread at a time requests more of it.
//!
//! Example: two threads have no credit left. The first thread takes the lock, requests GPU time for its process and adds it to
//! the credit. The second thread sleeps until the first releases the lock and wakes it. A thread without a wake-up looks again
//! after its own time limit.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::os::futex;
use crate::os::time_word::TimeWord;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::limiter::lease::{self, Lease};
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};
use parking_lot::{Mutex, MutexGuard};

/// Time after which a lock without renewal counts as abandoned. A holder renews its lock each second at least. If it does
/// not, it never returned from its wait (`longjmp` out of a signal handler). The other threads then request without the lock.
const ABANDONED: WallTime = WallTime::from_millis(2_000);
/// Value for a lock that no thread holds, or that its holder has not renewed yet. Such a lock is not abandoned.
const NOT_RENEWED: Monotonic = Monotonic::from_nanos(u64::MAX);
/// Number of requests of which one tries whether launches overlap.
const TRY_EVERY: u32 = 16;

/// The lock of a process's credit on one device.
///
/// Threads try the mutex and never block in it. They wait on the futex word `releases` instead. A signal handler may leave the
/// wait of a thread by `longjmp`. The kernel forgets such a waiter, but the mutex's own queue would still contain it.
#[derive(Debug)]
pub(crate) struct CreditLock {
    credit: Mutex<ProcessCredit>,
    /// Instant of the holder's last renewal. Written by the holder, read by threads that find the lock taken. [`NOT_RENEWED`]
    /// before the holder's first renewal.
    renewed_at: TimeWord<Monotonic>,
    /// Number of releases; wraps.
    releases: AtomicU32,
    /// Number of threads that wait for a release. It is too high after a thread has left its wait by `longjmp`. Then a release
    /// makes a needless call of the kernel.
    waiters: AtomicU32,
}

/// GPU time that a process has taken for overlapping launches of any of its threads.
#[derive(Debug, Default)]
pub(crate) struct ProcessCredit {
    /// The GPU time.
    pub(crate) lease: Lease,
    /// Number of requests that were paid; wraps.
    requests: u32,
    /// Instant at which GPU time was last added.
    added_at: Monotonic,
}

/// The lock, held. Its drop wakes the next thread that waits.
#[derive(Debug)]
pub(crate) struct CreditGuard<'a> {
    // Fields drop in this order, so the thread that the release wakes finds the mutex free.
    credit: MutexGuard<'a, ProcessCredit>,
    release: Release<'a>,
}

#[derive(Debug)]
struct Release<'a>(&'a CreditLock);

impl Default for CreditLock {
    fn default() -> Self {
        Self {
            credit: Mutex::default(),
            renewed_at: TimeWord::new(NOT_RENEWED),
            releases: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
        }
    }
}

impl CreditLock {
    /// Takes the lock, unless another thread holds it.
    pub(crate) fn try_lock(&self) -> Option<CreditGuard<'_>> {
        self.credit.try_lock().map(|credit| CreditGuard { credit, release: Release(self) })
    }

    /// Takes the lock. Waits for another thread to release it, for `most` at most. Returns `None` after that time, or if a third
    /// thread takes the lock first.
    ///
    /// The order is: read the number of releases, count this waiter, try the lock, sleep while the number is unchanged. The
    /// releasing thread frees the lock, raises the number, and then reads the waiters. If it frees the lock after the try, it
    /// sees the waiter and wakes it. If this thread does not sleep yet, the changed number keeps it awake.
    ///
    /// If the thread read the number after the try, it would miss a release in between. It would then sleep for all of `most`,
    /// although the lock is free.
    pub(crate) fn try_lock_for(&self, most: Duration) -> Option<CreditGuard<'_>> {
        let releases = self.releases.load(Ordering::SeqCst);
        // SeqCst: either the thread that releases the lock sees this waiter, or this thread finds the lock free.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let guard = self.try_lock().or_else(|| {
            futex::wait(&self.releases, releases, most);
            self.try_lock()
        });
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    /// Notes that the holder is alive at `now`.
    pub(crate) fn renew(&self, now: Monotonic) {
        self.renewed_at.set(now);
    }

    /// Returns true if the holder never returned from its wait, as far as its renewals tell.
    pub(crate) fn is_abandoned(&self, now: Monotonic) -> bool {
        now.since(self.renewed_at.get()) >= ABANDONED
    }
}

impl Drop for CreditGuard<'_> {
    /// Removes this holder's renewal. Otherwise the lock could seem abandoned as soon as the next thread holds it. The mutex is
    /// released afterwards, so this write cannot overwrite a renewal by the next holder.
    fn drop(&mut self) {
        let Release(lock) = &self.release;
        lock.renewed_at.set(NOT_RENEWED);
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        let Self(lock) = self;
        lock.releases.fetch_add(1, Ordering::SeqCst);
        if lock.waiters.load(Ordering::SeqCst) != 0 {
            futex::wake(&lock.releases, 1);
        }
    }
}

impl Deref for CreditGuard<'_> {
    type Target = ProcessCredit;

    fn deref(&self) -> &ProcessCredit {
        &self.credit
    }
}

impl DerefMut for CreditGuard<'_> {
    fn deref_mut(&mut self) -> &mut ProcessCredit {
        &mut self.credit
    }
}

impl ProcessCredit {
    /// Returns the least amount to request so that overlapping launches can go to the driver together. `streams`: number of
    /// streams in use on the device.
    ///
    /// Launches that are paid one by one never run side by side, so their estimates never show that they could overlap. So one
    /// request in [`TRY_EVERY`] pays for a group as a trial. If the launches of the group do not overlap, the process has paid
    /// for up to ten launches in advance.
    pub(crate) fn least_for_overlap(&self, estimate: &Estimate, streams: usize) -> GpuTime {
        if streams < 2 {
            return GpuTime::ZERO;
        }
        lease::together(estimate, self.requests.is_multiple_of(TRY_EVERY)).unwrap_or_default()
    }

    /// Adds GPU time that was paid for.
    pub(crate) fn add(&mut self, amount: GpuTime, now: Monotonic) {
        (self.requests, self.added_at) = (self.requests.wrapping_add(1), now);
        self.lease.fill(amount);
    }

    /// Takes out all credit, if nothing was added for `kept`.
    ///
    /// The caller returns it to the slice. Otherwise credit for a group of launches would stay with a process that has stopped
    /// launching. Other processes of the slice would wait for that time.
    pub(crate) fn take_unspent(&mut self, now: Monotonic, kept: WallTime) -> GpuTime {
        if now.since(self.added_at) < kept { GpuTime::ZERO } else { self.lease.end() }
    }

    /// Returns true if no credit is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.lease.left().is_zero()
    }
}
