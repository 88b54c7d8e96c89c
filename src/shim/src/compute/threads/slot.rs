//! Slot of a thread: its state, and the lock by which the thread itself or another thread accesses it.
//!
//! The thread owns its state from the entry of a launch to its return, across the driver's call. Other threads access it seldom.
//! They close a batch that the thread has left open, or clear the state of a thread that has ended.
//!
//! This is a biased lock. The owner sets `owner_active`, then reads `remote_active`, without an atomic exchange. Another thread
//! sets `remote_active`, makes all threads of the process pass a full fence (`os::asymmetric_fence`), and then reads
//! `owner_active`. At least one of the two sees the flag of the other. If the owner sees a flag, it waits. If the other thread
//! sees a flag, it gives up.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::occupancy::Occupancy;
use super::thread_state::ThreadState;
use crate::compute::measuring::state::MeasuringState;
use crate::os::{asymmetric_fence, reentrancy};
use core::cell::{Cell, UnsafeCell};
use core::ops::{Deref, DerefMut};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

/// Number of pauses for which another thread waits until a launch ends. A launch usually takes a few microseconds.
const LAUNCH_PAUSES: u32 = 250;

std::thread_local! {
    /// This thread's slot. The thread-local has no destructor, so it is usable at any time of the thread's life.
    pub(super) static SLOT: Cell<Option<&'static ThreadSlot>> = const { Cell::new(None) };
}

/// Slot of a thread. It is never freed: a thread-local points to it, and a thread that has ended may launch again in a
/// destructor.
///
/// Only the owner writes `owner_active`, `entry_sp` and `owner_epoch`. They are atomic because other threads read the slot too.
/// The owner changes them by a plain load and store. A locked instruction would cost the usual launch about as much as a fence.
#[derive(Debug)]
pub(crate) struct ThreadSlot {
    /// True if the owner is in a launch. Written by the owner alone, before it reads `remote_active`.
    owner_active: AtomicBool,
    /// True if another thread has the state, or requests it. Such a thread sets it by an exchange, so only one of them has the
    /// state at a time. It reads `owner_active` afterwards.
    remote_active: AtomicBool,
    /// True if the owner executes a fence of its own in each launch, whether or not `os::asymmetric_fence` works.
    owner_fences: AtomicBool,
    /// True if another thread wanted to close batches and could not access the state.
    close_pending: AtomicBool,
    /// Stack pointer of the owner when it acquired the state. It distinguishes a launch inside another launch from a launch after
    /// a `longjmp`.
    entry_sp: AtomicUsize,
    /// Number of acquisitions by the owner; wraps.
    owner_epoch: AtomicU64,
    /// Owner's epoch at the worker's last tick. Written in [`scan`](Self::scan) only.
    scanned_epoch: AtomicU64,
    /// Owner's epoch at the last access after which other threads had nothing to do in this slot. Written by a thread that has
    /// the state.
    clean_epoch: AtomicU64,
    pub(crate) occupancy: Occupancy,
    /// State of GPU time to which the slot belongs. A forked child has another state.
    pub(super) measuring: &'static MeasuringState,
    state: UnsafeCell<ThreadState>,
}

// SAFETY: `Sync` requires that threads that share the slot do not access its state at once. They access the state only through
// `StateGuard`, and `owner_active` and `remote_active` let one guard exist at a time.
unsafe impl Sync for ThreadSlot {}

/// Access to a thread's state, by its owner or by another thread. Its drop ends the access.
#[derive(Debug)]
pub(crate) struct StateGuard<const IS_OWNER: bool> {
    slot: &'static ThreadSlot,
}

/// The owner's access.
pub(crate) type OwnerGuard = StateGuard<true>;

/// Another thread's access.
pub(crate) type RemoteGuard = StateGuard<false>;

impl<const IS_OWNER: bool> Deref for StateGuard<IS_OWNER> {
    type Target = ThreadState;

    #[inline]
    fn deref(&self) -> &ThreadState {
        // SAFETY: a shared reference requires that no other thread changes the state. By the protocol of the two flags, this
        // guard is the only guard of the slot.
        unsafe { &*self.slot.state.get() }
    }
}

impl<const IS_OWNER: bool> DerefMut for StateGuard<IS_OWNER> {
    #[inline]
    fn deref_mut(&mut self) -> &mut ThreadState {
        // SAFETY: a mutable reference requires that no other reference exists. By the protocol of the two flags, this guard is
        // the only guard of the slot, and it is borrowed mutably.
        unsafe { &mut *self.slot.state.get() }
    }
}

impl<const IS_OWNER: bool> StateGuard<IS_OWNER> {
    /// Gives up batches that another thread had to close but could not, because the state was in use. Their streams may have
    /// ended since.
    ///
    /// The mark does not name a stream, so this function gives up all open batches of the thread, also on streams that still
    /// exist. It does not close them, because a close records an event. Example: the handle of a destroyed stream may already
    /// name a new stream. The event would then measure the work of the new stream.
    pub(crate) fn give_up_pending(&mut self) {
        if self.slot.close_pending.swap(false, Ordering::Acquire) {
            let measuring = self.slot.measuring;
            self.give_up(measuring);
        }
    }
}

impl<const IS_OWNER: bool> Drop for StateGuard<IS_OWNER> {
    #[inline]
    fn drop(&mut self) {
        let active = if IS_OWNER { &self.slot.owner_active } else { &self.slot.remote_active };
        // Release: pairs with the acquire load of this flag by the next thread that takes the state.
        active.store(false, Ordering::Release);
    }
}

impl OwnerGuard {
    /// Ends the access during `wait`, and begins it again.
    ///
    /// A launch may wait for seconds for its share. If the thread kept its state meanwhile, another thread that destroys a stream
    /// would wait for milliseconds. And the worker could not take back the thread's credit.
    ///
    /// `wait` runs outside the phase, because a signal handler may leave it by `longjmp`: see [`reentrancy::leave_during`]. Then
    /// this function does not return, and the thread's next launch finds that `owner_active` is false.
    ///
    /// The stack pointer is written again after the wait, because a signal handler may have launched from a deeper frame. With
    /// the handler's stack pointer, a launch inside this launch would count as a launch after a jump. Then both would have the
    /// state.
    ///
    /// After the wait the caller reads everything again. Example: the worker may have given the rest of the thread's lease back.
    pub(crate) fn unlocked<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let sp = self.slot.entry_sp.load(Ordering::Relaxed);
        self.slot.owner_active.store(false, Ordering::Release);
        let done = reentrancy::leave_during(wait);
        let mut tries = 0;
        // Another thread has the state only while it closes batches, so this thread waits without a bound.
        while !self.slot.try_enter() {
            pause(&mut tries);
        }
        self.slot.entry_sp.store(sp, Ordering::Relaxed);
        self.slot.count_entry();
        done
    }
}

impl RemoteGuard {
    /// Ends the access. Other threads have nothing to do here until the owner acquires the state again.
    ///
    /// The epoch is written before the guard is dropped, while the owner cannot enter. With a later write, a launch in between
    /// would count as clean. The worker would then not close its batch until the next launch.
    pub(crate) fn leave_clean(self) {
        self.slot.clean_epoch.store(self.slot.owner_epoch.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Outcome of the worker's attempt to access a thread's state.
#[derive(Debug)]
pub(crate) enum RemoteAccess {
    /// The owner or another thread has the state.
    Busy,
    /// There is nothing to do in the slot.
    Clean,
    /// The worker has the state.
    Acquired(RemoteGuard),
}

impl ThreadSlot {
    /// Makes a slot for the calling thread.
    pub(super) fn new(measuring: &'static MeasuringState) -> Self {
        Self {
            owner_active: AtomicBool::new(false),
            remote_active: AtomicBool::new(false),
            owner_fences: AtomicBool::new(false),
            close_pending: AtomicBool::new(false),
            entry_sp: AtomicUsize::new(0),
            owner_epoch: AtomicU64::new(0),
            scanned_epoch: AtomicU64::new(0),
            clean_epoch: AtomicU64::new(u64::MAX),
            occupancy: Occupancy::default(),
            measuring,
            state: UnsafeCell::new(ThreadState::new(measuring.limiters.len())),
        }
    }

    /// Acquires the state for its owner. Returns `None` inside a launch of the owner that is under way.
    ///
    /// The usual launch needs no exchange and no fence here. `sp` is the caller's stack pointer.
    ///
    /// A thread may launch inside its own launch. Example: the driver calls the program's allocator in a launch, and the
    /// allocator launches too. With a second guard both launches would change the same batch, so the inner launch goes to the
    /// driver unpaid.
    #[inline]
    pub(super) fn acquire_own(&'static self, sp: usize) -> Option<OwnerGuard> {
        if self.owner_active.load(Ordering::Relaxed) || !self.try_enter() {
            return self.wait_or_nested(sp);
        }
        Some(self.begin_access(sp))
    }

    /// Begins the access of the owner, which has set `owner_active`.
    #[inline]
    fn begin_access(&'static self, sp: usize) -> OwnerGuard {
        self.entry_sp.store(sp, Ordering::Relaxed);
        self.count_entry();
        StateGuard { slot: self }
    }

    /// Enters as the owner, which is not active. Returns false if another thread has the state.
    ///
    /// The write comes before the read, with a fence between them. If the processor swapped the two, the owner and another thread
    /// could each miss the other's flag, and both would change the state. `asymmetric_fence::light` is only a fence of the
    /// compiler. The other thread's `heavy` makes this thread pass a real fence.
    ///
    /// On failure the owner unsets its flag, although it tries again soon. Otherwise the other thread would see the flag and give
    /// up without having closed a batch, and the batches would stay open.
    #[inline]
    fn try_enter(&self) -> bool {
        self.owner_active.store(true, Ordering::Relaxed);
        asymmetric_fence::light(&self.owner_fences);
        // Acquire: pairs with the release of the last remote guard.
        if !self.remote_active.load(Ordering::Acquire) {
            return true;
        }
        self.owner_active.store(false, Ordering::Release);
        false
    }

    /// Counts an entry of the owner. Other threads see by it that their knowledge of the state is out of date.
    #[inline]
    fn count_entry(&self) {
        self.owner_epoch.store(self.owner_epoch.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Waits while another thread uses the state, and then acquires it. Acquires it at once if an earlier launch of the owner
    /// never returned, because a `longjmp` left it. Returns `None` inside a launch of the owner that is under way.
    ///
    /// If `owner_active` is set, the stack pointer tells these two cases apart. A launch inside another launch has a lower stack
    /// pointer, because stacks grow down. A launch with the same or a higher stack pointer runs after a `longjmp`, for example in
    /// the same loop. Without this second case a program that jumps out of one launch would never be paced again. The flag was
    /// set during the whole jump, so no other thread has the state.
    #[cold]
    fn wait_or_nested(&'static self, sp: usize) -> Option<OwnerGuard> {
        let mut tries = 0;
        loop {
            if self.owner_active.load(Ordering::Relaxed) {
                if sp < self.entry_sp.load(Ordering::Relaxed) {
                    return None;
                }
                return Some(self.begin_access(sp));
            }
            if self.try_enter() {
                return Some(self.begin_access(sp));
            }
            // This thread itself may hold the other guard: it closes batches, and the program's allocator launches meanwhile.
            if reentrancy::is_inside() {
                return None;
            }
            pause(&mut tries);
        }
    }

    /// Acquires the state for another thread, if no thread uses it.
    ///
    /// The first read of `owner_active` is only a shortcut. If the owner is active, it avoids an interruption of all threads and
    /// a wait of the owner.
    ///
    /// The exchange excludes other threads than the owner. Example: the worker closes a batch while a thread destroys its stream;
    /// without the exchange both would take the batch out of the state. After the fence the second read decides. If it finds the
    /// owner active, this function drops the guard, which unsets `remote_active`. So this side gives way, and the owner
    /// continues.
    ///
    /// The function also returns `None` if the kernel refuses the barrier and the owner has not confirmed a fence of its own.
    /// Then the second read proves nothing.
    fn try_acquire_remote(&'static self) -> Option<RemoteGuard> {
        if self.owner_active.load(Ordering::Relaxed) {
            return None;
        }
        // Acquire: pairs with the release of the last remote guard.
        self.remote_active.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let guard = StateGuard { slot: self };
        // The calling thread's own slot needs no fence, because a thread sees its own writes in order. The slot of a thread
        // that has ended needs none either. Acquire: pairs with the release in `asymmetric_fence::light`.
        let is_seen = self.is_mine()
            || self.occupancy.has_ended_fenced()
            || asymmetric_fence::heavy()
            || self.owner_fences.load(Ordering::Acquire);
        // Acquire: pairs with the release of the owner's guard.
        (is_seen && !self.owner_active.load(Ordering::Acquire)).then_some(guard)
    }

    /// Acquires the state for the worker, if there may be anything to do and the owner has not launched since the last tick.
    ///
    /// Each access makes all threads of the process pass a fence. So the worker skips a thread that launches all the time,
    /// because such a thread closes its own batches. It also skips a thread that has nothing to close and no credit. Otherwise a
    /// process with 100 idle threads would pay for 100 barriers a millisecond. The worker does not skip the slot of a thread that
    /// has ended, because the slot must be freed.
    pub(crate) fn scan(&'static self) -> RemoteAccess {
        // Relaxed: the next tick sees a launch that this read misses.
        let epoch = self.owner_epoch.load(Ordering::Relaxed);
        let is_still = self.scanned_epoch.swap(epoch, Ordering::Relaxed) == epoch;
        if !is_still {
            RemoteAccess::Busy
        } else if self.is_clean() && !self.occupancy.has_ended() {
            RemoteAccess::Clean
        } else {
            self.try_acquire_remote().map_or(RemoteAccess::Busy, RemoteAccess::Acquired)
        }
    }

    /// Returns true if other threads had nothing to do here, and the owner has not entered since. Relaxed: a launch that this
    /// read misses is not ordered before the caller's check.
    pub(crate) fn is_clean(&self) -> bool {
        self.clean_epoch.load(Ordering::Relaxed) == self.owner_epoch.load(Ordering::Relaxed)
    }

    /// Acquires the state for a thread that ends a stream or a context. Waits while the owner is inside the driver, or while
    /// another thread has the state. Returns `None` if that takes too long. Also returns `None` inside a launch of the calling
    /// thread, because that launch cannot end meanwhile. Then the next guard [gives up](StateGuard::give_up_pending) the batches.
    ///
    /// The wait is bounded, because a launch stays in the driver while the queue of its stream is full. Example: the stream
    /// waits for a word in memory, and the calling thread writes that word only after this call.
    pub(crate) fn acquire_remote(&'static self) -> Option<RemoteGuard> {
        let mut tries = 0;
        loop {
            if let Some(guard) = self.try_acquire_remote() {
                return Some(guard);
            }
            let is_active = self.owner_active.load(Ordering::Relaxed);
            // If a sandbox has forbidden the barrier meanwhile, only the owner can still acquire the state.
            let is_hopeless = tries >= LAUNCH_PAUSES && (is_active || !asymmetric_fence::heavy());
            if is_hopeless || (is_active && self.is_mine()) {
                // Release: pairs with the exchange of `give_up_pending`.
                self.close_pending.store(true, Ordering::Release);
                return None;
            }
            pause(&mut tries);
        }
    }

    /// Ends the owner's use of the slot. The owner calls this at its end, outside any launch.
    ///
    /// It unsets `owner_active`, because the thread may have left its last launch by `longjmp`. With the flag set no other thread
    /// could ever clear the slot: the thread's credit would be lost, and the worker would tick for ever.
    pub(super) fn end(&self) {
        self.owner_active.store(false, Ordering::Release);
        self.occupancy.end();
    }

    /// Returns true if the calling thread owns the slot.
    pub(crate) fn is_mine(&self) -> bool {
        SLOT.get().is_some_and(|slot| ptr::eq(slot, self))
    }
}

/// Pauses in a loop that waits for the thread that has the state. The first pauses only yield. Later pauses sleep, because a
/// yield gives no time to a thread of lower real-time priority.
#[cold]
fn pause(tries: &mut u32) {
    const YIELDS: u32 = 50;
    *tries = tries.saturating_add(1);
    if *tries < YIELDS { std::thread::yield_now() } else { gpuslice_region::pause(Duration::from_micros(20)) }
}
