//! Registry of the threads that launch: each has a slot from its first launch to its end.
//!
//! A slot belongs to the state of one process, and a forked child has another state. If a thread of the child finds the slot of
//! its parent, it detects that, and registers again.
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
    /// Acquires the calling thread's state. Returns `None` inside a launch of this thread that is under way, or if the thread can
    /// get no slot.
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
    /// The function runs in a phase, because it allocates. Example: the program's allocator launches inside the allocation. That
    /// launch finds the phase, gets no slot, and goes to the driver unpaid. Without the phase it would register again and again.
    #[cold]
    fn register(&self, measuring: &'static MeasuringState) -> Option<&'static ThreadSlot> {
        let register = || {
            // The lock is held while the slot is reused. Otherwise `clear` could find the slot without an owner, and give it to
            // another thread too.
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

    /// Marks the slot of a thread that has ended as free, after its state was cleared. Another thread may then reuse it.
    ///
    /// The check and the push are under the lock that [`register`](Self::register) holds while it reuses a slot. The memory of a
    /// slot is never freed, so slots are reused. Otherwise a program with a thread for each task would grow by a slot per task.
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
    /// The sizes of leases depend on it. An old value does little harm: the worker gives a lease back that its thread does not
    /// spend.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }
}

#[inline]
fn stack_pointer() -> usize {
    let here = 0_u8;
    ptr::from_ref(&here).addr()
}

/// Makes the C library call [`ended`] when this thread ends. If that fails, the slice loses the thread's last credit.
///
/// A destructor of the thread-local does not suffice. After it has run, Rust refuses access to the thread-local, but a later
/// destructor of the program may still launch. The C library calls the destructors of keys for several rounds, as long as keys
/// have values. So a slot that such a launch registers is ended too.
///
/// `KEY` holds the key plus 1, because 0 is a valid key. The largest number marks a failure.
fn watch_end(slot: &'static ThreadSlot) {
    static KEY: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `pthread_key_create` requires an output that is valid for writes, and a function that remains loaded. The
        // output is the local `key`, and the library is never unloaded.
        let code = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) };
        let key = usize::try_from(key).unwrap_or(usize::MAX).wrapping_add(1);
        NonZeroUsize::new(if code == 0 { key } else { usize::MAX }).unwrap_or(NonZeroUsize::MAX)
    });
    if let Ok(key) = libc::pthread_key_t::try_from(key.get().wrapping_sub(1)) {
        // SAFETY: `pthread_setspecific` requires an existing key: `KEY` holds it. The function only stores the pointer.
        unsafe { libc::pthread_setspecific(key, ptr::from_ref(slot).cast()) };
    }
}

/// Notes that the calling thread ends. A launch in a later destructor registers again.
///
/// The thread forgets the slot before it marks its end. After the mark the worker may clear the slot, and another thread may own
/// it. If this thread still used the slot, both threads could hold the state at once.
unsafe extern "C" fn ended(slot: *mut libc::c_void) {
    // SAFETY: the dereference requires a pointer to a living `ThreadSlot`. `watch_end` passes one, and slots are never freed.
    let slot = unsafe { &*slot.cast::<ThreadSlot>() };
    SLOT.set(None);
    slot.end();
    // In a forked child that has not launched, the locks of the worker may be held by threads that the child does not have.
    let usage = &**slot.measuring;
    if (usage.of_this_process)().is_some_and(|own| ptr::eq(own, usage)) {
        usage.worker.wake();
    }
}
