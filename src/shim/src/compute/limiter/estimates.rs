//! Estimates of what launches cost, kept for the whole process.

use crate::compute::measuring::device_usage::PendingBatch;
use crate::compute::state::Compute;
use crate::compute::threads::thread_state::ThreadState;
use crate::os::clock::now;
use core::sync::atomic::Ordering;
use gpuslice_policy::compute::cost::estimate::{Estimate, Key};
use gpuslice_policy::compute::cost::table::Book;
use gpuslice_policy::compute::cost::thread_cache::epoch_of;
use gpuslice_policy::compute::measuring::verdict::{Lesson, Verdict};
use parking_lot::Mutex;

/// Estimates that a process keeps: 40 bytes each.
const ESTIMATES: usize = 16 << 10;

impl Compute {
    pub(crate) fn book(&self) -> &Mutex<Book> {
        self.book.get_or_init(|| Box::new(Mutex::new(Book::new(ESTIMATES))))
    }

    #[inline]
    pub(crate) fn epoch(&self, key: &Key) -> u64 {
        self.epochs.get(epoch_of(key.id())).map_or(0, |epoch| epoch.load(Ordering::Acquire))
    }

    /// A key stands for something else from now on.
    pub(crate) fn doubt(&self, key: &Key) {
        if let Some(doubted) = self.doubted.get(epoch_of(key.id())) {
            doubted.store(now(), Ordering::Relaxed);
        }
        if let Some(book) = self.book.get() {
            book.lock().doubt(key);
        }
        self.has_changed(key.id());
    }

    /// Whether a key stood for something else when a run was opened then.
    pub(crate) fn is_doubted(&self, key: &Key, opened: u64) -> bool {
        let doubted = self.doubted.get(epoch_of(key.id()));
        doubted.is_some_and(|doubted| doubted.load(Ordering::Relaxed) >= opened)
    }

    /// The estimate of the key with this id has changed.
    pub(crate) fn has_changed(&self, id: u64) {
        if let Some(epoch) = self.epochs.get(epoch_of(id)) {
            // Release: who sees the new number sees the estimate.
            epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// What is known of a key; a copy is kept by the thread.
    pub(crate) fn look_up(&self, seat: &mut ThreadState, key: &Key) -> Option<Estimate> {
        let epoch = self.epoch(key);
        if let Some(known) = seat.recent.find(key, epoch) {
            return Some(*known);
        }
        let known = self.book().lock().known(key)?;
        seat.recent.keep(key, epoch, known);
        Some(known)
    }

    pub(crate) fn prior(&self, key: &Key) -> Estimate {
        self.book().lock().prior(key)
    }

    /// Estimates follow what was measured, charged and [own](Book::measure).
    pub(crate) fn learn(&self, flight: &PendingBatch, (charged, own): (u64, u64), verdict: Verdict) {
        let run = &flight.run;
        if matches!(verdict.lesson, Lesson::Alone | Lesson::Run) {
            let outcome = run.outcome(charged, verdict.length);
            let mut book = self.book().lock();
            for part in run.parts() {
                let changed = match verdict.lesson {
                    Lesson::Alone => book.measure(&part.key, charged, (own, verdict.length)),
                    _ => book.measure_run(part, &outcome),
                };
                if self.is_doubted(&part.key, flight.opened) {
                    // It was something else still: better than nothing, but the next one is believed.
                    book.doubt(&part.key);
                }
                changed.into_iter().flatten().for_each(|id| self.has_changed(id));
            }
        }
        if let Some(pacer) = self.pacers.get(flight.device).filter(|_| flight.keeps_others()) {
            run.parts().for_each(|part| pacer.unknown.lock().done(&part.key));
        }
        if verdict.lesson == Lesson::Gaps {
            self.gaps.fetch_add(1, Ordering::Relaxed);
        }
    }
}
