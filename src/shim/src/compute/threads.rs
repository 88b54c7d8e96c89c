//! What does each thread of the program keep, and who may touch it?
//!
//! A thread that launches has a *seat*: its credit, its copies of estimates, its open runs. It owns the seat from the
//! entry of a launch to its return, across the driver's call, by one uncontended exchange. The meter's thread only ever
//! tries: to close a run that its thread has left open, and to clear the seat of a thread that has ended.
//!
//! A seat belongs to a slice, and a forked child has another slice: it finds its parent's seat, sees that, and takes one
//! of its own.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::seat::Seat;
use crate::lifecycle;
use crate::slice::Slice;
use core::cell::{Cell, UnsafeCell};
use core::ops::{Deref, DerefMut};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;
use once_cell::race::OnceNonZeroUsize;
use parking_lot::Mutex;
use std::num::NonZeroUsize;

/// Whose seat it is at the moment.
const NOBODY: u32 = 0;
const HOST: u32 = 1;
const METER: u32 = 2;

/// How many pauses a launch of another thread is waited for: it usually takes some microseconds.
const LAUNCHING: u32 = 250;

/// A thread's seat. Never freed: a thread-local leads to it, and a thread that ended may come back in a destructor.
#[derive(Debug)]
pub(crate) struct Shared {
    owner: AtomicU32,
    /// Where the stack of the thread stood when it took the seat.
    frame: AtomicUsize,
    ended: AtomicBool,
    /// Whether it was cleared since, and nobody has it.
    free: AtomicBool,
    slice: &'static Slice,
    seat: UnsafeCell<Seat>,
}

// SAFETY: the seat is reached through `Held` alone, and `owner` lets one of them exist at a time.
unsafe impl Sync for Shared {}

/// A seat that is held; given up when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    shared: &'static Shared,
}

impl Deref for Held {
    type Target = Seat;

    #[inline]
    fn deref(&self) -> &Seat {
        // SAFETY: whoever has the `Held` owns the seat.
        unsafe { &*self.shared.seat.get() }
    }
}

impl DerefMut for Held {
    #[inline]
    fn deref_mut(&mut self) -> &mut Seat {
        // SAFETY: as above, and the `Held` is borrowed mutably.
        unsafe { &mut *self.shared.seat.get() }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquiring exchange of the next owner.
        self.shared.owner.store(NOBODY, Ordering::Release);
    }
}

impl Held {
    /// Gives the seat up and takes it again after `wait`.
    pub(crate) fn meanwhile<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        self.shared.owner.store(NOBODY, Ordering::Release);
        let done = crate::guard::outside(wait);
        let mut tries = 0;
        while !self.shared.try_take(HOST) {
            pause(&mut tries);
        }
        done
    }
}

impl Shared {
    #[inline]
    fn try_take(&self, who: u32) -> bool {
        // Acquire: pairs with the release of the last owner.
        self.owner.compare_exchange(NOBODY, who, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the seat for the meter if nobody has it.
    pub(crate) fn try_hold(&'static self) -> Option<Held> {
        self.try_take(METER).then_some(Held { shared: self })
    }

    /// Takes the seat, even if its thread is inside the driver for a moment, or another one looks after it. None where
    /// that takes too long, and of the calling thread's own, which nobody could give up meanwhile.
    pub(crate) fn wait_and_hold(&'static self) -> Option<Held> {
        let mut tries = 0;
        loop {
            if self.try_take(METER) {
                return Some(Held { shared: self });
            }
            let is_launching = self.owner.load(Ordering::Relaxed) == HOST;
            if is_launching && (self.is_mine() || tries >= LAUNCHING) {
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
}

std::thread_local! {
    /// This thread's seat. Without destructor, so usable at any time of a thread's life.
    static SEAT: Cell<Option<&'static Shared>> = const { Cell::new(None) };
}

/// Takes this thread's seat. None within a launch that is under way already, and where none can be had.
#[inline]
pub(crate) fn hold(slice: &'static Slice) -> Option<Held> {
    let frame = frame();
    let shared = match SEAT.get() {
        Some(shared) if ptr::eq(shared.slice, slice) => shared,
        _ => sit_down(slice)?,
    };
    if !shared.try_take(HOST) && !shared.wait_or_nested(frame) {
        return None;
    }
    shared.frame.store(frame, Ordering::Relaxed);
    Some(Held { shared })
}

/// Where the stack stands.
#[inline]
fn frame() -> usize {
    let here = 0_u8;
    ptr::from_ref(&here).addr()
}

impl Shared {
    /// The seat is taken. True once this thread has it: the meter gave it up, or a launch of this thread's never
    /// returned (`longjmp` out of it) and its frame is gone.
    #[cold]
    fn wait_or_nested(&self, frame: usize) -> bool {
        let mut tries = 0;
        loop {
            match self.owner.load(Ordering::Relaxed) {
                HOST => return self.frame.load(Ordering::Relaxed) < frame,
                // By this thread itself, perhaps: the program's allocator launches while we close runs.
                METER if crate::guard::is_inside() => return false,
                METER => pause(&mut tries),
                _ if self.try_take(HOST) => return true,
                _ => {}
            }
        }
    }
}

/// Lets the meter go on that has the seat for a moment. Not for ever by yielding: to one of a lower real-time priority
/// that gives nothing.
#[cold]
fn pause(tries: &mut u32) {
    const YIELDS: u32 = 50;
    *tries = tries.saturating_add(1);
    if *tries < YIELDS { std::thread::yield_now() } else { std::thread::sleep(Duration::from_micros(20)) }
}

/// The seats of a process.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    all: Mutex<Vec<&'static Shared>>,
    /// Seats that were cleared after their threads had ended.
    free: Mutex<Vec<&'static Shared>>,
}

impl Seats {
    /// All seats as of now.
    pub(crate) fn all(&self) -> Vec<&'static Shared> {
        self.all.lock().clone()
    }

    /// A seat whose thread has ended was cleared: another thread may have it.
    pub(crate) fn cleared(&self, shared: &'static Shared) {
        let mut free = self.free.lock();
        if shared.ended.load(Ordering::Acquire) && !shared.free.swap(true, Ordering::AcqRel) {
            free.push(shared);
        }
    }
}

#[cold]
fn sit_down(slice: &'static Slice) -> Option<&'static Shared> {
    let mine = || {
        let seats = &slice.compute.seats;
        let free = {
            let mut free = seats.free.lock();
            // Under the lock: `cleared` must not take it for one that nobody has, and give it to another thread as well.
            free.pop().inspect(|shared| {
                shared.free.store(false, Ordering::Release);
                shared.ended.store(false, Ordering::Release);
            })
        };
        let shared = free.unwrap_or_else(|| {
            let shared: &'static Shared = Box::leak(Box::new(Shared {
                owner: AtomicU32::new(NOBODY),
                frame: AtomicUsize::new(0),
                ended: AtomicBool::new(false),
                free: AtomicBool::new(false),
                slice,
                seat: UnsafeCell::new(Seat::new(slice)),
            }));
            seats.all.lock().push(shared);
            shared
        });
        SEAT.set(Some(shared));
        watch_end(shared);
        shared
    };
    crate::guard::quietly(|| Some(mine()), None)
}

/// Has the C library tell when this thread ends. Where it cannot, the thread's last credit is lost to its slice.
fn watch_end(shared: &'static Shared) {
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
    let shared = unsafe { &*seat.cast::<Shared>() };
    SEAT.set(None);
    // Release: the meter reads what the thread wrote.
    shared.ended.store(true, Ordering::Release);
    // In a forked child that has not launched, the locks behind it may be held by threads that are not there.
    if lifecycle::joined().is_some_and(|slice| ptr::eq(slice, shared.slice)) {
        shared.slice.compute.helper.wake();
    }
}
