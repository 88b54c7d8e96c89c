//! Contexts that the program has had, and the context whose events time a stream.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use parking_lot::Mutex;

/// The contexts of the program.
#[derive(Debug, Default)]
pub(crate) struct ProgramContexts {
    seen: Mutex<ContextCount>,
    /// True if the program has had one context only. Then that context is current, and a launch need not ask the driver for it,
    /// which costs a tenth of a launch's budget. Written under the lock of `seen`, read by each launch without a lock.
    is_only_one: AtomicBool,
    /// Number of streams and contexts that have ended. Each thread compares it with the number that it saw last.
    ends: AtomicU64,
    /// True if the driver has refused to time a green context by events of its primary context.
    are_green_separate: AtomicBool,
}

#[derive(Debug, Default)]
enum ContextCount {
    #[default]
    None,
    One(usize),
    Several,
}

impl ProgramContexts {
    /// Notes that the program has this context.
    ///
    /// The count never falls: contexts that end are not subtracted. So after a second context, each launch on a default stream
    /// asks the driver which context is current. With the wrong context the library would time another default stream.
    pub(crate) fn add(&self, context: usize) {
        let mut seen = self.seen.lock();
        *seen = match *seen {
            ContextCount::None => ContextCount::One(context),
            ContextCount::One(first) if first == context => ContextCount::One(first),
            _ => ContextCount::Several,
        };
        // Stored under the lock: otherwise a thread that counted earlier could overwrite `false` with `true`.
        self.is_only_one.store(matches!(*seen, ContextCount::One(_)), Ordering::Relaxed);
    }

    /// Returns true if the program has had one context only.
    #[inline(always)]
    pub(crate) fn is_only_one(&self) -> bool {
        self.is_only_one.load(Ordering::Relaxed)
    }

    /// Counts a stream or a context that has ended. Each thread then checks which of its streams still exist.
    ///
    /// A caller makes its other changes first. The release makes them visible to a thread that calls
    /// [`ends_acquired`](Self::ends_acquired). Example: the caller has removed the pool of the context's events, so that thread
    /// records none of these events.
    pub(crate) fn count_end(&self) {
        self.ends.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of streams and contexts that have ended. Relaxed: either the program orders the end of a stream before
    /// a call on it, or both outcomes are correct.
    #[inline(always)]
    pub(crate) fn ends(&self) -> u64 {
        self.ends.load(Ordering::Relaxed)
    }

    /// Returns the number of streams and contexts that have ended. The thread also sees all that was written before the last end.
    pub(crate) fn ends_acquired(&self) -> u64 {
        self.ends.load(Ordering::Acquire)
    }

    /// Returns the context whose events time `context`. For a green context it is the primary context, in which the green context
    /// runs. The primary context remains when the green context ends.
    pub(crate) fn event_context(&self, slice: &Slice, context: usize) -> usize {
        if self.are_green_separate.load(Ordering::Acquire) { context } else { slice.owner_of(context) }
    }

    /// Notes that the driver refused an event of the primary context in a green context. From now on each green context is timed
    /// by its own events. The first call counts an end, so that all threads look their streams up again. Otherwise they would
    /// keep using events that the driver refuses.
    pub(crate) fn separate_green(&self) {
        if !self.are_green_separate.swap(true, Ordering::AcqRel) {
            self.count_end();
        }
    }
}
