//! Spin lock of one byte, for tables that are locked for one look-up.
//!
//! A thread takes the lock by a locked instruction and releases it by a plain store. That costs half of a lock that counts its
//! waiters. If the lock is taken, a thread spins for a moment and then sleeps for short times, because the holder may have lost
//! its processor. If a waiter of higher real-time priority only spun, the holder could not run.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use parking_lot::lock_api::{GuardNoSend, Mutex, RawMutex};

/// A value behind a spin lock. No thread holds the lock across a call of the driver.
pub(crate) type SpinLocked<T> = Mutex<SpinLock, T>;

/// Number of tries before a waiter sleeps. They take about as long as a sleep and a wake-up.
const SPINS: u32 = 200;
/// Duration of a sleep. The kernel adds about 50 microseconds.
const SLEEP: Duration = Duration::from_micros(1);

/// The byte of the lock.
#[derive(Debug)]
pub(crate) struct SpinLock(AtomicBool);

// SAFETY: `RawMutex` requires that one thread at a time holds the lock. Between `lock` and `unlock` the byte is set, and only the
// thread that found it unset returns from `lock`.
unsafe impl RawMutex for SpinLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "how `lock_api` makes a new lock")]
    const INIT: Self = Self(AtomicBool::new(false));

    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire: pairs with the store in `unlock`.
        !self.0.swap(true, Ordering::Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Release: pairs with the swap in `try_lock`.
        self.0.store(false, Ordering::Release);
    }
}

impl SpinLock {
    #[cold]
    #[allow(
        clippy::disallowed_methods,
        reason = "a wait for some nanoseconds, or for a thread without a processor"
    )]
    fn wait(&self) {
        loop {
            for _ in 0..SPINS {
                if !self.0.load(Ordering::Relaxed) && self.try_lock() {
                    return;
                }
                core::hint::spin_loop();
            }
            gpuslice_region::pause(SLEEP);
        }
    }
}
