//! Which atomic operations exist here? This file is the only door to them, and the one place where loom's
//! replacements are swapped in.
//!
//! Every type is a transparent newtype with verbs. A verb is `Relaxed` unless its comment names the partner of
//! a stronger order: the words say nothing about other memory, and what needs more goes through [`full_fence`]
//! or a [`Gate32`].

#![allow(clippy::disallowed_types, reason = "this file is the door to the atomics")]

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A number of 64 bits that stands alone.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Word64(AtomicU64);

impl Word64 {
    /// The number now.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Writes the number.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Writes `new` if the number is still `old`, and tells whether it was.
    pub(crate) fn replace(&self, old: u64, new: u64) -> bool {
        #[cfg(all(test, loom))]
        if broken::is(broken::Break::LastWins) {
            self.set(new);
            return true;
        }
        self.0.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Writes a number, and returns the one before.
    pub(crate) fn swap(&self, value: u64) -> u64 {
        self.0.swap(value, Ordering::Relaxed)
    }

    /// Adds, and wraps after the last number. Returns the number before.
    pub(crate) fn add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, Ordering::Relaxed)
    }

    /// Makes the number at least `value`.
    pub(crate) fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    /// Replaces the number by what `next` makes of it; that.
    pub(crate) fn change(&self, next: impl Fn(u64) -> u64) -> u64 {
        #[cfg(all(test, loom))]
        if broken::is(broken::Break::LastWins) {
            let next = next(self.get());
            self.set(next);
            return next;
        }
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let next = next(now);
            match self.0.compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return next,
                Err(other) => now = other,
            }
        }
    }
}

/// A number of 32 bits that stands alone.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Word32(AtomicU32);

impl Word32 {
    /// The number now.
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Writes the number.
    pub(crate) fn set(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Counts one more, and wraps after the last number.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes a number, and returns the one before.
    pub(crate) fn swap(&self, value: u32) -> u32 {
        self.0.swap(value, Ordering::Relaxed)
    }

    /// Makes the number at least `value`.
    pub(crate) fn raise(&self, value: u32) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

/// A number of 32 bits that tells readers that what was written before it can be read.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Published32(AtomicU32);

impl Published32 {
    /// Writes the number after everything before it; pairs with [`Gate32::observe`].
    pub(crate) fn publish(&self, value: u32) {
        self.0.store(value, Ordering::Release);
    }

    /// Reads the number before everything after it; pairs with [`Gate32::publish`].
    pub(crate) fn observe(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

/// A number of 64 bits that tells readers that what was written before it can be read.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Published64(AtomicU64);

impl Published64 {
    /// Writes the number after everything before it; pairs with [`Gate64::observe`].
    pub(crate) fn publish(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Reads the number before everything after it; pairs with [`Gate64::publish`].
    pub(crate) fn observe(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Writes `new` after everything before it if the number is still `old`, and tells whether it was; pairs with
    /// [`Gate64::observe`].
    pub(crate) fn replace(&self, old: u64, new: u64) -> bool {
        self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Counts one more after everything before it; pairs with [`Gate64::observe`].
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// How often somebody called those who sleep: what a sleeper has seen of it must not have changed.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct WakeSeq(AtomicU32);

impl WakeSeq {
    /// The count, before anything that the caller says and looks at afterwards; pairs with [`Bell::count`].
    pub(crate) fn sequence(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Counts one more after everything before it; pairs with [`Bell::heard`].
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Where it is, for the kernel.
    #[cfg(not(loom))]
    pub(crate) fn address(&self) -> *mut u32 {
        self.0.as_ptr()
    }

    /// The count, as the kernel sees it under its lock.
    #[cfg(loom)]
    pub(crate) fn compared(&self) -> u32 {
        self.0.fetch_add(0, Ordering::AcqRel)
    }
}

/// What one process holds on one device, with the number of its reservations that are not decided yet.
///
/// The two share a word because they change together: the bytes of an undecided reservation must never be read
/// without the mark that says that they may still be taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held(u64);

impl Held {
    /// Bits of the number of bytes.
    const BYTE_BITS: u32 = 48;
    /// The most bytes a word can say.
    pub(crate) const MOST_BYTES: u64 = (1 << Self::BYTE_BITS) - 1;
    /// The most undecided reservations a word can say.
    const MOST_PENDING: u64 = u64::MAX >> Self::BYTE_BITS;

    /// Bytes held, those of undecided reservations included.
    pub(crate) fn bytes(self) -> u64 {
        self.0 & Self::MOST_BYTES
    }

    /// Reservations that are not decided yet.
    pub(crate) fn pending(self) -> u64 {
        #[cfg(all(test, loom))]
        if broken::is(broken::Break::PendingIgnored) {
            return 0;
        }
        self.0 >> Self::BYTE_BITS
    }

    /// Whether a second reading found the word as the first one did.
    pub(crate) fn is_still(self, first: Self) -> bool {
        #[cfg(all(test, loom))]
        if broken::is(broken::Break::ReadOnce) {
            return true;
        }
        self == first
    }

    /// A word of parts that are known to fit.
    fn of(bytes: u64, undecided: u64) -> Self {
        Self(bytes | undecided << Self::BYTE_BITS)
    }

    /// The word with one more reservation under way, if it can say that.
    fn entered(self, bytes: u64) -> Option<Self> {
        let sum = self.bytes().checked_add(bytes).filter(|sum| *sum <= Self::MOST_BYTES)?;
        let undecided = self.pending().checked_add(1).filter(|count| *count <= Self::MOST_PENDING)?;
        Some(Self::of(sum, undecided))
    }
}

/// The shared word of a [`Held`]. Written by the threads of its owner, and cleared by who reaps the dead owner.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct HeldWord(AtomicU64);

impl HeldWord {
    /// The word now.
    pub(crate) fn get(&self) -> Held {
        Held(self.0.load(Ordering::Relaxed))
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Adds the bytes of a reservation that is not decided yet, and returns the word with them. `None`: the word is
    /// full, nothing was changed.
    pub(crate) fn enter(&self, bytes: u64) -> Option<Held> {
        let more = Held::of(bytes, 1);
        let entered = self.add(more).entered(bytes);
        if entered.is_none() {
            self.subtract(more);
        }
        entered
    }

    /// Keeps the bytes of a reservation: it is granted.
    pub(crate) fn grant(&self) {
        self.subtract(Held::of(0, 1));
    }

    /// Takes back the bytes of a reservation: it is not granted.
    pub(crate) fn withdraw(&self, bytes: u64) {
        self.subtract(Held::of(bytes, 1));
    }

    /// Adds bytes that are held whatever the limit says, as far as the word can say them.
    pub(crate) fn charge(&self, bytes: u64) {
        self.change(|held| {
            Some(Held::of(held.bytes().saturating_add(bytes).min(Held::MOST_BYTES), held.pending()))
        });
    }

    /// Takes bytes away, down to nothing, and returns how many of them the word did not have.
    pub(crate) fn refund(&self, bytes: u64) -> u64 {
        let missing = bytes.saturating_sub(self.subtract(Held(bytes)).bytes());
        if missing != 0 {
            self.add(Held(missing));
        }
        missing
    }

    /// Adds to both parts in one step, and returns the word as it was. A word that another thread has just changed
    /// comes over once, where a loop that reads it first needs it twice.
    fn add(&self, more: Held) -> Held {
        self.step(more.0)
    }

    /// Takes away from both parts in one step, and returns the word as it was.
    fn subtract(&self, less: Held) -> Held {
        self.step(less.0.wrapping_neg())
    }

    #[cfg(not(loom))]
    fn step(&self, by: u64) -> Held {
        Held(self.0.fetch_add(by, Ordering::Relaxed))
    }

    /// The same as a loop: models with additions take a hundred times as long.
    #[cfg(loom)]
    fn step(&self, by: u64) -> Held {
        self.change(|held| Some(Held(held.0.wrapping_add(by)))).unwrap_or_default()
    }

    /// Replaces the word by what `next` makes of it, and returns the word as it was; `None` from `next` leaves
    /// it alone.
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

/// Orders all that this thread wrote before against all that it reads after. Pairs with itself: of two threads
/// that each write a word, pass here and read the other's word, at least one reads what the other wrote.
pub(crate) fn full_fence() {
    #[cfg(all(test, loom))]
    if broken::is(broken::Break::NoFence) {
        return;
    }
    fence(Ordering::SeqCst);
}

/// [`full_fence`], right after a [`HeldWord`] was changed by this thread. On x86-64 the change was a locked
/// instruction, which orders everything around it already; a fence would cost a third of a reservation again.
pub(crate) fn fence_after_change() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    full_fence();
}

/// Orders what this thread read before against all that it reads after. Pairs with [`full_fence`].
pub(crate) fn read_fence() {
    fence(Ordering::Acquire);
}

/// Deliberate mistakes: a model that does not fail with them proves nothing.
#[cfg(all(test, loom))]
pub(crate) mod broken {
    use std::cell::Cell;

    /// One mistake.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Break {
        /// A reservation reads the others' words without a fence.
        NoFence,
        /// A refusal is final although others are undecided.
        PendingIgnored,
        /// A refusal is final after a single reading.
        ReadOnce,
        /// A payer that leaves looks for no heir.
        NoTransfer,
        /// A sum is believed although a charge moved from one share to another while it was made.
        MovesIgnored,
        /// A word is changed by reading and then writing it.
        LastWins,
        /// Words of a place of the ring are believed although they do not match, or read in the order of writing.
        TornBelieved,
        /// A lower rate is told before what is owed follows.
        GrantFirst,
        /// What a dead process leaves stays in its word.
        UnsettledKept,
        /// A dead process's word is cleared before its memory counts as leaving.
        LeavesLate,
        /// What leaves counts for the most that was ever held.
        PeakOfLeaving,
    }

    thread_local! {
        // All threads of a model run on the operating system's thread of its test.
        static BREAK: Cell<Option<Break>> = const { Cell::new(None) };
        static KILLS: Cell<bool> = const { Cell::new(false) };
    }

    /// Makes a mistake in everything that this test runs from here on.
    pub(crate) fn make(mistake: Break) {
        BREAK.set(Some(mistake));
    }

    pub(crate) fn is(mistake: Break) -> bool {
        BREAK.get() == Some(mistake)
    }

    /// Kills the next process that refunds what a dead one left, right after it did.
    pub(crate) fn kill_next_reaper() {
        KILLS.set(true);
    }

    pub(crate) fn is_killed() -> bool {
        KILLS.replace(false)
    }
}
