//! Does somebody of the slice make a context, whose size its ledger does not have yet?
//!
//! The word of a slot counts in its low half the contexts that its owner is making, and above that how many it has made. A
//! reader that finds nobody making any, and later the same numbers, knows that no context was made in between.

use crate::{handle::member::Member, handle::region::Region, layout::Layout};

/// One more that was made.
const MADE: u64 = 1 << 32;
/// The bits of those that are being made.
const UNDER_WAY: u64 = MADE - 1;

/// Contexts of several processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextCreations {
    /// How many are being made.
    pub under_way: u64,
    /// A number that changes with each that was made, and with each process that ends.
    pub made: u64,
}

impl ContextCreations {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let under_way = self.under_way.saturating_add(other.under_way);
        Self { under_way, made: self.made.wrapping_add(other.made) }
    }
}

impl Member {
    /// This process is about to make a context whose size is not known. To be followed by [`end_making`](Self::end_making).
    pub fn begin_context_creation(&self) {
        self.count_context_creation(1);
    }

    /// What the context takes is in the ledger, or there is none.
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
    /// Contexts that the slice's processes make, but for the one in this slot.
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
