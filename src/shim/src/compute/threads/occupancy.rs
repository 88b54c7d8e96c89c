//! Whether a slot has a living thread: its owner ends, the worker clears the slot, and another thread may have it.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, Ordering, fence};

/// The owner of a slot: living, ended, or none.
#[derive(Debug, Default)]
pub(crate) struct Occupancy {
    has_ended: AtomicBool,
    /// True if the slot was cleared after that, and has no owner.
    is_free: AtomicBool,
}

impl Occupancy {
    /// Returns true if the slot has no owner, and nothing in it.
    pub(crate) fn is_free(&self) -> bool {
        self.is_free.load(Ordering::Acquire)
    }

    /// Returns true if the owner has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Returns true if the owner has ended, for a thread that has said that it accesses the slot. The next owner says
    /// that the slot is its own before it looks at that.
    pub(super) fn has_ended_fenced(&self) -> bool {
        fence(Ordering::SeqCst);
        self.has_ended()
    }

    /// The owner ends.
    pub(super) fn end(&self) {
        // Release: the worker reads what the thread wrote.
        self.has_ended.store(true, Ordering::Release);
    }

    /// The slot was cleared. Whether it is free since this call.
    pub(super) fn try_free(&self) -> bool {
        self.has_ended() && !self.is_free.swap(true, Ordering::AcqRel)
    }

    /// The slot gets a new owner.
    pub(super) fn reuse(&self) {
        self.is_free.store(false, Ordering::Release);
        self.has_ended.store(false, Ordering::Release);
        // Pairs with the fence in `has_ended_fenced`.
        fence(Ordering::SeqCst);
    }
}
