//! What does each thread of the program keep, and who may touch it?
//!
//! A thread that launches has a *seat*: its credit, its copies of estimates, its open runs. It owns the seat from the
//! entry of a launch to its return, across the driver's call. Others visit it seldom: to close a run that its thread has
//! left open, and to clear the seat of a thread that has ended.
//!
//! So the thread says that it is inside, looks whether anybody is visiting, and pays for no exchange; a visitor says that
//! it comes, has all threads of the process pass a full fence (`os::asymmetric_fence`), and only then looks whether the thread is
//! inside. Of the two at least one sees the other: the thread waits then, the visitor gives up.
//!
//! A seat belongs to a slice, and a forked child has another slice: it finds its parent's seat, sees that, and takes one
//! of its own.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::compute::state::Compute;
use crate::compute::threads::thread_state::ThreadState;
use crate::os::asymmetric_fence;
use core::cell::{Cell, UnsafeCell};
use core::ops::{Deref, DerefMut};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use core::time::Duration;
use once_cell::race::OnceNonZeroUsize;
use parking_lot::Mutex;
use std::num::NonZeroUsize;

/// How many pauses a launch of another thread is waited for: it usually takes some microseconds.
const LAUNCHING: u32 = 250;

/// A thread's seat. Never freed: a thread-local leads to it, and a thread that ended may come back in a destructor.
#[derive(Debug)]
pub(crate) struct ThreadSlot {
    /// Whether its thread is in a launch. Written by the thread alone.
    inside: AtomicBool,
    /// Whether somebody else has the seat, or asks for it.
    visited: AtomicBool,
    /// Whether its thread has a fence of its own in each launch, whatever becomes of `os::asymmetric_fence`.
    fenced: AtomicBool,
    /// Whether somebody had to do with it, and could not take it.
    missed: AtomicBool,
    /// Where the stack of the thread stood when it took the seat.
    frame: AtomicUsize,
    /// How often its thread has taken it.
    taken: AtomicU64,
    /// The same when a round of the meter looked last.
    seen: AtomicU64,
    /// The same when there was last known to be nothing that others have to do with it.
    clean: AtomicU64,
    ended: AtomicBool,
    /// Whether it was cleared since, and nobody has it.
    free: AtomicBool,
    compute: &'static Compute,
    seat: UnsafeCell<ThreadState>,
}

// SAFETY: the seat is reached through `OwnerGuard` and `RemoteGuard` alone, and `inside` and `visited` let one of them exist at a time.
unsafe impl Sync for ThreadSlot {}

/// A seat that its thread holds; given up when dropped.
#[derive(Debug)]
pub(crate) struct OwnerGuard {
    shared: &'static ThreadSlot,
}

/// A seat that another thread holds than its own; given up when dropped.
#[derive(Debug)]
pub(crate) struct RemoteGuard {
    shared: &'static ThreadSlot,
}

/// Both lead to the seat.
macro_rules! leads_to_the_seat {
    ($($holder:ident $says:ident),*) => { $(
        impl Deref for $holder {
            type Target = ThreadState;

            #[inline]
            fn deref(&self) -> &ThreadState {
                // SAFETY: whoever has this owns the seat.
                unsafe { &*self.shared.seat.get() }
            }
        }

        impl DerefMut for $holder {
            #[inline]
            fn deref_mut(&mut self) -> &mut ThreadState {
                // SAFETY: as above, and this is borrowed mutably.
                unsafe { &mut *self.shared.seat.get() }
            }
        }

        impl $holder {
            /// Gives up the runs that somebody wanted to close and could not, because the seat was taken: their streams
            /// may have ended since.
            pub(crate) fn give_up_missed(&mut self, compute: &'static Compute) {
                if self.shared.missed.swap(false, Ordering::Acquire) {
                    self.give_up(compute);
                }
            }
        }

        impl Drop for $holder {
            #[inline]
            fn drop(&mut self) {
                // Release: pairs with the acquiring look of the next owner.
                self.shared.$says.store(false, Ordering::Release);
            }
        }
    )* };
}

leads_to_the_seat!(OwnerGuard inside, RemoteGuard visited);

impl OwnerGuard {
    /// Gives the seat up and takes it again after `wait`.
    pub(crate) fn meanwhile<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        self.shared.inside.store(false, Ordering::Release);
        let done = crate::os::reentrancy::outside(wait);
        let mut tries = 0;
        while !self.shared.try_enter() {
            pause(&mut tries);
        }
        self.shared.takes();
        done
    }
}

impl ThreadSlot {
    /// Takes the seat for its thread, which is not inside, unless somebody visits it.
    #[inline]
    fn try_enter(&self) -> bool {
        self.inside.store(true, Ordering::Relaxed);
        asymmetric_fence::light(&self.fenced);
        // Acquire: pairs with the release of the last visitor.
        if !self.visited.load(Ordering::Acquire) {
            return true;
        }
        self.inside.store(false, Ordering::Release);
        false
    }

    /// Its thread has taken it: what others knew of it counts no more.
    #[inline]
    fn takes(&self) {
        self.taken.store(self.taken.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Takes the seat for another thread if nobody has it.
    fn try_visit(&'static self) -> Option<RemoteGuard> {
        if self.inside.load(Ordering::Relaxed) {
            return None;
        }
        // Acquire: pairs with the release of the last visitor.
        self.visited.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let visit = RemoteGuard { shared: self };
        // What this thread does itself it does in order, and one that has ended does nothing any more. Acquire: pairs with
        // the release in `asymmetric_fence::light`.
        let is_seen = self.is_mine()
            || self.is_over()
            || asymmetric_fence::heavy()
            || self.fenced.load(Ordering::Acquire);
        // Acquire: pairs with the release of the seat's thread.
        (is_seen && !self.inside.load(Ordering::Acquire)).then_some(visit)
    }

    /// Takes the seat for the meter if there may be anything to do, and its thread has not launched since the meter
    /// asked last: every visit disturbs all threads of the process.
    pub(crate) fn look_after(&'static self) -> RemoteAccess {
        // Relaxed: a launch that is not seen yet is one of the next round.
        let taken = self.taken.load(Ordering::Relaxed);
        let is_still = self.seen.swap(taken, Ordering::Relaxed) == taken;
        if !is_still {
            RemoteAccess::Busy
        } else if self.is_clean() && !self.has_ended() {
            RemoteAccess::Clean
        } else {
            self.try_visit().map_or(RemoteAccess::Busy, RemoteAccess::Now)
        }
    }

    /// Whether its thread has not taken it since there was last known to be nothing that others have to do with it. Relaxed: a
    /// launch that is not seen yet is one that nobody has ordered with what is asked for.
    pub(crate) fn is_clean(&self) -> bool {
        self.clean.load(Ordering::Relaxed) == self.taken.load(Ordering::Relaxed)
    }

    /// Takes the seat, even if its thread is inside the driver for a moment, or another one looks after it. None where
    /// that takes too long, and of the calling thread's own, which nobody could give up meanwhile.
    pub(crate) fn wait_and_hold(&'static self) -> Option<RemoteGuard> {
        let mut tries = 0;
        loop {
            if let Some(visit) = self.try_visit() {
                return Some(visit);
            }
            let is_inside = self.inside.load(Ordering::Relaxed);
            // Where a sandbox has since forbidden the barrier, nobody visits any more.
            let is_hopeless = tries >= LAUNCHING && (is_inside || !asymmetric_fence::heavy());
            if is_hopeless || (is_inside && self.is_mine()) {
                // Release: pairs with the exchange of `give_up_missed`.
                self.missed.store(true, Ordering::Release);
                return None;
            }
            pause(&mut tries);
        }
    }

    /// Whether it is the calling thread's.
    pub(crate) fn is_mine(&self) -> bool {
        SEAT.get().is_some_and(|seat| ptr::eq(seat, self))
    }

    /// Whether there is nothing in it, and nobody to put anything in.
    pub(crate) fn is_free(&self) -> bool {
        self.free.load(Ordering::Acquire)
    }

    /// Whether its thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The same for one that visits: who sits down next says so before it looks whether anybody does.
    fn is_over(&self) -> bool {
        fence(Ordering::SeqCst);
        self.has_ended()
    }
}

std::thread_local! {
    /// This thread's seat. Without destructor, so usable at any time of a thread's life.
    static SEAT: Cell<Option<&'static ThreadSlot>> = const { Cell::new(None) };
}

/// Takes this thread's seat. None within a launch that is under way already, and where none can be had.
#[inline]
pub(crate) fn hold(compute: &'static Compute) -> Option<OwnerGuard> {
    let frame = frame();
    let shared = match SEAT.get() {
        Some(shared) if ptr::eq(shared.compute, compute) => shared,
        _ => sit_down(compute)?,
    };
    if (shared.inside.load(Ordering::Relaxed) || !shared.try_enter()) && !shared.wait_or_nested(frame) {
        return None;
    }
    shared.frame.store(frame, Ordering::Relaxed);
    shared.takes();
    Some(OwnerGuard { shared })
}

/// Where the stack stands.
#[inline]
fn frame() -> usize {
    let here = 0_u8;
    ptr::from_ref(&here).addr()
}

impl ThreadSlot {
    /// The seat is taken. True once this thread has it: the meter gave it up, or a launch of this thread's never
    /// returned (`longjmp` out of it) and its frame is gone.
    #[cold]
    fn wait_or_nested(&self, frame: usize) -> bool {
        let mut tries = 0;
        loop {
            if self.inside.load(Ordering::Relaxed) {
                return self.frame.load(Ordering::Relaxed) < frame;
            }
            if self.try_enter() {
                return true;
            }
            // By this thread itself, perhaps: the program's allocator launches while we close runs.
            if crate::os::reentrancy::is_inside() {
                return false;
            }
            pause(&mut tries);
        }
    }
}

/// What came of a visit.
#[derive(Debug)]
pub(crate) enum RemoteAccess {
    /// Its thread uses it, or somebody else looks after it.
    Busy,
    /// There is nothing to do.
    Clean,
    /// It is held now.
    Now(RemoteGuard),
}

impl RemoteGuard {
    /// There is nothing left to do until its thread takes it again.
    pub(crate) fn leave_clean(self) {
        self.shared.clean.store(self.shared.taken.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Lets the meter go on that has the seat for a moment. Not for ever by yielding: to one of a lower real-time priority
/// that gives nothing.
#[cold]
fn pause(tries: &mut u32) {
    const YIELDS: u32 = 50;
    *tries = tries.saturating_add(1);
    if *tries < YIELDS { std::thread::yield_now() } else { gpuslice_region::pause(Duration::from_micros(20)) }
}

/// The seats of a process.
#[derive(Debug, Default)]
pub(crate) struct ThreadRegistry {
    all: Mutex<Vec<&'static ThreadSlot>>,
    /// ThreadRegistry that were cleared after their threads had ended.
    free: Mutex<Vec<&'static ThreadSlot>>,
}

impl ThreadRegistry {
    /// All seats as of now.
    pub(crate) fn all(&self) -> Vec<&'static ThreadSlot> {
        self.all.lock().clone()
    }

    /// A seat whose thread has ended was cleared: another thread may have it.
    pub(crate) fn cleared(&self, shared: &'static ThreadSlot) {
        let mut free = self.free.lock();
        if shared.ended.load(Ordering::Acquire) && !shared.free.swap(true, Ordering::AcqRel) {
            free.push(shared);
        }
    }
}

#[cold]
fn sit_down(compute: &'static Compute) -> Option<&'static ThreadSlot> {
    let mine = || {
        let seats = &compute.seats;
        let free = {
            let mut free = seats.free.lock();
            // Under the lock: `cleared` must not take it for one that nobody has, and give it to another thread as well.
            free.pop().inspect(|shared| {
                shared.free.store(false, Ordering::Release);
                shared.ended.store(false, Ordering::Release);
                // Pairs with the fence in `is_over`.
                fence(Ordering::SeqCst);
            })
        };
        let shared = free.unwrap_or_else(|| {
            let shared: &'static ThreadSlot = Box::leak(Box::new(ThreadSlot {
                inside: AtomicBool::new(false),
                visited: AtomicBool::new(false),
                fenced: AtomicBool::new(false),
                missed: AtomicBool::new(false),
                frame: AtomicUsize::new(0),
                taken: AtomicU64::new(0),
                seen: AtomicU64::new(0),
                clean: AtomicU64::new(u64::MAX),
                ended: AtomicBool::new(false),
                free: AtomicBool::new(false),
                compute,
                seat: UnsafeCell::new(ThreadState::new(compute)),
            }));
            seats.all.lock().push(shared);
            shared
        });
        SEAT.set(Some(shared));
        watch_end(shared);
        shared
    };
    crate::os::reentrancy::quietly(|| Some(mine()), None)
}

/// Has the C library tell when this thread ends. Where it cannot, the thread's last credit is lost to its slice.
fn watch_end(shared: &'static ThreadSlot) {
    static KEY: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the output is valid for writes, and the function stays: the library is never unloaded.
        let code = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) };
        let key = usize::try_from(key).unwrap_or(usize::MAX).wrapping_add(1);
        NonZeroUsize::new(if code == 0 { key } else { usize::MAX }).unwrap_or(NonZeroUsize::MAX)
    });
    if let Ok(key) = libc::pthread_key_t::try_from(key.get().wrapping_sub(1)) {
        // SAFETY: a key of our own; the seat is never freed.
        unsafe { libc::pthread_setspecific(key, ptr::from_ref(shared).cast()) };
    }
}

/// A thread ends. A launch in a later destructor takes a seat anew.
unsafe extern "C" fn ended(seat: *mut libc::c_void) {
    // SAFETY: what `watch_end` gave.
    let shared = unsafe { &*seat.cast::<ThreadSlot>() };
    SEAT.set(None);
    // Release: the meter reads what the thread wrote.
    shared.ended.store(true, Ordering::Release);
    // In a forked child that has not launched, the locks behind it may be held by threads that are not there.
    if (shared.compute.of_this_process)().is_some_and(|compute| ptr::eq(compute, shared.compute)) {
        shared.compute.helper.wake();
    }
}
