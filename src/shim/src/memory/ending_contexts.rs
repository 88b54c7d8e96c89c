//! Contents of contexts that the driver may be about to end.
//!
//! The contents are out of their tables while the call is in progress. Of several such calls for one context only one ends it.
//! The contents that they took out stay together until the last call returns, so it does not matter which call ends the context.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::addresses::Charge;
use super::arrays::Array;
use super::graphs::Executable;
use super::host_spill::Extent;
use super::overheads::Holding;
use super::shared;
use core::sync::atomic::{AtomicBool, Ordering};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

/// Everything that may be ending.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// True if there ever was such a call: every free that finds nothing asks.
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
    /// True if one of them has ended it.
    ended: bool,
    /// What each of them found, the last one at the end. One address or handle may be in two of them: one call has ended the
    /// context and is not back yet, and the driver has given all of it to a new one, which the next call is to end.
    lived: Vec<Contents>,
}

/// What lived in a context.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) addresses: HashMap<u64, Charge>,
    pub(super) spilled: BTreeMap<u64, Extent>,
    pub(super) arrays: HashMap<u64, Array>,
    pub(super) executables: HashMap<usize, Executable>,
    pub(super) holdings: Vec<Holding>,
    /// What others use of it, and it of others.
    pub(super) shared: Vec<(u64, shared::Ending)>,
}

impl Endings {
    /// The driver is about to be asked to end a context, or one use of it. A number to tell how that went.
    pub(super) fn begin(&self, context: usize, take: impl FnOnce() -> Contents) -> u64 {
        // Relaxed: who misses what is taken out has seen the lock of its map, and this before it.
        self.any.store(true, Ordering::Relaxed);
        let mut all = self.under_way.lock();
        if let Some(known) = all.iter_mut().find(|one| one.context == context && !one.ended) {
            known.calls = known.calls.saturating_add(1);
            known.lived.push(take());
            return known.number;
        }
        let number = all.iter().map(|one| one.number).max().unwrap_or(0).wrapping_add(1);
        let lived = vec![take()];
        all.push(Ending { number, context, calls: 1, ended: false, lived });
        number
    }

    /// The driver is back, and the context has ended or lives on.
    pub(super) fn end(
        &self,
        number: u64,
        ended: bool,
        release: impl FnOnce(usize, Vec<Contents>),
        put_back: impl Fn(Contents),
    ) {
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
            release(context, lived);
        } else {
            // Under the lock: who looks for any of it finds it here or there.
            lived.into_iter().for_each(put_back);
        }
    }

    /// Looks for what was not found where it should be: here, and `there` once more.
    pub(super) fn find<T>(
        &self,
        here: impl FnMut(&mut Contents) -> Option<T>,
        there: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut all = self.under_way.lock();
        all.iter_mut().flat_map(|one| one.lived.iter_mut().rev()).find_map(here).or_else(there)
    }
}
