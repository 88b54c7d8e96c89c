//! The last figure of NVML for this process, and the changes since.

#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::driver_calls::nvml::memory::{self, Silence};
use crate::os::clock::now;
use crate::slice::device::SliceDevice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpuslice_region::Device;
use parking_lot::Mutex;

/// For how long NVML is not asked after it has not answered, in nanoseconds.
const SILENT: u64 = 1_000_000_000;
/// For how long NVML is not asked again because of a look-up of code, in nanoseconds: programs make hundreds at their start,
/// and what NVML takes for an answer all processes of the machine wait for.
const SPARED: u64 = 100_000_000;
/// How often it is tried to make up for estimates before an allocation, in nanoseconds.
const AGAIN: u64 = 100_000_000;

/// What NVML said last of a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) device: Device,
    /// Bytes that it attributed to this process; none where it does not know the process.
    pub(crate) own: Option<u64>,
    /// Bytes that this process was charged for then.
    pub(crate) charged: u64,
    /// Bytes that nobody held then, where it was asked.
    pub(crate) free: Option<u64>,
    /// Counts the measurements: of two that overlap, the later one sees that there was another.
    pub(crate) round: u64,
    /// The context in which something may have been taken since that nobody measured.
    pub(crate) unsettled: Option<usize>,
    /// Bytes that were charged since for want of a still moment, or by estimates, and may be too many.
    pub(crate) unsure: u64,
    /// True if estimates are among them, of any of the contexts.
    pub(crate) estimated: bool,
}

impl Seen {
    /// What NVML said when the ledger was so high.
    fn new(device: Device, own: Option<u64>, charged: u64) -> Self {
        Self { device, own, charged, free: None, round: 0, unsettled: None, unsure: 0, estimated: false }
    }
}

/// What NVML and free memory say that was taken, in a process that uses memory of others. NVML may count that memory as the
/// process's own, which free memory does not show: what both say counts.
pub(crate) fn in_both(own: i64, lost: i64) -> i64 {
    if own < 0 { own.max(lost.min(0)) } else { own.min(lost.max(0)) }
}

/// What is known of each device.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    seen: Mutex<Vec<Seen>>,
    /// True if anything is unsettled, perhaps. Cheap to ask.
    loose: AtomicBool,
    /// True if anything was estimated, perhaps. Cheap to ask.
    estimated: AtomicBool,
    /// Until when NVML is left alone, on the monotonic clock.
    silent_until: AtomicU64,
    /// Until when it is spared look-ups of code.
    spared_until: AtomicU64,
    /// When it is tried next to make up for estimates.
    next_try: AtomicU64,
}

/// Figures of one instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// Bytes that NVML attributes to this process.
    pub(crate) own: u64,
    /// Bytes that it was charged for.
    pub(crate) charged: u64,
    /// Bytes that nobody holds.
    pub(crate) free: u64,
}

impl Witness {
    /// What is known of a device.
    pub(crate) fn seen(&self, device: Device) -> Option<Seen> {
        self.seen.lock().iter().find(|seen| seen.device == device).copied()
    }

    /// What NVML said, when it agreed with the ledger: what is taken from here on is compared with it. What was estimated
    /// before is still compared with what it said then.
    pub(crate) fn note(&self, device: Device, own: Option<u64>, charged: u64) {
        let mut all = self.seen.lock();
        let before = all.extract_if(.., |seen| seen.device == device).last();
        let round = before.map_or(0, |seen| seen.round.wrapping_add(1));
        let kept = before.filter(|seen| seen.estimated && own.is_some());
        all.push(Seen { round, ..kept.unwrap_or_else(|| Seen::new(device, own, charged)) });
        self.tell(&all);
    }

    /// What was taken in a context, or given back, was estimated, and charged so. 0 is a context that is not known yet.
    pub(crate) fn note_estimate(&self, device: Device, context: usize, change: i64) {
        let mut all = self.seen.lock();
        if all.iter().all(|seen| seen.device != device) {
            // Before this, the process held nothing.
            all.push(Seen::new(device, Some(0), 0));
        }
        if let Some(seen) = all.iter_mut().find(|seen| seen.device == device) {
            seen.round = seen.round.wrapping_add(1);
            // Where NVML does not know this process nobody will say more.
            if seen.own.is_some() {
                (seen.unsettled, seen.estimated) = (Some(seen.unsettled.unwrap_or(context)), true);
                seen.unsure = seen.unsure.saturating_add_signed(change);
            }
        }
        self.tell(&all);
    }

    fn tell(&self, all: &[Seen]) {
        self.loose.store(all.iter().any(|seen| seen.unsettled.is_some()), Ordering::Relaxed);
        self.estimated.store(all.iter().any(|seen| seen.estimated), Ordering::Relaxed);
    }

    /// Something may take memory in a context from now on at calls that are not measured.
    pub(crate) fn unsettle(&self, device: Device, context: usize) {
        let mut all = self.seen.lock();
        let known = all.iter_mut().find(|seen| seen.device == device && seen.own.is_some());
        if let Some(seen) = known {
            seen.unsettled.get_or_insert(context);
            self.loose.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if something may have been taken that was not measured.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.loose.load(Ordering::Relaxed)
    }

    /// Returns true if anything was estimated that is to be made up for once there is a quota.
    #[inline]
    pub(crate) fn has_estimates(&self) -> bool {
        self.estimated.load(Ordering::Relaxed)
    }

    /// Changes what is known of a device, if anything is.
    pub(crate) fn update<T>(&self, device: Device, change: impl FnOnce(&mut Seen) -> T) -> Option<T> {
        let mut all = self.seen.lock();
        let changed = all.iter_mut().find(|seen| seen.device == device).map(change);
        self.tell(&all);
        changed
    }

    /// Returns true if the caller is to make up for estimates: one thread is enough, now and then.
    pub(crate) fn is_time_to_try(&self) -> bool {
        let (now, next) = (now(), self.next_try.load(Ordering::Relaxed));
        let until = now.saturating_add(AGAIN);
        now >= next
            && self.next_try.compare_exchange(next, until, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// It was done: what is estimated from now on need not wait.
    pub(crate) fn try_at_once(&self) {
        self.next_try.store(0, Ordering::Relaxed);
    }

    /// Returns true if NVML has not answered lately.
    pub(crate) fn is_silent(&self) -> bool {
        now() < self.silent_until.load(Ordering::Relaxed)
    }

    /// Returns true if NVML was asked lately: look-ups of code are charged by free memory, and settled later.
    pub(crate) fn is_spared(&self) -> bool {
        now() < self.spared_until.load(Ordering::Relaxed)
    }

    /// What NVML attributes to this process, unless it has not answered lately.
    pub(crate) fn ask(&self, place: SliceDevice) -> Option<u64> {
        if self.is_silent() {
            return None;
        }
        let answer = memory::own(&place.uuid);
        self.spared_until.store(now().saturating_add(SPARED), Ordering::Relaxed);
        self.hear(place.device, answer)
    }

    /// NVML's answer. Where there is none it is left alone for a while; and for good where nothing but estimates is to be
    /// compared with it and it does not know this process.
    fn hear(&self, device: Device, answer: Result<u64, Silence>) -> Option<u64> {
        let silence = match answer {
            Ok(own) => return Some(own),
            Err(silence) => silence,
        };
        // By the clock of now: it may have taken long.
        self.silent_until.store(now().saturating_add(SILENT), Ordering::Relaxed);
        if silence == Silence::Unlisted {
            let seen = self.seen(device).filter(|seen| seen.estimated && seen.own == Some(0));
            seen.into_iter().for_each(|seen| self.note(device, None, seen.charged));
        }
        None
    }
}

impl Seen {
    /// What this process took since, beyond what the ledger explains.
    pub(crate) fn since(&self, now: Figures) -> i64 {
        let own = self.own.unwrap_or(now.own);
        signed(now.own).saturating_sub(signed(own)).saturating_sub(difference(self.charged, now.charged))
    }

    /// Returns true if free memory moved as the ledger did, so that nothing was taken that is not known.
    pub(crate) fn explains(&self, free: u64, charged: u64) -> bool {
        self.free.is_some_and(|then| difference(free, then) == difference(self.charged, charged))
    }

    /// What was taken and not measured. Negative is at most what was charged without being sure (`rest` of it
    /// because of an earlier time): where the ledger is ahead of the driver, as with managed memory that is not on the
    /// device, nothing else is given back for it.
    pub(crate) fn found(&self, now: Figures, rest: u64, imports: bool) -> i64 {
        let since = self.since(now);
        let lost = self
            .free
            .map(|free| difference(now.free, free).saturating_sub(difference(self.charged, now.charged)));
        let found = lost.filter(|_| imports).map_or(since, |lost| in_both(since, lost));
        found.max(signed(self.unsure.saturating_add(rest)).saturating_neg())
    }

    /// NVML and the ledger agree from now on, once what the call took is charged.
    pub(crate) fn agree(&mut self, now: Figures, took: i64) {
        (self.own, self.free) = (Some(now.own), Some(now.free));
        self.charged = now.charged.saturating_add_signed(took);
        (self.round, self.unsettled, self.unsure) = (self.round.wrapping_add(1), None, 0);
        self.estimated = false;
    }
}

/// A number of bytes that may be set against others.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// How many more bytes there are after than before.
pub(crate) fn difference(before: u64, after: u64) -> i64 {
    signed(after).saturating_sub(signed(before))
}
