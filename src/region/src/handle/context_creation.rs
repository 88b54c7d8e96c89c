//! Counts contexts that the processes of a slice are creating, because the ledger does not have their sizes yet.
//!
//! The low half of a slot's word counts the contexts that its owner is creating, and the high half those that it has
//! created. A reader that finds none in creation, and later the same numbers, knows that no context was created in
//! between.

use crate::{handle::member::Member, handle::region::Region, layout::Layout};

/// One more created context.
const MADE: u64 = 1 << 32;
/// The bits of contexts in creation.
const UNDER_WAY: u64 = MADE - 1;

/// Contexts of several processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextCreations {
    /// Contexts in creation.
    pub under_way: u64,
    /// A number that changes with each created context and with each process that ends.
    pub made: u64,
}

impl ContextCreations {
    /// The sum of two counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let under_way = self.under_way.saturating_add(other.under_way);
        Self { under_way, made: self.made.wrapping_add(other.made) }
    }
}

impl Member {
    /// Counts a context in creation, with a size that is not known yet. The caller calls
    /// [`end_context_creation`](Self::end_context_creation) afterwards.
    pub fn begin_context_creation(&self) {
        self.count_context_creation(1);
    }

    /// Ends a creation: the ledger has the context's size, or the creation failed.
    pub fn end_context_creation(&self) {
        self.count_context_creation(MADE - 1);
    }

    fn count_context_creation(&self, more: u64) {
        if let Some(entry) = self.region().layout().slots.get(self.slot()) {
            entry.context_creations.add(more);
        }
    }
}

impl Region {
    /// Contexts of the slice's processes, except those of the slot `but`.
    #[must_use]
    pub fn context_creations(&self, but: Option<usize>) -> ContextCreations {
        let layout: &Layout = self.layout();
        let slots = layout.slots.iter().take(layout.slot_high_water()).enumerate();
        let words =
            slots.filter(|(slot, _)| Some(*slot) != but).map(|(_, entry)| entry.context_creations.get());
        let each = words.map(|word| ContextCreations { under_way: word & UNDER_WAY, made: word / MADE });
        each.fold(ContextCreations::default(), ContextCreations::plus)
    }
}
