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
pub struct Makings {
    /// How many are being made.
    pub under_way: u64,
    /// A number that changes with each that was made, and with each process that ends.
    pub made: u64,
}

impl Makings {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let under_way = self.under_way.saturating_add(other.under_way);
        Self { under_way, made: self.made.wrapping_add(other.made) }
    }
}

impl Member {
    /// This process is about to make a context whose size is not known. To be followed by [`end_making`](Self::end_making).
    pub fn begin_making(&self) {
        self.count_making(1);
    }

    /// What the context takes is in the ledger, or there is none.
    pub fn end_making(&self) {
        self.count_making(MADE - 1);
    }

    fn count_making(&self, more: u64) {
        if let Some(entry) = self.region().layout().slots.get(self.slot()) {
            entry.making.add(more);
        }
    }
}

impl Region {
    /// Contexts that the slice's processes make, but for the one in this slot.
    #[must_use]
    pub fn makings(&self, but: Option<usize>) -> Makings {
        let layout: &Layout = self.layout();
        let slots = layout.slots.iter().take(layout.claimed()).enumerate();
        let words = slots.filter(|(slot, _)| Some(*slot) != but).map(|(_, entry)| entry.making.get());
        let each = words.map(|word| Makings { under_way: word & UNDER_WAY, made: word / MADE });
        each.fold(Makings::default(), Makings::plus)
    }
}
