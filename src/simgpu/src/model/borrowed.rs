//! Memory that this process lends to other processes or borrows from them.

use std::collections::BTreeMap;

/// Lent and borrowed memory of this process.
#[derive(Debug, Default)]
pub(crate) struct Borrowed {
    /// Numbers of exports, by address.
    pub(crate) lent: BTreeMap<u64, u64>,
    /// Opened memory of others, by address.
    pub(crate) opened: BTreeMap<u64, Opened>,
}

/// Memory of another process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) context: u64,
    /// Number of the export; 0 for memory that CUDA did not make.
    pub(crate) number: u64,
    /// Number of times that it is open.
    pub(crate) times: u32,
}

impl Borrowed {
    /// Removes the export of memory that ends, and returns its number.
    pub(crate) fn take_loan(&mut self, address: u64) -> Option<u64> {
        self.lent.remove(&address)
    }
}
