//! Device memory that a call of the driver took.
//!
//! There are two sources. *Free memory* costs a few microseconds, and is read on both sides of a call. But every process moves
//! it: the change that this process's own ledger does not explain may be a neighbour's. *NVML* tells the memory of this process,
//! and takes milliseconds. It is asked after a call in which free memory moved in a way that the ledger does not explain. Its
//! answer is compared with the last one, when both sources agreed.
//!
//! While other threads of this process take or give memory, neither source is exact: the ledger is ahead of the driver. Then the
//! larger of the two counts, and the comparison is repeated as soon as there is a still moment ([`reconcile`]). Look-ups of code
//! are treated likewise once they have spent their time for measuring ([`LookUpBudget`]): hundreds in a row are reconciled
//! together. So are loads whose memory the image shows.
//!
//! If NVML does not know this process, the difference of free memory counts, provided that such a call can have taken as much.
//! Otherwise an estimate counts. If the device's memory is the host's, estimates count. They also count on a device without a
//! quota, where NVML is not asked, because its answer is not worth the wait there. When a quota comes, NVML is asked once, and
//! the estimates are corrected by its answer ([`complete_figures`]). If NVML does not answer, it is not asked for a while, and
//! the estimates hold meanwhile.

use super::nvml_baseline::{Baseline, Figures, difference, in_both, signed};
use super::overheads::OverheadOwner;
use super::reading::Reading;
use super::state::Memory;
use crate::driver_calls::devices;
use crate::slice::device::SliceDevice;
use gpuslice_region::{Calls, Device};

/// Change that counts as possible where only free memory can be asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangeBounds {
    /// Smallest and largest change in bytes; negative for memory that is given back.
    pub(crate) range: (i64, i64),
    /// Change that counts where free memory shows an impossible one.
    pub(crate) otherwise: i64,
    /// True if free memory must have moved. If it did not, another process has moved it by as much.
    pub(crate) surely: bool,
}

impl ChangeBounds {
    /// Returns the value for a call that is proven to have taken `bytes`: they were seen to go and to come back.
    pub(crate) fn with_proof(self, bytes: u64) -> Self {
        let bytes = signed(bytes);
        Self { range: (self.range.0, self.range.1.max(bytes)), otherwise: self.otherwise.max(bytes), ..self }
    }

    fn of(&self, window: Option<i64>) -> i64 {
        let is_possible =
            |window: &i64| (self.range.0..=self.range.1).contains(window) && !(self.surely && *window == 0);
        window.filter(is_possible).unwrap_or(self.otherwise)
    }

    /// Returns the change that counts while other threads take or give memory. Memory that is taken counts up to the estimate,
    /// and for memory that is given back the estimate counts.
    fn among(&self, window: Option<i64>) -> i64 {
        let Some(window) = window.filter(|_| self.otherwise >= 0) else { return self.otherwise };
        window.max(0).min(self.otherwise)
    }
}

/// Figures before a call.
#[derive(Debug)]
pub(crate) struct CallMeasurement {
    memory: &'static Memory,
    pub(crate) place: SliceDevice,
    pub(crate) context: usize,
    free: u64,
    charged: u64,
    round: Option<u64>,
    calls: Calls,
    kind: CallKind,
}

/// Kind of a measured call. Look-ups and loads of code have a budget of time for free memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
    LookUp,
    Load,
    Other,
}

impl CallKind {
    /// Reads the free memory of the current context's device, and takes the time off the budget.
    fn device_free(self, memory: &Memory) -> Option<u64> {
        match self {
            Self::LookUp => memory.baselines.free_memory.pay(devices::device_free),
            Self::Load => memory.baselines.free_memory_of_loads.pay(devices::device_free),
            Self::Other => devices::device_free(),
        }
    }
}

impl CallMeasurement {
    /// Reads the figures before a look-up of code, of which a program makes hundreds. First reconciles the memory that was not
    /// measured before. Returns `None` if look-ups have spent their time for measuring, and NVML can tell later which memory this
    /// one took.
    pub(crate) fn begin_look_up(memory: &'static Memory) -> Option<Self> {
        let baselines = &memory.baselines;
        if baselines.free_memory.is_spent() && Self::leave_to_nvml(memory).is_some() {
            return None;
        }
        if baselines.has_unmeasured() && !baselines.nvml.is_spent() {
            reconcile_here(memory, 1);
        }
        Self::read(memory, CallKind::LookUp)
    }

    /// Leaves a load in the current context to a later comparison with NVML. Returns its device and context; none if NVML does
    /// not know this process. The `shown` bytes of the image are charged until NVML tells, which may lower the charge again.
    pub(crate) fn leave_load_to_nvml(memory: &Memory, shown: u64) -> Option<(Device, usize)> {
        let (device, context) = Self::leave_to_nvml(memory)?;
        memory.baselines.update(device, |baseline| baseline.unsure = baseline.unsure.saturating_add(shown));
        Some((device, context))
    }

    /// Reads the figures before a load of code, of which a program makes hundreds. Does otherwise as
    /// [`begin_exactly`](Self::begin_exactly).
    pub(crate) fn begin_load(memory: &'static Memory) -> Option<Self> {
        Self::begin(memory, CallKind::Load)
    }

    /// Leaves the memory of a call in the current context to a later comparison with NVML. Returns the device and the context;
    /// none if there is no comparison to come, because NVML does not know this process.
    fn leave_to_nvml(memory: &Memory) -> Option<(Device, usize)> {
        let (device, context) = (memory.place_of_current()?.device, memory.owner_of_current()?);
        memory.baselines.note_unmeasured(device, context).then_some((device, context))
    }

    /// Reads the figures before a call that is rarer and may take more. First reconciles the memory that was not measured before.
    /// If free memory has moved in a way that the ledger does not explain, it reconciles all memory. The movement may be a
    /// neighbour's alone. Or code of this process was loaded while a neighbour gave back as much, which free memory did not show
    /// then.
    pub(crate) fn begin_exactly(memory: &'static Memory) -> Option<Self> {
        Self::begin(memory, CallKind::Other)
    }

    fn begin(memory: &'static Memory, kind: CallKind) -> Option<Self> {
        if memory.baselines.has_unmeasured() {
            reconcile_here(memory, 1);
        }
        let before = Self::read(memory, kind)?;
        let device = before.place.device;
        let is_unexplained = memory.has_quota(device)
            && memory.baselines.of(device).is_some_and(|baseline| {
                baseline.own.is_some()
                    && baseline.unmeasured.is_none()
                    && !baseline.explains(before.free, before.charged)
            });
        if !is_unexplained {
            return Some(before);
        }
        memory.baselines.note_unmeasured(device, before.context);
        if reconcile(memory, device, 1) { Self::read(memory, kind) } else { Some(before) }
    }

    /// Reads the figures of the device of the current context. Does so without a quota too, because held memory counts against a
    /// later quota.
    fn read(memory: &'static Memory, kind: CallKind) -> Option<Self> {
        let place = memory.place_of_current()?;
        let context = memory.owner_of_current()?;
        let round = memory.baselines.of(place.device).map(|baseline| baseline.round);
        // The calls are read first: a call that begins later is seen to have begun.
        let calls = memory.member().memory_calls();
        let charged = memory.own(place.device);
        let free = kind.device_free(memory)?;
        Some(Self { memory, place, context, free, charged, round, calls, kind })
    }

    /// Returns the bytes that the device lost in a call that is over. `reserved` bytes were reserved for the call and are not
    /// held yet.
    pub(crate) fn change(&self, reserved: u64, likely: ChangeBounds) -> i64 {
        let (memory, device) = (self.memory, self.place.device);
        let Some(free) = self.kind.device_free(memory) else { return 0 };
        let charged = memory.own(device).saturating_sub(reserved);
        let explained = difference(self.charged, charged);
        // `None`: free memory moves with programs that use no GPU.
        let window =
            (!self.place.shares_host_memory).then(|| difference(free, self.free).saturating_sub(explained));
        if window == Some(0) && !likely.surely {
            return 0;
        }
        let is_known =
            memory.baselines.of(device).is_none_or(|baseline| baseline.own.is_some() && !baseline.estimated);
        let asks = is_known && memory.has_quota(device);
        if asks && self.kind == CallKind::LookUp && memory.baselines.nvml.is_spent() {
            let put_off =
                |baseline: &mut Baseline| self.put_off(baseline, window.unwrap_or(likely.otherwise), likely);
            let took = memory.baselines.update(device, put_off);
            if let Some(took) = took {
                return took;
            }
        }
        let own = asks.then(|| memory.baselines.ask(self.place)).flatten();
        let still = explained == 0
            && memory.own(device).saturating_sub(reserved) == charged
            && memory.member().memory_calls().is_still_since(self.calls, 1);
        let Some(own) = own else {
            let took = if still { likely.of(window) } else { likely.among(window) };
            memory.baselines.note_estimate(device, self.context, took);
            return took;
        };
        let now = Figures { own, charged, free };
        let took =
            memory.baselines.update(device, |baseline| self.compare(baseline, now, (window, still), likely));
        took.unwrap_or_else(|| {
            let took = likely.of(window);
            memory.baselines.note(device, Some(own), charged.saturating_add_signed(took));
            took
        })
    }

    /// Puts the comparison off, and returns the charge until then.
    fn put_off(&self, baseline: &mut Baseline, took: i64, likely: ChangeBounds) -> i64 {
        let (least, most) = likely.range;
        baseline.round = baseline.round.wrapping_add(1);
        baseline.unmeasured.get_or_insert(self.context);
        let took = took.max(least).min(most);
        baseline.unsure = baseline.unsure.saturating_add(took.saturating_sub(least).max(0).unsigned_abs());
        took
    }

    fn compare(
        &self,
        baseline: &mut Baseline,
        now: Figures,
        (window, still): (Option<i64>, bool),
        likely: ChangeBounds,
    ) -> i64 {
        let (least, most) = likely.range;
        let since = baseline.since(now);
        let since =
            window.filter(|_| self.memory.shared.has_imported()).map_or(since, |lost| in_both(since, lost));
        let window = window.unwrap_or(since);
        if !still || self.round != Some(baseline.round) {
            return self.put_off(baseline, since.max(window), likely);
        }
        // NVML knows nothing of other processes. A difference between the counts of ledger and driver goes with this call.
        let took = since.min(window.max(most));
        let took = if least < 0 { took.max(least) } else { took.max(0) };
        let (unmeasured, unsure) = (baseline.unmeasured, baseline.unsure);
        baseline.agree(now, took);
        // Bytes that were charged too much before, beyond the bytes that this call took, are still to be given back.
        let over = since.saturating_sub(took).min(0).max(signed(unsure).saturating_neg());
        if over < 0 {
            baseline.charged = baseline.charged.saturating_add_signed(over);
            (baseline.unmeasured, baseline.unsure) = (unmeasured, over.unsigned_abs());
        }
        took
    }
}

/// Reconciles on the device of the current context, as [`reconcile`] does. But if only the bytes of look-ups are unsure, and the
/// budget of NVML is spent, they stay unsure. `own`: calls under way because of the caller.
#[cold]
pub(crate) fn reconcile_here(memory: &'static Memory, own: u64) -> bool {
    if !memory.has_any_quota() {
        return false;
    }
    memory.place_of_current().is_some_and(|place| reconcile_by(memory, place.device, own, Asking::InBudget))
}

/// Completes the figures of the current context's device, before a quota grants or reports anything by them. That is, it corrects
/// estimates that were made without a quota, and measures the available memory if no member has done so. Does either only if no
/// other memory call is under way. `own`: calls under way because of the caller.
#[inline]
pub(crate) fn complete_figures(memory: &'static Memory, own: u64) {
    if memory.baselines.is_incomplete() {
        complete_figures_now(memory, own);
    }
}

#[cold]
#[inline(never)]
fn complete_figures_now(memory: &'static Memory, own: u64) {
    if !memory.has_any_quota() || !memory.baselines.claim_attempt() {
        return;
    }
    let here = |place: SliceDevice| Some((place, memory.baselines.of(place.device)?));
    let Some((place, baseline)) = memory.place_of_current().and_then(here) else { return };
    let is_reconciled = baseline.estimated && reconcile(memory, place.device, own);
    let is_measured = baseline.lacks_available && measure_available(memory, place, own);
    if is_reconciled || is_measured {
        memory.baselines.try_at_once();
    }
}

/// Measures the memory available on a device, if no member has done so. Returns true if it is known now.
fn measure_available(memory: &Memory, place: SliceDevice, own: u64) -> bool {
    let is_known = || memory.member().is_available_known(place.device);
    if !is_known()
        && let Some(reading) = Reading::take(memory, place, 0)
    {
        reading.note_room(memory, place, 0, own);
    }
    let is_known = is_known();
    memory.baselines.set_lacks_available(place.device, !is_known);
    is_known
}

/// Reconciles memory that was taken and not measured, if the device has a quota and no other memory call is under way. Tells
/// whether it did. `own`: calls under way because of the caller.
pub(crate) fn reconcile(memory: &'static Memory, device: Device, own: u64) -> bool {
    reconcile_by(memory, device, own, Asking::Always)
}

/// The occasion on which the library asks NVML about bytes that free memory explains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asking {
    Always,
    InBudget,
}

#[cold]
fn reconcile_by(memory: &'static Memory, device: Device, own: u64, asking: Asking) -> bool {
    let Some(baseline) = memory.baselines.of(device).filter(|_| memory.has_quota(device)) else {
        return false;
    };
    let Some(context) = baseline.unmeasured.filter(|_| !memory.baselines.is_silent()) else { return false };
    if baseline.estimated {
        // The ledger has to stand for all memory that the driver has given.
        memory.pools.reconcile_all(memory);
    }
    let Some(before) = CallMeasurement::read(memory, CallKind::Other) else { return false };
    if before.place.device != device || !before.calls.is_still_since(before.calls, own) {
        return false;
    }
    let Some(now) = figures(&baseline, &before, asking) else { return false };
    if !memory.member().memory_calls().is_still_since(before.calls, own) || memory.own(device) != now.charged
    {
        return false;
    }
    let contexts = concerned(memory, &baseline, context);
    let rests = contexts.iter().map(|context| memory.overheads.bytes(OverheadOwner::Rest, *context));
    let rest = rests.fold(0, u64::saturating_add);
    let change = memory.baselines.update(device, |baseline| {
        if before.round != Some(baseline.round) {
            return None;
        }
        let found =
            baseline.found(now, rest, memory.shared.has_imported() && !before.place.shares_host_memory);
        baseline.agree(now, found);
        Some(found)
    });
    let Some(change) = change.flatten() else { return false };
    spread(memory, &baseline, &contexts, change);
    true
}

/// Returns the contexts in which memory may have been taken. Where there are estimates, these are all contexts of the device.
fn concerned(memory: &Memory, baseline: &Baseline, context: usize) -> Vec<usize> {
    let all = if baseline.estimated { memory.overheads.contexts(baseline.device) } else { Vec::new() };
    if all.is_empty() { vec![context] } else { all }
}

/// Returns the figures of now. If free memory and ledger moved together, no unknown memory was taken, and NVML is not asked. But
/// if look-ups were charged by free memory, a neighbour may have taken their bytes.
fn figures(baseline: &Baseline, before: &CallMeasurement, asking: Asking) -> Option<Figures> {
    let (free, charged, baselines) = (before.free, before.charged, &before.memory.baselines);
    let is_explained = baseline.explains(free, charged);
    let own = if is_explained && baseline.unsure == 0 {
        baseline.own?.saturating_add_signed(difference(baseline.charged, charged))
    } else if is_explained && asking == Asking::InBudget && baselines.nvml.is_spent() {
        return None;
    } else {
        baselines.ask(before.place)?
    };
    Some(Figures { own, charged, free })
}

/// Charges `change` bytes, or gives them back if they were charged too much, in equal parts, because contexts are like each
/// other.
fn spread(memory: &Memory, baseline: &Baseline, contexts: &[usize], change: i64) {
    let mut left = change.unsigned_abs();
    for (context, others) in contexts.iter().zip((1..=contexts.len() as u64).rev()) {
        let part = left.div_ceil(others);
        let done = if change > 0 {
            memory.charge(baseline.device, part);
            memory.overheads.add(memory, OverheadOwner::Rest, *context, baseline.device, part);
            part
        } else {
            give_back(memory, *context, part, baseline.estimated)
        };
        left = left.saturating_sub(done);
    }
}

/// Gives back up to `bytes` of the memory that is held in a context. If `estimated`, that includes the context's own. Returns the
/// bytes that were given back.
fn give_back(memory: &Memory, context: usize, bytes: u64, estimated: bool) -> u64 {
    let shrink =
        |left: u64, holder| left.saturating_sub(memory.overheads.shrink(memory, holder, context, left));
    let rest = shrink(bytes, OverheadOwner::Rest);
    let left = if estimated { shrink(rest, OverheadOwner::Context) } else { rest };
    bytes.saturating_sub(left.saturating_sub(memory.overheads.shrink_code(memory, context, left)))
}
