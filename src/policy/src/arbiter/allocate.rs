//! Who gets how much of the GPU? Demands in, parts of its time out.
//!
//! Slices are served class by class: those with `fixed` and `equal` of high priority, then of normal, then of low; then
//! those with `best-effort`, in the same order. Before `equal` ones of a priority come the `fixed` ones, whose limit is a
//! part of the whole GPU and not of what others leave. Within a class time is divided by weight (`fixed`: by limit), and
//! what one does not need goes to the others. What a class does not need goes to the next.
//!
//! Nobody starves: a tenth of the GPU, divided evenly over all slices, is kept for each as long as it needs it, whatever
//! its class and weight. So `low`, and `best-effort` too, has at least 5 % beside one other slice, 1 % among ten. Not
//! for one that has had far more until now ([`super::demand::Judge::has_enough`]): it would be in the way of others.

use crate::config::{CorePolicy, Priority};

/// The whole GPU, in the units of this module.
pub const WHOLE: u64 = 1_000_000;
/// What is kept for those that come later.
const KEPT: u64 = WHOLE / 10;
/// Bits behind the point of what one of weight 1 gets.
const FINE: u32 = 20;
/// The least and the most that a slice counts for.
const WEIGHTS: (u32, u32) = (1, 1000);

/// What a slice may and would use, in millionths of the GPU's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// How it shares.
    pub policy: CorePolicy,
    /// Whether it goes before others.
    pub priority: Priority,
    /// What it counts for among those of its class.
    pub weight: u32,
    /// The most it may use.
    pub limit: u64,
    /// What it would use if it got it.
    pub need: u64,
    /// It has had so much until now that nothing is kept for it.
    pub has_enough: bool,
}

/// What is kept for each of so many slices, in millionths of the GPU's time.
#[must_use]
pub fn least(count: usize) -> u64 {
    KEPT.checked_div(u64::try_from(count).unwrap_or(u64::MAX)).unwrap_or(KEPT)
}

/// What a slice gets, in millionths of the GPU's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Part {
    /// What is set aside for it: never more than it needs.
    pub allotted: u64,
    /// What would be if it needed all it may use, at once, and the others what they need now.
    pub could: u64,
}

/// What a class has to divide, and what each of it may take.
struct Member {
    at: usize,
    weight: u64,
    need: u64,
    limit: u64,
    /// What is kept for it, however much it needs.
    least: u64,
}

impl Member {
    /// What is kept for it.
    fn kept(&self) -> u64 {
        self.need.min(self.least)
    }
}

/// Divides the GPU. The order of the claims does not matter.
#[must_use]
pub fn divide(claims: &[Claim]) -> Vec<Part> {
    let least = least(claims.len());
    let mut classes: Vec<(u8, Member)> =
        claims.iter().enumerate().map(|(at, claim)| (class(claim), member(at, claim, least))).collect();
    classes.sort_by_key(|(class, member)| (*class, member.at));
    let mut parts = vec![Part::default(); claims.len()];
    let mut later = sum(classes.iter().map(|(_, member)| member.kept()));
    let mut spent = 0_u64;
    for same in classes.chunk_by(|one, other| one.0 == other.0) {
        let own = sum(same.iter().map(|(_, member)| member.kept()));
        later = later.saturating_sub(own);
        let left = WHOLE.saturating_sub(spent).saturating_sub(later);
        let members: Vec<&Member> = same.iter().map(|(_, member)| member).collect();
        let got = fill(&members, None, left.max(own));
        for (place, member) in members.iter().enumerate() {
            let allotted = got.get(place).copied().unwrap_or(0);
            spent = spent.saturating_add(allotted);
            let could = if member.need < member.limit {
                // Its own part of what is kept would be more, too.
                let kept = own.saturating_sub(member.kept()).saturating_add(member.limit.min(member.least));
                fill(&members, Some(place), left.max(kept)).get(place).copied().unwrap_or(0)
            } else {
                allotted
            };
            if let Some(part) = parts.get_mut(member.at) {
                *part = Part { allotted, could: could.max(allotted) };
            }
        }
    }
    parts
}

/// In which order it is served; see the module.
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

fn member(at: usize, claim: &Claim, least: u64) -> Member {
    let limit = claim.limit.clamp(1, WHOLE);
    let weight = match claim.policy {
        CorePolicy::Fixed => limit,
        _ => u64::from(claim.weight.clamp(WEIGHTS.0, WEIGHTS.1)),
    };
    let least = if claim.has_enough { 0 } else { least };
    Member { at, weight, need: claim.need.min(limit), limit, least }
}

/// Divides what there is by weight, so that nobody gets more than it needs or less than is kept for it, and nothing is left
/// while somebody needs it. The one at `full` is taken to need all it may use.
fn fill(members: &[&Member], full: Option<usize>, left: u64) -> Vec<u64> {
    let shares = |level: u64| {
        members.iter().enumerate().map(move |(place, member)| {
            let need = if full == Some(place) { member.limit } else { member.need };
            (level.saturating_mul(member.weight) >> FINE).clamp(need.min(member.least), need)
        })
    };
    // The highest level at which there is enough: at the bound everybody has what it needs.
    let (mut low, mut high) = (0_u64, WHOLE << FINE);
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
