//! Occupancy of a slot: its owner ends, the worker clears the slot, and another thread may reuse it.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, Ordering, fence};

/// The owner of a slot: living, ended, or none.
#[derive(Debug, Default)]
pub(crate) struct Occupancy {
    has_ended: AtomicBool,
    /// True if the slot was cleared after the owner's end, and has no owner.
    is_free: AtomicBool,
}

impl Occupancy {
    /// Returns true if the slot has no owner and is empty.
    pub(crate) fn is_free(&self) -> bool {
        self.is_free.load(Ordering::Acquire)
    }

    /// Returns true if the owner has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Returns true if the owner has ended, for a thread that has set `remote_active`. A new owner clears the mark of the end
    /// before it reads `remote_active`.
    pub(super) fn has_ended_fenced(&self) -> bool {
        fence(Ordering::SeqCst);
        self.has_ended()
    }

    /// Notes that the owner ends.
    pub(super) fn end(&self) {
        // Release: the worker reads what the thread wrote.
        self.has_ended.store(true, Ordering::Release);
    }

    /// Marks a cleared slot as free. Returns true if this call has freed it.
    pub(super) fn try_free(&self) -> bool {
        self.has_ended() && !self.is_free.swap(true, Ordering::AcqRel)
    }

    /// Gives the slot a new owner.
    pub(super) fn reuse(&self) {
        self.is_free.store(false, Ordering::Release);
        self.has_ended.store(false, Ordering::Release);
        // Pairs with the fence in `has_ended_fenced`.
        fence(Ordering::SeqCst);
    }
}
