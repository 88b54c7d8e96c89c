//! Spans and instants that several threads of this process read and write.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};
use gpuslice_policy::time::Nanos;

/// A span or an instant in one atomic word. All accesses are relaxed, so the word orders no other memory.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct TimeWord<T>(AtomicU64, PhantomData<T>);

impl<T: Nanos> TimeWord<T> {
    /// Makes a word of 0 nanoseconds.
    pub(crate) const fn zero() -> Self {
        Self(AtomicU64::new(0), PhantomData)
    }

    /// Makes a word.
    pub(crate) fn new(value: T) -> Self {
        Self(AtomicU64::new(value.nanos()), PhantomData)
    }

    /// Reads the word.
    #[inline]
    pub(crate) fn get(&self) -> T {
        T::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// Writes the word.
    #[inline]
    pub(crate) fn set(&self, value: T) {
        self.0.store(value.nanos(), Ordering::Relaxed);
    }

    /// Adds, wrapping at the end of the range. Returns the value before.
    #[inline]
    pub(crate) fn add(&self, value: T) -> T {
        T::from_nanos(self.0.fetch_add(value.nanos(), Ordering::Relaxed))
    }

    /// Writes `value` if it is larger than the word's value.
    pub(crate) fn raise(&self, value: T) {
        self.0.fetch_max(value.nanos(), Ordering::Relaxed);
    }

    /// Writes `new` if the word's value is still `old`. Returns true if it was.
    pub(crate) fn replace(&self, old: T, new: T) -> bool {
        self.0.compare_exchange(old.nanos(), new.nanos(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Replaces the value by `next(value)`, and returns the value before. If `next` returns `None`, the word does not change, and
    /// this function returns `None`.
    pub(crate) fn change(&self, next: impl Fn(T) -> Option<T>) -> Option<T> {
        let next = |word| next(T::from_nanos(word)).map(T::nanos);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(T::from_nanos)
    }
}
