//! Memory that this process lends to other processes or borrows from them.

use std::collections::BTreeMap;

/// The memory that this process lends, and the memory that it borrows.
#[derive(Debug, Default)]
pub(crate) struct Borrowed {
    /// Numbers of the exports of own memory, by address.
    pub(crate) lent: BTreeMap<u64, u64>,
    /// Memory of other processes that this process has opened, by address.
    pub(crate) opened: BTreeMap<u64, Opened>,
}

/// Memory of another process that this process has opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) context: u64,
    /// Number of the export; 0 for memory that another interface made, not CUDA.
    pub(crate) number: u64,
    /// How many times the program has opened this memory and not closed it.
    pub(crate) times: u32,
}

impl Borrowed {
    /// Forgets the export of memory that ends, and returns the number of the export.
    pub(crate) fn take_loan(&mut self, address: u64) -> Option<u64> {
        self.lent.remove(&address)
    }
}
