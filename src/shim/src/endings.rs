//! What lived in a context that the driver may be about to end?
//!
//! Before such a call all of it is taken out of the maps: once the driver has ended the context it gives its addresses and
//! handles to others, and nobody could tell any more whose they were. It is kept here meanwhile, and who frees some of it
//! beside the call finds it here. What is left goes with the context, or back into the maps where the context lives on.
//!
//! Of several such calls for one context only one ends it. What they took out is kept together until the last of them is
//! back, so that it does not matter which.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::arrays::Array;
use crate::graphs::Executable;
use crate::holdings::{Holder, Holding};
use crate::ledger::Charge;
use crate::lifecycle;
use crate::shared;
use crate::slice::Slice;
use crate::spill::Extent;
use core::sync::atomic::{AtomicBool, Ordering};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

/// Everything that may be ending.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// Whether there ever was such a call: every free that finds nothing asks.
    any: AtomicBool,
    under_way: Mutex<Vec<Ending>>,
}

#[derive(Debug)]
struct Ending {
    /// A number that no other has.
    number: u64,
    context: usize,
    /// Calls that are under way.
    calls: usize,
    /// Whether one of them has ended it.
    ended: bool,
    /// What each of them found, the last one at the end. One address or handle may be in two of them: one call has ended the
    /// context and is not back yet, and the driver has given all of it to a new one, which the next call is to end.
    lived: Vec<Lived>,
}

/// What lived in a context.
#[derive(Debug)]
struct Lived {
    addresses: HashMap<u64, Charge>,
    spilled: BTreeMap<u64, Extent>,
    arrays: HashMap<u64, Array>,
    executables: HashMap<usize, Executable>,
    holdings: Vec<Holding>,
    /// What others use of it, and it of others.
    shared: Vec<(u64, shared::Ending)>,
}

impl Endings {
    /// The driver is about to be asked to end a context, or one use of it. A number to tell how that went.
    pub(crate) fn begin(&self, slice: &Slice, context: usize) -> u64 {
        // Relaxed: who misses what is taken out has seen the lock of its map, and this before it.
        self.any.store(true, Ordering::Relaxed);
        let mut all = self.under_way.lock();
        if let Some(known) = all.iter_mut().find(|one| one.context == context && !one.ended) {
            known.calls = known.calls.saturating_add(1);
            known.lived.push(Lived::take(slice, context));
            return known.number;
        }
        let number = all.iter().map(|one| one.number).max().unwrap_or(0).wrapping_add(1);
        let lived = vec![Lived::take(slice, context)];
        all.push(Ending { number, context, calls: 1, ended: false, lived });
        number
    }

    /// The driver is back, and the context has ended or lives on.
    pub(crate) fn end(&self, slice: &Slice, number: u64, ended: bool) {
        let mut all = self.under_way.lock();
        let Some(at) = all.iter().position(|one| one.number == number) else { return };
        if let Some(one) = all.get_mut(at) {
            one.calls = one.calls.saturating_sub(1);
            one.ended |= ended;
            if one.calls > 0 {
                return;
            }
        }
        let Ending { ended, lived, context, .. } = all.swap_remove(at);
        if ended {
            drop(all);
            slice.libraries.context_ended(context);
            lived.into_iter().for_each(|lived| lived.end(slice));
        } else {
            // Under the lock: who looks for any of it finds it here or there.
            lived.into_iter().for_each(|lived| lived.put_back(slice));
        }
    }

    /// Looks for what was not found where it should be: here, and `there` once more.
    fn find<T>(
        &self,
        here: impl FnMut(&mut Lived) -> Option<T>,
        there: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut all = self.under_way.lock();
        all.iter_mut().flat_map(|one| one.lived.iter_mut().rev()).find_map(here).or_else(there)
    }
}

impl Lived {
    fn take(slice: &Slice, context: usize) -> Self {
        let addresses = slice.addresses.take_of(context);
        Self {
            shared: slice.shared.take_of(context, addresses.iter().map(|(address, _)| *address)),
            addresses: gathered(addresses),
            spilled: slice.spilled.take_of(context).into_iter().collect(),
            arrays: slice.arrays.take_of(context).into_iter().collect(),
            executables: slice.graphs.take_of(context).into_iter().collect(),
            holdings: slice.holdings.take_of(context),
        }
    }

    fn put_back(self, slice: &Slice) {
        self.executables.into_iter().for_each(|(handle, one)| slice.graphs.put_back(handle, one));
        self.arrays.into_iter().for_each(|(handle, array)| slice.arrays.put_back(handle, array));
        self.shared.into_iter().for_each(|(address, ending)| slice.shared.put_back(address, ending));
        self.addresses.into_iter().for_each(|(address, charge)| slice.addresses.insert(address, charge));
        self.spilled.into_iter().for_each(|(address, extent)| slice.spilled.put_back(address, extent));
        slice.holdings.put_back(self.holdings);
    }

    fn end(self, slice: &Slice) {
        slice.graphs.context_ended(slice, self.executables.into_values());
        self.arrays.into_values().for_each(|array| array.end(slice));
        // Before the bytes go back: an heir is charged first.
        self.shared.into_iter().for_each(|(_, ending)| ending.end(slice));
        self.addresses.into_iter().for_each(|(address, charge)| charge.end(slice, address));
        self.spilled.into_values().for_each(|extent| extent.end(slice));
        self.holdings.into_iter().for_each(|holding| holding.end(slice));
    }
}

/// A table of charges. One for which there is no memory is empty: the charges count until the process ends.
fn gathered(charges: Vec<(u64, Charge)>) -> HashMap<u64, Charge> {
    let mut table = HashMap::new();
    match table.try_reserve(charges.len()) {
        Ok(()) => table.extend(charges),
        Err(_) => lifecycle::run_out(),
    }
    table
}

/// What ends by itself is looked for in its map first.
impl Slice {
    /// Takes out what an address was charged; none for an address that nobody charged.
    #[inline]
    pub(crate) fn take_charge(&self, address: u64) -> Option<Charge> {
        match self.addresses.take(address) {
            Some(charge) => Some(charge),
            None => self.find_charge(address),
        }
    }

    /// Apart from what every free goes through.
    #[cold]
    #[inline(never)]
    fn find_charge(&self, address: u64) -> Option<Charge> {
        self.endings.find(|lived| lived.addresses.remove(&address), || self.addresses.take(address))
    }

    /// Takes out spilled memory that is about to be freed.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_spilled(&self, address: u64) -> Option<Extent> {
        let there = || self.spilled.take(address);
        there().or_else(|| self.endings.find(|lived| lived.spilled.remove(&address), there))
    }

    /// Whether spilled memory begins at an address.
    pub(crate) fn spilled_begins_at(&self, address: u64) -> bool {
        let there = || self.spilled.begins_at(address).then_some(());
        let here = |lived: &mut Lived| lived.spilled.contains_key(&address).then_some(());
        self.spilled.any() && there().or_else(|| self.endings.find(here, there)).is_some()
    }

    /// Whether any byte of a range is spilled.
    pub(crate) fn spilled_touches(&self, address: u64, bytes: u64) -> bool {
        let there = || self.spilled.touches(address, bytes).then_some(());
        let here = |lived: &mut Lived| Extent::touch(&lived.spilled, address, bytes).then_some(());
        self.spilled.any() && there().or_else(|| self.endings.find(here, there)).is_some()
    }

    /// Takes out an array that is about to end.
    pub(crate) fn take_array(&self, handle: u64) -> Option<Array> {
        let there = || self.arrays.take(handle);
        there().or_else(|| self.endings.find(|lived| lived.arrays.remove(&handle), there))
    }

    /// Takes out an executable that is about to end.
    pub(crate) fn take_executable(&self, handle: usize) -> Option<Executable> {
        let there = || self.graphs.take(handle);
        there().or_else(|| self.endings.find(|lived| lived.executables.remove(&handle), there))
    }

    /// Takes out all that something holds, in any context.
    pub(crate) fn take_held(&self, holder: Holder) -> Vec<Holding> {
        let mut taken = self.holdings.take(holder);
        // Of a library some may be here and some there.
        self.endings.find::<()>(
            |lived| {
                taken.extend(lived.holdings.extract_if(.., |one| one.is_of(holder)));
                None
            },
            || None,
        );
        taken
    }

    /// Takes out what others use at an address, and this process of others, that is about to end or to be closed once.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_shared(&self, address: u64) -> shared::Ending {
        let there = || Some(self.shared.take(address)).filter(|ending| !ending.is_empty());
        let here = |lived: &mut Lived| {
            let at = lived.shared.iter().position(|(of, _)| *of == address)?;
            Some(lived.shared.swap_remove(at).1)
        };
        if !self.shared.any() {
            return shared::Ending::default();
        }
        there().or_else(|| self.endings.find(here, there)).unwrap_or_default()
    }
}
