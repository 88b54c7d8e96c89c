//! A replay of the GPU's time slicing under one assumed rule.
//!
//! The rule is the length of a turn, and the treatment of a context that was alone ([`OverrunRule`]). The replay walks
//! through the published work of all contexts. It assigns each instant to the context whose turn it is, and adds up
//! the evidence against its rule (`misfit`):
//!
//! - Work ends in the turn of another context. The turn is then moved, and the length of turns corrected.
//! - Work of one context gets parts that differ from their mean.
//!
//! A replay is needed because the driver does not publish its schedule. Work can end only in a turn of its own context.
//!
//! Risk: several rules fit the same work. [`Slicing`](super::slicing::Slicing) takes the one with the
//! least evidence against it, and old evidence fades.

use super::super::measuring::verdict::LONGEST_SWITCH;
use crate::time::{GpuTimeChange, Monotonic, WallTime};

/// Usual time of a switch between contexts: 50 us, half of the longest. The time belongs to no context. With the longest one, a
/// replay leaves time of each turn without an owner. Then a share of 30 % is 1.1 points too large beside another slice.
pub(super) const USUAL_SWITCH: WallTime = LONGEST_SWITCH.part(2);
/// Largest part of a turn that a switch takes: one in 20. A replay of turns that are too short must not leave much time
/// without an owner. Of the shortest known turn, 1 ms, it is the whole switch: with less, a slice beside it would pay for
/// the rest.
const SWITCH_PART: u64 = 20;

/// Most that a replay corrects the length of its turn, as a part of it: an eighth. Neighbouring lengths are a quarter apart, so
/// each length is within reach of a replay.
const BAND: u64 = 8;

/// Weight of moved time: three tenths of a difference from the mean.
const MOVED: u64 = 3;
/// The denominator of [`MOVED`].
const MOVED_OF: u64 = 10;

/// Weight of a new part in the mean: one in eight.
const REPLAY_MEMORY: i64 = 8;

/// Contexts that are followed: one bit each.
pub(super) const MOST_CONTEXTS: usize = 64;

/// The driver's treatment of a context that ran alone beyond its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OverrunRule {
    /// A new turn of the same context begins.
    Renews,
    /// The next context to arrive gets its turn at once.
    Yields,
    /// Events of the next context pass only when its turn begins, so they tell the instant.
    Waits,
}

/// All ways to try.
pub(super) const OVERRUN_RULES: [OverrunRule; 3] =
    [OverrunRule::Renews, OverrunRule::Yields, OverrunRule::Waits];

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// GPU time given to the context, in nanoseconds.
    own: i64,
    /// The value of `own` when the present work began.
    began: i64,
    /// Mean time given to its work; 0 while it is unknown.
    mean: i64,
    /// The part of `own` that was reported.
    told: i64,
}

/// A replay under one rule.
#[derive(Debug, Clone)]
pub(super) struct Replay {
    pub(super) turn: WallTime,
    /// Length of a turn at the start.
    pub(super) nominal: WallTime,
    /// Whole turns since the length of a turn was last corrected.
    turns: u64,
    way: OverrunRule,
    pub(super) owner: Option<usize>,
    since: Monotonic,
    resumes: Monotonic,
    turn_ends: Monotonic,
    accounts: Vec<Account>,
    /// All contexts in the order of their turns, as far as the order is known.
    pub(super) circle: Vec<usize>,
    /// The evidence against the rule, in nanoseconds of misplaced time.
    pub(super) misfit: u64,
}

impl Replay {
    pub(super) fn new(turn: WallTime, way: OverrunRule) -> Self {
        let (accounts, circle) = (Vec::new(), Vec::new());
        Self {
            turn,
            nominal: turn,
            turns: 0,
            way,
            owner: None,
            since: Monotonic::BEGIN,
            resumes: Monotonic::BEGIN,
            turn_ends: Monotonic::BEGIN,
            accounts,
            circle,
            misfit: 0,
        }
    }

    /// Lets time pass in which no work begins or ends. `flying` has a bit for each context with work in flight.
    pub(super) fn pass(&mut self, from: Monotonic, to: Monotonic, flying: u64) {
        let mut at = from;
        while at < to {
            let Some(owner) = self.owner else { return };
            let others = flying & !bit(owner);
            if others != 0 && self.turn_ends <= at {
                self.turns = self.turns.saturating_add(1);
                self.give(others, at);
                continue;
            }
            let end = if others == 0 { to } else { to.min(self.turn_ends) };
            if let Some(account) = self.accounts.get_mut(owner) {
                account.own = account.own.saturating_add_unsigned(end.since(at.max(self.resumes)).nanos());
            }
            at = end;
            if others == 0 && self.way == OverrunRule::Renews && self.turn_ends <= at {
                let whole = self.turn.saturating_mul(at.since(self.turn_ends).count(self.turn));
                self.turn_ends = self.turn_ends.saturating_add(whole).saturating_add(self.turn);
            }
        }
    }

    /// Gives the next turn, in the order in which the driver keeps contexts.
    fn give(&mut self, waiting: u64, at: Monotonic) {
        let before = self.circle.iter().position(|context| Some(*context) == self.owner).unwrap_or(0);
        let after = self.circle.iter().skip(before.saturating_add(1)).chain(&self.circle);
        let next = after.copied().find(|context| waiting & bit(*context) != 0);
        self.turn_to(next, at, USUAL_SWITCH.min(self.turn.part(SWITCH_PART)));
    }

    fn turn_to(&mut self, next: Option<usize>, at: Monotonic, switch: WallTime) {
        (self.owner, self.since, self.resumes) = (next, at, at.saturating_add(switch));
        self.turn_ends = self.resumes.saturating_add(self.turn);
    }

    pub(super) fn begin_work(&mut self, context: usize, at: Monotonic) {
        while self.accounts.len() <= context {
            self.circle.push(self.accounts.len());
            self.accounts.push(Account::default());
        }
        if let Some(account) = self.accounts.get_mut(context) {
            account.began = account.own;
        }
        if self.owner.is_none() || (self.way == OverrunRule::Waits && self.owner != Some(context)) {
            self.turn_to(Some(context), at, WallTime::ZERO);
        }
    }

    /// Ends work of a context. So it must be that context's turn. `is_telling`: the time given to the work is
    /// evidence.
    pub(super) fn end_work(&mut self, context: usize, at: Monotonic, is_telling: bool) {
        if let Some(owner) = self.owner.filter(|owner| *owner != context) {
            self.correct(owner, context, at);
        }
        let Some(account) = self.accounts.get_mut(context) else { return };
        let part = account.own.saturating_sub(account.began);
        account.began = account.own;
        if !is_telling {
            return;
        }
        if account.mean != 0 {
            self.misfit = self.misfit.saturating_add(part.abs_diff(account.mean));
            let step = part.saturating_sub(account.mean).checked_div(REPLAY_MEMORY).unwrap_or(0);
            account.mean = account.mean.saturating_add(step);
        } else {
            account.mean = part;
        }
    }

    /// Moves the turn from `owner` to `context`, which has just ended work.
    ///
    /// If the owner has used less than half of its turn, the turn of `context` lasted longer, or came first. Then the
    /// whole turn moves, and `context` is put before the owner in the order. Otherwise the owner's turn ended early,
    /// and only its end moves.
    fn correct(&mut self, owner: usize, context: usize, at: Monotonic) {
        let (into, left) = (at.since(self.since), self.turn_ends.since(at));
        let moved = if into < self.turn.part(2) {
            // The owner's turn began too early, or was the context's from the start. The context then comes before
            // the owner.
            self.circle.retain(|other| *other != context);
            let place = self.circle.iter().position(|other| *other == owner).unwrap_or(0);
            self.circle.insert(place, context);
            (self.since, self.turn_ends) = (at.saturating_sub(self.turn), at);
            self.tune(into.nanos().cast_signed());
            at.since(self.resumes)
        } else {
            self.tune(0_i64.saturating_sub_unsigned(left.nanos()));
            // The owner's turn ended earlier than assumed.
            let rest = self.turn.saturating_sub(left).max(self.turn.part(10));
            (self.since, self.turn_ends) = (at.saturating_sub(left), at.saturating_add(rest));
            left.min(into.part(2))
        }
        .nanos();
        for (whose, by) in [(owner, 0_i64.saturating_sub_unsigned(moved)), (context, moved.cast_signed())] {
            if let Some(account) = self.accounts.get_mut(whose) {
                account.own = account.own.saturating_add(by);
            }
        }
        self.misfit = self.misfit.saturating_add(moved.saturating_mul(MOVED) / MOVED_OF);
        (self.owner, self.resumes) = (Some(context), at);
    }

    /// Corrects the length of a turn. The assumed end of the turns was `late` nanoseconds before the true one.
    ///
    /// Example: turns are 1.024 ms, and the replay assumes 1 ms. Ten turns later it is 0.24 ms early, so each was 24 us too
    /// short. An error of more than a quarter of a turn has another cause, such as the order of the contexts.
    fn tune(&mut self, late: i64) {
        let turns = i64::try_from(core::mem::take(&mut self.turns)).unwrap_or(i64::MAX);
        if late.unsigned_abs() > self.turn.part(4).nanos() {
            return;
        }
        let (step, most) = (late.checked_div(turns).unwrap_or(0), self.nominal.part(BAND));
        let turn = WallTime::from_nanos(self.turn.nanos().saturating_add_signed(step));
        self.turn = turn.clamp(self.nominal.saturating_sub(most), self.nominal.saturating_add(most));
    }

    /// Records that a context has no work in flight any more.
    pub(super) fn rests(&mut self, context: usize, at: Monotonic, flying: u64) {
        if self.owner != Some(context) {
            return;
        }
        if flying == 0 { self.owner = None } else { self.give(flying, at) }
    }

    /// Returns the GPU time given to the contexts in `own` since the last report.
    pub(super) fn tell(&mut self, own: u64) -> GpuTimeChange {
        let news = self.accounts.iter_mut().enumerate().map(|(context, account)| {
            let news = account.own.saturating_sub(core::mem::replace(&mut account.told, account.own));
            if own & bit(context) == 0 { 0 } else { news }
        });
        GpuTimeChange::from_nanos(news.fold(0, i64::saturating_add))
    }

    /// Forgets a context: its place belongs to another one from now on.
    pub(super) fn forget(&mut self, context: usize) {
        if let Some(account) = self.accounts.get_mut(context) {
            account.mean = 0;
        }
    }
}

pub(super) const fn bit(place: usize) -> u64 {
    if place < MOST_CONTEXTS { 1 << place } else { 0 }
}
