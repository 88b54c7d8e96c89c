//! Device memory that a call of the driver took.
//!
//! There are two sources. *Free memory* costs a few microseconds, and is read on both sides of a call. But it moves with
//! everybody: what is left when this process's own ledger is taken away may be a neighbour's. *NVML* tells the memory of this
//! process, and takes milliseconds. It is asked after a call in which free memory moved in a way that the ledger does not
//! explain. Its answer is compared with the last one, when both sources agreed.
//!
//! While other threads of this process take or give memory, neither source is exact: the ledger is ahead of the driver. Then the
//! larger of the two counts, and the comparison is repeated as soon as there is a still moment ([`settle`]). Look-ups of code are
//! treated likewise where NVML was asked lately: hundreds in a row are charged by free memory, and settled together.
//!
//! Where NVML does not know this process, the difference of free memory counts if such a call can have taken so much, and an
//! estimate otherwise. Where the device's memory is the host's, estimates count. So they do on a device without a quota, where
//! NVML is not asked: nobody wants to wait for it there. When a quota comes, NVML is asked once, and the estimates are corrected
//! by its answer ([`make_up`]). Where it does not answer, it is not asked for a while, and the estimates hold meanwhile.

use super::nvml_baseline::{Figures, Seen, difference, in_both, signed};
use super::overheads::Holder;
use super::state::Memory;
use crate::driver_calls::{contexts, devices};
use crate::slice::device::SliceDevice;
use gpuslice_region::{Calls, Device};

/// What is taken for possible where only free memory can be asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Likely {
    /// The least and the most, in bytes; negative for memory that is given back.
    pub(crate) range: (i64, i64),
    /// What is taken for true where free memory says something impossible.
    pub(crate) otherwise: i64,
    /// True if free memory must have moved: where it did not, somebody else moved by as much.
    pub(crate) surely: bool,
}

impl Likely {
    /// The same, where so many bytes were seen to go and to come back.
    pub(crate) fn with_proof(self, bytes: u64) -> Self {
        let bytes = signed(bytes);
        Self { range: (self.range.0, self.range.1.max(bytes)), otherwise: self.otherwise.max(bytes), ..self }
    }

    fn of(&self, window: Option<i64>) -> i64 {
        window.filter(|window| (self.range.0..=self.range.1).contains(window)).unwrap_or(self.otherwise)
    }

    /// The same while other threads take or give memory: no more than the estimate, and back goes what was charged.
    fn among(&self, window: Option<i64>) -> i64 {
        let Some(window) = window.filter(|_| self.otherwise >= 0) else { return self.otherwise };
        window.max(0).min(self.otherwise)
    }
}

/// What was known before a call.
#[derive(Debug)]
pub(crate) struct Before {
    memory: &'static Memory,
    pub(crate) place: SliceDevice,
    pub(crate) context: usize,
    free: u64,
    charged: u64,
    round: Option<u64>,
    calls: Calls,
    /// True if the call is one of many: NVML is not asked for each.
    is_frequent: bool,
}

impl Before {
    /// Before a look-up of code, of which a program makes hundreds: what was not measured before is made up for, unless NVML
    /// was asked lately.
    pub(crate) fn begin(memory: &'static Memory) -> Option<Self> {
        if memory.witness.is_unsettled() && !memory.witness.is_spared() {
            settle_here(memory, 1);
        }
        Some(Self { is_frequent: true, ..Self::read(memory)? })
    }

    /// Before calls that are rarer and may take more: what was not measured before is made up for, and where free memory has
    /// moved in a way that the ledger does not explain, NVML is asked now as well.
    pub(crate) fn begin_exactly(memory: &'static Memory) -> Option<Self> {
        if memory.witness.is_unsettled() {
            settle_here(memory, 1);
        }
        let mut before = Self::read(memory)?;
        let device = before.place.device;
        let Some(seen) = memory.witness.seen(device).filter(|seen| seen.unsettled.is_none()) else {
            return Some(before);
        };
        let (free, charged) = (before.free, before.charged);
        if seen.own.is_none() || seen.explains(free, charged) || !memory.has_quota(device) {
            return Some(before);
        }
        let own = memory.witness.ask(before.place);
        if let Some(own) = own.filter(|_| {
            memory.member().memory_calls().is_still_since(before.calls, 1) && memory.own(device) == charged
        }) {
            let agree = |seen: &mut Seen| {
                if before.round == Some(seen.round) {
                    seen.agree(Figures { own, charged, free }, 0);
                }
                seen.round
            };
            before.round = memory.witness.update(device, agree);
        }
        Some(before)
    }

    /// Of the device of the current context. Also without a quota: what is held counts against one that comes later.
    fn read(memory: &'static Memory) -> Option<Self> {
        let place = memory.place(contexts::current_device()?)?;
        let context = memory.owner_of_current()?;
        let round = memory.witness.seen(place.device).map(|seen| seen.round);
        // First: who begins after it is seen to have begun.
        let calls = memory.member().memory_calls();
        let charged = memory.own(place.device);
        let free = devices::device_free()?;
        Some(Self { memory, place, context, free, charged, round, calls, is_frequent: false })
    }

    /// What the device lost in a call that is over. `reserved` is what was reserved for it and is not held yet.
    pub(crate) fn change(&self, reserved: u64, likely: Likely) -> i64 {
        let (memory, device) = (self.memory, self.place.device);
        let Some(free) = devices::device_free() else { return 0 };
        let charged = memory.own(device).saturating_sub(reserved);
        let explained = difference(self.charged, charged);
        // None: free memory moved with programs that use no GPU.
        let window =
            (!self.place.shares_host_memory).then(|| difference(free, self.free).saturating_sub(explained));
        if window == Some(0) && !likely.surely {
            return 0;
        }
        let is_known = memory.witness.seen(device).is_none_or(|seen| seen.own.is_some() && !seen.estimated);
        let asks = is_known && memory.has_quota(device);
        if asks && self.is_frequent && memory.witness.is_spared() {
            let put_off = |seen: &mut Seen| self.put_off(seen, window.unwrap_or(likely.otherwise), likely);
            let took = memory.witness.update(device, put_off);
            if let Some(took) = took {
                return took;
            }
        }
        let own = asks.then(|| memory.witness.ask(self.place)).flatten();
        let still = explained == 0
            && memory.own(device).saturating_sub(reserved) == charged
            && memory.member().memory_calls().is_still_since(self.calls, 1);
        let Some(own) = own else {
            let took = if still { likely.of(window) } else { likely.among(window) };
            memory.witness.note_estimate(device, self.context, took);
            return took;
        };
        let now = Figures { own, charged, free };
        let took = memory.witness.update(device, |seen| self.compare(seen, now, (window, still), likely));
        took.unwrap_or_else(|| {
            let took = likely.of(window);
            memory.witness.note(device, Some(own), charged.saturating_add_signed(took));
            took
        })
    }

    /// The charge until the measurement can be settled.
    fn put_off(&self, seen: &mut Seen, took: i64, likely: Likely) -> i64 {
        let (least, most) = likely.range;
        seen.round = seen.round.wrapping_add(1);
        seen.unsettled.get_or_insert(self.context);
        let took = took.max(least).min(most);
        seen.unsure = seen.unsure.saturating_add(took.saturating_sub(least).max(0).unsigned_abs());
        took
    }

    fn compare(
        &self,
        seen: &mut Seen,
        now: Figures,
        (window, still): (Option<i64>, bool),
        likely: Likely,
    ) -> i64 {
        let (least, most) = likely.range;
        let since = seen.since(now);
        let since =
            window.filter(|_| self.memory.shared.has_imported()).map_or(since, |lost| in_both(since, lost));
        let window = window.unwrap_or(since);
        if !still || self.round != Some(seen.round) {
            return self.put_off(seen, since.max(window), likely);
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
pub(crate) fn settle_here(memory: &'static Memory, own: u64) -> bool {
    if !memory.has_any_quota() {
        return false;
    }
    let place = contexts::current_device().and_then(|device| memory.place(device));
    place.is_some_and(|place| settle(memory, place.device, own))
}

/// Before something is granted of a quota, or said of it: what was estimated while there was none is made up for on the
/// device of the current context, if this is a still moment. `own` as in [`settle`].
#[inline]
pub(crate) fn make_up(memory: &'static Memory, own: u64) {
    if memory.witness.has_estimates() {
        make_up_now(memory, own);
    }
}

#[cold]
#[inline(never)]
fn make_up_now(memory: &'static Memory, own: u64) {
    if memory.has_any_quota() && memory.witness.is_time_to_try() && settle_here(memory, own) {
        memory.witness.try_at_once();
    }
}

/// Makes up for what was taken and not measured, if this is a still moment and the device has a quota; says whether it
/// was. `own` is how many calls are on their way because of the one that asks.
#[cold]
pub(crate) fn settle(memory: &'static Memory, device: Device, own: u64) -> bool {
    let Some(seen) = memory.witness.seen(device).filter(|_| memory.has_quota(device)) else { return false };
    let Some(context) = seen.unsettled.filter(|_| !memory.witness.is_silent()) else { return false };
    if seen.estimated {
        // The ledger stands for all that the driver has given.
        memory.pools.reconcile_all(memory);
    }
    let Some(before) = Before::read(memory) else { return false };
    if before.place.device != device || !before.calls.is_still_since(before.calls, own) {
        return false;
    }
    let Some(now) = figures(&seen, &before) else { return false };
    if !memory.member().memory_calls().is_still_since(before.calls, own) || memory.own(device) != now.charged
    {
        return false;
    }
    let contexts = concerned(memory, &seen, context);
    let rests = contexts.iter().map(|context| memory.holdings.bytes(Holder::Rest, *context));
    let rest = rests.fold(0, u64::saturating_add);
    let change = memory.witness.update(device, |seen| {
        if before.round != Some(seen.round) {
            return None;
        }
        let found = seen.found(now, rest, memory.shared.has_imported() && !before.place.shares_host_memory);
        seen.agree(now, found);
        Some(found)
    });
    let Some(change) = change.flatten() else { return false };
    spread(memory, &seen, &contexts, change);
    true
}

/// The contexts that something may have been taken in: where there are estimates any of the device's.
fn concerned(memory: &Memory, seen: &Seen, context: usize) -> Vec<usize> {
    let all = if seen.estimated { memory.holdings.contexts(seen.device) } else { Vec::new() };
    if all.is_empty() { vec![context] } else { all }
}

/// What this process holds now. NVML is spared where free memory and ledger moved together, so that nothing was taken
/// that is not known.
fn figures(seen: &Seen, before: &Before) -> Option<Figures> {
    let (free, charged) = (before.free, before.charged);
    let own = if seen.explains(free, charged) {
        seen.own?.saturating_add_signed(difference(seen.charged, charged))
    } else {
        before.memory.witness.ask(before.place)?
    };
    Some(Figures { own, charged, free })
}

/// Charges what was found, or gives back what was charged too much, in equal parts: contexts are like each other.
fn spread(memory: &Memory, seen: &Seen, contexts: &[usize], change: i64) {
    let mut left = change.unsigned_abs();
    for (context, others) in contexts.iter().zip((1..=contexts.len() as u64).rev()) {
        let part = left.div_ceil(others);
        let done = if change > 0 {
            memory.charge(seen.device, part);
            memory.holdings.add(memory, Holder::Rest, *context, seen.device, part);
            part
        } else {
            give_back(memory, *context, part, seen.estimated)
        };
        left = left.saturating_sub(done);
    }
}

/// Gives back up to so much of what is held in a context, which may have been estimated itself; returns how much that was.
fn give_back(memory: &Memory, context: usize, bytes: u64, estimated: bool) -> u64 {
    let shrink =
        |left: u64, holder| left.saturating_sub(memory.holdings.shrink(memory, holder, context, left));
    let rest = shrink(bytes, Holder::Rest);
    let left = if estimated { shrink(rest, Holder::Context) } else { rest };
    bytes.saturating_sub(left.saturating_sub(memory.holdings.shrink_code(memory, context, left)))
}
