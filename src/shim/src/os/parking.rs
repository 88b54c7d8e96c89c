//! Sleep of a thread of the library until another thread wakes it.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, Ordering, fence};
use core::time::Duration;
use parking_lot::{Condvar, Mutex};

/// The place at which one thread sleeps.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    asleep: AtomicBool,
    lock: Mutex<()>,
    wakeup: Condvar,
}

impl Parking {
    /// Wakes the thread if it sleeps.
    pub(crate) fn wake(&self) {
        // SeqCst: either this thread sees `asleep`, or the thread that is about to sleep sees this thread's earlier writes.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            let _sleep = self.lock.lock();
            self.wakeup.notify_one();
        }
    }

    /// Puts the calling thread to sleep until [`wake`](Self::wake) or for `most`, unless `is_needed` says that there is work.
    pub(crate) fn sleep(&self, is_needed: impl FnOnce() -> bool, most: Option<Duration>) {
        let mut sleep = self.lock.lock();
        self.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
        if !is_needed() {
            match most {
                Some(most) => drop(self.wakeup.wait_for(&mut sleep, most)),
                None => self.wakeup.wait(&mut sleep),
            }
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}
