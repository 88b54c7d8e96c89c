//! Counts the calls under way during which the ledger and the device disagree.
//!
//! *Context creations.* The ledger lacks the size of a context until the driver has created the context.
//!
//! *Memory calls* take memory or give it back. The ledger counts the bytes of a reservation before the driver takes them.
//! It counts the bytes of a free until after the driver has freed them.
//!
//! A slot has a word for each of the two kinds. The low half counts the calls under way, and the high half all calls that
//! began. A reader that finds no call under way, and later the same word, knows that no call was under way in between.

use crate::{
    handle::{member::Member, region::Region},
    layout::{Layout, Slot},
    sync::atomics::full_fence,
};

/// The value to add when a call begins: one call under way, and one in the total.
const BEGIN: u64 = 1 << 32 | 1;
/// The value to subtract when a call ends.
const ONE_CALL: u64 = 1;
/// The bits of calls under way.
const CALLS_UNDER_WAY: u64 = u32::MAX as u64;

/// Calls of one kind, of one process or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Number of calls under way.
    pub under_way: u64,
    /// A number that changes with each call that begins and with each process that ends.
    pub began: u64,
}

impl Calls {
    /// Returns the sum of two counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let under_way = self.under_way.saturating_add(other.under_way);
        Self { under_way, began: self.began.wrapping_add(other.began) }
    }

    /// Tells whether no call was under way since `before`, except `own` calls of the caller.
    #[must_use]
    pub const fn is_still_since(self, before: Self, own: u64) -> bool {
        self.under_way <= own && before.under_way <= own && self.began == before.began
    }

    fn of_word(word: u64) -> Self {
        Self { under_way: word & CALLS_UNDER_WAY, began: word >> 32 }
    }
}

impl Member {
    /// Counts a context in creation, with a size that is not known yet. The caller calls
    /// [`end_context_creation`](Self::end_context_creation) afterwards.
    pub fn begin_context_creation(&self) {
        self.count(|slot| slot.context_creations.add(BEGIN));
    }

    /// Ends a context creation: the ledger has the context's size, or the creation failed.
    pub fn end_context_creation(&self) {
        self.count(|slot| slot.context_creations.add(ONE_CALL.wrapping_neg()));
    }

    /// Counts a memory call, before its reservation, or before the driver frees anything. The caller calls
    /// [`end_memory_call`](Self::end_memory_call) afterwards.
    #[inline]
    pub fn begin_memory_call(&self) {
        self.count(|slot| slot.memory_calls.add(BEGIN));
    }

    /// Ends a memory call: the ledger and the driver agree on its bytes.
    #[inline]
    pub fn end_memory_call(&self) {
        self.count(|slot| slot.memory_calls.add(ONE_CALL.wrapping_neg()));
    }

    /// Returns the memory calls of this process. The fences keep the reading between the caller's readings of ledger and
    /// device.
    #[must_use]
    pub fn memory_calls(&self) -> Calls {
        full_fence();
        let calls =
            self.own_slot().map_or_else(Calls::default, |slot| Calls::of_word(slot.memory_calls.observe()));
        full_fence();
        calls
    }

    #[inline]
    fn count(&self, count: impl FnOnce(&Slot)) {
        if let Some(slot) = self.own_slot() {
            count(slot);
        }
    }

    fn own_slot(&self) -> Option<&Slot> {
        self.region().layout().slots.get(self.slot())
    }
}

impl Region {
    /// Returns the context creations of the slice's processes, except those of the slot `but`.
    #[must_use]
    pub fn context_creations(&self, but: Option<usize>) -> Calls {
        self.calls(but, |slot| slot.context_creations.observe())
    }

    /// Returns the memory calls of the slice's processes. The fences have the same reason as in [`Member::memory_calls`].
    #[must_use]
    pub fn all_memory_calls(&self) -> Calls {
        full_fence();
        let calls = self.calls(None, |slot| slot.memory_calls.observe());
        full_fence();
        calls
    }

    fn calls(&self, but: Option<usize>, word: impl Fn(&Slot) -> u64) -> Calls {
        let layout: &Layout = self.layout();
        let slots = layout.slots.iter().take(layout.slot_high_water()).enumerate();
        let counted = slots.filter(|(index, _)| Some(*index) != but);
        counted.map(|(_, slot)| Calls::of_word(word(slot))).fold(Calls::default(), Calls::plus)
    }
}
