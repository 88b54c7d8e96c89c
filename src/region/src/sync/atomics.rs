//! Atomic words. Only this file uses atomic types: those of the standard library, or those of loom in a model.
//!
//! Each type is a transparent newtype with methods. A method uses `Relaxed` unless its comment names the partner of a
//! stronger order. The words do not publish other memory; code that needs more uses [`full_fence`], [`Published32`] or
//! [`Published64`].

#![allow(clippy::disallowed_types, reason = "only this file uses the atomics")]

use core::marker::PhantomData;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

/// A quantity that a word of 64 bits holds.
pub(crate) trait Quantity: Copy + Default {
    /// Returns the quantity that the word `number` stands for.
    fn of_word(number: u64) -> Self;
    /// Returns the word for the quantity.
    fn word(self) -> u64;
}

impl Quantity for u64 {
    fn of_word(number: u64) -> Self {
        number
    }

    fn word(self) -> u64 {
        self
    }
}

/// Defines quantities of time as the numbers of their nanoseconds.
macro_rules! nanoseconds {
    ($($time:ident),*) => {$(
        impl Quantity for $time {
            fn of_word(number: u64) -> Self {
                Self::from_nanos(number)
            }

            fn word(self) -> u64 {
                self.nanos()
            }
        }
    )*};
}
nanoseconds!(GpuTime, WallTime, Monotonic);

/// A quantity in 64 bits that publishes no other memory.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Word64<T = u64>(AtomicU64, PhantomData<T>);

impl<T: Quantity> Word64<T> {
    /// Reads the quantity.
    pub(crate) fn get(&self) -> T {
        T::of_word(self.0.load(Ordering::Relaxed))
    }

    /// Writes the quantity.
    pub(crate) fn set(&self, value: T) {
        self.0.store(value.word(), Ordering::Relaxed);
    }

    /// Writes zero.
    pub(crate) fn clear(&self) {
        self.set(T::of_word(0));
    }

    /// Writes `new` if the quantity is still `old`. Returns whether it was.
    pub(crate) fn replace(&self, old: T, new: T) -> bool {
        #[cfg(all(test, loom))]
        if broken::is(broken::Break::LastWins) {
            self.set(new);
            return true;
        }
        self.0.compare_exchange(old.word(), new.word(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Writes a quantity and returns the one before.
    pub(crate) fn swap(&self, value: T) -> T {
        T::of_word(self.0.swap(value.word(), Ordering::Relaxed))
    }

    /// Adds, wrapping at the end of the range. Returns the quantity before.
    pub(crate) fn add(&self, value: T) -> T {
        T::of_word(self.0.fetch_add(value.word(), Ordering::Relaxed))
    }

    /// Writes `value` if it is more than the quantity.
    pub(crate) fn raise(&self, value: T) {
        self.0.fetch_max(value.word(), Ordering::Relaxed);
    }

    /// Replaces the quantity by `next(quantity)`, and returns the new one. Calls `next` again if another thread changes the
    /// quantity meanwhile.
    pub(crate) fn change(&self, next: impl Fn(T) -> T) -> T {
        #[cfg(all(test, loom))]
        if broken::is(broken::Break::LastWins) {
            let next = next(self.get());
            self.set(next);
            return next;
        }
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let next = next(T::of_word(now));
            match self.0.compare_exchange_weak(now, next.word(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return next,
                Err(other) => now = other,
            }
        }
    }
}

/// A number of 32 bits that publishes no other memory.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Word32(AtomicU32);

impl Word32 {
    /// Reads the number.
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Writes the number.
    pub(crate) fn set(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds one, wrapping at the end of the range.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes a number and returns the number before.
    pub(crate) fn swap(&self, value: u32) -> u32 {
        self.0.swap(value, Ordering::Relaxed)
    }

    /// Writes `value` if it is more than the number.
    pub(crate) fn raise(&self, value: u32) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

/// A number of 32 bits that publishes the memory written before it.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Published32(AtomicU32);

impl Published32 {
    /// Writes the number after all earlier writes of this thread; pairs with [`Published32::observe`].
    pub(crate) fn publish(&self, value: u32) {
        self.0.store(value, Ordering::Release);
    }

    /// Reads the number before all later reads of this thread; pairs with [`Published32::publish`].
    pub(crate) fn observe(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

/// A quantity in 64 bits that publishes the memory written before it.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Published64<T = u64>(AtomicU64, PhantomData<T>);

impl<T: Quantity> Published64<T> {
    /// Writes the quantity after all earlier writes of this thread; pairs with [`Published64::observe`].
    pub(crate) fn publish(&self, value: T) {
        self.0.store(value.word(), Ordering::Release);
    }

    /// Reads the quantity before all later reads of this thread; pairs with [`Published64::publish`].
    pub(crate) fn observe(&self) -> T {
        T::of_word(self.0.load(Ordering::Acquire))
    }

    /// Writes `new` after all earlier writes of this thread, if the quantity is still `old`. Returns whether it was.
    /// Pairs with [`Published64::observe`].
    pub(crate) fn replace(&self, old: T, new: T) -> bool {
        self.0.compare_exchange(old.word(), new.word(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Published64 {
    /// Adds one after all earlier writes of this thread; pairs with [`Published64::observe`].
    pub(crate) fn count(&self) {
        self.add(1);
    }

    /// Adds, wrapping at the end of the range, after all earlier writes of this thread; pairs with
    /// [`Published64::observe`].
    pub(crate) fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::AcqRel);
    }
}

/// Counts wake-ups: a thread sleeps only if the count is still the one that it has read.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct WakeSeq(AtomicU32);

impl WakeSeq {
    /// Reads the count before all later accesses of this thread; pairs with [`WakeSeq::count`].
    pub(crate) fn sequence(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Adds one after all earlier writes of this thread; pairs with [`WakeSeq::sequence`].
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the address of the word, for the kernel.
    #[cfg(not(loom))]
    pub(crate) fn address(&self) -> *mut u32 {
        self.0.as_ptr()
    }

    /// Reads the count as the kernel does under its lock.
    #[cfg(loom)]
    pub(crate) fn compared(&self) -> u32 {
        self.0.fetch_add(0, Ordering::AcqRel)
    }
}

/// The bytes that one process holds on one device, and the number of its pending reservations.
///
/// A reservation is *pending* until it is granted or withdrawn; its bytes are counted meanwhile. Bytes and number share
/// a word because they change together: a reader must never take bytes for granted that may still be withdrawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held(u64);

impl Held {
    /// Bits of the number of bytes.
    const BYTE_BITS: u32 = 48;
    /// The largest number of bytes that fits.
    pub(crate) const MOST_BYTES: u64 = (1 << Self::BYTE_BITS) - 1;
    /// The largest number of pending reservations that fits.
    const MOST_PENDING: u64 = u64::MAX >> Self::BYTE_BITS;

    /// Returns the bytes held, pending reservations included.
    pub(crate) fn bytes(self) -> u64 {
        self.0 & Self::MOST_BYTES
    }

    /// Returns the number of pending reservations.
    pub(crate) fn pending(self) -> u64 {
        #[cfg(all(test, loom))]
        if broken::is(broken::Break::PendingIgnored) {
            return 0;
        }
        self.0 >> Self::BYTE_BITS
    }

    /// Tells whether a second reading found the same word as the first.
    pub(crate) fn is_still(self, first: Self) -> bool {
        #[cfg(all(test, loom))]
        if broken::is(broken::Break::ReadOnce) {
            return true;
        }
        self == first
    }

    /// Returns the word of two numbers that fit into it, as the caller has made sure.
    fn of(bytes: u64, pending: u64) -> Self {
        Self(bytes | pending << Self::BYTE_BITS)
    }

    /// Returns the word with one more pending reservation. `None`: a number does not fit.
    fn entered(self, bytes: u64) -> Option<Self> {
        let sum = self.bytes().checked_add(bytes).filter(|sum| *sum <= Self::MOST_BYTES)?;
        let pending = self.pending().checked_add(1).filter(|count| *count <= Self::MOST_PENDING)?;
        Some(Self::of(sum, pending))
    }
}

/// The shared word of a [`Held`]. The threads of its owner write it. The process that reaps a dead owner clears it.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct HeldWord(AtomicU64);

impl HeldWord {
    /// Reads the word.
    pub(crate) fn get(&self) -> Held {
        Held(self.0.load(Ordering::Relaxed))
    }

    /// Writes zero.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Adds the bytes of a pending reservation, and returns the word with them. `None`: they do not fit, and the word
    /// is unchanged.
    pub(crate) fn enter(&self, bytes: u64) -> Option<Held> {
        let more = Held::of(bytes, 1);
        let entered = self.add(more).entered(bytes);
        if entered.is_none() {
            self.subtract(more);
        }
        entered
    }

    /// Makes a pending reservation final.
    pub(crate) fn grant(&self) {
        self.subtract(Held::of(0, 1));
    }

    /// Takes a pending reservation back.
    pub(crate) fn withdraw(&self, bytes: u64) {
        self.subtract(Held::of(bytes, 1));
    }

    /// Adds bytes without regard to the limit, as far as they fit into the word.
    pub(crate) fn charge(&self, bytes: u64) {
        self.change(|held| {
            Some(Held::of(held.bytes().saturating_add(bytes).min(Held::MOST_BYTES), held.pending()))
        });
    }

    /// Subtracts bytes, down to zero. Returns the bytes that the word did not have.
    pub(crate) fn refund(&self, bytes: u64) -> u64 {
        let missing = bytes.saturating_sub(self.subtract(Held(bytes)).bytes());
        if missing != 0 {
            self.add(Held(missing));
        }
        missing
    }

    /// Adds to both numbers in one step, and returns the word before. One atomic addition fetches a contended line
    /// once; a compare-and-swap loop would fetch it twice.
    fn add(&self, more: Held) -> Held {
        self.step(more.0)
    }

    /// Subtracts from both numbers in one step, and returns the word before.
    fn subtract(&self, less: Held) -> Held {
        self.step(less.0.wrapping_neg())
    }

    #[cfg(not(loom))]
    fn step(&self, by: u64) -> Held {
        Held(self.0.fetch_add(by, Ordering::Relaxed))
    }

    /// Adds in a loop of compare-and-swaps, because models with atomic additions take a hundred times as long.
    #[cfg(loom)]
    fn step(&self, by: u64) -> Held {
        self.change(|held| Some(Held(held.0.wrapping_add(by)))).unwrap_or_default()
    }

    /// Replaces the word by `next(word)`, and returns the word before. `None` from `next` leaves the word unchanged.
    fn change(&self, next: impl Fn(Held) -> Option<Held>) -> Option<Held> {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let new = next(Held(now))?;
            match self.0.compare_exchange_weak(now, new.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(before) => return Some(Held(before)),
                Err(other) => now = other,
            }
        }
    }
}

/// Orders all earlier writes of this thread before all its later reads.
///
/// It pairs with itself. Suppose that two threads each write a word, call this function, and then read the other's
/// word. Then at least one of the two reads the value that the other wrote.
pub(crate) fn full_fence() {
    #[cfg(all(test, loom))]
    if broken::is(broken::Break::NoFence) {
        return;
    }
    fence(Ordering::SeqCst);
}

/// Executes a [`full_fence`] for a thread that has just changed a [`HeldWord`].
///
/// On x86-64 that change is a locked instruction, which is a full fence already. A second fence would add a third to
/// the cost of a reservation.
pub(crate) fn fence_after_change() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    full_fence();
}

/// Orders all earlier reads of this thread before all its later reads. Pairs with [`full_fence`].
pub(crate) fn read_fence() {
    fence(Ordering::Acquire);
}

/// Deliberate mistakes. A loom model must fail with each of them, or it proves nothing.
#[cfg(all(test, loom))]
pub(crate) mod broken {
    use std::cell::Cell;

    /// One mistake.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Break {
        /// A reservation reads the words of others without a fence.
        NoFence,
        /// A denial is final although other reservations are pending.
        PendingIgnored,
        /// A denial is final after a single reading.
        ReadOnce,
        /// A payer that leaves does not transfer its charge.
        NoTransfer,
        /// A sum counts although a charge moved between shares during the reading.
        MovesIgnored,
        /// A change of a word is a read and a write.
        LastWins,
        /// A reader accepts the words of an interval although the checksum does not match, or reads them in the order
        /// of writing.
        TornBelieved,
        /// A process writes a lower rate before it scales the debt.
        RateFirst,
        /// The unsettled time of a dead process stays in its word.
        UnsettledKept,
        /// The word of a dead process is cleared before its memory counts as leaving.
        LeavesLate,
        /// Memory that leaves counts for the peak.
        PeakOfLeaving,
    }

    thread_local! {
        // All threads of a model run on the operating system's thread of its test.
        static BREAK: Cell<Option<Break>> = const { Cell::new(None) };
        static KILLS: Cell<bool> = const { Cell::new(false) };
    }

    /// Turns a mistake on, for the rest of this test.
    pub(crate) fn make(mistake: Break) {
        BREAK.set(Some(mistake));
    }

    pub(crate) fn is(mistake: Break) -> bool {
        BREAK.get() == Some(mistake)
    }

    /// Kills the next process that refunds the time of a dead one, right after the refund.
    pub(crate) fn kill_next_reaper() {
        KILLS.set(true);
    }

    pub(crate) fn take_kill() -> bool {
        KILLS.replace(false)
    }
}
