//! Registry of the threads that launch: each has a slot from its first launch to its end.
//!
//! A slot belongs to a slice, and a forked child has another slice. If a thread of the child finds its parent's slot, it sees
//! that, and registers again.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::slot::{OwnerGuard, SLOT, ThreadSlot};
use crate::compute::measuring::state::MeasuringState;
use crate::os::reentrancy::enter_or;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use once_cell::race::OnceNonZeroUsize;
use parking_lot::Mutex;
use std::num::NonZeroUsize;

/// The slots of a process.
#[derive(Debug, Default)]
pub(crate) struct ThreadRegistry {
    /// All slots that were ever made, with and without an owner. The list only grows.
    all: Mutex<Vec<&'static ThreadSlot>>,
    /// Slots that were cleared after their threads had ended.
    free: Mutex<Vec<&'static ThreadSlot>>,
    /// Threads that launch, as of the worker's last tick.
    active: AtomicUsize,
}

impl ThreadRegistry {
    /// Acquires the calling thread's state. None inside a launch that is under way already, and if the thread can get no state.
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
    ///
    /// The slot is in the list before the thread can launch. Otherwise a thread that destroys a stream could miss its open batch.
    ///
    /// A phase surrounds this function, because it allocates. Example: the program's allocator launches inside the allocation.
    /// That launch finds the phase, gets no slot, and goes to the driver unpaid; without the phase it would register without end.
    #[cold]
    fn register(&self, measuring: &'static MeasuringState) -> Option<&'static ThreadSlot> {
        let register = || {
            // Reused under the lock: otherwise `clear` could take the slot for one without an owner, and give it to another
            // thread too.
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
        enter_or(register, None)
    }

    /// Returns all slots.
    pub(crate) fn all(&self) -> Vec<&'static ThreadSlot> {
        self.all.lock().clone()
    }

    /// Frees the slot of a thread that has ended, after its state was cleared: another thread may reuse it.
    ///
    /// The check and the push are under the lock that [`register`](Self::register) holds while it reuses a slot. Slots are reused
    /// because none is ever freed. Otherwise a program that makes a thread for each task would grow by a slot for each.
    pub(crate) fn clear(&self, slot: &'static ThreadSlot) {
        let mut free = self.free.lock();
        if slot.occupancy.try_free() {
            free.push(slot);
        }
    }

    /// Sets the number of threads that launch.
    pub(crate) fn set_active(&self, active: usize) {
        self.active.store(active, Ordering::Relaxed);
    }

    /// Returns the number of threads that launch, as of the worker's last tick.
    ///
    /// The sizes of leases follow from it. Its age matters little: a lease that is too large comes back when the thread does not
    /// spend it.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }
}

#[inline]
fn stack_pointer() -> usize {
    let here = 0_u8;
    ptr::from_ref(&here).addr()
}

/// Has the C library call [`ended`] when this thread ends. If that fails, the slice loses the thread's last credit.
///
/// A destructor of the thread-local itself would not do. Rust refuses access to it once it has run, but a later destructor of the
/// program may still launch. The C library calls the destructors of keys for some rounds, while keys have values. So a slot that
/// such a launch registers is ended too.
///
/// The word is the key plus 1, because 0 is a valid key. The largest number marks a failure.
fn watch_end(slot: &'static ThreadSlot) {
    static KEY: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `pthread_key_create` needs an output that is valid for writes, and a function that stays. `key` is on this
        // stack, and the library is never unloaded.
        let code = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) };
        let key = usize::try_from(key).unwrap_or(usize::MAX).wrapping_add(1);
        NonZeroUsize::new(if code == 0 { key } else { usize::MAX }).unwrap_or(NonZeroUsize::MAX)
    });
    if let Ok(key) = libc::pthread_key_t::try_from(key.get().wrapping_sub(1)) {
        // SAFETY: `pthread_setspecific` needs a key that exists: `key` is the one made above. The slot is never freed.
        unsafe { libc::pthread_setspecific(key, ptr::from_ref(slot).cast()) };
    }
}

/// Notes that the calling thread ends. A launch in a later destructor registers again.
///
/// The thread forgets the slot before it marks its end. From the mark on the worker may clear the slot, and another thread may
/// own it. If this thread still had it, both could hold the state at once.
unsafe extern "C" fn ended(slot: *mut libc::c_void) {
    // SAFETY: `slot` is the pointer that `watch_end` gave, and slots are never freed.
    let slot = unsafe { &*slot.cast::<ThreadSlot>() };
    SLOT.set(None);
    slot.end();
    // In a forked child that has not launched, the locks of the worker may be held by threads that the child does not have.
    let usage = &**slot.measuring;
    if (usage.of_this_process)().is_some_and(|own| ptr::eq(own, usage)) {
        usage.worker.wake();
    }
}
