//! One look of the arbiter: estimates each slice's demand, divides the GPU, and makes the grants.

use std::collections::BTreeMap;

use super::allocate::{self, AllocatedPart, Claim, WHOLE_GPU, allocate};
use super::budget::{Budget, Findings};
use super::demand::{DemandEstimator, SliceFigures};
use super::grant_word::Grant;
use crate::compute::limiter::lease;
use crate::compute::limiter::queue_bound;
use crate::compute::limiter::token_bucket::RateLimit;
use crate::config::{CorePolicy, Priority};
use crate::time::{GpuTime, Monotonic, WallTime};
use crate::units::Permille;

/// The most slices of a directory among which an arbiter divides the GPU. It maps the region of each of them. Further
/// slices keep their own limits.
pub const MOST_SLICES: usize = 48;

/// The longest time for which a late look, or the first one, counts: 4 ms.
const LONGEST_STEP: WallTime = WallTime::from_millis(4);

/// Queue bound of a slice beside one of high priority: 3 ms.
///
/// Queued work shares the GPU with high-priority work until the queued work ends. One measurement of small kernels spans 2
/// ms. With a bound of 2 ms, the GPU would be idle for a tenth of the time. The library sees the end of a batch late.
const SHORT_QUEUE: GpuTime = GpuTime::from_millis(3);

/// Burst of a slice beside one of high priority: 1 ms. The slice may spend saved time after high-priority work has arrived.
const SHORT_BURST: GpuTime = GpuTime::from_millis(1);

/// Divisor of a rate: a change by less than one part in 64 does not count.
const STEADY_PART: u16 = 64;

/// The settings of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceSettings {
    /// The policy of sharing.
    pub policy: CorePolicy,
    /// The most that the slice may use, under any policy.
    pub limit: Permille,
    /// The weight of the slice within its class: 1 to 1000.
    pub weight: u32,
    /// The priority.
    pub priority: Priority,
    /// The unused time that the slice may save up.
    pub burst: GpuTime,
}

/// A slice that shares the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharingSlice {
    /// A number that no other slice has.
    pub id: u64,
    /// The slice's settings.
    pub settings: SliceSettings,
    /// The figures of the slice's region.
    pub figures: SliceFigures,
}

/// The state of a slice between looks.
#[derive(Debug, Clone, Copy)]
struct SliceState {
    demand: DemandEstimator,
    given: Option<RateLimit>,
    /// True if the slice has high priority.
    eager: bool,
    /// True if the slice has recently used more than its own part.
    borrows: bool,
}

/// The state of an arbiter for one GPU.
#[derive(Debug, Default)]
pub struct Arbiter {
    slices: BTreeMap<u64, SliceState>,
    budget: Budget,
    /// The present budget, in millionths.
    scale: u64,
    at: Monotonic,
}

impl Arbiter {
    /// Looks at all slices of the GPU at the instant `now`. Returns their grants, in the order of `slices`.
    ///
    /// A look estimates the demands, divides the GPU ([`allocate()`]), updates the budget with the findings, and turns each
    /// part into a rate. If the GPU may be idle while launches wait, all waiting slices get a wall credit.
    ///
    /// Risk: the rates of a look act on work that is queued later. So each correction is small or bounded. The budget moves
    /// by steps. A wall credit is at most the need of the first waiting launch. A rate that would change little stays.
    pub fn look(&mut self, now: Monotonic, slices: &[SharingSlice]) -> Vec<Grant> {
        let demands = self.demands(now, slices);
        let claims: Vec<Claim> =
            slices.iter().zip(&demands).map(|(slice, demand)| self.claim(slice, *demand)).collect();
        let parts = allocate(&claims);
        let found = self.found(now, slices, &demands, &parts);
        self.scale = self.budget.look(&found);
        let full: Vec<Claim> = slices.iter().map(|slice| claim(&slice.settings, WHOLE_GPU)).collect();
        let own = allocate(&full);
        self.at = now;
        let must_yield = |slice: &SharingSlice| slices.iter().any(|other| comes_first(other, slice));
        let both = parts.iter().zip(own.iter());
        let rate_limits: Vec<RateLimit> = slices
            .iter()
            .zip(both)
            .map(|(slice, (part, own))| self.give(slice, part, own, must_yield(slice)))
            .collect();
        // A launch that is admitted while work of high priority is in flight would delay the work that follows.
        let is_held = |slice: &SharingSlice| found.eager && must_yield(slice);
        let wall_credit = if found.idle() { earliest(slices, &rate_limits, is_held) } else { WallTime::ZERO };
        let given = |(slice, rate_limit): (&SharingSlice, RateLimit)| Grant {
            rate_limit,
            wall_credit: if is_held(slice) {
                WallTime::ZERO
            } else {
                wall_credit.min(room(slice, &rate_limit, found.passed))
            },
            queue_bound: if must_yield(slice) { SHORT_QUEUE } else { queue_bound::MOST_BOUND },
        };
        slices.iter().zip(rate_limits).map(given).collect()
    }

    /// Returns the demands of all slices. Forgets slices that do not exist any more.
    fn demands(&mut self, now: Monotonic, slices: &[SharingSlice]) -> Vec<u64> {
        let mut before = core::mem::take(&mut self.slices);
        let mut demands = Vec::with_capacity(slices.len());
        let least = allocate::least(slices.len());
        for slice in slices {
            let SharingSlice { id, figures, .. } = slice;
            let eager = is_high(slice);
            let new = || SliceState {
                demand: DemandEstimator::new(now, figures),
                given: None,
                eager,
                borrows: false,
            };
            let known = self.slices.entry(*id).or_insert_with(|| before.remove(id).unwrap_or_else(new));
            known.eager = eager;
            let rate_limit =
                known.given.unwrap_or_else(|| RateLimit::new(Permille::FULL, slice.settings.burst));
            let owes = rate_limit.gpu(figures.owed);
            demands.push(known.demand.look(now, figures, eager, least, owes));
        }
        demands
    }

    fn claim(&self, slice: &SharingSlice, demand: u64) -> Claim {
        let has_enough = self.slices.get(&slice.id).is_some_and(|known| known.demand.has_enough());
        Claim { has_enough, ..claim(&slice.settings, demand) }
    }

    /// Returns the findings of this look for the budget. `parts` come from the demands and the last budget.
    ///
    /// A slice is *steered* if its last rate is below its limit. A steered slice that waits is *starved*. But if its new
    /// rate is more than an eighth above the last one, it is not starved.
    fn found(
        &self,
        now: Monotonic,
        slices: &[SharingSlice],
        demands: &[u64],
        parts: &[AllocatedPart],
    ) -> Findings {
        let known = |slice: &SharingSlice| self.slices.get(&slice.id);
        let starved = |(slice, part): (&SharingSlice, &AllocatedPart)| {
            let Some(given) = known(slice).and_then(|known| known.given) else { return false };
            // If the demand of other slices has changed, the slice waits because of their earlier demand, and not because
            // of the budget.
            let unchanged = self.rate(&slice.settings, part).get()
                <= given.rate().get().saturating_add(given.rate().get() / 8);
            slice.figures.waits && unchanged && is_steered(slice, &given)
        };
        let busy = |(slice, demand): &(&SharingSlice, &u64)| {
            **demand > 0 || known(slice).is_some_and(|known| known.demand.mean() > 0)
        };
        let steered = slices.iter().filter_map(|slice| {
            let known = known(slice)?;
            known.given.is_some_and(|given| is_steered(slice, &given)).then(|| known.demand.queued())
        });
        Findings {
            busy: u64::try_from(slices.iter().zip(demands).filter(busy).count()).unwrap_or(u64::MAX),
            queued: self.queued(),
            steered: steered.fold(GpuTime::ZERO, GpuTime::saturating_add),
            used: self.slices.values().map(|known| known.demand.mean()).fold(0, u64::saturating_add),
            starved: slices.iter().zip(parts).any(starved),
            eager: self.slices.values().any(|known| known.eager && known.demand.is_at_work()),
            passed: now.since(self.at).min(LONGEST_STEP),
        }
    }

    /// Returns the work in flight. Work of high priority counts twice. Otherwise a launch of another slice would be
    /// admitted too early between requests.
    fn queued(&self) -> GpuTime {
        let of = |known: &SliceState| known.demand.queued().saturating_mul(if known.eager { 2 } else { 1 });
        self.slices.values().map(of).fold(GpuTime::ZERO, GpuTime::saturating_add)
    }

    /// Returns the rate of a part with the present budget.
    fn rate(&self, settings: &SliceSettings, part: &AllocatedPart) -> Permille {
        let scaled = part.could.saturating_mul(self.scale).checked_div(WHOLE_GPU).unwrap_or(0);
        let millionths = if settings.policy == CorePolicy::Fixed { part.could } else { scaled };
        rate(millionths).min(settings.limit).max(LEAST_RATE)
    }

    /// Returns the rate limit of a part. If it is nearly the same as the last one, returns the last one.
    ///
    /// A slice that is not `fixed` *borrows* if it lately used more than its own part. It starts to borrow when it exceeds
    /// its own part by more than an eighth. It borrows until its use is within its own part. The burst of a slice that
    /// borrows is at most one turn.
    fn give(
        &mut self,
        slice: &SharingSlice,
        part: &AllocatedPart,
        own: &AllocatedPart,
        must_yield: bool,
    ) -> RateLimit {
        let SliceSettings { policy, limit, burst, .. } = slice.settings;
        let rate = self.rate(&slice.settings, part);
        let Some(known) = self.slices.get_mut(&slice.id) else { return RateLimit::new(rate, burst) };
        let lately = known.demand.lately();
        let bound = if known.borrows { own.allotted } else { own.allotted.saturating_add(own.allotted / 8) };
        known.borrows = policy != CorePolicy::Fixed && lately > bound;
        let most = match (must_yield && policy != CorePolicy::Fixed, known.borrows) {
            (true, _) => SHORT_BURST,
            (false, true) => lease::TURN,
            (false, false) => GpuTime::MAX,
        };
        let burst = burst.min(most);
        let near = |given: &RateLimit| {
            let by = given.rate().get().abs_diff(rate.get());
            let is_near = by <= rate.get() / STEADY_PART && given.burst() == burst;
            is_near && rate < limit && given.rate() <= limit
        };
        let given = known.given.filter(near).unwrap_or_else(|| RateLimit::new(rate, burst));
        known.given = Some(given);
        given
    }
}

/// Returns true if a slice has high priority.
fn is_high(slice: &SharingSlice) -> bool {
    slice.settings.priority == Priority::High
}

/// Returns true if `other` must yield to `slice`. `best-effort` comes last, whatever its priority.
fn comes_first(slice: &SharingSlice, other: &SharingSlice) -> bool {
    let is_last = |slice: &SharingSlice| slice.settings.policy == CorePolicy::BestEffort;
    is_high(slice) && !is_high(other) && (!is_last(slice) || is_last(other))
}

/// Returns the wall time until the first waiting slice that can have a wall credit may launch.
fn earliest(
    slices: &[SharingSlice],
    rate_limits: &[RateLimit],
    is_held: impl Fn(&SharingSlice) -> bool,
) -> WallTime {
    let has_room =
        |slice: &SharingSlice, rate_limit: &RateLimit| !room(slice, rate_limit, WallTime::MAX).is_zero();
    let waiting = slices
        .iter()
        .zip(rate_limits)
        .filter(|(slice, rate_limit)| slice.figures.waits && !is_held(slice) && has_room(slice, rate_limit));
    waiting.map(|(slice, _)| slice.figures.owed).min().unwrap_or_default()
}

/// Returns true if a slice may have less than its limit because of other slices.
fn is_steered(slice: &SharingSlice, rate_limit: &RateLimit) -> bool {
    slice.settings.policy != CorePolicy::Fixed && rate_limit.rate() < slice.settings.limit
}

/// Returns the wall time by which `paid_until` of a slice may move back, `passed` after the last look. A limit below the
/// whole GPU holds even if other slices leave time.
fn room(slice: &SharingSlice, rate_limit: &RateLimit, passed: WallTime) -> WallTime {
    let SliceSettings { policy, limit, .. } = slice.settings;
    match (policy, limit.is_partial()) {
        (CorePolicy::Fixed, _) => WallTime::ZERO,
        (_, false) => slice.figures.owed,
        (_, true) => {
            let more = u64::from(limit.get().saturating_sub(rate_limit.rate().get()));
            let rate = u64::from(rate_limit.rate().get()).max(1);
            passed.saturating_mul(more).part(rate).min(slice.figures.owed)
        }
    }
}

/// The smallest rate of a slice.
const LEAST_RATE: Permille = match Permille::new(1) {
    Some(rate) => rate,
    None => Permille::LEAST,
};

fn claim(settings: &SliceSettings, demand: u64) -> Claim {
    let SliceSettings { policy, limit, weight, priority, .. } = *settings;
    let limit = u64::from(limit.get()).saturating_mul(WHOLE_GPU / 1000);
    Claim { policy, priority, weight, limit, demand, has_enough: false }
}

/// Converts millionths to thousandths, rounded.
fn rate(millionths: u64) -> Permille {
    let thousandths = millionths.saturating_add(500) / 1000;
    u16::try_from(thousandths).ok().and_then(Permille::new).unwrap_or(Permille::FULL)
}
