//! Registry of the threads that launch: each has a slot from its first launch to its end.
//!
//! A slot belongs to a slice, and a forked child has another slice: a thread of the child finds its parent's slot, sees that, and
//! registers anew.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::slot::{OwnerGuard, SLOT, ThreadSlot};
use crate::compute::measuring::state::MeasuringState;
use crate::os::reentrancy::quietly;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use once_cell::race::OnceNonZeroUsize;
use parking_lot::Mutex;
use std::num::NonZeroUsize;

/// The slots of a process.
#[derive(Debug, Default)]
pub(crate) struct ThreadRegistry {
    all: Mutex<Vec<&'static ThreadSlot>>,
    /// Slots that were cleared after their threads had ended.
    free: Mutex<Vec<&'static ThreadSlot>>,
    /// Threads that launch, as of the worker's last tick.
    active: AtomicUsize,
}

impl ThreadRegistry {
    /// Acquires the calling thread's state. None within a launch that is under way already, and where no state can be had.
    #[inline]
    pub(crate) fn acquire_own(&self, measuring: &'static MeasuringState) -> Option<OwnerGuard> {
        let sp = stack_pointer();
        let slot = match SLOT.get() {
            Some(slot) if ptr::eq(slot.measuring, measuring) => slot,
            _ => self.register(measuring)?,
        };
        slot.acquire_own(sp)
    }

    /// Gives the calling thread a slot.
    #[cold]
    fn register(&self, measuring: &'static MeasuringState) -> Option<&'static ThreadSlot> {
        let register = || {
            // Reused under the lock: `clear` must not take the slot for one without an owner, and give it to another thread too.
            let free = {
                let mut free = self.free.lock();
                free.pop().inspect(|slot| slot.occupancy.reuse())
            };
            let slot = free.unwrap_or_else(|| {
                let slot: &'static ThreadSlot = Box::leak(Box::new(ThreadSlot::new(measuring)));
                self.all.lock().push(slot);
                slot
            });
            SLOT.set(Some(slot));
            watch_end(slot);
            Some(slot)
        };
        quietly(register, None)
    }

    /// All slots as of now.
    pub(crate) fn all(&self) -> Vec<&'static ThreadSlot> {
        self.all.lock().clone()
    }

    /// The state of a slot whose thread has ended was cleared: another thread may have it.
    pub(crate) fn clear(&self, slot: &'static ThreadSlot) {
        let mut free = self.free.lock();
        if slot.occupancy.try_free() {
            free.push(slot);
        }
    }

    /// Sets how many threads launch.
    pub(crate) fn set_active(&self, active: usize) {
        self.active.store(active, Ordering::Relaxed);
    }

    /// The part of a lease that one thread takes. Where very many threads launch, the credit that they hold together must not keep
    /// them all waiting.
    pub(crate) fn part_of_lease(&self, lease: u64) -> u64 {
        /// Up to 8 threads hold whole leases.
        const WHOLE: usize = 8;
        let parts = self.active.load(Ordering::Relaxed).checked_div(WHOLE).unwrap_or(0).max(1);
        lease.checked_div(u64::try_from(parts).unwrap_or(1)).unwrap_or(lease)
    }
}

#[inline]
fn stack_pointer() -> usize {
    let here = 0_u8;
    ptr::from_ref(&here).addr()
}

/// Has the C library call [`ended`] when this thread ends. Where it cannot, the thread's last credit is lost to its slice.
fn watch_end(slot: &'static ThreadSlot) {
    static KEY: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the output is valid for writes, and the function stays: the library is never unloaded.
        let code = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) };
        let key = usize::try_from(key).unwrap_or(usize::MAX).wrapping_add(1);
        NonZeroUsize::new(if code == 0 { key } else { usize::MAX }).unwrap_or(NonZeroUsize::MAX)
    });
    if let Ok(key) = libc::pthread_key_t::try_from(key.get().wrapping_sub(1)) {
        // SAFETY: a key of our own; the slot is never freed.
        unsafe { libc::pthread_setspecific(key, ptr::from_ref(slot).cast()) };
    }
}

/// A thread ends. A launch in a later destructor registers anew.
unsafe extern "C" fn ended(slot: *mut libc::c_void) {
    // SAFETY: the pointer that `watch_end` gave.
    let slot = unsafe { &*slot.cast::<ThreadSlot>() };
    SLOT.set(None);
    slot.occupancy.end();
    // In a forked child that has not launched, the locks behind it may be held by threads that are not there.
    let usage = &**slot.measuring;
    if (usage.of_this_process)().is_some_and(|own| ptr::eq(own, usage)) {
        usage.worker.wake();
    }
}
