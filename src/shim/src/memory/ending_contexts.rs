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
use super::host_spill::HostBlock;
use super::overheads::Overhead;
use super::shared;
use super::stream_frees::StreamFree;
use core::sync::atomic::{AtomicBool, Ordering};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

/// Contexts that may be ending, with their contents.
#[derive(Debug, Default)]
pub(crate) struct EndingContexts {
    /// True if there ever was such a call. Every free that finds nothing in its table asks.
    any: AtomicBool,
    under_way: Mutex<Vec<EndingContext>>,
}

#[derive(Debug)]
struct EndingContext {
    /// Number that no other entry has.
    number: u64,
    context: usize,
    /// Calls that are under way.
    calls: usize,
    /// True if one of the calls has ended the context.
    ended: bool,
    /// Contents that each call found, those of the last call at the end. One address or handle may be in two of them: a call has
    /// ended the context and has not returned. Meanwhile the driver has given all of it to a new context, which the next call is
    /// to end.
    contents: Vec<ContextContents>,
}

/// Contents of a context.
#[derive(Debug)]
pub(super) struct ContextContents {
    pub(super) addresses: HashMap<u64, Charge>,
    pub(super) spilled: BTreeMap<u64, HostBlock>,
    pub(super) arrays: HashMap<u64, Array>,
    pub(super) executables: HashMap<usize, Executable>,
    pub(super) overheads: Vec<Overhead>,
    /// By number.
    pub(super) stream_frees: BTreeMap<usize, StreamFree>,
    /// Uses of the context's memory by other processes, and its uses of theirs, by address.
    pub(super) shared: Vec<(u64, shared::EndingUse)>,
}

impl EndingContexts {
    /// Begins a call that asks the driver to end a context, or one use of it. Returns a number for [`end`](Self::end).
    pub(super) fn begin(&self, context: usize, take: impl FnOnce() -> ContextContents) -> u64 {
        // Relaxed: a thread that misses an object in its table takes that table's lock after this thread, and so sees this store.
        self.any.store(true, Ordering::Relaxed);
        let mut all = self.under_way.lock();
        if let Some(known) = all.iter_mut().find(|one| one.context == context && !one.ended) {
            known.calls = known.calls.saturating_add(1);
            known.contents.push(take());
            return known.number;
        }
        let number = all.iter().map(|one| one.number).max().unwrap_or(0).wrapping_add(1);
        let contents = vec![take()];
        all.push(EndingContext { number, context, calls: 1, ended: false, contents });
        number
    }

    /// Ends a call: the driver has returned, and the context has ended or lives on.
    pub(super) fn end(
        &self,
        number: u64,
        ended: bool,
        release: impl FnOnce(usize, Vec<ContextContents>),
        put_back: impl Fn(ContextContents),
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
        let EndingContext { ended, contents, context, .. } = all.swap_remove(at);
        if ended {
            drop(all);
            release(context, contents);
        } else {
            // This is done under the lock, so that a search for any of it finds it here or in its table.
            contents.into_iter().for_each(put_back);
        }
    }

    /// Searches for an object that was not in its table: here, and `there` once more.
    pub(super) fn find<T>(
        &self,
        here: impl FnMut(&mut ContextContents) -> Option<T>,
        there: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut all = self.under_way.lock();
        all.iter_mut().flat_map(|one| one.contents.iter_mut().rev()).find_map(here).or_else(there)
    }
}
