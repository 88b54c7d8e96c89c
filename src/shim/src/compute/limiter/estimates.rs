//! Estimates of the cost of launches, kept for the whole process.
//!
//! Each thread keeps copies of the estimates that it uses. A version counts up when an estimate changes, so that a thread sees
//! without a lock that its copy is old. Several keys share a version, so a thread may also replace a copy that is not old.
//!
//! The thread that polls timing events, usually the worker, writes estimates when it has measured a batch. Launching threads read
//! them. They write an estimate only when a key comes to mean other work.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::os::clock::now;
use crate::os::time_word::TimeWord;
use core::sync::atomic::{AtomicU64, Ordering};
use gpuslice_policy::compute::cost::estimate::{Estimate, Key};
use gpuslice_policy::compute::cost::table::EstimateTable;
use gpuslice_policy::compute::cost::thread_cache::{EPOCHS, Recent, epoch_of};
use gpuslice_policy::compute::measuring::batch::Batch;
use gpuslice_policy::compute::measuring::verdict::{EstimateUpdate, Verdict};
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};
use once_cell::race::OnceBox;
use parking_lot::Mutex;

/// Number of estimates that a process keeps: 40 bytes each.
const ESTIMATES: usize = 16 << 10;

/// The table of estimates and their versions.
#[derive(Debug)]
pub(crate) struct Estimates {
    /// The table is large, so the first paced launch makes it.
    table: OnceBox<Mutex<EstimateTable>>,
    /// Versions. Each counts up after an estimate of its keys has changed. A reader reads the version before the estimate.
    versions: [AtomicU64; EPOCHS],
    /// For each version: the instant at which one of its keys last came to mean other work.
    invalidated_at: [TimeWord<Monotonic>; EPOCHS],
    /// Number of batches that turned out to have gaps. Each thread's sampler reads it.
    gaps: AtomicU64,
}

/// The cost of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeasuredCost {
    /// Time that is charged to the slice.
    pub(crate) charged: GpuTime,
    /// The batch's own part, before the correction for co-tenants.
    pub(crate) own: WallTime,
}

impl Estimates {
    /// Makes a table without estimates.
    pub(crate) const fn new() -> Self {
        Self {
            table: OnceBox::new(),
            versions: [const { AtomicU64::new(0) }; EPOCHS],
            invalidated_at: [const { TimeWord::zero() }; EPOCHS],
            gaps: AtomicU64::new(0),
        }
    }

    fn table(&self) -> &Mutex<EstimateTable> {
        self.table.get_or_init(|| Box::new(Mutex::new(EstimateTable::new(ESTIMATES))))
    }

    /// Returns the version of a key's estimate.
    #[inline]
    pub(crate) fn version(&self, key: &Key) -> u64 {
        self.versions.get(epoch_of(key.id())).map_or(0, |version| version.load(Ordering::Acquire))
    }

    fn bump_version(&self, id: u64) {
        if let Some(version) = self.versions.get(epoch_of(id)) {
            // Release: a thread that sees the new version also sees the new estimate.
            version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Notes that a key means other work from now on. Example: the program has updated an executable graph.
    ///
    /// Batches of the former work may still be in flight, and would be learned afterwards. So the instant is kept, and
    /// [`learn`](Self::learn) compares it with the opening of the batch. This function writes the instant before it locks the
    /// table. If `learn` locks the table later, it sees the instant. If it locks the table earlier, this function invalidates the
    /// estimate that it has written.
    pub(crate) fn invalidate(&self, key: &Key) {
        if let Some(invalidated_at) = self.invalidated_at.get(epoch_of(key.id())) {
            invalidated_at.set(now());
        }
        if let Some(table) = self.table.get() {
            table.lock().invalidate(key);
        }
        self.bump_version(key.id());
    }

    /// Returns true if a key meant other work when a batch was opened at `opened`. It also returns true if another key with the
    /// same version did. Then the next measurement replaces the estimate instead of refining it.
    fn was_invalidated(&self, key: &Key, opened: Monotonic) -> bool {
        let invalidated_at = self.invalidated_at.get(epoch_of(key.id()));
        invalidated_at.is_some_and(|invalidated_at| invalidated_at.get() >= opened)
    }

    /// Returns the estimate of a key. The thread's cache keeps a copy.
    ///
    /// The thread reads the version before the table. With a later reading, the cache could keep an old estimate under the new
    /// version, if the estimate changes in between. The thread would then pay by the old estimate until the next change.
    pub(crate) fn look_up(&self, cache: &mut Recent, key: &Key) -> Option<Estimate> {
        let version = self.version(key);
        if let Some(known) = cache.find(key, version) {
            return Some(*known);
        }
        let known = self.table().lock().known(key)?;
        cache.keep(key, version, known);
        Some(known)
    }

    /// Returns the estimate of a key that was never measured.
    pub(crate) fn prior(&self, key: &Key) -> Estimate {
        self.table().lock().prior(key)
    }

    /// Returns the number of batches that turned out to have gaps.
    pub(crate) fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Relaxed)
    }

    /// Updates the estimates of a batch's keys with its measured cost. `opened`: the instant at which the batch was opened.
    pub(crate) fn learn(&self, batch: &Batch, opened: Monotonic, cost: MeasuredCost, verdict: Verdict) {
        if matches!(verdict.update, EstimateUpdate::Single | EstimateUpdate::Batch) {
            let outcome = batch.outcome(cost.charged, verdict.length);
            let mut table = self.table().lock();
            for part in batch.parts() {
                let changed = match verdict.update {
                    EstimateUpdate::Single => {
                        table.measure(&part.key, cost.charged, (cost.own, verdict.length))
                    }
                    _ => table.measure_batch(part, &outcome),
                };
                if self.was_invalidated(&part.key, opened) {
                    // The measurement is of the former work. It serves as an estimate until the next measurement replaces it.
                    table.invalidate(&part.key);
                }
                changed.into_iter().flatten().for_each(|id| self.bump_version(id));
            }
        }
        if verdict.update == EstimateUpdate::Gaps {
            self.gaps.fetch_add(1, Ordering::Relaxed);
        }
    }
}
