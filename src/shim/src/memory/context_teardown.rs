//! Teardown of contexts: their contents leave the tables before the driver is asked to end them.
//!
//! Once the driver has ended a context, it may give its addresses and handles to other threads. So the library takes the contents
//! out of the tables before the call. A thread that frees an object during the call searches these contents too. After the call
//! the library releases the contents, or puts them back if the context has not ended.

use super::addresses::Charge;
use super::arrays::{Array, ArrayPart};
use super::ending_contexts::ContextContents;
use super::graphs::Executable;
use super::host_spill::HostBlock;
use super::overheads::{Overhead, OverheadOwner};
use super::physical::AllocationId;
use super::physical_uses::unpin;
use super::shared;
use super::state::Memory;
use crate::slice::enforcement;
use std::collections::HashMap;

impl ContextContents {
    fn take(memory: &Memory, context: usize) -> Self {
        let addresses = memory.addresses.take_of(context);
        Self {
            shared: memory.shared.take_of(context, addresses.iter().map(|(address, _)| *address)),
            addresses: gathered(addresses),
            spilled: memory.spilled.take_of(context).into_iter().collect(),
            arrays: memory.arrays.take_of(context).into_iter().collect(),
            executables: memory.graphs.take_of(context).into_iter().collect(),
            overheads: memory.overheads.take_of(context),
            stream_frees: memory.stream_frees.take_of(context),
        }
    }

    fn put_back(self, memory: &Memory) {
        self.executables.into_iter().for_each(|(handle, one)| memory.graphs.put_back(handle, one));
        self.arrays.into_iter().for_each(|(handle, array)| memory.arrays.put_back(handle, array));
        self.shared.into_iter().for_each(|(address, ending)| memory.shared.put_back(address, ending));
        self.addresses.into_iter().for_each(|(address, charge)| memory.addresses.insert(address, charge));
        self.spilled.into_iter().for_each(|(address, block)| memory.spilled.put_back(address, block));
        memory.overheads.put_back(self.overheads);
        memory.stream_frees.put_back(self.stream_frees);
    }

    fn end(self, memory: &Memory) {
        memory.graphs.context_ended(memory, self.executables.into_values());
        self.arrays.into_values().for_each(|array| array.end(memory, |piece| unpin(memory, piece)));
        // The uses end before the refunds: the next payer of shared memory is charged before this process stops paying.
        self.shared.into_iter().for_each(|(_, ending)| ending.end(memory));
        self.addresses.into_iter().for_each(|(address, charge)| charge.end(memory, address));
        self.spilled.into_values().for_each(|block| block.end(memory));
        self.overheads.into_iter().for_each(|overhead| overhead.end(memory));
        self.stream_frees.into_values().for_each(|free| free.charge.end_of_freed(memory, free.address));
    }
}

/// Gathers charges in a table. If there is no host memory for the table, it stays empty, and the charges count as held until the
/// process ends.
fn gathered(charges: Vec<(u64, Charge)>) -> HashMap<u64, Charge> {
    let mut table = HashMap::new();
    match table.try_reserve(charges.len()) {
        Ok(()) => table.extend(charges),
        Err(_) => enforcement::run_out(),
    }
    table
}

/// Searches for objects that are about to end. Each function looks in the object's table first, and then among the contents of
/// ending contexts.
impl Memory {
    /// Takes the contents of a context out of the tables, before the library asks the driver to end the context or one use of it.
    /// Returns a number for [`end_teardown`](Self::end_teardown).
    pub(crate) fn begin_teardown(&self, context: usize) -> u64 {
        self.ending_contexts.begin(context, || ContextContents::take(self, context))
    }

    /// Releases the contents of a context if the driver has `ended` it, and puts them back otherwise.
    pub(crate) fn end_teardown(&self, number: u64, ended: bool) {
        let release = |context: usize, all: Vec<ContextContents>| {
            self.libraries.context_ended(context);
            all.into_iter().for_each(|contents| contents.end(self));
        };
        self.ending_contexts.end(number, ended, release, |contents| contents.put_back(self));
    }

    /// Takes out the charge of an address. `None`: the address was not charged.
    #[inline]
    pub(crate) fn take_charge(&self, address: u64) -> Option<Charge> {
        match self.addresses.take(address) {
            Some(charge) => Some(charge),
            None => self.find_charge(address),
        }
    }

    /// Searches for the charge of an address among the contents of ending contexts. A function of its own keeps this code out of
    /// [`take_charge`](Self::take_charge), which runs for every free.
    #[cold]
    #[inline(never)]
    fn find_charge(&self, address: u64) -> Option<Charge> {
        self.ending_contexts
            .find(|contents| contents.addresses.remove(&address), || self.addresses.take(address))
    }

    /// Takes out spilled memory that is about to be freed.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_spilled(&self, address: u64) -> Option<HostBlock> {
        let there = || self.spilled.take(address);
        there().or_else(|| self.ending_contexts.find(|contents| contents.spilled.remove(&address), there))
    }

    /// Returns true if spilled memory begins at an address.
    pub(crate) fn spilled_begins_at(&self, address: u64) -> bool {
        let there = || self.spilled.begins_at(address).then_some(());
        let here = |contents: &mut ContextContents| contents.spilled.contains_key(&address).then_some(());
        self.spilled.any() && there().or_else(|| self.ending_contexts.find(here, there)).is_some()
    }

    /// Returns true if any byte of a range is spilled.
    pub(crate) fn spilled_touches(&self, address: u64, bytes: u64) -> bool {
        let there = || self.spilled.touches(address, bytes).then_some(());
        let here = |contents: &mut ContextContents| {
            HostBlock::touch(&contents.spilled, address, bytes).then_some(())
        };
        self.spilled.any() && there().or_else(|| self.ending_contexts.find(here, there)).is_some()
    }

    /// Takes out an array that is about to end.
    pub(crate) fn take_array(&self, handle: u64) -> Option<Array> {
        let there = || self.arrays.take(handle);
        there().or_else(|| self.ending_contexts.find(|contents| contents.arrays.remove(&handle), there))
    }

    /// Notes that `piece` was mapped to a part of an array. If `piece` is `None`, notes that the part's memory was unmapped.
    /// Returns the earlier piece of the part. If this process did not make the array, returns `piece` itself. The caller unpins
    /// the returned piece.
    pub(crate) fn set_array_part(
        &self,
        handle: u64,
        part: ArrayPart,
        piece: Option<AllocationId>,
    ) -> Option<AllocationId> {
        let there = || self.arrays.set_part(handle, part, piece);
        let here = |contents: &mut ContextContents| {
            contents.arrays.get_mut(&handle).map(|array| array.set_part(part, piece))
        };
        there().or_else(|| self.ending_contexts.find(here, there)).unwrap_or(piece)
    }

    /// Takes out an executable that is about to end.
    pub(crate) fn take_executable(&self, handle: usize) -> Option<Executable> {
        let there = || self.graphs.take(handle);
        there().or_else(|| self.ending_contexts.find(|contents| contents.executables.remove(&handle), there))
    }

    /// Takes out all memory that `holder` holds, in any context.
    pub(crate) fn take_held(&self, holder: OverheadOwner) -> Vec<Overhead> {
        let mut taken = self.overheads.take(holder);
        // A library may have memory of some contexts in the table, and memory of ending contexts among the contents.
        self.ending_contexts.find::<()>(
            |contents| {
                taken.extend(contents.overheads.extract_if(.., |one| one.is_of(holder)));
                None
            },
            || None,
        );
        taken
    }

    /// Notes that other processes can use the memory at an address by `key`. Does nothing for memory that is not charged.
    pub(crate) fn lend_address(&self, address: u64, key: u64) {
        let share = |charge: &Charge| self.lend(charge.device, key, charge.bytes);
        let there = || {
            let charge = self.addresses.get(address)?;
            self.shared.lend(address, key, charge.outlives_free(), || share(&charge));
            Some(())
        };
        let here = |contents: &mut ContextContents| {
            let charge = *contents.addresses.get(&address)?;
            self.shared.note_use();
            let at = contents.shared.iter().position(|(of, ending)| *of == address && ending.is_loan());
            let (_, ending) = match at {
                Some(at) => contents.shared.get_mut(at)?,
                None => {
                    contents.shared.push((address, shared::EndingUse::default()));
                    contents.shared.last_mut()?
                }
            };
            ending.lend(key, charge.outlives_free(), || share(&charge));
            Some(())
        };
        // If the address is in neither place, it is not charged, and there is nothing to note.
        let _lent = there().or_else(|| self.ending_contexts.find(here, there));
    }

    /// Takes out the uses of an address that is about to end, or about to be closed once. These are uses of this process's memory
    /// by other processes, and uses of their memory by this process.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_shared(&self, address: u64) -> shared::EndingUse {
        let there = || Some(self.shared.take(address)).filter(|ending| !ending.is_empty());
        let here = |contents: &mut ContextContents| {
            let at = contents.shared.iter().position(|(of, _)| *of == address)?;
            Some(contents.shared.swap_remove(at).1)
        };
        if !self.shared.any() {
            return shared::EndingUse::default();
        }
        there().or_else(|| self.ending_contexts.find(here, there)).unwrap_or_default()
    }
}
