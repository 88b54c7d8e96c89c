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
    seen: Mutex<Seen>,
    /// True if the program has had one context, which is the current one then. The question costs the driver a tenth of
    /// what a launch may cost.
    is_only_one: AtomicBool,
    /// Streams and contexts that have ended.
    ends: AtomicU64,
    /// True if the driver has refused to time a green context by events of its primary context.
    are_green_separate: AtomicBool,
}

#[derive(Debug, Default)]
enum Seen {
    #[default]
    None,
    One(usize),
    Several,
}

impl ProgramContexts {
    /// The program has this context.
    pub(crate) fn add(&self, context: usize) {
        let mut seen = self.seen.lock();
        *seen = match *seen {
            Seen::None => Seen::One(context),
            Seen::One(first) if first == context => Seen::One(first),
            _ => Seen::Several,
        };
        self.is_only_one.store(matches!(*seen, Seen::One(_)), Ordering::Relaxed);
    }

    /// Returns true if the program has had one context only.
    #[inline(always)]
    pub(crate) fn is_only_one(&self) -> bool {
        self.is_only_one.load(Ordering::Relaxed)
    }

    /// A stream or a context has ended: threads look which of their streams are left.
    pub(crate) fn count_end(&self) {
        self.ends.fetch_add(1, Ordering::AcqRel);
    }

    /// Streams and contexts that have ended. Relaxed: the program orders the end of a stream with a call on it, or not at all.
    #[inline(always)]
    pub(crate) fn ends(&self) -> u64 {
        self.ends.load(Ordering::Relaxed)
    }

    /// As [`ends`](Self::ends); what was written before the last end is seen.
    pub(crate) fn ends_acquired(&self) -> u64 {
        self.ends.load(Ordering::Acquire)
    }

    /// The context whose events time a context: of a green one its primary, which it runs in and which lives on.
    pub(crate) fn event_context(&self, slice: &Slice, context: usize) -> usize {
        if self.are_green_separate.load(Ordering::Acquire) { context } else { slice.owner_of(context) }
    }

    /// The driver refused an event of the primary context in a green one: each is timed by its own events from now on.
    pub(crate) fn separate_green(&self) {
        if !self.are_green_separate.swap(true, Ordering::AcqRel) {
            self.count_end();
        }
    }
}
