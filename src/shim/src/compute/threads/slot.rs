//! Slot of a thread: its state, and the lock by which the thread itself or another thread accesses it.
//!
//! The thread owns its state from the entry of a launch to its return, across the driver's call. Other threads access it seldom.
//! They close a batch that the thread has left open, or clear the state of a thread that has ended.
//!
//! This is a biased lock. The owner sets `owner_active`, then reads `remote_active`, without an atomic exchange. Another thread
//! sets `remote_active`, has all threads of the process pass a full fence (`os::asymmetric_fence`), and then reads
//! `owner_active`. At least one of the two sees the other: the owner then waits, and the other thread gives up.
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

/// Another thread waits for this many pauses until a launch ends, which usually takes some microseconds.
const LAUNCH_PAUSES: u32 = 250;

std::thread_local! {
    /// This thread's slot. Has no destructor, so it is usable at any time of the thread's life.
    pub(super) static SLOT: Cell<Option<&'static ThreadSlot>> = const { Cell::new(None) };
}

/// Slot of a thread. Never freed: a thread-local points to it, and a thread that has ended may come back in a destructor.
///
/// Only the owner writes `owner_active`, `entry_sp` and `owner_epoch`. They are atomic because other threads read the slot too.
/// The owner changes them by a plain load and store. A locked instruction would cost the usual launch about as much as a fence.
#[derive(Debug)]
pub(crate) struct ThreadSlot {
    /// True if the owner is in a launch. Written by the owner alone, before it reads `remote_active`.
    owner_active: AtomicBool,
    /// True if another thread has the state, or requests it. Set by an exchange, so one such thread at a time has it. That thread
    /// reads `owner_active` afterwards.
    remote_active: AtomicBool,
    /// True if the owner executes a fence of its own in each launch, whether or not `os::asymmetric_fence` works.
    owner_fences: AtomicBool,
    /// True if another thread wanted to close batches and could not access the state.
    close_pending: AtomicBool,
    /// Stack pointer of the owner when it acquired the state. It tells a nested launch from one that `longjmp` has left.
    entry_sp: AtomicUsize,
    /// Number of acquisitions by the owner; wraps.
    owner_epoch: AtomicU64,
    /// Owner's epoch at the worker's last tick. Written in [`scan`](Self::scan) only.
    scanned_epoch: AtomicU64,
    /// Owner's epoch when other threads were last known to have nothing to do in this slot. Written by a thread that has the
    /// state.
    clean_epoch: AtomicU64,
    pub(crate) occupancy: Occupancy,
    /// State of GPU time that the slot belongs to: a forked child has another.
    pub(super) measuring: &'static MeasuringState,
    state: UnsafeCell<ThreadState>,
}

// SAFETY: the state is reached only through `StateGuard`, and `owner_active` and `remote_active` let one guard exist at a time.
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
        // SAFETY: one guard of the slot exists at a time, by the protocol of the two flags.
        unsafe { &*self.slot.state.get() }
    }
}

impl<const IS_OWNER: bool> DerefMut for StateGuard<IS_OWNER> {
    #[inline]
    fn deref_mut(&mut self) -> &mut ThreadState {
        // SAFETY: one guard of the slot exists at a time, and it is borrowed mutably.
        unsafe { &mut *self.slot.state.get() }
    }
}

impl<const IS_OWNER: bool> StateGuard<IS_OWNER> {
    /// Gives up batches that another thread had to close and could not, because the state was in use: their streams may have
    /// ended since.
    ///
    /// The mark does not name a stream, so all open batches of the thread are given up, also those on streams that live. To close
    /// them instead would record events. Example: the handle of a destroyed stream may name a new stream by now. The event would
    /// then measure the work of that stream.
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
        // Release: pairs with the acquiring load of the next thread.
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
    /// this function does not return, and the thread's next launch finds `owner_active` unset.
    ///
    /// The stack pointer is written again after the wait, because the handler may launch too, from a deeper frame. With the
    /// handler's stack pointer a launch nested in this one would count as one after a jump, and both would have the state.
    ///
    /// After the wait the caller reads everything again. Example: the worker may have given the rest of the thread's lease back.
    pub(crate) fn unlocked<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let sp = self.slot.entry_sp.load(Ordering::Relaxed);
        self.slot.owner_active.store(false, Ordering::Release);
        let done = reentrancy::leave_during(wait);
        let mut tries = 0;
        // Another thread has the state only for as long as it closes batches, so this thread waits without a bound.
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
    /// The epoch is written before the guard is dropped: until then the owner cannot enter, so no entry is missed. If it were
    /// written afterwards, a launch in between would count as clean. The worker would not close its batch until the next launch.
    pub(crate) fn leave_clean(self) {
        self.slot.clean_epoch.store(self.slot.owner_epoch.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Outcome of the worker's attempt to access a thread's state.
#[derive(Debug)]
pub(crate) enum RemoteAccess {
    /// The owner or another thread has the state.
    Busy,
    /// There is nothing to do.
    Clean,
    /// The worker has it.
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

    /// Acquires the state for its owner. None inside a launch of the owner that is under way.
    ///
    /// The usual launch needs no exchange and no fence here. `sp` is the caller's stack pointer.
    ///
    /// A thread can meet its own launch. Example: the driver calls the program's allocator in a launch, and the allocator
    /// launches too. A second guard would let both change the same batch, so the inner launch goes to the driver unpaid.
    #[inline]
    pub(super) fn acquire_own(&'static self, sp: usize) -> Option<OwnerGuard> {
        if self.owner_active.load(Ordering::Relaxed) || !self.try_enter() {
            return self.wait_or_nested(sp);
        }
        Some(self.begin_access(sp))
    }

    /// Begins the access of the owner, whose flag is set.
    #[inline]
    fn begin_access(&'static self, sp: usize) -> OwnerGuard {
        self.entry_sp.store(sp, Ordering::Relaxed);
        self.count_entry();
        StateGuard { slot: self }
    }

    /// Enters as the owner, which is not active. False if another thread has the state.
    ///
    /// The write comes before the read, with a fence between them. If the processor swapped the two, the owner and another thread
    /// could each miss the other's flag, and both would change the state. `asymmetric_fence::light` is a fence of the compiler
    /// alone, while the other thread's `heavy` makes this thread pass a real one.
    ///
    /// The flag is taken back on failure, although the owner wants to go on. Otherwise the other thread would see it, give up
    /// without having closed anything, and the batches would stay open.
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

    /// Counts an entry of the owner: the knowledge that other threads have of the state is out of date.
    #[inline]
    fn count_entry(&self) {
        self.owner_epoch.store(self.owner_epoch.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Waits while another thread uses the state, and acquires it then. Acquires it at once if a launch of the owner never
    /// returned (`longjmp` out of it) and its stack frame is gone. None inside a launch that is under way.
    ///
    /// Two cases leave `owner_active` set. A nested launch has a lower stack pointer than the outer one, because stacks grow
    /// down. A launch with the same or a higher one runs after a `longjmp`: in the same loop, for example. Without this second
    /// case a program that jumps out of one launch would never be paced again. The flag was set during the whole jump, so no
    /// other thread has the state.
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
            // This thread itself may have the state: the program's allocator launches while the thread closes batches.
            if reentrancy::is_inside() {
                return None;
            }
            pause(&mut tries);
        }
    }

    /// Acquires the state for another thread, if no thread uses it.
    ///
    /// The first read of `owner_active` decides nothing. It spares the interruption of all threads, and spares the owner a wait,
    /// where the owner is active anyway.
    ///
    /// The exchange keeps two such threads apart. Example: the worker closes a batch while a thread destroys its stream; without
    /// the exchange both would take the batch out of the state. After the fence the second read decides. If it finds the owner,
    /// this function drops the guard, which unsets `remote_active`. So of the two sides this one gives way, and the owner goes
    /// on.
    ///
    /// None also if the kernel refuses the barrier and the owner has not confirmed a fence of its own: then the read proves
    /// nothing.
    fn try_acquire_remote(&'static self) -> Option<RemoteGuard> {
        if self.owner_active.load(Ordering::Relaxed) {
            return None;
        }
        // Acquire: pairs with the release of the last remote guard.
        self.remote_active.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let guard = StateGuard { slot: self };
        // The calling thread's own slot needs no fence, because a thread sees its own writes in order. Neither does
        // the slot of a thread that has ended. Acquire: pairs with the release in `asymmetric_fence::light`.
        let is_seen = self.is_mine()
            || self.occupancy.has_ended_fenced()
            || asymmetric_fence::heavy()
            || self.owner_fences.load(Ordering::Acquire);
        // Acquire: pairs with the release of the owner's guard.
        (is_seen && !self.owner_active.load(Ordering::Acquire)).then_some(guard)
    }

    /// Acquires the state for the worker, if there may be anything to do and the owner has not launched since the last tick. Each
    /// access makes all threads of the process pass a fence.
    ///
    /// So the worker leaves alone a thread that launches all the time, whose own launches close its batches. It also leaves alone
    /// a thread that has nothing to close and no credit. Otherwise a process with 100 idle threads would pay for 100 barriers a
    /// millisecond. A thread that has ended is never clean: its slot still has to be freed.
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

    /// Returns true if other threads had nothing to do here, and the owner has not entered since. Relaxed: the caller's question
    /// is not ordered with a launch that this read misses.
    pub(crate) fn is_clean(&self) -> bool {
        self.clean_epoch.load(Ordering::Relaxed) == self.owner_epoch.load(Ordering::Relaxed)
    }

    /// Acquires the state for a thread that ends a stream or a context. Waits while the owner is inside the driver for a moment,
    /// or another thread has the state. None if that takes too long, and inside a launch of the calling thread itself, which
    /// would never end meanwhile. Then the next guard [gives up](StateGuard::give_up_pending) the batches.
    ///
    /// The wait is bounded, because a launch stays in the driver while the queue of its stream is full. Example: that stream
    /// waits for a word in memory which the calling thread writes only after this call.
    pub(crate) fn acquire_remote(&'static self) -> Option<RemoteGuard> {
        let mut tries = 0;
        loop {
            if let Some(guard) = self.try_acquire_remote() {
                return Some(guard);
            }
            let is_active = self.owner_active.load(Ordering::Relaxed);
            // If a sandbox has since forbidden the barrier, no other thread gets in any more.
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
    /// The flag is unset because the thread may have left a launch by `longjmp`, and launched no more. With the flag set no other
    /// thread could ever clear the slot: the thread's credit would be lost, and the worker would tick for ever.
    pub(super) fn end(&self) {
        self.owner_active.store(false, Ordering::Release);
        self.occupancy.end();
    }

    /// Returns true if the calling thread owns the slot.
    pub(crate) fn is_mine(&self) -> bool {
        SLOT.get().is_some_and(|slot| ptr::eq(slot, self))
    }
}

/// Pauses in a loop that waits for the thread that has the state. It yields at first. Because a yield gives no time to a thread
/// of lower real-time priority, later pauses sleep.
#[cold]
fn pause(tries: &mut u32) {
    const YIELDS: u32 = 50;
    *tries = tries.saturating_add(1);
    if *tries < YIELDS { std::thread::yield_now() } else { gpuslice_region::pause(Duration::from_micros(20)) }
}
