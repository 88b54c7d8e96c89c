//! When does a device's share have to wait for another's?
//!
//! Ranks that use a GPU each meet in collectives: a kernel that keeps its GPU busy until those of the others run. Paced each by
//! its own bucket, the rank that comes first pays for its wait and comes last the next time, by `1 / share - 1` times as much:
//! below a half, the wait grows with every step, to seconds. So devices whose kernels have been seen to wait for each other
//! go in step: who could go waits until those can that are held back by their own share, and all go at one instant.
//!
//! Nothing tells that a kernel waits, but its end does: it ran for far longer than it does, and ended when a launch on
//! another device had got through that had been kept meanwhile. While it runs for far longer than it does it may wait, so
//! what other devices' shares hold back goes *ahead*: it is owed, and there is a bound for it, since the run may have other reasons.

use super::limiter::token_bucket::{self, Terms};
use crate::units::{Nanos, Permille};

/// A run that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// How long it takes by itself, in nanoseconds.
    pub plain: u64,
    /// How long it took.
    pub length: u64,
    /// When it ended at the earliest, on the monotonic clock.
    pub until: u64,
    /// How much later that may have been: the stream may have had nothing to do.
    pub after: u64,
}

/// A launch that its device's share kept for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kept {
    /// Since when, on the monotonic clock.
    pub since: u64,
    /// Until when.
    pub until: u64,
    /// Whether it went ahead then, because something was overdue: that this ends soon after proves less.
    pub went_ahead: bool,
}

/// What another device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Other {
    /// Until when its time is paid, on the monotonic clock.
    pub paid_until: u64,
    /// Whether anybody waits for its time.
    pub is_asked: bool,
    /// Whether it has work that is not known to have ended.
    pub is_busy: bool,
    /// When its last work ended, as far as it is known.
    pub ended: u64,
    /// When it was paid for last.
    pub paid_at: u64,
}

/// What passes for the error of two clocks and the time of a launch, in nanoseconds: a millisecond.
const SLACK: u64 = 1_000_000;
/// What may run between a payment and the kernel that was waited for: the largest lease.
const BETWEEN: u64 = 4_000_000;
/// The launch that ended a run's wait was kept, while the run ran, for more than this part of it: others before it were kept as well.
const PART: u64 = 8;
/// Beyond so much time a run counts twice.
const LONG: u64 = 10_000_000;
/// What has to be counted: half of it is a run that was ended by what its share had let go, a quarter by what went ahead.
const ENOUGH: u32 = 4;
/// Within so long, in nanoseconds: ten seconds.
const LATELY: u64 = 10_000_000_000;
/// For so long devices go in step, in nanoseconds: a minute. Then they show again whether they have to.
pub const LASTS: u64 = 60_000_000_000;
/// How long a rank may take from the end of its work to its next launch, in nanoseconds: 50 ms. One that does not ask
/// by then is not waited for.
const PREPARES: u64 = 50_000_000;
/// After so long a run has been seen to have ended, in nanoseconds: ten milliseconds.
const SEEN: u64 = 10_000_000;
/// Nobody waits longer for another device, in nanoseconds: ten seconds. Whatever is wrong there, it is not for long.
const MOST: u64 = 10_000_000_000;
/// A run that was seen to run for far longer than it does so long ago, in nanoseconds, still does: the meter looks each
/// millisecond, on a host that may be late. 5 ms.
const FRESH: u64 = 5_000_000;
/// Beyond so much time a run waits for nothing that could go, in nanoseconds: a second. Kernels that never end are no reason.
const PATIENCE: u64 = 1_000_000_000;
/// GPU time that may go ahead at once, in nanoseconds: 20 ms, in which a few launches before the one that is waited for have
/// room.
const AHEAD: u64 = 20_000_000;
/// Beyond so much debt nothing goes ahead, in nanoseconds of GPU time: a second. What went ahead is paid for by prediction, and
/// may run for far longer.
const MOST_OWED: u64 = 1_000_000_000;

impl Ran {
    /// For how much longer it ran than it does, if that is far longer.
    #[must_use]
    pub fn beyond(&self) -> Option<u64> {
        let beyond = self.length.saturating_sub(self.plain);
        (beyond > (self.plain / 2).saturating_add(SLACK)).then_some(beyond)
    }

    /// Whether what runs for so long by now may wait for a launch on another device.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.beyond().is_some_and(|beyond| beyond <= PATIENCE)
    }

    /// What to learn from it if it waited: twice of what it takes by itself. That it waited is not certain.
    #[must_use]
    pub fn believed(&self) -> u64 {
        self.length.min(self.plain.saturating_mul(2))
    }

    /// Whether it ended because a launch on another device had got through.
    #[must_use]
    pub fn ended_by(&self, kept: Kept) -> bool {
        let Some(beyond) = self.beyond() else { return false };
        let between = if kept.went_ahead { 0 } else { BETWEEN };
        let ends = kept.until.saturating_add(self.plain).saturating_add(between).saturating_add(SLACK);
        let meanwhile = kept.until.saturating_sub(kept.since.max(self.until.saturating_sub(self.length)));
        let latest = self.until.saturating_add(self.after);
        kept.until < latest.saturating_add(SLACK) && self.until < ends && meanwhile > beyond / PART
    }
}

/// How often it was seen lately that a device's kernels wait for another's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    first: u64,
    count: u32,
}

impl Seen {
    /// A run ended by another device's launch that had been kept. Whether it is certain now.
    pub fn add(&mut self, ran: &Ran, kept: Kept) -> bool {
        if ran.until.saturating_sub(self.first) > LATELY {
            *self = Self { first: ran.until, count: 0 };
        }
        let counts = match (kept.went_ahead, ran.beyond() > Some(LONG)) {
            (true, _) => ENOUGH / 4,
            (false, false) => ENOUGH / 2,
            (false, true) => ENOUGH,
        };
        self.count = self.count.saturating_add(counts);
        self.count >= ENOUGH
    }
}

/// Whether a launch was kept for long, so that others may have waited for it. `last` is the one of which that was said last: of
/// two that follow each other the longer one is told, since runs are seen to have ended a while after they have.
#[must_use]
pub const fn is_told(kept: Kept, last: Kept) -> bool {
    let (length, before) = (kept.until.saturating_sub(kept.since), last.until.saturating_sub(last.since));
    length > SLACK / 2 && (length >= before || kept.until.saturating_sub(last.until) > SEEN)
}

/// Whether devices go in step that are to do so until an instant. One too far ahead is of another boot, or nonsense.
#[must_use]
pub const fn holds(until: u64, now: u64) -> bool {
    until > now && until.saturating_sub(now) <= LASTS
}

/// Whether a run goes on that was seen at this instant to have run for far longer than it does.
#[must_use]
pub const fn is_overdue(seen: u64, now: u64) -> bool {
    seen > 0 && seen <= now.saturating_add(FRESH) && now <= seen.saturating_add(FRESH)
}

/// Whether those who wait know that a run is overdue, since that was said at this instant before. Who looks after half of the
/// time may have found it stale already, on a host that was late in saying it.
#[must_use]
pub const fn is_known(seen: u64, now: u64) -> bool {
    is_overdue(seen, now) && now <= seen.saturating_add(FRESH / 2)
}

/// Whether a device's share holds back what may go ahead: something is owed, and no more than a second of GPU time.
#[must_use]
pub fn is_held_back(paid_until: u64, now: u64, terms: Terms) -> bool {
    paid_until > now && paid_until <= now.saturating_add(terms.wall(MOST_OWED))
}

/// The word that says until when it is paid what went ahead, after so much more; none if it may not go.
///
/// Half of the share pays for it, so that the other half pays for what was; 20 ms of GPU time may be saved up, and what
/// costs more than that goes once. A word too far ahead is of other terms, or nonsense.
#[must_use]
pub fn ahead(until: u64, now: u64, amount: u64, terms: Terms) -> Option<u64> {
    let (rate, most) = (terms.rate(), now.saturating_add(MOST));
    let half = Permille::new((rate.get() / 2).max(1)).unwrap_or(rate);
    let terms = Terms::new(half, Nanos::new(AHEAD.min(terms.burst())));
    let until = if until > most { 0 } else { until };
    token_bucket::wait(until, now)
        .is_none()
        .then(|| token_bucket::prepay(until, now, amount, terms).min(most))
}

/// Since when time may be saved up where others in step have paid until then: no more than they have, but for what a payment
/// may be late.
#[must_use]
pub fn saved(other: &Other, now: u64) -> u64 {
    other.paid_until.min(now).saturating_sub(SLACK)
}

/// When a process that could go and has waited since this instant has to look again, for the sake of another device in
/// step with its own; none if it may go.
///
/// Never for one that has gone since: so each can be kept by another once. Nor for one that works: that work may be what
/// waits.
#[must_use]
pub fn wait(other: &Other, since: u64, now: u64) -> Option<u64> {
    if other.is_busy || other.paid_at >= since {
        return None;
    }
    let prepares = if other.is_asked { u64::MAX } else { other.ended.saturating_add(PREPARES) };
    let until = other.paid_until.min(prepares).min(since.saturating_add(MOST));
    (until > now).then_some(until)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// A run of 5 ms that took 25 and ended at 100.
    const RAN: Ran = Ran { plain: 5 * MS, length: 25 * MS, until: 100 * MS, after: 0 };
    /// Who is in debt up to 100 ms, asks, and went at 10.
    const OTHER: Other =
        Other { paid_until: 100 * MS, is_asked: true, is_busy: false, ended: 50 * MS, paid_at: 10 * MS };

    #[test]
    fn far_longer_is_half_as_long_again_and_a_millisecond() {
        let beyond = |plain, length| Ran { plain, length, until: 0, after: 0 }.beyond();
        assert_eq!(beyond(4 * MS, 7 * MS), None);
        assert_eq!(beyond(4 * MS, 7 * MS + 1), Some(3 * MS + 1));
        assert_eq!(beyond(0, MS), None);
        assert_eq!([RAN.believed(), Ran { plain: 20 * MS, ..RAN }.believed()], [10 * MS, 25 * MS]);
    }

    #[test]
    fn a_run_was_ended_by_a_launch_that_was_kept_meanwhile_and_went_just_before_its_end() {
        let kept = |since, until| Kept { since, until, went_ahead: false };
        let ended_by = |since, until| RAN.ended_by(kept(since * MS, until * MS));
        assert!(ended_by(80, 95) && ended_by(70, 100));
        assert!(!ended_by(80, 90), "10 ms before: with what comes before it, it takes 10 at the most");
        assert!(!ended_by(80, 101), "it had not gone yet");
        let just = |since| RAN.ended_by(kept(since, 95 * MS));
        assert!(just(92_499_999) && !just(92_500_000), "an eighth of 20 ms");
        let last = Ran { plain: 10 * MS, length: 30 * MS, ..RAN };
        let before = kept(0, 87 * MS);
        assert!(last.ended_by(before) && !Ran { length: 13 * MS, ..last }.ended_by(before));
        let ran = Ran { plain: MS, length: 6 * MS, ..RAN };
        assert!(
            !ran.ended_by(kept(0, 94_500_000)) && ran.ended_by(kept(0, 95 * MS)),
            "it was kept before, not meanwhile"
        );
        assert!(!Ran { length: 8 * MS, ..RAN }.ended_by(kept(80 * MS, 95 * MS)));
        let ahead = |until| RAN.ended_by(Kept { went_ahead: true, ..kept(70 * MS, until) });
        assert!(!ahead(94 * MS) && ahead(94 * MS + 1), "what goes ahead is one launch");
    }

    #[test]
    fn who_may_have_ended_later_was_ended_by_what_went_until_then() {
        let kept = Kept { since: 80 * MS, until: 107 * MS, went_ahead: false };
        let ended_by = |after| Ran { after: after * MS, ..RAN }.ended_by(kept);
        assert!(!ended_by(6) && ended_by(7));
        assert!(
            Ran { after: 50 * MS, ..RAN }.ended_by(Kept { until: 95 * MS, ..kept }),
            "or at the earliest"
        );
    }

    #[test]
    fn what_runs_for_far_longer_than_it_does_may_wait_for_a_second() {
        let may_wait = |length| Ran { plain: 4 * MS, length, until: 0, after: 0 }.may_wait();
        assert_eq!([7 * MS, 7 * MS + 1, 1004 * MS, 1004 * MS + 1].map(may_wait), [false, true, true, false]);
    }

    #[test]
    fn a_run_is_overdue_for_five_milliseconds_after_it_was_seen_to_be() {
        let is_overdue = |now| is_overdue(100 * MS, now);
        assert_eq!(
            [95 * MS - 1, 95 * MS, 105 * MS, 105 * MS + 1].map(is_overdue),
            [false, true, true, false]
        );
        assert!(!super::is_overdue(0, 0), "never");
    }

    #[test]
    fn who_waits_knows_it_for_half_of_that_time() {
        assert_eq!(
            [102 * MS + MS / 2, 102 * MS + MS / 2 + 1].map(|now| is_known(100 * MS, now)),
            [true, false]
        );
        assert!(!is_known(0, 1));
    }

    fn terms(rate: u16, burst: u64) -> Terms {
        Terms::new(Permille::new(rate).unwrap(), Nanos::from_millis(burst))
    }

    #[test]
    fn half_of_a_share_pays_for_what_goes_ahead() {
        let now = 100_000 * MS;
        let ahead = |until, cost, rate, burst| ahead(until, now, cost * MS, terms(rate, burst));
        assert_eq!(ahead(0, 25, 500, 20), Some(now + 20 * MS), "20 ms are saved up");
        assert_eq!(ahead(now, 5, 500, 20), Some(now + 20 * MS));
        assert_eq!(ahead(now + 1, 5, 500, 20), None);
        assert_eq!(ahead(0, 25, 500, 200), Some(now + 20 * MS), "no more");
        assert_eq!(ahead(0, 2, 500, 1), Some(now + 4 * MS), "less, where less is lent");
        assert_eq!(ahead(now, 1, 1, 1), Some(now + 1000 * MS), "a thousandth is not divided");
        assert_eq!(ahead(now, 200, 1, 1), Some(now + MOST), "nobody waits for longer");
        assert_eq!(ahead(now + MOST, 5, 500, 20), None);
        assert_eq!(ahead(now + MOST + 1, 5, 500, 20), Some(now - 60 * MS), "that is no such word");
    }

    #[test]
    fn who_owes_up_to_a_second_of_gpu_time_is_held_back() {
        let is_held_back = |until| is_held_back(until, 100 * MS, terms(500, 20));
        assert_eq!(
            [100 * MS, 100 * MS + 1, 2100 * MS, 2100 * MS + 1].map(is_held_back),
            [false, true, true, false]
        );
    }

    #[test]
    fn it_is_certain_after_two_runs_or_a_long_one_within_ten_seconds() {
        let short = |until| Ran { plain: MS, length: 4 * MS, until, after: 0 };
        let long = Ran { plain: MS, length: 11 * MS + 1, until: 0, after: 0 };
        let (held, ahead) = (Kept::default(), Kept { went_ahead: true, ..Kept::default() });
        let mut seen = Seen::default();
        assert_eq!([1, 2].map(|at| seen.add(&short(at * MS), held)), [false, true]);
        let mut seen = Seen::default();
        assert_eq!([1, 1 + 10_001, 10_003].map(|at| seen.add(&short(at * MS), held)), [false, false, true]);
        let mut seen = Seen::default();
        assert_eq!([11_000, 21_000].map(|at| seen.add(&short(at * MS), held)), [false, true], "ten seconds");
        assert!(Seen::default().add(&long, held));
        assert!(!Seen::default().add(&Ran { length: 11 * MS, ..long }, held));
        let mut seen = Seen::default();
        assert_eq!(
            [1, 2, 3, 4].map(|_| seen.add(&long, ahead)),
            [false, false, false, true],
            "four that went ahead"
        );
    }

    #[test]
    fn who_could_go_waits_for_those_that_are_held_back_once() {
        let now = 60 * MS;
        assert_eq!(wait(&OTHER, 20 * MS, now), Some(100 * MS));
        assert_eq!(wait(&OTHER, 20 * MS, 100 * MS), None);
        assert_eq!(wait(&OTHER, 10 * MS, now), None, "it has gone since");
        assert_eq!(wait(&Other { is_busy: true, ..OTHER }, 20 * MS, now), None, "it may wait for this one");
    }

    #[test]
    fn who_does_not_ask_is_waited_for_as_long_as_it_may_prepare() {
        let silent = Other { is_asked: false, ..OTHER };
        assert_eq!(wait(&silent, 20 * MS, 60 * MS), Some(100 * MS));
        let early = Other { ended: 30 * MS, ..silent };
        assert_eq!(wait(&early, 20 * MS, 60 * MS), Some(80 * MS));
        assert_eq!(wait(&early, 20 * MS, 80 * MS), None);
    }

    #[test]
    fn nobody_waits_for_longer_than_ten_seconds() {
        let far = Other { paid_until: u64::MAX, ..OTHER };
        assert_eq!(wait(&far, 20 * MS, 60 * MS), Some(20 * MS + MOST));
        assert_eq!(wait(&far, 20 * MS, 20 * MS + MOST), None);
        let ended_later = Other { is_asked: false, ended: u64::MAX, ..far };
        assert_eq!(wait(&ended_later, 20 * MS, 60 * MS), Some(20 * MS + MOST));
    }

    #[test]
    fn devices_are_in_step_for_a_minute_whatever_the_word_says() {
        assert_eq!(
            [0, 9, 10, 10 + LASTS, 11 + LASTS, u64::MAX].map(|until| holds(until, 10)),
            [false, false, false, true, false, false]
        );
    }

    #[test]
    fn as_much_may_be_saved_up_as_others_have_and_a_millisecond() {
        assert_eq!([70, 100].map(|now| saved(&OTHER, now * MS) / MS), [69, 99]);
        assert_eq!(saved(&OTHER, 150 * MS), 99 * MS);
    }

    #[test]
    fn of_launches_that_were_kept_the_longer_one_is_told_for_ten_milliseconds() {
        let kept = |since, until| Kept { since, until, went_ahead: false };
        let told = |since, until| is_told(kept(since, until), kept(50 * MS, 100 * MS));
        assert!(!told(101 * MS, 110 * MS) && told(101 * MS, 110 * MS + 1), "seen by then");
        assert!(told(101 * MS, 151 * MS), "as long");
        assert_eq!([MS / 2, MS / 2 + 1].map(|until| is_told(kept(0, until), Kept::default())), [false, true]);
    }
}
