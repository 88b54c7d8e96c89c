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
    /// True if the program has had one context, which is then the current one. To ask the driver for it costs a tenth of the
    /// budget of a launch.
    is_only_one: AtomicBool,
    /// Number of streams and contexts that have ended.
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
    pub(crate) fn add(&self, context: usize) {
        let mut seen = self.seen.lock();
        *seen = match *seen {
            ContextCount::None => ContextCount::One(context),
            ContextCount::One(first) if first == context => ContextCount::One(first),
            _ => ContextCount::Several,
        };
        self.is_only_one.store(matches!(*seen, ContextCount::One(_)), Ordering::Relaxed);
    }

    /// Returns true if the program has had one context only.
    #[inline(always)]
    pub(crate) fn is_only_one(&self) -> bool {
        self.is_only_one.load(Ordering::Relaxed)
    }

    /// Counts a stream or a context that has ended: threads look which of their streams are left.
    pub(crate) fn count_end(&self) {
        self.ends.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of streams and contexts that have ended. Relaxed: either the program orders the end of a stream before
    /// a call on it, or both outcomes are correct.
    #[inline(always)]
    pub(crate) fn ends(&self) -> u64 {
        self.ends.load(Ordering::Relaxed)
    }

    /// Returns the number of streams and contexts that have ended, and makes visible all that was written before the last end.
    pub(crate) fn ends_acquired(&self) -> u64 {
        self.ends.load(Ordering::Acquire)
    }

    /// Returns the context whose events time `context`. For a green context it is the primary one, in which the green one runs
    /// and which lives on.
    pub(crate) fn event_context(&self, slice: &Slice, context: usize) -> usize {
        if self.are_green_separate.load(Ordering::Acquire) { context } else { slice.owner_of(context) }
    }

    /// Notes that the driver refused an event of the primary context in a green one. From now on each green context is timed by
    /// its own events.
    pub(crate) fn separate_green(&self) {
        if !self.are_green_separate.swap(true, Ordering::AcqRel) {
            self.count_end();
        }
    }
}
