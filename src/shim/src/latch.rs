//! How is something guarded that is held for a look-up and no longer?
//!
//! By one byte, taken by a locked instruction and given back by a plain store: half of what a lock takes that has to
//! know whether somebody waits. Who finds it taken spins for a moment and then sleeps in short pieces, since its holder
//! may have lost the processor: a waiter of a higher real-time priority that only spun would keep it from going on.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use parking_lot::lock_api::{GuardNoSend, Mutex, RawMutex};

/// A value that is looked at by one thread at a time. Never held across a call of the driver.
pub(crate) type Latched<T> = Mutex<Latch, T>;

/// How often it is looked before a waiter sleeps: about as long as a sleep and a wake-up take.
const LOOKS: u32 = 200;
/// The shortest sleep. The kernel adds its own, about 50 microseconds.
const SLEEP: Duration = Duration::from_micros(1);

/// The byte.
#[derive(Debug)]
pub(crate) struct Latch(AtomicBool);

// SAFETY: between `lock` and `unlock` the byte is set, and only who found it unset passes.
unsafe impl RawMutex for Latch {
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

impl Latch {
    #[cold]
    #[allow(
        clippy::disallowed_methods,
        reason = "a wait for some nanoseconds, or for a thread without a processor"
    )]
    fn wait(&self) {
        loop {
            for _ in 0..LOOKS {
                if !self.0.load(Ordering::Relaxed) && self.try_lock() {
                    return;
                }
                core::hint::spin_loop();
            }
            gpuslice_region::pause(SLEEP);
        }
    }
}
