//! Memory that this process shares with other processes of the slice. The owner pays, even if other processes import the memory.
//!
//! This file has only the uses that belong to an address or an external object. The uses of physical memory are in `physical`.
//! The region has an entry for each use: when the owner ends, another process of the slice that uses the memory inherits the
//! charge.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicBool, Ordering};
use gpuslice_region::SharedUse;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Memory of this process that other processes may use, by these keys.
#[derive(Debug, Default)]
pub(crate) struct ExportedMemory {
    keys: Vec<u64>,
    uses: Vec<SharedUse>,
    /// True if the memory still exists after this process frees it, as long as other processes use it. An allocation from a pool
    /// does not.
    lives_on: bool,
}

/// Memory of another process at an address of this process.
#[derive(Debug)]
pub(crate) struct OpenedMemory {
    used: Option<SharedUse>,
    context: usize,
    /// Number of times that the program has opened the memory and not closed it.
    times: u64,
}

/// Memory that this process lends, and memory of other processes that it uses.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    any: AtomicBool,
    /// True if this process has ever used memory that another process made.
    has_imported: AtomicBool,
    lent: Mutex<HashMap<u64, ExportedMemory>>,
    opened: Mutex<HashMap<u64, OpenedMemory>>,
    /// Uses by imports, by the driver's object for the import.
    externals: Mutex<HashMap<usize, SharedUse>>,
}

/// Uses of an address whose end is under way.
#[derive(Debug, Default)]
pub(crate) struct EndingUse {
    loan: Option<ExportedMemory>,
    opened: Option<OpenedMemory>,
}

impl Shared {
    /// Returns true if this process ever lent or opened memory. One relaxed load.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Notes that this process lends or opens memory.
    pub(super) fn note_use(&self) {
        self.any.store(true, Ordering::Relaxed);
    }

    /// Returns true if this process has ever used memory that another process made. NVML may count that memory as this process's.
    pub(crate) fn has_imported(&self) -> bool {
        self.has_imported.load(Ordering::Relaxed)
    }

    /// Notes that this process is about to use memory that another process made.
    pub(crate) fn note_import(&self) {
        self.has_imported.store(true, Ordering::Relaxed);
    }

    /// Notes that other processes can use the memory at an address by `key`. `share` adds the use to the region.
    pub(crate) fn lend(
        &self,
        address: u64,
        key: u64,
        lives_on: bool,
        share: impl FnOnce() -> Option<SharedUse>,
    ) {
        self.note_use();
        self.lent.lock().entry(address).or_default().add(key, lives_on, share);
    }

    /// Notes that this process has opened memory of another process at an address, for the first time or once more.
    pub(crate) fn open(&self, slice: &Slice, address: u64, context: usize, used: Option<SharedUse>) {
        self.note_use();
        let mut opened = self.opened.lock();
        let known = opened.entry(address).or_insert(OpenedMemory { used: None, context, times: 0 });
        known.times = known.times.saturating_add(1);
        if known.used.is_none() {
            known.used = used;
        } else if let Some(used) = used {
            // The region needs only one use for each process.
            slice.end_use(used, true);
        }
    }

    /// Takes out the uses of an address that is about to end, or to be closed once.
    pub(crate) fn take(&self, address: u64) -> EndingUse {
        if !self.any() {
            return EndingUse::default();
        }
        let loan = self.lent.lock().remove(&address);
        let mut opened = self.opened.lock();
        let last = match opened.get_mut(&address) {
            Some(known) if known.times > 1 => {
                known.times = known.times.saturating_sub(1);
                Some(OpenedMemory { used: None, context: known.context, times: 1 })
            }
            Some(_) => opened.remove(&address),
            None => None,
        };
        EndingUse { loan, opened: last }
    }

    /// Puts back the uses of an address that did not end.
    pub(crate) fn put_back(&self, address: u64, ending: EndingUse) {
        if let Some(loan) = ending.loan {
            self.lent.lock().insert(address, loan);
        }
        if let Some(OpenedMemory { used, context, times }) = ending.opened {
            let mut opened = self.opened.lock();
            let known = opened.entry(address).or_insert(OpenedMemory { used: None, context, times: 0 });
            known.times = known.times.saturating_add(times);
            known.used = known.used.take().or(used);
        }
    }

    /// Takes out the uses that end with a context: memory that was opened in it, and loans at its `addresses`.
    pub(crate) fn take_of(
        &self,
        context: usize,
        addresses: impl Iterator<Item = u64>,
    ) -> Vec<(u64, EndingUse)> {
        if !self.any() {
            return Vec::new();
        }
        let in_it = self.opened.lock().extract_if(|_, opened| opened.context == context).collect::<Vec<_>>();
        let opened = in_it
            .into_iter()
            .map(|(address, opened)| (address, EndingUse { loan: None, opened: Some(opened) }));
        let mut lent = self.lent.lock();
        let lent = addresses.filter_map(|address| {
            let loan = lent.remove(&address)?;
            Some((address, EndingUse { loan: Some(loan), opened: None }))
        });
        opened.chain(lent.collect::<Vec<_>>()).collect()
    }

    /// Records that the driver has imported memory as `object`. Another interface made the memory, or CUDA had exported it.
    pub(crate) fn import(&self, object: usize, used: SharedUse) {
        self.externals.lock().insert(object, used);
    }

    /// Takes out the use of an imported object.
    pub(crate) fn take_import(&self, object: usize) -> Option<SharedUse> {
        self.externals.lock().remove(&object)
    }
}

impl ExportedMemory {
    /// Notes that other processes can use the memory by `key`.
    fn add(&mut self, key: u64, lives_on: bool, share: impl FnOnce() -> Option<SharedUse>) {
        if !self.keys.contains(&key) {
            self.keys.push(key);
            self.uses.extend(share());
            self.lives_on = lives_on;
        }
    }
}

impl EndingUse {
    /// Returns true if the uses of the address are only loans of this process's memory.
    pub(super) fn is_loan(&self) -> bool {
        self.loan.is_some() && self.opened.is_none()
    }

    /// Notes a loan, as [`Shared::lend`] does, of memory whose context may be ending.
    pub(super) fn lend(&mut self, key: u64, lives_on: bool, share: impl FnOnce() -> Option<SharedUse>) {
        self.loan.get_or_insert_default().add(key, lives_on, share);
    }

    /// Returns true if there is neither a loan nor opened memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.loan.is_none() && self.opened.is_none()
    }

    /// Ends the uses of an address that has ended. The caller refunds the address's bytes afterwards: the next payer must be
    /// charged before this process stops paying.
    pub(crate) fn end(self, slice: &Slice) {
        if let Some(loan) = self.loan {
            loan.uses.into_iter().for_each(|used| slice.end_use(used, loan.lives_on));
        }
        if let Some(used) = self.opened.and_then(|opened| opened.used) {
            slice.end_use(used, true);
        }
    }
}
