//! Couples devices of a slice whose kernels wait for each other.
//!
//! Example: two ranks with one GPU each meet in a collective. The kernel of the first rank keeps its GPU busy until
//! the kernel of the second rank runs. If each device is paced by its own bucket, the first rank pays for its wait.
//! So it comes last the next time, by a factor of `1 / share - 1`. Below a share of one half the wait grows with each
//! step, to seconds.
//!
//! *Coupling.* Devices whose kernels were seen to wait for each other are paced together. A launch that its own device
//! admits waits until the other devices admit their throttled launches. All start at one instant.
//!
//! *Evidence.* Nothing tells that a kernel waits, but its end does. The kernel ran for far longer than its estimate
//! (an overrun), and ended when a throttled launch on another device was admitted.
//!
//! *Peer overdraft.* While a kernel overruns, it may wait. So a launch that another device throttles is admitted
//! early, and the slice owes its cost ([`peer_overdraft`](super::peer_overdraft)).

use super::limiter::lease;
use super::limiter::overdraft::MOST_WAIT;

/// A measured batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredBatch {
    /// Estimated duration without waiting, in nanoseconds.
    pub plain: u64,
    /// Measured duration, in nanoseconds.
    pub length: u64,
    /// Earliest instant of its end, in nanoseconds of the monotonic clock.
    pub until: u64,
    /// Nanoseconds by which the end may be later: the stream may have been idle.
    pub after: u64,
}

/// A launch that its device throttled for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThrottledLaunch {
    /// Start of the wait, in nanoseconds of the monotonic clock.
    pub since: u64,
    /// End of the wait.
    pub until: u64,
    /// True if the wait ended by a peer overdraft. The end of an overrun shortly after an overdraft is weaker
    /// evidence.
    pub is_overdraft: bool,
}

/// State of another device of the slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerDevice {
    /// Instant up to which its time is paid, in nanoseconds of the monotonic clock.
    pub paid_until: u64,
    /// True if a process waits for its time.
    pub is_asked: bool,
    /// True if it has work that is not known to have ended.
    pub is_busy: bool,
    /// Last known end of its work, in nanoseconds of the monotonic clock.
    pub ended: u64,
    /// Its round: see [`next_round`].
    pub round: u64,
}

/// Tolerance of comparisons between two clocks, in nanoseconds: 1 ms. It covers the error of the clocks and the time
/// of a launch.
const SLACK: u64 = 1_000_000;
/// Smallest part of the overrun for which the launch that ended it was throttled: one in eight. Other launches before
/// it may have been throttled as well.
const PART: u64 = 8;
/// Nanoseconds of overrun from which a batch counts twice: 10 ms.
const LONG: u64 = 10_000_000;
/// Evidence that couples two devices. A usual overrun that ended with a throttled launch is half of it, one that
/// ended with an overdraft a quarter.
const ENOUGH: u32 = 4;
/// Nanoseconds for which evidence counts: 10 s.
const LATELY: u64 = 10_000_000_000;
/// Nanoseconds for which devices stay coupled: one minute. After that new evidence is needed.
pub const LASTS: u64 = 60_000_000_000;
/// Nanoseconds from the end of a rank's work to its next launch: 50 ms. No device waits for a rank that takes longer.
const PREPARES: u64 = 50_000_000;
/// Nanoseconds after which the end of a batch is known: 10 ms.
const SEEN: u64 = 10_000_000;
/// Overrun beyond which a batch waits for no launch, in nanoseconds: one second. Kernels that never end are no reason
/// for an overdraft.
const PATIENCE: u64 = 1_000_000_000;
impl MeasuredBatch {
    /// Returns the nanoseconds of the overrun. `None`: the batch took about as long as estimated.
    #[must_use]
    pub fn beyond(&self) -> Option<u64> {
        let beyond = self.length.saturating_sub(self.plain);
        (beyond > (self.plain / 2).saturating_add(SLACK)).then_some(beyond)
    }

    /// Returns true if a batch that has run for `length` by now may wait for a launch on another device.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.beyond().is_some_and(|beyond| beyond <= PATIENCE)
    }

    /// Returns the nanoseconds that the estimates learn if the batch waited: at most twice the estimate. The wait is not certain.
    #[must_use]
    pub fn believed(&self) -> u64 {
        self.length.min(self.plain.saturating_mul(2))
    }

    /// Returns true if the batch ended because a throttled launch on another device was admitted.
    ///
    /// The launch must have been admitted before the batch's latest possible end. The batch must have ended soon
    /// after: within its own duration and the work in between. And the launch must have been throttled for one part
    /// in eight of the overrun while the batch ran.
    #[must_use]
    pub fn ended_by(&self, kept: ThrottledLaunch) -> bool {
        let Some(beyond) = self.beyond() else { return false };
        let between = if kept.is_overdraft { 0 } else { lease::TURN };
        let ends = kept.until.saturating_add(self.plain).saturating_add(between).saturating_add(SLACK);
        let meanwhile = kept.until.saturating_sub(kept.since.max(self.until.saturating_sub(self.length)));
        let latest = self.until.saturating_add(self.after);
        kept.until < latest.saturating_add(SLACK) && self.until < ends && meanwhile > beyond / PART
    }
}

/// Evidence of one device that its kernels wait for another device.
#[derive(Debug, Clone, Copy, Default)]
pub struct CouplingEvidence {
    first: u64,
    count: u32,
}

impl CouplingEvidence {
    /// Adds a batch that ended with a throttled launch of another device. Returns whether the evidence suffices.
    pub fn add(&mut self, ran: &MeasuredBatch, kept: ThrottledLaunch) -> bool {
        if ran.until.saturating_sub(self.first) > LATELY {
            *self = Self { first: ran.until, count: 0 };
        }
        let counts = match (kept.is_overdraft, ran.beyond() > Some(LONG)) {
            (true, _) => ENOUGH / 4,
            (false, false) => ENOUGH / 2,
            (false, true) => ENOUGH,
        };
        self.count = self.count.saturating_add(counts);
        self.count >= ENOUGH
    }
}

/// Returns true if a throttled launch should be published, because others may have waited for it. `last` is the
/// published one. Of two launches in a row the longer wait is published, since ends of batches are seen late.
#[must_use]
pub const fn should_publish(kept: ThrottledLaunch, last: ThrottledLaunch) -> bool {
    let (length, before) = (kept.until.saturating_sub(kept.since), last.until.saturating_sub(last.since));
    length > SLACK / 2 && (length >= before || kept.until.saturating_sub(last.until) > SEEN)
}

/// Returns true if devices that are coupled until `until` are coupled now. An instant too far ahead belongs to another
/// boot, or is invalid.
#[must_use]
pub const fn is_coupled(until: u64, now: u64) -> bool {
    until > now && until.saturating_sub(now) <= LASTS
}

/// Returns the instant from which time may count as saved, where coupled devices have paid until `other.paid_until`. No device
/// saves more than the others, except for the delay of a payment.
#[must_use]
pub fn saved(other: &PeerDevice, now: u64) -> u64 {
    other.paid_until.min(now).saturating_sub(SLACK)
}

/// Returns the round of a device after a payment. `own` is its round before, `others` the greatest round of the coupled
/// devices.
///
/// Rounds count payments of coupled devices, so that the launches of one round start together. A device that is
/// behind takes the round of the first. So a rank that launches less than the others is at most one round behind.
#[must_use]
pub const fn next_round(own: u64, others: u64) -> u64 {
    let next = own.saturating_add(1);
    if next < others { others } else { next }
}

/// Returns the instant at which a process must try again because of a coupled device. It has waited since `since`, its
/// own device is in round `round` and admits it. `None`: it is admitted.
///
/// A process does not wait for a device that is a round ahead, so each device delays a round once. An instant does not
/// tell this: a device that pays late would seem to be ahead. Nor does a process wait for a busy device: that work may
/// be the work that waits.
#[must_use]
pub fn wait(other: &PeerDevice, round: u64, since: u64, now: u64) -> Option<u64> {
    if other.is_busy || other.round > round {
        return None;
    }
    let prepares = if other.is_asked { u64::MAX } else { other.ended.saturating_add(PREPARES) };
    let until = other.paid_until.min(prepares).min(since.saturating_add(MOST_WAIT));
    (until > now).then_some(until)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// A batch of 5 ms that took 25 ms and ended at 100 ms.
    const BATCH: MeasuredBatch = MeasuredBatch { plain: 5 * MS, length: 25 * MS, until: 100 * MS, after: 0 };
    /// A device in debt up to 100 ms with a waiting process, in round 7.
    const OTHER: PeerDevice =
        PeerDevice { paid_until: 100 * MS, is_asked: true, is_busy: false, ended: 50 * MS, round: 7 };
    /// Returns until when a process on a device of the same round waits, if it has waited since 20 ms.
    fn wait(other: &PeerDevice, now: u64) -> Option<u64> {
        super::wait(other, 7, 20 * MS, now)
    }

    #[test]
    fn far_longer_is_half_as_long_again_and_a_millisecond() {
        let beyond = |plain, length| MeasuredBatch { plain, length, until: 0, after: 0 }.beyond();
        assert_eq!(beyond(4 * MS, 7 * MS), None);
        assert_eq!(beyond(4 * MS, 7 * MS + 1), Some(3 * MS + 1));
        assert_eq!(beyond(0, MS), None);
        assert_eq!(
            [BATCH.believed(), MeasuredBatch { plain: 20 * MS, ..BATCH }.believed()],
            [10 * MS, 25 * MS]
        );
    }

    #[test]
    fn a_run_was_ended_by_a_launch_that_was_kept_meanwhile_and_went_just_before_its_end() {
        let kept = |since, until| ThrottledLaunch { since, until, is_overdraft: false };
        let ended_by = |since, until| BATCH.ended_by(kept(since * MS, until * MS));
        assert!(ended_by(80, 95) && ended_by(70, 100));
        assert!(!ended_by(80, 90), "10 ms before: with what comes before it, it takes 10 at the most");
        assert!(!ended_by(80, 101), "it had not gone yet");
        let just = |since| BATCH.ended_by(kept(since, 95 * MS));
        assert!(just(92_499_999) && !just(92_500_000), "an eighth of 20 ms");
        let last = MeasuredBatch { plain: 10 * MS, length: 30 * MS, ..BATCH };
        let before = kept(0, 87 * MS);
        assert!(last.ended_by(before) && !MeasuredBatch { length: 13 * MS, ..last }.ended_by(before));
        let ran = MeasuredBatch { plain: MS, length: 6 * MS, ..BATCH };
        assert!(
            !ran.ended_by(kept(0, 94_500_000)) && ran.ended_by(kept(0, 95 * MS)),
            "it was kept before, not meanwhile"
        );
        assert!(!MeasuredBatch { length: 8 * MS, ..BATCH }.ended_by(kept(80 * MS, 95 * MS)));
        let ahead = |until| BATCH.ended_by(ThrottledLaunch { is_overdraft: true, ..kept(70 * MS, until) });
        assert!(!ahead(94 * MS) && ahead(94 * MS + 1), "what goes ahead is one launch");
    }

    #[test]
    fn who_may_have_ended_later_was_ended_by_what_went_until_then() {
        let kept = ThrottledLaunch { since: 80 * MS, until: 107 * MS, is_overdraft: false };
        let ended_by = |after| MeasuredBatch { after: after * MS, ..BATCH }.ended_by(kept);
        assert!(!ended_by(6) && ended_by(7));
        assert!(
            MeasuredBatch { after: 50 * MS, ..BATCH }.ended_by(ThrottledLaunch { until: 95 * MS, ..kept }),
            "or at the earliest"
        );
    }

    #[test]
    fn what_runs_for_far_longer_than_it_does_may_wait_for_a_second() {
        let may_wait = |length| MeasuredBatch { plain: 4 * MS, length, until: 0, after: 0 }.may_wait();
        assert_eq!([7 * MS, 7 * MS + 1, 1004 * MS, 1004 * MS + 1].map(may_wait), [false, true, true, false]);
    }

    #[test]
    fn it_is_certain_after_two_runs_or_a_long_one_within_ten_seconds() {
        let short = |until| MeasuredBatch { plain: MS, length: 4 * MS, until, after: 0 };
        let long = MeasuredBatch { plain: MS, length: 11 * MS + 1, until: 0, after: 0 };
        let (held, ahead) = (
            ThrottledLaunch::default(),
            ThrottledLaunch { is_overdraft: true, ..ThrottledLaunch::default() },
        );
        let mut seen = CouplingEvidence::default();
        assert_eq!([1, 2].map(|at| seen.add(&short(at * MS), held)), [false, true]);
        let mut seen = CouplingEvidence::default();
        assert_eq!([1, 1 + 10_001, 10_003].map(|at| seen.add(&short(at * MS), held)), [false, false, true]);
        let mut seen = CouplingEvidence::default();
        assert_eq!([11_000, 21_000].map(|at| seen.add(&short(at * MS), held)), [false, true], "ten seconds");
        assert!(CouplingEvidence::default().add(&long, held));
        assert!(!CouplingEvidence::default().add(&MeasuredBatch { length: 11 * MS, ..long }, held));
        let mut seen = CouplingEvidence::default();
        assert_eq!(
            [1, 2, 3, 4].map(|_| seen.add(&long, ahead)),
            [false, false, false, true],
            "four that went ahead"
        );
    }

    #[test]
    fn who_could_go_waits_for_those_that_are_held_back_once() {
        let now = 60 * MS;
        assert_eq!(wait(&OTHER, now), Some(100 * MS));
        assert_eq!(wait(&OTHER, 100 * MS), None);
        assert_eq!(super::wait(&OTHER, 8, 20 * MS, now), Some(100 * MS), "it is behind");
        assert_eq!(super::wait(&OTHER, 6, 20 * MS, now), None, "it is ahead");
        assert_eq!(wait(&PeerDevice { is_busy: true, ..OTHER }, now), None, "it may wait for this one");
    }

    #[test]
    fn a_device_that_is_behind_takes_the_round_of_the_first() {
        assert_eq!(
            [(4, 0), (4, 4), (4, 5), (4, 9)].map(|(own, others)| next_round(own, others)),
            [5, 5, 5, 9]
        );
        assert_eq!(next_round(u64::MAX, 0), u64::MAX);
    }

    #[test]
    fn a_rank_that_pays_late_is_not_taken_for_one_that_is_ahead() {
        // The first rank pays and asks again at once. The second pays its launch of the same round a moment later.
        let first = next_round(7, 7);
        let second = next_round(7, first);
        let late = PeerDevice { round: second, ..OTHER };
        assert_eq!(super::wait(&late, first, 20 * MS, 60 * MS), Some(100 * MS));
        // It pays once more, and so it is ahead.
        let ahead = PeerDevice { round: next_round(second, first), ..OTHER };
        assert_eq!(super::wait(&ahead, first, 20 * MS, 60 * MS), None);
    }

    #[test]
    fn who_does_not_ask_is_waited_for_as_long_as_it_may_prepare() {
        let silent = PeerDevice { is_asked: false, ..OTHER };
        assert_eq!(wait(&silent, 60 * MS), Some(100 * MS));
        let early = PeerDevice { ended: 30 * MS, ..silent };
        assert_eq!(wait(&early, 60 * MS), Some(80 * MS));
        assert_eq!(wait(&early, 80 * MS), None);
    }

    #[test]
    fn nobody_waits_for_longer_than_ten_seconds() {
        let far = PeerDevice { paid_until: u64::MAX, ..OTHER };
        assert_eq!(wait(&far, 60 * MS), Some(20 * MS + MOST_WAIT));
        assert_eq!(wait(&far, 20 * MS + MOST_WAIT), None);
        let ended_later = PeerDevice { is_asked: false, ended: u64::MAX, ..far };
        assert_eq!(wait(&ended_later, 60 * MS), Some(20 * MS + MOST_WAIT));
    }

    #[test]
    fn devices_are_in_step_for_a_minute_whatever_the_word_says() {
        assert_eq!(
            [0, 9, 10, 10 + LASTS, 11 + LASTS, u64::MAX].map(|until| is_coupled(until, 10)),
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
        let kept = |since, until| ThrottledLaunch { since, until, is_overdraft: false };
        let told = |since, until| should_publish(kept(since, until), kept(50 * MS, 100 * MS));
        assert!(!told(101 * MS, 110 * MS) && told(101 * MS, 110 * MS + 1), "seen by then");
        assert!(told(101 * MS, 151 * MS), "as long");
        assert_eq!(
            [MS / 2, MS / 2 + 1].map(|until| should_publish(kept(0, until), ThrottledLaunch::default())),
            [false, true]
        );
    }
}
