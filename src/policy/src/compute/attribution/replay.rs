//! A replay of the GPU's time slicing under one assumed rule.
//!
//! The rule is the length of a time slice, and the treatment of a context that was alone ([`OverrunRule`]). The replay goes
//! through the published work of all contexts. It assigns each instant to the context whose time slice it is, and adds up
//! the evidence against its rule (`misfit`):
//!
//! - Work ends in the time slice of another context. The replay then moves the time slice, and corrects the length of time
//!   slices.
//! - Work of one context gets parts that differ from their mean.
//!
//! A replay is needed because the driver does not publish its schedule. Work can end only in a time slice of its own context.
//!
//! Risk: several rules fit the same work. [`Slicing`](super::slicing::Slicing) takes the rule with the least evidence
//! against it, and old evidence fades.

use super::super::measuring::verdict::LONGEST_SWITCH;
use crate::time::{GpuTimeChange, Monotonic, WallTime};

/// Usual time of a switch between contexts: 50 us, half of the longest. The time belongs to no context. With the longest
/// switch, a replay leaves too much time without an owner. A share of 30 % is then 1.1 points too large beside another slice.
pub(super) const USUAL_SWITCH: WallTime = LONGEST_SWITCH.part(2);
/// Largest part of a time slice that a switch takes: one in 20. A replay with time slices that are too short must not leave
/// much time without an owner. For the shortest known time slice, 1 ms, the part is the whole switch. With a smaller part,
/// another slice would pay for the rest.
const SWITCH_PART: u64 = 20;

/// The most by which a replay corrects the length of its time slice, as a divisor: an eighth. Neighbouring lengths are a
/// quarter apart, so some replay can reach each length.
const BAND: u64 = 8;

/// Weight of moved time: three tenths of a difference from the mean.
const MOVED: u64 = 3;
/// The denominator of [`MOVED`].
const MOVED_OF: u64 = 10;

/// Weight of a new part in the mean: one in eight.
const REPLAY_MEMORY: i64 = 8;

/// Contexts that are followed: one bit each.
pub(super) const MOST_CONTEXTS: usize = 64;

/// The driver's treatment of a context that ran alone beyond its time slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OverrunRule {
    /// A new time slice of the same context begins.
    Renews,
    /// The next context to arrive gets its time slice at once.
    Yields,
    /// Events of the next context pass only when its time slice begins. So they show the instant at which it begins.
    Waits,
}

/// All rules that are replayed.
pub(super) const OVERRUN_RULES: [OverrunRule; 3] =
    [OverrunRule::Renews, OverrunRule::Yields, OverrunRule::Waits];

#[derive(Debug, Clone, Copy, Default)]
struct ContextTime {
    /// GPU time given to the context, in nanoseconds.
    own: i64,
    /// The value of `own` when the present work began.
    began: i64,
    /// Mean time given to the context's work; 0 while it is unknown.
    mean: i64,
    /// The part of `own` that was reported before.
    reported: i64,
}

/// A replay under one rule.
#[derive(Debug, Clone)]
pub(super) struct Replay {
    pub(super) time_slice: WallTime,
    /// Length of a time slice at the start.
    pub(super) nominal: WallTime,
    /// Number of whole time slices since the last correction. `None`: the correction has shown only the earliest end of the
    /// present time slice, so this one does not count.
    time_slices: Option<u64>,
    rule: OverrunRule,
    pub(super) owner: Option<usize>,
    /// The context whose time slice ran out before that of the owner. `None`: the owner's time slice began for another reason.
    ran_out: Option<usize>,
    since: Monotonic,
    resumes: Monotonic,
    time_slice_ends: Monotonic,
    times: Vec<ContextTime>,
    /// All contexts in the order of their time slices, as far as the order is known.
    pub(super) circle: Vec<usize>,
    /// The evidence against the rule, in nanoseconds of misplaced time.
    pub(super) misfit: u64,
}

impl Replay {
    pub(super) fn new(time_slice: WallTime, rule: OverrunRule) -> Self {
        let (times, circle) = (Vec::new(), Vec::new());
        Self {
            time_slice,
            nominal: time_slice,
            time_slices: Some(0),
            rule,
            owner: None,
            ran_out: None,
            since: Monotonic::BEGIN,
            resumes: Monotonic::BEGIN,
            time_slice_ends: Monotonic::BEGIN,
            times,
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
            if others != 0 && self.time_slice_ends <= at {
                self.time_slices = Some(self.time_slices.map_or(0, |count| count.saturating_add(1)));
                self.give(others, at);
                self.ran_out = Some(owner);
                continue;
            }
            let end = if others == 0 { to } else { to.min(self.time_slice_ends) };
            if let Some(time) = self.times.get_mut(owner) {
                time.own = time.own.saturating_add_unsigned(end.since(at.max(self.resumes)).nanos());
            }
            at = end;
            if others == 0 && self.rule == OverrunRule::Renews && self.time_slice_ends <= at {
                let whole =
                    self.time_slice.saturating_mul(at.since(self.time_slice_ends).count(self.time_slice));
                self.time_slice_ends =
                    self.time_slice_ends.saturating_add(whole).saturating_add(self.time_slice);
            }
        }
    }

    /// Gives the next time slice to a context that waits, in the order in which the driver keeps contexts.
    fn give(&mut self, waiting: u64, at: Monotonic) {
        let before = self.circle.iter().position(|context| Some(*context) == self.owner).unwrap_or(0);
        let after = self.circle.iter().skip(before.saturating_add(1)).chain(&self.circle);
        let next = after.copied().find(|context| waiting & bit(*context) != 0);
        self.switch_to(next, at, USUAL_SWITCH.min(self.time_slice.part(SWITCH_PART)));
    }

    fn switch_to(&mut self, next: Option<usize>, at: Monotonic, switch: WallTime) {
        (self.owner, self.since, self.resumes) = (next, at, at.saturating_add(switch));
        self.time_slice_ends = self.resumes.saturating_add(self.time_slice);
        self.ran_out = None;
    }

    pub(super) fn begin_work(&mut self, context: usize, at: Monotonic) {
        while self.times.len() <= context {
            self.circle.push(self.times.len());
            self.times.push(ContextTime::default());
        }
        if let Some(time) = self.times.get_mut(context) {
            time.began = time.own;
        }
        if self.owner.is_none() || (self.rule == OverrunRule::Waits && self.owner != Some(context)) {
            self.switch_to(Some(context), at, WallTime::ZERO);
        }
    }

    /// Ends work of a context. At this instant it must be the time slice of that context. `is_telling`: the time given to
    /// the work is evidence.
    pub(super) fn end_work(&mut self, context: usize, at: Monotonic, is_telling: bool) {
        if let Some(owner) = self.owner.filter(|owner| *owner != context) {
            self.correct(owner, context, at);
        }
        let Some(time) = self.times.get_mut(context) else { return };
        let part = time.own.saturating_sub(time.began);
        time.began = time.own;
        if !is_telling {
            return;
        }
        if time.mean != 0 {
            self.misfit = self.misfit.saturating_add(part.abs_diff(time.mean));
            let step = part.saturating_sub(time.mean).checked_div(REPLAY_MEMORY).unwrap_or(0);
            time.mean = time.mean.saturating_add(step);
        } else {
            time.mean = part;
        }
    }

    /// Moves the time slice from `owner` to `context`, which has just ended work.
    ///
    /// If the owner has used less than half of its time slice, the whole time slice moves. Otherwise the owner's time slice
    /// ended early, and only its end moves.
    fn correct(&mut self, owner: usize, context: usize, at: Monotonic) {
        let (into, left) = (at.since(self.since), self.time_slice_ends.since(at));
        let moved = if into < self.time_slice.part(2) {
            self.move_whole(owner, context, at);
            at.since(self.resumes)
        } else {
            self.tune(0_i64.saturating_sub_unsigned(left.nanos()));
            let rest = self.time_slice.saturating_sub(left).max(self.time_slice.part(10));
            (self.since, self.time_slice_ends) = (at.saturating_sub(left), at.saturating_add(rest));
            left.min(into.part(2))
        }
        .nanos();
        for (whose, by) in [(owner, 0_i64.saturating_sub_unsigned(moved)), (context, moved.cast_signed())] {
            if let Some(time) = self.times.get_mut(whose) {
                time.own = time.own.saturating_add(by);
            }
        }
        self.misfit = self.misfit.saturating_add(moved.saturating_mul(MOVED) / MOVED_OF);
        (self.owner, self.resumes, self.ran_out) = (Some(context), at, None);
    }

    /// Gives `context` the whole time slice of `owner`. So `context` comes before the owner in the order.
    ///
    /// If the time slice of `context` ran out just before, it lasted until now at least. Otherwise `context` had this time slice
    /// from its start, and the length of time slices may be right. Both leave open when the next time slice begins.
    fn move_whole(&mut self, owner: usize, context: usize, at: Monotonic) {
        self.circle.retain(|other| *other != context);
        let place = self.circle.iter().position(|other| *other == owner).unwrap_or(0);
        self.circle.insert(place, context);
        if self.ran_out == Some(context) {
            let late = at.since(self.since);
            (self.since, self.time_slice_ends) = (at.saturating_sub(self.time_slice), at);
            self.tune(late.nanos().cast_signed());
        }
        self.time_slices = None;
    }

    /// Corrects the length of a time slice. The assumed end of the time slices was `late` nanoseconds before the true end.
    ///
    /// Example: time slices are 1.024 ms, and the replay assumes 1 ms. Ten time slices later it is 0.24 ms early. So each
    /// was assumed 24 us too short. An error of more than a quarter of a time slice has another cause, such as the order of
    /// the contexts.
    fn tune(&mut self, late: i64) {
        let count = self.time_slices.unwrap_or(0);
        self.time_slices = self.time_slices.map(|_| 0);
        let time_slices = i64::try_from(count).unwrap_or(i64::MAX);
        if late.unsigned_abs() > self.time_slice.part(4).nanos() {
            return;
        }
        let (step, most) = (late.checked_div(time_slices).unwrap_or(0), self.nominal.part(BAND));
        let time_slice = WallTime::from_nanos(self.time_slice.nanos().saturating_add_signed(step));
        self.time_slice =
            time_slice.clamp(self.nominal.saturating_sub(most), self.nominal.saturating_add(most));
    }

    /// Records that a context has no work in flight any more.
    pub(super) fn rests(&mut self, context: usize, at: Monotonic, flying: u64) {
        if self.owner != Some(context) {
            return;
        }
        if flying == 0 { self.owner = None } else { self.give(flying, at) }
    }

    /// Returns the GPU time given to the contexts in `own` since the last report.
    pub(super) fn report(&mut self, own: u64) -> GpuTimeChange {
        let news = self.times.iter_mut().enumerate().map(|(context, time)| {
            let news = time.own.saturating_sub(core::mem::replace(&mut time.reported, time.own));
            if own & bit(context) == 0 { 0 } else { news }
        });
        GpuTimeChange::from_nanos(news.fold(0, i64::saturating_add))
    }

    /// Forgets a context, because another context gets its place.
    pub(super) fn forget(&mut self, context: usize) {
        if let Some(time) = self.times.get_mut(context) {
            time.mean = 0;
        }
    }
}

pub(super) const fn bit(place: usize) -> u64 {
    if place < MOST_CONTEXTS { 1 << place } else { 0 }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test")]
mod tests {
    use super::*;
    use crate::time::literals::ms;

    const START: Monotonic = Monotonic::from_nanos(1 << 40);

    /// Returns a replay with time slices of 30 ms. Contexts 0 and 1 have work in flight, and context 0 has the time slice.
    fn replay() -> Replay {
        let mut replay = Replay::new(ms(30), OverrunRule::Yields);
        (0..2).for_each(|context| replay.begin_work(context, START));
        replay
    }

    /// Lets time pass until work of a context ends. Both times are in milliseconds since the start.
    fn end_work(replay: &mut Replay, from: u64, to: u64, context: usize) {
        replay.pass(START + ms(from), START + ms(to), bit(0) | bit(1));
        replay.end_work(context, START + ms(to), true);
    }

    /// Returns the milliseconds that each context has.
    fn own(replay: &Replay) -> [i64; 2] {
        [0, 1].map(|context| replay.times[context].own / 1_000_000)
    }

    #[test]
    fn a_context_that_ended_nothing_loses_its_whole_time_slice() {
        let mut replay = replay();
        end_work(&mut replay, 0, 5, 1);
        assert_eq!((own(&replay), replay.owner, replay.time_slice), ([0, 5], Some(1), ms(30)));
        assert_eq!((replay.time_slice_ends, &*replay.circle), (START + ms(30), &[1, 0][..]));
    }

    #[test]
    fn time_slices_that_run_out_too_early_become_longer_but_the_one_with_a_guessed_end_shows_nothing() {
        let mut replay = replay();
        end_work(&mut replay, 0, 33, 0);
        assert_eq!(
            (replay.owner, replay.time_slice, replay.time_slice_ends),
            (Some(0), ms(33), START + ms(33))
        );
        end_work(&mut replay, 33, 36, 0);
        assert_eq!(
            (replay.owner, replay.time_slice, replay.time_slice_ends),
            (Some(0), ms(33), START + ms(36))
        );
    }
}
