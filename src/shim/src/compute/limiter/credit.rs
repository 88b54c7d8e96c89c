//! Which thread of this process asks for the slice's time?
//!
//! One at a time, which also keeps what was taken and not yet spent. Whoever lets go of it wakes one of those who wait,
//! whatever it was held for: a wait that nobody ends lasts until the waiter looks again by itself.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::os::futex;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::limiter::lease::{self, Lease};
use parking_lot::{Mutex, MutexGuard};

/// Who asks looks again each second at least. One that did not for so long, in nanoseconds, never came back from its wait
/// (`longjmp` out of a signal handler) and must not keep the others: they ask beside it.
const GONE: u64 = 2_000_000_000;
/// Every so many times it is tried whether launches overlap.
const TRY_EVERY: u32 = 16;

/// Who asks, and who waits to.
#[derive(Debug, Default)]
pub(crate) struct CreditLock {
    pot: Mutex<ProcessCredit>,
    /// When who asks looked last, on the monotonic clock.
    looked: AtomicU64,
    /// How often somebody has let go of it; wraps.
    turns: AtomicU32,
    /// How many threads wait for that.
    waiters: AtomicU32,
}

/// GPU time that a process has taken for launches that are to go together, whichever thread makes them.
#[derive(Debug, Default)]
pub(crate) struct ProcessCredit {
    /// What is in it.
    pub(crate) credit: Lease,
    takes: u32,
    taken_at: u64,
}

/// The right to ask. It ends when this is dropped, and the next is woken.
#[derive(Debug)]
pub(crate) struct CreditGuard<'a> {
    // In this order: who is woken finds it free.
    pot: MutexGuard<'a, ProcessCredit>,
    _end: End<'a>,
}

#[derive(Debug)]
struct End<'a>(&'a CreditLock);

impl CreditLock {
    /// Begins to ask, unless another thread does.
    pub(crate) fn begin(&self) -> Option<CreditGuard<'_>> {
        self.pot.try_lock().map(|pot| CreditGuard { pot, _end: End(self) })
    }

    /// The same; waits for the other to let go of it, for so long at most.
    pub(crate) fn begin_soon(&self, most: Duration) -> Option<CreditGuard<'_>> {
        let turns = self.turns.load(Ordering::SeqCst);
        // SeqCst: either who lets go of it sees this, or this finds it free.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let turn = self.begin().or_else(|| {
            futex::wait(&self.turns, turns, most);
            self.begin()
        });
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        turn
    }

    /// Who asks looks again.
    pub(crate) fn look(&self, now: u64) {
        self.looked.store(now, Ordering::Relaxed);
    }

    /// Whether who asked never came back.
    pub(crate) fn is_left(&self, now: u64) -> bool {
        now.saturating_sub(self.looked.load(Ordering::Relaxed)) >= GONE
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let Self(asking) = self;
        asking.turns.fetch_add(1, Ordering::SeqCst);
        if asking.waiters.load(Ordering::SeqCst) != 0 {
            futex::wake(&asking.turns, 1);
        }
    }
}

impl Deref for CreditGuard<'_> {
    type Target = ProcessCredit;

    fn deref(&self) -> &ProcessCredit {
        &self.pot
    }
}

impl DerefMut for CreditGuard<'_> {
    fn deref_mut(&mut self) -> &mut ProcessCredit {
        &mut self.pot
    }
}

impl ProcessCredit {
    /// How much to take at least so that launches that overlap can go together, where there are so many streams.
    pub(crate) fn together(&self, estimate: &Estimate, lanes: usize) -> u64 {
        if lanes < 2 {
            return 0;
        }
        lease::together(estimate, self.takes.is_multiple_of(TRY_EVERY)).unwrap_or(0)
    }

    /// So much was taken.
    pub(crate) fn take(&mut self, amount: u64, now: u64) {
        (self.takes, self.taken_at) = (self.takes.wrapping_add(1), now);
        self.credit.fill(amount);
    }

    /// Takes out what nobody has spent for so long, in nanoseconds.
    pub(crate) fn unspent(&mut self, now: u64, kept: u64) -> u64 {
        if now.saturating_sub(self.taken_at) < kept { 0 } else { self.credit.end() }
    }

    /// Whether there is anything in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.credit.left() == 0
    }
}
