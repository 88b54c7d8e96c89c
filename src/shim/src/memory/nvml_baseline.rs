//! The last figure of NVML for this process on each device, and the changes since.

#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::look_up_budget::LookUpBudget;
use crate::driver_calls::nvml::memory::{self, Silence};
use crate::os::clock::now;
use crate::os::time_word::TimeWord;
use crate::slice::device::SliceDevice;
use core::sync::atomic::{AtomicBool, Ordering};
use gpuslice_policy::time::{Monotonic, WallTime};
use gpuslice_region::Device;
use parking_lot::Mutex;

/// Time for which the library does not ask NVML after a question without an answer.
const SILENT: WallTime = WallTime::from_millis(1_000);
/// Shortest time between two attempts to complete the figures before an allocation.
const COMPLETE_EVERY: WallTime = WallTime::from_millis(100);

/// Last figures of NVML for a device, and the changes since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Baseline {
    pub(crate) device: Device,
    /// Bytes that NVML attributed to this process; `None` if NVML does not know the process.
    pub(crate) own: Option<u64>,
    /// Bytes that this process was charged for at the instant of NVML's figure.
    pub(crate) charged: u64,
    /// Free bytes of the device at that instant, if the library read them.
    pub(crate) free: Option<u64>,
    /// Number of the measurement. If two measurements overlap, the thread that ends later sees that the number has changed.
    pub(crate) round: u64,
    /// Context in which calls may have taken memory since then without a measurement.
    pub(crate) unmeasured: Option<usize>,
    /// Bytes that were charged since then and may be too many. They are estimates, or other memory calls were under way.
    pub(crate) unsure: u64,
    /// True if the charges since then contain estimates, in any context.
    pub(crate) estimated: bool,
    /// True if a memory call of this process has to measure the available memory, because no member has done so.
    pub(crate) lacks_available: bool,
}

impl Baseline {
    /// Returns the figures of an instant at which NVML said `own` and the ledger said `charged`.
    fn new(device: Device, own: Option<u64>, charged: u64) -> Self {
        Self {
            device,
            own,
            charged,
            free: None,
            round: 0,
            unmeasured: None,
            unsure: 0,
            estimated: false,
            lacks_available: false,
        }
    }
}

/// Returns the change that counts in a process that uses memory of other processes. NVML may count that memory as the process's
/// own, and free memory does not show it. So the smaller of both changes counts, or zero if they have different signs.
pub(crate) fn in_both(own: i64, lost: i64) -> i64 {
    if own < 0 { own.max(lost.min(0)) } else { own.min(lost.max(0)) }
}

/// Baseline of each device.
#[derive(Debug, Default)]
pub(crate) struct Baselines {
    all: Mutex<Vec<Baseline>>,
    /// True if any device may have unmeasured memory. Read without the lock.
    unmeasured: AtomicBool,
    /// True if any device may have estimates, or may lack the available memory. Read without the lock.
    incomplete: AtomicBool,
    /// Instant until which the library does not ask NVML.
    silent_until: TimeWord<Monotonic>,
    /// True if the last question to NVML had no answer.
    unanswered: AtomicBool,
    /// Time that look-ups of code may spend on free memory.
    pub(crate) free_memory: LookUpBudget,
    /// Time that loads of code may spend on free memory.
    pub(crate) free_memory_of_loads: LookUpBudget,
    /// Time that look-ups of code may spend on NVML. Questions for other calls count too.
    pub(crate) nvml: LookUpBudget,
    /// Instant of the next attempt to complete the figures.
    next_try: TimeWord<Monotonic>,
}

/// Figures of one instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// Bytes that NVML attributes to this process.
    pub(crate) own: u64,
    /// Bytes that this process was charged for.
    pub(crate) charged: u64,
    /// Free bytes of the device.
    pub(crate) free: u64,
}

impl Baselines {
    /// Returns the baseline of a device, if there is one.
    pub(crate) fn of(&self, device: Device) -> Option<Baseline> {
        self.all.lock().iter().find(|baseline| baseline.device == device).copied()
    }

    /// Notes NVML's figure at an instant at which it agreed with the ledger. Later measurements compare with this figure. If the
    /// ledger still has estimates, the earlier figure stays, because the estimates are corrected against it.
    pub(crate) fn note(&self, device: Device, own: Option<u64>, charged: u64) {
        let mut all = self.all.lock();
        let before = all.extract_if(.., |baseline| baseline.device == device).last();
        let round = before.map_or(0, |baseline| baseline.round.wrapping_add(1));
        let lacks_available = before.is_some_and(|baseline| baseline.lacks_available);
        let kept = before.filter(|baseline| baseline.estimated && own.is_some());
        let noted = kept.unwrap_or_else(|| Baseline::new(device, own, charged));
        all.push(Baseline { round, lacks_available, ..noted });
        self.update_flags(&all);
    }

    /// Notes that the caller charges an estimated change in a context. 0 stands for a context that the library does not know yet.
    pub(crate) fn note_estimate(&self, device: Device, context: usize, change: i64) {
        let mut all = self.all.lock();
        if all.iter().all(|baseline| baseline.device != device) {
            // Before this, the process held nothing.
            all.push(Baseline::new(device, Some(0), 0));
        }
        if let Some(baseline) = all.iter_mut().find(|baseline| baseline.device == device) {
            baseline.round = baseline.round.wrapping_add(1);
            // If NVML does not know this process, nothing can correct the estimate.
            if baseline.own.is_some() {
                (baseline.unmeasured, baseline.estimated) =
                    (Some(baseline.unmeasured.unwrap_or(context)), true);
                baseline.unsure = baseline.unsure.saturating_add_signed(change);
            }
        }
        self.update_flags(&all);
    }

    fn update_flags(&self, all: &[Baseline]) {
        self.unmeasured.store(all.iter().any(|baseline| baseline.unmeasured.is_some()), Ordering::Relaxed);
        let is_incomplete = all.iter().any(|baseline| baseline.estimated || baseline.lacks_available);
        self.incomplete.store(is_incomplete, Ordering::Relaxed);
    }

    /// Notes whether the memory available on the device is still to be measured.
    pub(crate) fn set_lacks_available(&self, device: Device, lacks: bool) {
        self.update(device, |baseline| baseline.lacks_available = lacks);
    }

    /// Notes that calls may take memory in a context without a measurement. Returns false if NVML does not know this process, so
    /// that no later comparison is possible.
    pub(crate) fn note_unmeasured(&self, device: Device, context: usize) -> bool {
        let mut all = self.all.lock();
        let known = all.iter_mut().find(|baseline| baseline.device == device && baseline.own.is_some());
        let is_known = known.is_some();
        if let Some(baseline) = known {
            baseline.unmeasured.get_or_insert(context);
            self.unmeasured.store(true, Ordering::Relaxed);
        }
        is_known
    }

    /// Returns true if calls may have taken memory that was not measured.
    pub(crate) fn has_unmeasured(&self) -> bool {
        self.unmeasured.load(Ordering::Relaxed)
    }

    /// Returns true if there are estimates to correct, or available memory to measure, once there is a quota.
    #[inline]
    pub(crate) fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Relaxed)
    }

    /// Changes the baseline of a device, if there is one.
    pub(crate) fn update<T>(&self, device: Device, change: impl FnOnce(&mut Baseline) -> T) -> Option<T> {
        let mut all = self.all.lock();
        let changed = all.iter_mut().find(|baseline| baseline.device == device).map(change);
        self.update_flags(&all);
        changed
    }

    /// Returns true if the caller has to complete the figures. One thread does it, at most once in [`COMPLETE_EVERY`].
    pub(crate) fn claim_attempt(&self) -> bool {
        let (now, next) = (now(), self.next_try.get());
        let until = now.saturating_add(COMPLETE_EVERY);
        now >= next && self.next_try.replace(next, until)
    }

    /// Makes the next attempt due at once. The caller's attempt has succeeded, so figures that become incomplete later need not
    /// wait.
    pub(crate) fn try_at_once(&self) {
        self.next_try.set(Monotonic::BEGIN);
    }

    /// Returns true if NVML has not answered lately.
    pub(crate) fn is_silent(&self) -> bool {
        now() < self.silent_until.get()
    }

    /// Returns true if the last question to NVML had no answer. A later comparison may then never come.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Notes whether a question to NVML had an answer.
    pub(crate) fn note_answer(&self, answer: Result<u64, Silence>) {
        self.unanswered.store(answer.is_err(), Ordering::Relaxed);
    }

    /// Returns the bytes that NVML attributes to this process, unless it has not answered lately.
    pub(crate) fn ask(&self, place: SliceDevice) -> Option<u64> {
        if self.is_silent() {
            return None;
        }
        let answer = self.nvml.pay(|| memory::own(&place.uuid));
        self.evaluate(place.device, answer)
    }

    /// Evaluates NVML's answer. Without an answer, the library does not ask NVML for a while. If NVML does not know this process,
    /// and the baseline has nothing but estimates, they become final.
    fn evaluate(&self, device: Device, answer: Result<u64, Silence>) -> Option<u64> {
        self.note_answer(answer);
        let silence = match answer {
            Ok(own) => return Some(own),
            Err(silence) => silence,
        };
        // The thread reads the clock again, because NVML may have taken long.
        self.silent_until.set(now().saturating_add(SILENT));
        if silence == Silence::Unlisted {
            let baseline = self.of(device).filter(|baseline| baseline.estimated && baseline.own == Some(0));
            baseline.into_iter().for_each(|baseline| self.note(device, None, baseline.charged));
        }
        None
    }
}

impl Baseline {
    /// Returns the bytes that this process took since the baseline, beyond the bytes that the ledger explains.
    pub(crate) fn since(&self, now: Figures) -> i64 {
        let own = self.own.unwrap_or(now.own);
        signed(now.own).saturating_sub(signed(own)).saturating_sub(difference(self.charged, now.charged))
    }

    /// Returns true if free memory and ledger changed by the same bytes since the baseline. Then no call took unknown memory.
    pub(crate) fn explains(&self, free: u64, charged: u64) -> bool {
        self.free.is_some_and(|then| difference(free, then) == difference(self.charged, charged))
    }

    /// Returns the bytes that were taken and not measured. A negative result is a refund. It is bounded by the unsure bytes and
    /// by `rest`, the charged bytes without a known owner. The bound protects exact charges: the ledger may have more than the
    /// device, for example for managed memory that is in host memory. `imports`: the process uses memory of other processes.
    pub(crate) fn found(&self, now: Figures, rest: u64, imports: bool) -> i64 {
        let since = self.since(now);
        let lost = self
            .free
            .map(|free| difference(now.free, free).saturating_sub(difference(self.charged, now.charged)));
        let found = lost.filter(|_| imports).map_or(since, |lost| in_both(since, lost));
        found.max(signed(self.unsure.saturating_add(rest)).saturating_neg())
    }

    /// Makes the figures `now` the baseline. The caller charges the `took` bytes of the call, so they are part of it.
    pub(crate) fn agree(&mut self, now: Figures, took: i64) {
        (self.own, self.free) = (Some(now.own), Some(now.free));
        self.charged = now.charged.saturating_add_signed(took);
        (self.round, self.unmeasured, self.unsure) = (self.round.wrapping_add(1), None, 0);
        self.estimated = false;
    }
}

/// Returns a number of bytes as a signed number, at most `i64::MAX`.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Returns by how many bytes `after` exceeds `before`.
pub(crate) fn difference(before: u64, after: u64) -> i64 {
    signed(after).saturating_sub(signed(before))
}
