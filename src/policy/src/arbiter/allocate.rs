//! Allocates the GPU to slices by class, weight and limit.
//!
//! Slices are served class by class: `fixed` and `equal` of high priority, then of normal, then of low priority; then
//! `best-effort` in the same order. Within a priority, `fixed` slices come before `equal` ones, because their limit
//! is a part of the whole GPU. Within a class, time is divided by weight (`fixed`: by limit), and time that one slice
//! does not need goes to the others. Time that a class does not need goes to the next class.
//!
//! No slice starves. A tenth of the GPU is divided evenly over all slices, whatever their class and weight. A slice's part of it
//! is kept for the slice as long as it needs the part. So a slice of low priority or with `best-effort` has at least 5 % beside
//! one other slice, and 1 % among ten.
//!
//! There is one exception. Nothing is kept for a slice that has had far more than its part until now, because it would
//! disturb the others: [`super::demand::DemandEstimator::has_enough`].

use crate::config::{CorePolicy, Priority};

/// The whole GPU, in the units of this module: millionths.
pub const WHOLE_GPU: u64 = 1_000_000;
/// The part that is kept for later classes.
const KEPT_PART: u64 = WHOLE_GPU / 10;
/// Fraction bits of the time that weight 1 gets.
const FINE: u32 = 20;
/// The smallest and the largest weight.
const WEIGHTS: (u32, u32) = (1, 1000);

/// Limits and demand of a slice, in millionths of the GPU's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The policy of sharing.
    pub policy: CorePolicy,
    /// The priority.
    pub priority: Priority,
    /// The weight within the class.
    pub weight: u32,
    /// The most that the slice may use.
    pub limit: u64,
    /// The time that the slice would use if it got this time.
    pub demand: u64,
    /// True if the slice has used so much time until now that nothing is kept for it.
    pub has_enough: bool,
}

/// Returns the part that is kept for each of `count` slices, in millionths of the GPU's time.
#[must_use]
pub fn least(count: usize) -> u64 {
    KEPT_PART.checked_div(u64::try_from(count).unwrap_or(u64::MAX)).unwrap_or(KEPT_PART)
}

/// The allocation of a slice, in millionths of the GPU's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllocatedPart {
    /// The time set aside for the slice; never more than it needs.
    pub allotted: u64,
    /// The time that the slice would get if it needed its limit at once, while the demand of the others stayed the same.
    pub could: u64,
}

/// A slice in the division of its class.
struct Claimant {
    at: usize,
    weight: u64,
    demand: u64,
    limit: u64,
    /// The time kept for the slice, before its demand is considered.
    least: u64,
}

impl Claimant {
    /// Returns the time kept for the slice.
    fn kept(&self) -> u64 {
        self.demand.min(self.least)
    }
}

/// Divides the GPU among the claims, in any order.
///
/// The classes follow one after the other. A class may use the time that earlier classes left, less the time kept for later
/// classes. `fill` divides this time by weight. A second division counts the slice with full demand. It gives the rate that
/// the slice would have if it became active now.
///
/// Risk: with rates from the first division alone, a slice that becomes active would be throttled until the next look. With
/// the second division the sum of the rates may exceed the GPU. The next look corrects that.
#[must_use]
pub fn allocate(claims: &[Claim]) -> Vec<AllocatedPart> {
    let least = least(claims.len());
    let mut classes: Vec<(u8, Claimant)> =
        claims.iter().enumerate().map(|(at, claim)| (class(claim), claimant(at, claim, least))).collect();
    classes.sort_by_key(|(class, claimant)| (*class, claimant.at));
    let mut parts = vec![AllocatedPart::default(); claims.len()];
    let mut later = sum(classes.iter().map(|(_, claimant)| claimant.kept()));
    let mut spent = 0_u64;
    for same in classes.chunk_by(|one, other| one.0 == other.0) {
        let own = sum(same.iter().map(|(_, claimant)| claimant.kept()));
        later = later.saturating_sub(own);
        let left = WHOLE_GPU.saturating_sub(spent).saturating_sub(later);
        let claimants: Vec<&Claimant> = same.iter().map(|(_, claimant)| claimant).collect();
        let got = fill(&claimants, None, left.max(own));
        for (place, claimant) in claimants.iter().enumerate() {
            let allotted = got.get(place).copied().unwrap_or(0);
            spent = spent.saturating_add(allotted);
            let could = if claimant.demand < claimant.limit {
                // The slice's own part of the kept time would be larger, too.
                let kept =
                    own.saturating_sub(claimant.kept()).saturating_add(claimant.limit.min(claimant.least));
                fill(&claimants, Some(place), left.max(kept)).get(place).copied().unwrap_or(0)
            } else {
                allotted
            };
            if let Some(part) = parts.get_mut(claimant.at) {
                *part = AllocatedPart { allotted, could: could.max(allotted) };
            }
        }
    }
    parts
}

/// Returns the order in which a claim is served. The module's text states the rule.
fn class(claim: &Claim) -> u8 {
    let order = match claim.priority {
        Priority::High => 0,
        Priority::Normal => 2,
        Priority::Low => 4,
    };
    match claim.policy {
        CorePolicy::Fixed => order,
        CorePolicy::Equal => order | 1,
        CorePolicy::BestEffort => order | 8,
    }
}

fn claimant(at: usize, claim: &Claim, least: u64) -> Claimant {
    let limit = claim.limit.clamp(1, WHOLE_GPU);
    let weight = match claim.policy {
        CorePolicy::Fixed => limit,
        _ => u64::from(claim.weight.clamp(WEIGHTS.0, WEIGHTS.1)),
    };
    let least = if claim.has_enough { 0 } else { least };
    Claimant { at, weight, demand: claim.demand.min(limit), limit, least }
}

/// Divides `left` by weight. No slice gets more than its demand or less than its kept time, and nothing is left while
/// a slice needs it. The slice at index `full` counts with its limit as its demand.
fn fill(claimants: &[&Claimant], full: Option<usize>, left: u64) -> Vec<u64> {
    let shares = |level: u64| {
        claimants.iter().enumerate().map(move |(place, claimant)| {
            let demand = if full == Some(place) { claimant.limit } else { claimant.demand };
            (level.saturating_mul(claimant.weight) >> FINE).clamp(demand.min(claimant.least), demand)
        })
    };
    // Bisects for the highest level that fits. At the upper bound each slice has all that it needs.
    let (mut low, mut high) = (0_u64, WHOLE_GPU << FINE);
    if sum(shares(high)) <= left {
        return shares(high).collect();
    }
    while high.saturating_sub(low) > 1 {
        let level = low.midpoint(high);
        if sum(shares(level)) <= left { low = level } else { high = level }
    }
    shares(low).collect()
}

fn sum(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0, u64::saturating_add)
}
