//! Memory that this process lends to others or borrows from them.

use std::collections::BTreeMap;

/// What this process lets others use, and what it uses of others.
#[derive(Debug, Default)]
pub(crate) struct Borrowed {
    /// Numbers of loans, by address.
    pub(crate) lent: BTreeMap<u64, u64>,
    /// What was opened, by address.
    pub(crate) opened: BTreeMap<u64, Opened>,
}

/// Memory of another process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) context: u64,
    /// Number of the loan; 0 for memory that CUDA knows nothing of.
    pub(crate) number: u64,
    /// How often it was opened.
    pub(crate) times: u32,
}

impl Borrowed {
    /// Takes out the loan of memory that ends.
    pub(crate) fn take_loan(&mut self, address: u64) -> Option<u64> {
        self.lent.remove(&address)
    }
}
