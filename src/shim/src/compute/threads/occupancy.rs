//! Occupancy of a slot: its owner ends, the worker clears the slot, and another thread may reuse it.
//!
//! The states follow each other in one direction: living, ended, free, living. The owner makes the first step. The thread that
//! has cleared the state makes the second step, and the new owner makes the third. Both take the lock of the registry's free
//! slots for their step.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, Ordering, fence};

/// The owner of a slot: living, ended, or none.
#[derive(Debug, Default)]
pub(crate) struct Occupancy {
    /// Set by the owner at its end, unset by the next owner.
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

    /// Returns true if the owner has ended. The calling thread has set `remote_active`. A new owner clears `has_ended` before it
    /// reads `remote_active`.
    ///
    /// The former owner needs no barrier, because it published its end with release. But a new owner may enter at this moment.
    /// Each side writes its word, executes a full fence, and reads the word of the other side. So either this function sees the
    /// new owner, or the new owner sees `remote_active` and waits. Without the fences the worker could return credit that the new
    /// owner spends.
    pub(super) fn has_ended_fenced(&self) -> bool {
        fence(Ordering::SeqCst);
        self.has_ended()
    }

    /// Notes that the owner ends.
    pub(super) fn end(&self) {
        // Release: a thread that sees the mark also sees all writes of the owner.
        self.has_ended.store(true, Ordering::Release);
    }

    /// Marks a cleared slot as free. Returns true if this call has freed it.
    ///
    /// Several threads may clear one slot, because waiting threads do the worker's tick if the worker cannot be started. The
    /// exchange lets only one of them free the slot. If the slot already has a new owner, `has_ended` is false and the slot is
    /// not freed. Otherwise two threads would own it.
    pub(super) fn try_free(&self) -> bool {
        self.has_ended() && !self.is_free.swap(true, Ordering::AcqRel)
    }

    /// Gives the slot a new owner. The caller holds the lock of the free slots.
    pub(super) fn reuse(&self) {
        self.is_free.store(false, Ordering::Release);
        self.has_ended.store(false, Ordering::Release);
        // Pairs with the fence in `has_ended_fenced`.
        fence(Ordering::SeqCst);
    }
}
