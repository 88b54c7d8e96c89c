//! Do other threads take or give back memory right now?
//!
//! Counted for measurements only, which are right where nobody of this process is in between. Each of the first
//! threads has a word of its own and counts in it without a locked instruction; those that come later share words.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Threads that have a word of their own.
const OWNERS: usize = 256;
/// Words that the others share.
const SHARED: usize = 16;

/// A word on a line of its own: calls that began in its upper half, those that are on their way in its lower one.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Word(AtomicU64);

/// Calls of this process that are between the decision and the settling.
#[derive(Debug)]
pub(crate) struct Flights(Box<[Word]>);

impl Default for Flights {
    fn default() -> Self {
        Self(core::iter::repeat_with(Word::default).take(OWNERS + SHARED).collect())
    }
}

/// A call on its way. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Flight<'a> {
    word: Option<&'a AtomicU64>,
    own: bool,
}

/// What a call adds when it begins, and what is taken away when it ends.
const BEGIN: u64 = 1 << 32 | 1;
const END: u64 = 1;

/// What was counted at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    began: u64,
    flying: u64,
}

impl Count {
    /// Whether nobody took or gave back memory from `before` on, but for `own` calls because of the one that asks.
    pub(crate) fn is_still_since(self, before: Self, own: u64) -> bool {
        self.flying <= own && before.flying <= own && self.began == before.began
    }
}

impl Flights {
    /// A call begins. Between this and the driver every hook takes a lock or reserves, which is the full fence that
    /// lets a thread that counts see this before anything that the driver does.
    #[inline]
    pub(crate) fn begin(&self) -> Flight<'_> {
        let place = own_place();
        let flight = Flight { word: self.0.get(place).map(|word| &word.0), own: place < OWNERS };
        flight.add(BEGIN);
        flight
    }

    /// Counts the calls, that of the asking thread among them.
    pub(crate) fn count(&self) -> Count {
        // Pairs with the fence after `begin`.
        fence(Ordering::SeqCst);
        let (mut began, mut flying) = (0_u64, 0_u64);
        for word in &self.0 {
            let word = word.0.load(Ordering::Acquire);
            began = began.wrapping_add(word >> 32);
            flying = flying.wrapping_add(word & u64::from(u32::MAX));
        }
        // What is read from here on is read after the words.
        fence(Ordering::SeqCst);
        Count { began, flying }
    }
}

impl Flight<'_> {
    #[inline]
    fn add(&self, calls: u64) {
        match self.word {
            // Release: what the call changed is seen by whoever sees that it is over.
            Some(word) if self.own => {
                word.store(word.load(Ordering::Relaxed).wrapping_add(calls), Ordering::Release);
            }
            Some(word) => {
                word.fetch_add(calls, Ordering::AcqRel);
            }
            None => {}
        }
    }
}

impl Drop for Flight<'_> {
    #[inline]
    fn drop(&mut self) {
        self.add(END.wrapping_neg());
    }
}

/// Threads that ever asked for a place.
static THREADS: AtomicUsize = AtomicUsize::new(0);

std::thread_local! {
    /// The word of this thread, counted from 1; 0 before its first call. Without destructor.
    static PLACE: Cell<usize> = const { Cell::new(0) };
}

#[inline]
fn own_place() -> usize {
    let place = PLACE.get();
    if place == 0 { new_place() } else { place.wrapping_sub(1) }
}

#[cold]
fn new_place() -> usize {
    let number = THREADS.fetch_add(1, Ordering::Relaxed);
    let place = if number < OWNERS { number } else { OWNERS + number % SHARED };
    PLACE.set(place.wrapping_add(1));
    place
}
