//! One replay of the time slicing of a GPU, under one rule.

/// What it takes to go from one context to another, in nanoseconds, and the most that is taken for it of a turn: one part of so
/// many. It is nobody's. 20 to 100 us were seen; a replay of turns that are too short must not give much time to nobody. Of a turn
/// of 1 ms, the shortest that is known, it is all: with less, a slice beside it would pay for the rest.
pub(super) const SWITCH: u64 = 50_000;

const SWITCH_PART: u64 = 20;

/// Time that has to be moved because work ends in another's turn counts as three tenths of a part that differs.
const MOVED: u64 = 3;

const MOVED_OF: u64 = 10;

/// A new part counts for one in so many of the mean.
const MEMORY: i64 = 8;

/// Contexts that are followed: one bit each.
pub(super) const MOST: usize = 64;

/// What a driver does with the turn of a context that has been alone beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It begins another one.
    Renews,
    /// Whoever comes is next at once.
    Yields,
    /// The events of whoever comes pass only when it is next: they say when.
    Waits,
}

pub(super) const WAYS: [Way; 3] = [Way::Renews, Way::Yields, Way::Waits];

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// What it was given.
    own: i64,
    /// The same when its present work began.
    began: i64,
    /// What its work was given on average; 0 while nothing is known.
    mean: i64,
    /// How much of what it was given has been told.
    told: i64,
}

/// A replay of time slicing under one rule.
#[derive(Debug, Clone)]
pub(super) struct Replay {
    pub(super) turn: u64,
    way: Way,
    pub(super) owner: Option<usize>,
    since: u64,
    resumes: u64,
    turn_ends: u64,
    accounts: Vec<Account>,
    /// All contexts in the order in which they have their turns, as far as it is known.
    pub(super) circle: Vec<usize>,
    pub(super) misfit: u64,
}

impl Replay {
    pub(super) fn new(turn: u64, way: Way) -> Self {
        let (accounts, circle) = (Vec::new(), Vec::new());
        Self { turn, way, owner: None, since: 0, resumes: 0, turn_ends: 0, accounts, circle, misfit: 0 }
    }

    /// Time passes in which nobody's work begins or ends.
    pub(super) fn pass(&mut self, from: u64, to: u64, flying: u64) {
        let mut at = from;
        while at < to {
            let Some(owner) = self.owner else { return };
            let others = flying & !bit(owner);
            if others != 0 && self.turn_ends <= at {
                self.give(others, at);
                continue;
            }
            let end = if others == 0 { to } else { to.min(self.turn_ends) };
            if let Some(account) = self.accounts.get_mut(owner) {
                account.own = account.own.saturating_add_unsigned(end.saturating_sub(at.max(self.resumes)));
            }
            at = end;
            if others == 0 && self.way == Way::Renews && self.turn_ends <= at {
                let into = at.saturating_sub(self.turn_ends).checked_rem(self.turn).unwrap_or(0);
                self.turn_ends = at.saturating_add(self.turn).saturating_sub(into);
            }
        }
    }

    /// Gives the next turn, around the circle in which the driver keeps contexts.
    fn give(&mut self, waiting: u64, at: u64) {
        let before = self.circle.iter().position(|context| Some(*context) == self.owner).unwrap_or(0);
        let after = self.circle.iter().skip(before.saturating_add(1)).chain(&self.circle);
        let next = after.copied().find(|context| waiting & bit(*context) != 0);
        self.turn_to(next, at, SWITCH.min(self.turn / SWITCH_PART));
    }

    fn turn_to(&mut self, next: Option<usize>, at: u64, switch: u64) {
        (self.owner, self.since, self.resumes) = (next, at, at.saturating_add(switch));
        self.turn_ends = self.resumes.saturating_add(self.turn);
    }

    pub(super) fn begins(&mut self, context: usize, at: u64) {
        while self.accounts.len() <= context {
            self.circle.push(self.accounts.len());
            self.accounts.push(Account::default());
        }
        if let Some(account) = self.accounts.get_mut(context) {
            account.began = account.own;
        }
        if self.owner.is_none() || (self.way == Way::Waits && self.owner != Some(context)) {
            self.turn_to(Some(context), at, 0);
        }
    }

    /// Work of a context ends: it is that one's turn. `is_telling`: how much it was given says something.
    pub(super) fn ends(&mut self, context: usize, at: u64, is_telling: bool) {
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
            let step = part.saturating_sub(account.mean).checked_div(MEMORY).unwrap_or(0);
            account.mean = account.mean.saturating_add(step);
        } else {
            account.mean = part;
        }
    }

    /// The turn is not the owner's but of this context, which has just ended work.
    fn correct(&mut self, owner: usize, context: usize, at: u64) {
        let (into, left) = (at.saturating_sub(self.since), self.turn_ends.saturating_sub(at));
        let moved = if into < self.turn / 2 {
            // It began too early, or was this one's to begin with, which comes before the owner then.
            self.circle.retain(|other| *other != context);
            let place = self.circle.iter().position(|other| *other == owner).unwrap_or(0);
            self.circle.insert(place, context);
            (self.since, self.turn_ends) = (at.saturating_sub(self.turn), at);
            at.saturating_sub(self.resumes)
        } else {
            // It ended earlier than thought.
            let rest = self.turn.saturating_sub(left).max(self.turn / 10);
            (self.since, self.turn_ends) = (at.saturating_sub(left), at.saturating_add(rest));
            left.min(into / 2)
        };
        for (whose, by) in [(owner, 0_i64.saturating_sub_unsigned(moved)), (context, moved.cast_signed())] {
            if let Some(account) = self.accounts.get_mut(whose) {
                account.own = account.own.saturating_add(by);
            }
        }
        self.misfit = self.misfit.saturating_add(moved.saturating_mul(MOVED) / MOVED_OF);
        (self.owner, self.resumes) = (Some(context), at);
    }

    /// A context has nothing in flight any more.
    pub(super) fn rests(&mut self, context: usize, at: u64, flying: u64) {
        if self.owner != Some(context) {
            return;
        }
        if flying == 0 { self.owner = None } else { self.give(flying, at) }
    }

    /// What the slice was given since it was asked last.
    pub(super) fn tell(&mut self, own: u64) -> i64 {
        let news = self.accounts.iter_mut().enumerate().map(|(context, account)| {
            let news = account.own.saturating_sub(core::mem::replace(&mut account.told, account.own));
            if own & bit(context) == 0 { 0 } else { news }
        });
        news.fold(0, i64::saturating_add)
    }

    /// The place is another context's from now on: nothing is known of its work.
    pub(super) fn forget(&mut self, context: usize) {
        if let Some(account) = self.accounts.get_mut(context) {
            account.mean = 0;
        }
    }
}

pub(super) const fn bit(place: usize) -> u64 {
    if place < MOST { 1 << place } else { 0 }
}
