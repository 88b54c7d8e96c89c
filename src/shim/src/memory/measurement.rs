//! Device memory that a call of the driver took.
//!
//! There are two sources. *Free memory* of the device costs a few microseconds, and the library reads it before and after a call.
//! But all processes change it: a change that this process's ledger does not explain may be a neighbour's. *NVML* reports the
//! memory of this process, and takes milliseconds. The library asks it after a call with such a change. It compares the
//! answer with the *baseline*: NVML's figure and the ledger at the last instant at which they agreed.
//!
//! While other threads of this process take or give back memory, neither source is exact: the ledger is ahead of the driver. Then
//! the library charges the larger of the two figures. It repeats the comparison as soon as no memory call is under way
//! ([`reconcile`]). Look-ups of code that have spent their time for measuring (`look_up_budget`) are not measured one by one. A
//! later comparison settles hundreds of them together. The same is true of loads whose memory the image shows.
//!
//! If NVML does not know this process, the change of free memory counts, provided that such a call can have taken as much.
//! Otherwise an estimate counts, also if the device shares the host's memory. On a device without a quota estimates count,
//! because the answer of NVML is not worth the wait. When the device gets a quota, the library asks NVML once and corrects the
//! estimates ([`complete_figures`]). After a question without an answer it does not ask for a while.

use super::nvml_baseline::{Baseline, Figures, difference, in_both, signed};
use super::overheads::OverheadOwner;
use super::reading::Reading;
use super::state::Memory;
use crate::driver_calls::devices;
use crate::slice::device::SliceDevice;
use gpuslice_region::{Calls, Device};

/// Bounds of the change of memory that a call can cause.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangeBounds {
    /// Smallest and largest change in bytes; negative for memory that is given back.
    pub(crate) range: (i64, i64),
    /// Change that counts if free memory shows an impossible one.
    pub(crate) otherwise: i64,
    /// True if the call must have changed free memory. If free memory is the same, another process has changed it by as much.
    pub(crate) surely: bool,
}

impl ChangeBounds {
    /// Returns the bounds for a call that is proven to have taken `bytes`: free memory lost these bytes and got them back.
    pub(crate) fn with_proof(self, bytes: u64) -> Self {
        let bytes = signed(bytes);
        Self { range: (self.range.0, self.range.1.max(bytes)), otherwise: self.otherwise.max(bytes), ..self }
    }

    /// Returns the change that counts. `window`: the change of free memory that the ledger does not explain, if it is known.
    fn of(&self, window: Option<i64>) -> i64 {
        let is_possible =
            |window: &i64| (self.range.0..=self.range.1).contains(window) && !(self.surely && *window == 0);
        window.filter(is_possible).unwrap_or(self.otherwise)
    }

    /// Returns the change that counts while other threads take or give back memory. A call that takes memory counts by `window`,
    /// up to the estimate. A call that gives back memory counts by the estimate.
    fn among(&self, window: Option<i64>) -> i64 {
        let Some(window) = window.filter(|_| self.otherwise >= 0) else { return self.otherwise };
        window.max(0).min(self.otherwise)
    }
}

/// Figures before a call of the driver.
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
    /// Reads the free memory of the current context's device, and subtracts the time of the reading from the budget.
    fn device_free(self, memory: &Memory) -> Option<u64> {
        match self {
            Self::LookUp => memory.baselines.free_memory.pay(devices::device_free),
            Self::Load => memory.baselines.free_memory_of_loads.pay(devices::device_free),
            Self::Other => devices::device_free(),
        }
    }
}

impl CallMeasurement {
    /// Reads the figures before a look-up of code. A program makes hundreds of look-ups. First reconciles earlier memory that was
    /// not measured. Returns `None` if look-ups have spent their time for measuring, and a later comparison with NVML can measure
    /// this look-up.
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

    /// Leaves a load in the current context to a later comparison with NVML. Returns its device and context. `None`: NVML does
    /// not know this process. The caller charges the `shown` bytes of the image, and the comparison may lower that charge.
    pub(crate) fn leave_load_to_nvml(memory: &Memory, shown: u64) -> Option<(Device, usize)> {
        let (device, context) = Self::leave_to_nvml(memory)?;
        memory.baselines.update(device, |baseline| baseline.unsure = baseline.unsure.saturating_add(shown));
        Some((device, context))
    }

    /// Reads the figures before a load of code, and subtracts the time of the reading from the budget of loads. Apart from the
    /// budget, it does the same as [`begin_exactly`](Self::begin_exactly).
    pub(crate) fn begin_load(memory: &'static Memory) -> Option<Self> {
        Self::begin(memory, CallKind::Load)
    }

    /// Leaves the memory of a call in the current context to a later comparison with NVML. Returns the device and the context.
    /// `None`: there may be no comparison, because NVML does not know this process, or had no answer to the last question.
    fn leave_to_nvml(memory: &Memory) -> Option<(Device, usize)> {
        if memory.baselines.is_unanswered() {
            return None;
        }
        let (device, context) = (memory.place_of_current()?.device, memory.owner_of_current()?);
        memory.baselines.note_unmeasured(device, context).then_some((device, context))
    }

    /// Reads the figures before a call that is rarer than a look-up and may take more. First reconciles earlier memory that was
    /// not measured. If the ledger does not explain the change of free memory since the baseline, it reconciles all memory. The
    /// cause may be a neighbour, or a load of code that free memory did not show because a neighbour gave back as many bytes.
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

    /// Reads the figures of the device of the current context. It reads them on a device without a quota too, because held memory
    /// counts against a later quota.
    fn read(memory: &'static Memory, kind: CallKind) -> Option<Self> {
        let place = memory.place_of_current()?;
        let context = memory.owner_of_current()?;
        let round = memory.baselines.of(place.device).map(|baseline| baseline.round);
        // The counter of calls is read first. If another call begins after this reading, the counter differs at the end.
        let calls = memory.member().memory_calls();
        let charged = memory.own(place.device);
        let free = kind.device_free(memory)?;
        Some(Self { memory, place, context, free, charged, round, calls, kind })
    }

    /// Returns the bytes that the call took of the device. The call has ended. `reserved`: bytes in the ledger that are reserved
    /// for the call. Asks NVML if free memory changed by more than the ledger explains (`window`), or if the call surely changed
    /// it. Without an answer the bounds decide. `still`: no other thread took or gave back memory during the call, so both
    /// figures are exact.
    pub(crate) fn change(&self, reserved: u64, likely: ChangeBounds) -> i64 {
        let (memory, device) = (self.memory, self.place.device);
        let Some(free) = self.kind.device_free(memory) else { return 0 };
        let charged = memory.own(device).saturating_sub(reserved);
        let explained = difference(self.charged, charged);
        // `None`: the device shares the host's memory, so programs without a GPU change its free memory.
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
        let own = asks.then(|| memory.ask_nvml(self.place)).flatten();
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

    /// Leaves the comparison to a later call. Returns the bytes that the caller charges until then.
    fn put_off(&self, baseline: &mut Baseline, took: i64, likely: ChangeBounds) -> i64 {
        let (least, most) = likely.range;
        baseline.round = baseline.round.wrapping_add(1);
        baseline.unmeasured.get_or_insert(self.context);
        let took = took.max(least).min(most);
        baseline.unsure = baseline.unsure.saturating_add(took.saturating_sub(least).max(0).unsigned_abs());
        took
    }

    /// Returns the bytes that the call took, by NVML: the growth that the ledger does not explain, within the bounds of the call.
    /// If other threads took memory meanwhile or changed the baseline, a later call compares. The larger change counts until
    /// then. Earlier charges that were too high stay unsure, for a later refund.
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
            window.filter(|_| self.memory.needs_both_figures()).map_or(since, |lost| in_both(since, lost));
        let window = window.unwrap_or(since);
        if !still || self.round != Some(baseline.round) {
            return self.put_off(baseline, since.max(window), likely);
        }
        // Other processes do not change NVML's figure. If ledger and driver count differently, this call pays the difference.
        let took = since.min(window.max(most));
        let took = if least < 0 { took.max(least) } else { took.max(0) };
        let (unmeasured, unsure) = (baseline.unmeasured, baseline.unsure);
        baseline.agree(now, took);
        // Negative: bytes that earlier calls were charged too much, and that a later comparison has to give back.
        let over = since.saturating_sub(took).min(0).max(signed(unsure).saturating_neg());
        if over < 0 {
            baseline.charged = baseline.charged.saturating_add_signed(over);
            (baseline.unmeasured, baseline.unsure) = (unmeasured, over.unsigned_abs());
        }
        took
    }
}

/// Reconciles on the device of the current context, as [`reconcile`] does. But if NVML's budget is spent, and free memory and
/// ledger changed by the same bytes, unsure bytes stay unsure. `own`: number of memory calls of the caller under way.
#[cold]
pub(crate) fn reconcile_here(memory: &'static Memory, own: u64) -> bool {
    if !memory.has_any_quota() {
        return false;
    }
    memory.place_of_current().is_some_and(|place| reconcile_by(memory, place.device, own, Asking::InBudget))
}

/// Completes the figures of the current context's device, before the library grants or reports memory by them. It corrects
/// estimates that were made without a quota, and measures the available memory if no member has done so. It does this only if no
/// other memory call is under way. `own`: number of memory calls of the caller that are under way.
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

/// Measures the memory available on a device, if no member has done so. Returns true if the figure is known afterwards.
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

/// Reconciles memory that was taken and not measured, if the device has a quota and no other memory call is under way. Returns
/// true if it did. `own`: number of memory calls of the caller that are under way.
pub(crate) fn reconcile(memory: &'static Memory, device: Device, own: u64) -> bool {
    reconcile_by(memory, device, own, Asking::Always)
}

/// Rule for a question to NVML about unsure bytes, if free memory and ledger changed by the same bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asking {
    Always,
    InBudget,
}

/// Compares the ledger with NVML's figure, and charges or refunds the difference. Returns true if it did. A comparison needs an
/// instant at which ledger and driver agree. So the thread gives up if another memory call was under way, the charge changed, or
/// another thread changed the baseline (`round`). A later call tries again.
#[cold]
fn reconcile_by(memory: &'static Memory, device: Device, own: u64, asking: Asking) -> bool {
    let Some(baseline) = memory.baselines.of(device).filter(|_| memory.has_quota(device)) else {
        return false;
    };
    let Some(context) = baseline.unmeasured.filter(|_| !memory.baselines.is_silent()) else { return false };
    if baseline.estimated {
        // Pools may hold memory that the ledger does not have yet, and the comparison must not take it for unmeasured memory.
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
            baseline.found(now, rest, memory.needs_both_figures() && !before.place.shares_host_memory);
        baseline.agree(now, found);
        Some(found)
    });
    let Some(change) = change.flatten() else { return false };
    spread(memory, &baseline, &contexts, change);
    true
}

/// Returns the contexts in which calls may have taken memory. If the ledger has estimates, these are all contexts of the device.
fn concerned(memory: &Memory, baseline: &Baseline, context: usize) -> Vec<usize> {
    let all = if baseline.estimated { memory.overheads.contexts(baseline.device) } else { Vec::new() };
    if all.is_empty() { vec![context] } else { all }
}

/// Returns the current figures. If free memory and ledger changed by the same bytes, no call took unknown memory, and the thread
/// does not ask NVML. But if look-ups were charged by free memory, a neighbour may have taken their bytes, so NVML must decide.
fn figures(baseline: &Baseline, before: &CallMeasurement, asking: Asking) -> Option<Figures> {
    let (free, charged, baselines) = (before.free, before.charged, &before.memory.baselines);
    let is_explained = baseline.explains(free, charged);
    let own = if is_explained && baseline.unsure == 0 {
        baseline.own?.saturating_add_signed(difference(baseline.charged, charged))
    } else if is_explained && asking == Asking::InBudget && baselines.nvml.is_spent() {
        return None;
    } else {
        before.memory.ask_nvml(before.place)?
    };
    Some(Figures { own, charged, free })
}

/// Charges `change` bytes, or gives them back if `change` is negative. Each context gets an equal part, because contexts take
/// similar memory.
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

/// Gives back up to `bytes` of the memory that is charged in a context. If `estimated`, that includes the memory of the context
/// itself. Returns the bytes that were given back.
fn give_back(memory: &Memory, context: usize, bytes: u64, estimated: bool) -> u64 {
    let shrink =
        |left: u64, holder| left.saturating_sub(memory.overheads.shrink(memory, holder, context, left));
    let rest = shrink(bytes, OverheadOwner::Rest);
    let left = if estimated { shrink(rest, OverheadOwner::Context) } else { rest };
    bytes.saturating_sub(left.saturating_sub(memory.overheads.shrink_code(memory, context, left)))
}
