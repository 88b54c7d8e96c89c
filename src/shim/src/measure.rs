//! How much of a device did a call of the driver's take?
//!
//! Two witnesses. *Free memory* costs a few microseconds, and is read on both sides of a call. But it moves with
//! everybody: what is left when this process's own ledger is taken away may be a neighbour's. *NVML* says what this
//! process holds, and takes milliseconds: it is asked after a call in which free memory moved in a way that the
//! ledger does not explain, and compared with what it said the last time, when both were in agreement.
//!
//! While other threads of this process take or give memory, neither is exact: the ledger is ahead of the driver by
//! what is on its way. Then the larger of the two is taken, and the comparison is made up for as soon as there is a
//! still moment ([`settle`]).
//!
//! Where NVML does not know this process, the difference of free memory is taken if such a call can have taken so
//! much, and an estimate otherwise.

#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::driver;
use crate::flights::Count;
use crate::footprint;
use crate::holdings::Holder;
use crate::slice::{Place, Slice};
use core::sync::atomic::{AtomicBool, Ordering};
use gpuslice_region::Device;
use parking_lot::Mutex;

/// What is taken for possible where only free memory can be asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Likely {
    /// The least and the most, in bytes; negative for memory that is given back.
    pub(crate) range: (i64, i64),
    /// What is taken for true where free memory says something impossible.
    pub(crate) otherwise: i64,
    /// Whether free memory must have moved: where it did not, somebody else moved by as much.
    pub(crate) surely: bool,
}

impl Likely {
    fn of(&self, window: i64) -> i64 {
        if (self.range.0..=self.range.1).contains(&window) { window } else { self.otherwise }
    }

    /// The same while other threads take or give memory: no more than the estimate, and back goes what was charged.
    fn among(&self, window: i64) -> i64 {
        if self.otherwise < 0 { self.otherwise } else { window.max(0).min(self.otherwise) }
    }
}

/// What NVML said last of a device.
#[derive(Debug, Clone, Copy)]
struct Seen {
    device: Device,
    /// Bytes that it attributed to this process; none where it does not know the process.
    own: Option<u64>,
    /// Bytes that this process was charged for then.
    charged: u64,
    /// Bytes that nobody held then, where it was asked.
    free: Option<u64>,
    /// Counts the measurements: of two that overlap, the later one sees that there was another.
    round: u64,
    /// The context in which something may have been taken since that nobody measured.
    unsettled: Option<usize>,
    /// Bytes that were charged since for want of a still moment, and may be too many.
    unsure: u64,
}

/// What is known of each device.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    seen: Mutex<Vec<Seen>>,
    /// Whether anything is unsettled, perhaps. Cheap to ask.
    loose: AtomicBool,
}

/// Figures of one instant.
#[derive(Debug, Clone, Copy)]
struct Figures {
    own: u64,
    charged: u64,
    free: u64,
}

impl Witness {
    fn seen(&self, device: Device) -> Option<Seen> {
        self.seen.lock().iter().find(|seen| seen.device == device).copied()
    }

    /// What NVML said, when it agreed with the ledger: what is taken from here on is compared with it.
    pub(crate) fn note(&self, device: Device, own: Option<u64>, charged: u64) {
        let mut all = self.seen.lock();
        let round =
            all.iter().find(|seen| seen.device == device).map_or(0, |seen| seen.round.wrapping_add(1));
        all.retain(|seen| seen.device != device);
        all.push(Seen { device, own, charged, free: None, round, unsettled: None, unsure: 0 });
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

    /// Whether something may have been taken that was not measured.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.loose.load(Ordering::Relaxed)
    }

    fn update<T>(&self, device: Device, change: impl FnOnce(&mut Seen) -> T) -> Option<T> {
        let mut all = self.seen.lock();
        let changed = all.iter_mut().find(|seen| seen.device == device).map(change);
        self.loose.store(all.iter().any(|seen| seen.unsettled.is_some()), Ordering::Relaxed);
        changed
    }
}

impl Seen {
    /// What this process took since, beyond what the ledger explains.
    fn since(&self, now: Figures) -> i64 {
        let own = self.own.unwrap_or(now.own);
        signed(now.own).saturating_sub(signed(own)).saturating_sub(difference(self.charged, now.charged))
    }

    /// Whether free memory moved as the ledger did, so that nothing was taken that is not known.
    fn explains(&self, free: u64, charged: u64) -> bool {
        self.free.is_some_and(|then| difference(free, then) == difference(self.charged, charged))
    }

    /// What was taken and not measured. Negative is at most what was charged without being sure (`rest` of it
    /// because of an earlier time): where the ledger is ahead of the driver, as with managed memory that is not on the
    /// device, nothing else is given back for it.
    fn found(&self, now: Figures, rest: u64) -> i64 {
        self.since(now).max(signed(self.unsure.saturating_add(rest)).saturating_neg())
    }

    fn agree(&mut self, now: Figures, took: i64) {
        (self.own, self.free) = (Some(now.own), Some(now.free));
        self.charged = now.charged.saturating_add_signed(took);
        (self.round, self.unsettled, self.unsure) = (self.round.wrapping_add(1), None, 0);
    }
}

/// What was known before a call.
#[derive(Debug)]
pub(crate) struct Before {
    slice: &'static Slice,
    pub(crate) place: Place,
    pub(crate) context: usize,
    free: u64,
    charged: u64,
    round: Option<u64>,
    count: Count,
}

impl Before {
    /// Before a call that is to be measured: what was not, before, is made up for.
    pub(crate) fn begin(slice: &'static Slice) -> Option<Self> {
        if slice.witness.is_unsettled() {
            settle_here(slice, 1);
        }
        Self::read(slice)
    }

    /// As [`begin`](Self::begin), for calls that are rarer and may take more: where free memory has moved in a way
    /// that the ledger does not explain, NVML is asked now as well.
    pub(crate) fn begin_exactly(slice: &'static Slice) -> Option<Self> {
        let mut before = Self::begin(slice)?;
        let device = before.place.device;
        let Some(seen) = slice.witness.seen(device).filter(|seen| seen.unsettled.is_none()) else {
            return Some(before);
        };
        let (free, charged) = (before.free, before.charged);
        if seen.own.is_none() || seen.explains(free, charged) {
            return Some(before);
        }
        let own = footprint::own(before.place);
        if let Some(own) = own
            .filter(|_| slice.flights.count().is_still_since(before.count, 1) && slice.own(device) == charged)
        {
            let agree = |seen: &mut Seen| {
                if before.round == Some(seen.round) {
                    seen.agree(Figures { own, charged, free }, 0);
                }
                seen.round
            };
            before.round = slice.witness.update(device, agree);
        }
        Some(before)
    }

    /// Of the device of the current context. Also without a quota: what is held counts against one that comes later.
    fn read(slice: &'static Slice) -> Option<Self> {
        let place = slice.place(driver::current_device()?)?;
        let context = slice.owner_of_current()?;
        let round = slice.witness.seen(place.device).map(|seen| seen.round);
        // First: who begins after it is seen to have begun.
        let count = slice.flights.count();
        let charged = slice.own(place.device);
        let free = driver::device_free()?;
        Some(Self { slice, place, context, free, charged, round, count })
    }

    /// What the device lost in a call that is over. `reserved` is what was reserved for it and is not held yet.
    pub(crate) fn change(&self, reserved: u64, likely: Likely) -> i64 {
        let (slice, device) = (self.slice, self.place.device);
        let Some(free) = driver::device_free() else { return 0 };
        let charged = slice.own(device).saturating_sub(reserved);
        let explained = difference(self.charged, charged);
        let window = difference(free, self.free).saturating_sub(explained);
        if window == 0 && !likely.surely {
            return 0;
        }
        let is_known = slice.witness.seen(device).is_none_or(|seen| seen.own.is_some());
        let own = is_known.then(|| footprint::own(self.place)).flatten();
        let still = explained == 0
            && slice.own(device).saturating_sub(reserved) == charged
            && slice.flights.count().is_still_since(self.count, 1);
        let Some(own) = own else { return if still { likely.of(window) } else { likely.among(window) } };
        let now = Figures { own, charged, free };
        let took = slice.witness.update(device, |seen| self.compare(seen, now, (window, still), likely));
        took.unwrap_or_else(|| {
            let took = likely.of(window);
            slice.witness.note(device, Some(own), charged.saturating_add_signed(took));
            took
        })
    }

    fn compare(&self, seen: &mut Seen, now: Figures, (window, still): (i64, bool), likely: Likely) -> i64 {
        let (least, most) = likely.range;
        let since = seen.since(now);
        if !still || self.round != Some(seen.round) {
            seen.round = seen.round.wrapping_add(1);
            seen.unsettled.get_or_insert(self.context);
            let took = since.max(window).max(least).min(most);
            seen.unsure = seen.unsure.saturating_add(took.saturating_sub(least).max(0).unsigned_abs());
            return took;
        }
        // NVML knows nothing of others. What the ledger and the driver count differently goes with this call.
        let took = since.min(window.max(most));
        let took = if least < 0 { took.max(least) } else { took.max(0) };
        let (unsettled, unsure) = (seen.unsettled, seen.unsure);
        seen.agree(now, took);
        // What was charged too much before and is more than this call took is still to be given back.
        let over = since.saturating_sub(took).min(0).max(signed(unsure).saturating_neg());
        if over < 0 {
            seen.charged = seen.charged.saturating_add_signed(over);
            (seen.unsettled, seen.unsure) = (unsettled, over.unsigned_abs());
        }
        took
    }
}

/// As [`settle`], on the device of the current context.
#[cold]
pub(crate) fn settle_here(slice: &'static Slice, own: u64) {
    if let Some(place) = driver::current_device().and_then(|device| slice.place(device)) {
        settle(slice, place.device, own);
    }
}

/// Makes up for what was taken and not measured, if this is a still moment; says whether it was. `own` is how many
/// calls are on their way because of the one that asks.
#[cold]
pub(crate) fn settle(slice: &'static Slice, device: Device, own: u64) -> bool {
    let Some(seen) = slice.witness.seen(device) else { return false };
    let (Some(context), Some(before)) = (seen.unsettled, Before::read(slice)) else { return false };
    if before.place.device != device || !before.count.is_still_since(before.count, own) {
        return false;
    }
    let Some(now) = figures(&seen, &before) else { return false };
    if !slice.flights.count().is_still_since(before.count, own) || slice.own(device) != now.charged {
        return false;
    }
    let rest = slice.holdings.bytes(Holder::Rest, context);
    let change = slice.witness.update(device, |seen| {
        if before.round != Some(seen.round) {
            return None;
        }
        let found = seen.found(now, rest);
        seen.agree(now, found);
        Some(found)
    });
    let Some(change) = change.flatten() else { return false };
    apply(slice, device, context, change);
    true
}

/// What this process holds now. NVML is spared where free memory and ledger moved together, so that nothing was taken
/// that is not known.
fn figures(seen: &Seen, before: &Before) -> Option<Figures> {
    let (free, charged) = (before.free, before.charged);
    let own = if seen.explains(free, charged) {
        seen.own?.saturating_add_signed(difference(seen.charged, charged))
    } else {
        footprint::own(before.place)?
    };
    Some(Figures { own, charged, free })
}

/// Charges what was found, or gives back what was charged too much.
fn apply(slice: &Slice, device: Device, context: usize, change: i64) {
    let bytes = change.unsigned_abs();
    if change > 0 {
        slice.charge(device, bytes);
        slice.holdings.add(slice, Holder::Rest, context, device, bytes);
    } else if bytes > 0 {
        let rest = bytes.saturating_sub(slice.holdings.shrink(slice, Holder::Rest, context, bytes));
        slice.holdings.shrink_code(slice, context, rest);
    }
}

/// A context is about to be made: there may be none to ask for free memory, so NVML is asked on both sides.
#[derive(Debug)]
pub(crate) struct Making {
    slice: &'static Slice,
    pub(crate) place: Place,
    nvml: Option<footprint::Session>,
    own: Option<u64>,
    charged: u64,
    count: Count,
    /// Whether it is a context like others, whose size is the same for all.
    is_usual: bool,
}

impl Making {
    /// Asks before a call that makes a context.
    pub(crate) fn read(slice: &'static Slice, place: Place) -> Self {
        Self { is_usual: true, ..Self::beside(slice, place) }
    }

    /// Asks before a call that makes something else of the kind.
    pub(crate) fn beside(slice: &'static Slice, place: Place) -> Self {
        if slice.witness.is_unsettled() {
            settle_here(slice, 1);
        }
        let nvml = footprint::Session::open();
        let count = slice.flights.count();
        let charged = slice.own(place.device);
        let own = nvml.as_ref().and_then(|nvml| nvml.own(place));
        Self { slice, place, nvml, own, charged, count, is_usual: false }
    }

    /// What the context took: by how much NVML's figure grew. It tells the truth, and is remembered for the slice,
    /// where nothing else of this process changed meanwhile; otherwise what was seen before does.
    pub(crate) fn took(&self, reserved: u64, estimate: u64) -> u64 {
        let (slice, device) = (self.slice, self.place.device);
        let now = self.nvml.as_ref().and_then(|nvml| nvml.own(self.place));
        let charged = slice.own(device).saturating_sub(reserved);
        let known = slice.context_bytes(device).filter(|_| self.is_usual);
        let Some(now) = now else {
            // Not listed although there is a context: NVML knows the process by another number.
            slice.witness.note(device, None, charged);
            return known.unwrap_or(estimate);
        };
        let more = charged.saturating_sub(self.charged);
        let seen = now.saturating_sub(self.own.unwrap_or(0)).saturating_sub(more);
        let still = charged == self.charged && slice.flights.count().is_still_since(self.count, 1);
        if still && self.is_usual {
            slice.learn_context_bytes(device, seen);
        }
        let took = if still { seen } else { known.unwrap_or(seen) };
        slice.witness.note(device, Some(now), charged.saturating_add(took));
        took
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn difference(before: u64, after: u64) -> i64 {
    signed(after).saturating_sub(signed(before))
}
