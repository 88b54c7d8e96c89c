//! How do the slices on one GPU share its time?
//!
//! `fixed` needs nobody. For `equal`, `best-effort` and priorities somebody has to look at all slices of a GPU and say
//! which rate each has now: the arbiter.

pub mod budget;
pub mod divide;
pub mod need;

use std::collections::BTreeMap;

use crate::compute::bucket::Terms;
use crate::config::{CorePolicy, Priority};
use crate::units::{Nanos, Permille};
use budget::{Budget, Found};
use divide::{Claim, Part, WHOLE, divide};
use need::{Judge, Seen};

/// How often the arbiter looks while a slice has work, in nanoseconds: 5 ms.
pub const STEP: u64 = 5_000_000;
/// What may be saved up of time that was lent, in nanoseconds of GPU time: a turn.
const LENT: u64 = 4_000_000;
/// A rate that changes by less than this part of it stays as it is.
const STEADY: u16 = 64;

/// What was asked for a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// How it shares.
    pub policy: CorePolicy,
    /// The most it may use, whatever the policy.
    pub limit: Permille,
    /// What it counts for among those of its class: 1 to 1000.
    pub weight: u32,
    /// Whether it goes before others.
    pub priority: Priority,
    /// How much unused time it may save up.
    pub burst: Nanos,
}

/// A slice, by any number that is its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The number.
    pub id: u64,
    /// What was asked for it.
    pub wish: Wish,
    /// What its region tells.
    pub seen: Seen,
}

/// What is remembered of a slice.
#[derive(Debug, Clone, Copy)]
struct Known {
    judge: Judge,
    given: Option<Terms>,
    /// It has used more than is its own lately.
    borrows: bool,
}

/// What an arbiter knows of the slices on one GPU.
#[derive(Debug, Default)]
pub struct Arbiter {
    slices: BTreeMap<u64, Known>,
    budget: Budget,
    at: u64,
}

impl Arbiter {
    /// Looks at all slices of the GPU; the terms of each, in their order.
    pub fn look(&mut self, now: u64, slices: &[Slice]) -> Vec<Terms> {
        let needs = self.judge(now, slices);
        let claims: Vec<Claim> =
            slices.iter().zip(&needs).map(|(slice, need)| claim(&slice.wish, *need)).collect();
        let found = self.found(now, slices, &needs);
        let parts = divide(&claims, self.budget.look(&found));
        let full: Vec<Claim> = slices.iter().map(|slice| claim(&slice.wish, WHOLE)).collect();
        let own = divide(&full, WHOLE);
        self.at = now;
        let both = parts.iter().zip(own.iter());
        slices.iter().zip(both).map(|(slice, (part, own))| self.give(slice, part, own)).collect()
    }

    /// What each needs. Slices that are not there any more are forgotten.
    fn judge(&mut self, now: u64, slices: &[Slice]) -> Vec<u64> {
        let mut before = core::mem::take(&mut self.slices);
        let mut needs = Vec::with_capacity(slices.len());
        for Slice { id, seen, wish } in slices {
            let eager = wish.priority == Priority::High;
            let new = || Known { judge: Judge::new(now, seen), given: None, borrows: false };
            let known = self.slices.entry(*id).or_insert_with(|| before.remove(id).unwrap_or_else(new));
            needs.push(known.judge.look(now, seen, eager));
        }
        needs
    }

    fn found(&self, now: u64, slices: &[Slice], needs: &[u64]) -> Found {
        let starved = |slice: &Slice| {
            let given = self.slices.get(&slice.id).and_then(|known| known.given);
            let is_short = given.is_some_and(|given| given.rate() < slice.wish.limit);
            slice.seen.waits && is_short && slice.wish.policy != CorePolicy::Fixed
        };
        Found {
            busy: u64::try_from(needs.iter().filter(|need| **need > 0).count()).unwrap_or(u64::MAX),
            queued: self.sum(Judge::queued),
            used: self.sum(Judge::recent),
            starved: slices.iter().any(starved),
            passed: now.saturating_sub(self.at),
        }
    }

    fn sum(&self, figure: fn(&Judge) -> u64) -> u64 {
        self.slices.values().map(|known| figure(&known.judge)).fold(0, u64::saturating_add)
    }

    /// What is divided, in millionths of the GPU's time.
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget.level()
    }

    /// The terms that come of a part, unless they are nearly what they were.
    fn give(&mut self, slice: &Slice, part: &Part, own: &Part) -> Terms {
        let Wish { policy, limit, burst, .. } = slice.wish;
        let Some(known) = self.slices.get_mut(&slice.id) else { return Terms::new(limit, burst) };
        let lately = known.judge.lately();
        let bound = if known.borrows { own.allotted } else { own.allotted.saturating_add(own.allotted / 8) };
        known.borrows = policy != CorePolicy::Fixed && lately > bound;
        let burst = if known.borrows { Nanos::new(burst.get().min(LENT)) } else { burst };
        let rate = rate(part.could).min(limit).max(LEAST_RATE);
        let near = |given: &Terms| {
            let by = given.rate().get().abs_diff(rate.get());
            by <= rate.get() / STEADY && rate < limit && given.burst() == burst.get()
        };
        let given = known.given.filter(near).unwrap_or_else(|| Terms::new(rate, burst));
        known.given = Some(given);
        given
    }
}

/// Whatever happens, a slice has this rate.
const LEAST_RATE: Permille = match Permille::new(1) {
    Some(rate) => rate,
    None => Permille::LEAST,
};

fn claim(wish: &Wish, need: u64) -> Claim {
    let Wish { policy, limit, weight, priority, .. } = *wish;
    let limit = u64::from(limit.get()).saturating_mul(WHOLE / 1000);
    Claim { policy, priority, weight, limit, need }
}

/// In thousandths, rounded.
fn rate(millionths: u64) -> Permille {
    let thousandths = millionths.saturating_add(500) / 1000;
    u16::try_from(thousandths).ok().and_then(Permille::new).unwrap_or(Permille::FULL)
}
