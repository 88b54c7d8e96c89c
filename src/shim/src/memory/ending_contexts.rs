//! Contents of contexts that the driver may be about to end.
//!
//! The contents are out of their tables while the call is in progress. Several threads may make such calls for one context, and
//! only one of the calls ends it. The contents that these calls took out stay together until the last call returns. So it does
//! not matter which call ends the context.
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
    /// True once any call has asked the driver to end a context. Each free reads it if the address is not in its table.
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
    /// Contents that each call found, in the order of the calls. One address or handle may be in the contents of two calls.
    /// Example: one call has ended the context and has not returned yet. The driver gives the context's handle and addresses to a
    /// new context. Then the next call asks for the end of the new context.
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
    /// Frees that no stream has reached yet, by their number.
    pub(super) stream_frees: BTreeMap<usize, StreamFree>,
    /// By address: uses of the context's memory by other processes, and the context's uses of memory of other processes.
    pub(super) shared: Vec<(u64, shared::EndingUse)>,
}

impl EndingContexts {
    /// Begins a call that asks the driver to end a context, or one use of it. Returns a number for [`end`](Self::end).
    pub(super) fn begin(&self, context: usize, take: impl FnOnce() -> ContextContents) -> u64 {
        // Relaxed: a thread that does not find an object in its table took that table's lock after this thread released it. So
        // that thread sees this store.
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

    /// Ends a call, after the driver has returned. If the last call for a context ends, `release` gets the contents if the
    /// context has ended, and `put_back` gets them otherwise.
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
            // The thread still holds the lock. So a search by another thread finds an object here or in its table.
            contents.into_iter().for_each(put_back);
        }
    }

    /// Searches for an object that was not in its table. `here` looks in the contents of a context. `there` looks in the table
    /// once more, because a call may have put the contents back meanwhile.
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
