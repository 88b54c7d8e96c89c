//! Couples devices of a slice whose kernels wait for each other.
//!
//! Example: two ranks with one GPU each meet in a collective. The kernel of the first rank keeps its GPU busy until the
//! kernel of the second rank runs. If each device has its own bucket alone, the first rank pays for its wait. So it comes
//! last the next time, by a factor of `1 / share - 1`. Below a share of one half the wait grows with each step, up to
//! seconds.
//!
//! *Coupling.* Devices whose kernels were seen to wait for each other are throttled together. A launch that its own device
//! admits waits until the other devices admit their throttled launches. All of them start at one instant.
//!
//! *Evidence.* Nothing shows that a kernel waits, but its end does. The kernel ran for far longer than its estimate (an
//! overrun), and ended when a throttled launch on another device was admitted.
//!
//! *Peer overdraft.* While a kernel overruns, it may wait. So a launch that another device throttles is admitted
//! early, and the slice owes its cost ([`overdraft`](super::limiter::overdraft)).

use super::limiter::lease;
use super::limiter::overdraft::MOST_WAIT;
use crate::time::{Monotonic, WallTime};

/// A measured batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredBatch {
    /// Estimated duration without waiting.
    pub predicted: WallTime,
    /// Measured duration.
    pub length: WallTime,
    /// Earliest instant of the batch's end.
    pub until: Monotonic,
    /// Time by which the end may be later, because the stream may have been idle.
    pub after: WallTime,
}

/// A launch that its device throttled for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThrottledLaunch {
    /// Start of the wait.
    pub since: Monotonic,
    /// End of the wait.
    pub until: Monotonic,
    /// True if the wait ended by a peer overdraft. The end of an overrun shortly after an overdraft is weaker
    /// evidence.
    pub is_overdraft: bool,
}

/// State of another device of the slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerDevice {
    /// Instant up to which the GPU time of the device is paid.
    pub paid_until: Monotonic,
    /// True if a process waits for GPU time of the device.
    pub is_asked: bool,
    /// True if the device has work that is not known to have ended.
    pub is_busy: bool,
    /// Last known end of the device's work.
    pub ended: Monotonic,
    /// The device's round: see [`next_round`].
    pub round: u64,
}

/// Tolerance of comparisons between two clocks: 1 ms. It covers the error of the clocks and the time
/// of a launch.
const CLOCK_TOLERANCE: WallTime = WallTime::from_millis(1);
/// Least part of the overrun for which the launch that ended it was throttled: one in eight. Other launches before that
/// launch may have been throttled as well.
const CAUSE_PART: u64 = 8;
/// Overrun from which a batch counts twice: 10 ms.
const LONG_OVERRUN: WallTime = WallTime::from_millis(10);
/// Evidence that couples two devices. A usual overrun that ended with a throttled launch counts as half of it. An overrun
/// that ended with an overdraft counts as a quarter.
const COUPLING_EVIDENCE: u32 = 4;
/// Time for which evidence counts: 10 s.
const EVIDENCE_LASTS: WallTime = WallTime::from_millis(10_000);
/// Time for which devices stay coupled: one minute. After that the coupling needs new evidence.
pub const COUPLING_LASTS: WallTime = WallTime::from_millis(60_000);
/// Time from the end of a rank's work to its next launch: 50 ms. No device waits for a rank that takes longer.
const PREPARES: WallTime = WallTime::from_millis(50);
/// Time until the end of a batch is known: 10 ms.
const END_KNOWN_AFTER: WallTime = WallTime::from_millis(10);
/// Longest overrun of a batch that may wait for a launch: one second. A kernel that never ends is no reason for an
/// overdraft.
const LONGEST_OVERRUN: WallTime = WallTime::from_millis(1_000);

impl MeasuredBatch {
    /// Returns the time of the overrun. `None`: the batch took about as long as estimated.
    #[must_use]
    pub fn beyond(&self) -> Option<WallTime> {
        let beyond = self.length.saturating_sub(self.predicted);
        (beyond > self.predicted.part(2).saturating_add(CLOCK_TOLERANCE)).then_some(beyond)
    }

    /// Returns true if a batch that has run for `length` by now may wait for a launch on another device.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.beyond().is_some_and(|beyond| beyond <= LONGEST_OVERRUN)
    }

    /// Returns the duration from which the estimates learn if the batch waited: at most twice the estimate. The wait is not
    /// certain.
    #[must_use]
    pub fn believed(&self) -> WallTime {
        self.length.min(self.predicted.saturating_mul(2))
    }

    /// Returns true if the batch ended because a throttled launch on another device was admitted.
    ///
    /// Three conditions must hold. The launch was admitted before the batch's latest possible end. The batch ended soon
    /// after: within its own duration and the work in between. The launch was throttled for more than one part in eight of
    /// the overrun while the batch ran.
    #[must_use]
    pub fn ended_by(&self, kept: ThrottledLaunch) -> bool {
        let Some(beyond) = self.beyond() else { return false };
        let between = if kept.is_overdraft { WallTime::ZERO } else { lease::TURN.wall_if_alone() };
        let ends =
            kept.until.saturating_add(self.predicted).saturating_add(between).saturating_add(CLOCK_TOLERANCE);
        let meanwhile = kept.until.since(kept.since.max(self.until.saturating_sub(self.length)));
        let latest = self.until.saturating_add(self.after);
        kept.until < latest.saturating_add(CLOCK_TOLERANCE)
            && self.until < ends
            && meanwhile > beyond.part(CAUSE_PART)
    }
}

/// Evidence of one device that its kernels wait for another device.
#[derive(Debug, Clone, Copy, Default)]
pub struct CouplingEvidence {
    first: Monotonic,
    count: u32,
}

impl CouplingEvidence {
    /// Adds a batch that ended with a throttled launch of another device. Returns true if the evidence suffices.
    pub fn add(&mut self, ran: &MeasuredBatch, kept: ThrottledLaunch) -> bool {
        if ran.until.since(self.first) > EVIDENCE_LASTS {
            *self = Self { first: ran.until, count: 0 };
        }
        let counts = match (kept.is_overdraft, ran.beyond() > Some(LONG_OVERRUN)) {
            (true, _) => COUPLING_EVIDENCE / 4,
            (false, false) => COUPLING_EVIDENCE / 2,
            (false, true) => COUPLING_EVIDENCE,
        };
        self.count = self.count.saturating_add(counts);
        self.count >= COUPLING_EVIDENCE
    }
}

/// Returns true if a throttled launch should be published, because batches may have waited for it. `last` is the launch
/// that is published. Of two launches in a row, the one with the longer wait is published, since ends of batches are seen
/// late.
#[must_use]
pub fn should_publish(kept: ThrottledLaunch, last: ThrottledLaunch) -> bool {
    let (length, before) = (kept.until.since(kept.since), last.until.since(last.since));
    length > CLOCK_TOLERANCE.part(2) && (length >= before || kept.until.since(last.until) > END_KNOWN_AFTER)
}

/// Returns true if devices that are coupled until `until` are coupled now. An instant too far ahead belongs to another
/// boot, or is invalid.
#[must_use]
pub fn is_coupled(until: Monotonic, now: Monotonic) -> bool {
    until > now && until.since(now) <= COUPLING_LASTS
}

/// Returns the instant from which time may count as saved, if coupled devices have paid until `other.paid_until`. No device
/// saves more than the others, except for the delay of a payment.
#[must_use]
pub fn saved(other: &PeerDevice, now: Monotonic) -> Monotonic {
    other.paid_until.min(now).saturating_sub(CLOCK_TOLERANCE)
}

/// Returns the round of a device after a payment. `own` is its round before, and `others` is the greatest round of the
/// coupled devices.
///
/// Rounds count payments of coupled devices, so that the launches of one round start together. A device that is behind
/// takes the round of the device that is furthest ahead. So a rank that launches less than the others is at most one round
/// behind.
#[must_use]
pub const fn next_round(own: u64, others: u64) -> u64 {
    let next = own.saturating_add(1);
    if next < others { others } else { next }
}

/// Returns the instant at which a process must try again because of a coupled device. The process has waited since `since`.
/// Its own device is in round `round` and admits it. `None`: the process is admitted.
///
/// A process does not wait for a device that is a round ahead, so each device delays a round once. An instant could not
/// show this: a device that pays late would seem to be ahead. A process does not wait for a busy device either, because the
/// work of that device may be the kernel that waits.
#[must_use]
pub fn wait(other: &PeerDevice, round: u64, since: Monotonic, now: Monotonic) -> Option<Monotonic> {
    if other.is_busy || other.round > round {
        return None;
    }
    let prepares = if other.is_asked { Monotonic::NEVER } else { other.ended.saturating_add(PREPARES) };
    let until = other.paid_until.min(prepares).min(since.saturating_add(MOST_WAIT));
    (until > now).then_some(until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::{ms, ns, us};

    /// A batch of 5 ms that took 25 ms and ended at 100 ms.
    const BATCH: MeasuredBatch = MeasuredBatch {
        predicted: WallTime::from_millis(5),
        length: WallTime::from_millis(25),
        until: Monotonic::from_nanos(100_000_000),
        after: WallTime::ZERO,
    };
    /// A device in debt up to 100 ms with a waiting process, in round 7.
    const OTHER: PeerDevice = PeerDevice {
        paid_until: Monotonic::from_nanos(100_000_000),
        is_asked: true,
        is_busy: false,
        ended: Monotonic::from_nanos(50_000_000),
        round: 7,
    };
    /// Returns the instant until which a process on a device of the same round waits. It has waited since 20 ms.
    fn wait(other: &PeerDevice, now: Monotonic) -> Option<Monotonic> {
        super::wait(other, 7, ms(20), now)
    }

    #[test]
    fn far_longer_is_half_as_long_again_and_a_millisecond() {
        let beyond =
            |predicted, length| MeasuredBatch { predicted, length, until: ns(0), after: ns(0) }.beyond();
        assert_eq!(beyond(ms(4), ms(7)), None);
        assert_eq!(beyond(ms(4), ms::<WallTime>(7) + ns(1)), Some(ms::<WallTime>(3) + ns(1)));
        assert_eq!(beyond(ns(0), ms(1)), None);
        assert_eq!(
            [BATCH.believed(), MeasuredBatch { predicted: ms(20), ..BATCH }.believed()],
            [ms(10), ms(25)]
        );
    }

    #[test]
    fn a_batch_was_ended_by_a_launch_that_was_throttled_until_just_before_its_end() {
        let kept = |since, until| ThrottledLaunch { since, until, is_overdraft: false };
        let ended_by = |since, until| BATCH.ended_by(kept(ms(since), ms(until)));
        assert!(ended_by(80, 95) && ended_by(70, 100));
        assert!(!ended_by(80, 90), "10 ms before: with what comes before it, it takes 10 at the most");
        assert!(!ended_by(80, 101), "it had not gone yet");
        let just = |since| BATCH.ended_by(kept(since, ms(95)));
        assert!(just(ns(92_499_999)) && !just(ns(92_500_000)), "an eighth of 20 ms");
        let last = MeasuredBatch { predicted: ms(10), length: ms(30), ..BATCH };
        let before = kept(ns(0), ms(87));
        assert!(last.ended_by(before) && !MeasuredBatch { length: ms(13), ..last }.ended_by(before));
        let ran = MeasuredBatch { predicted: ms(1), length: ms(6), ..BATCH };
        assert!(
            !ran.ended_by(kept(ns(0), ns(94_500_000))) && ran.ended_by(kept(ns(0), ms(95))),
            "it was kept before, not meanwhile"
        );
        assert!(!MeasuredBatch { length: ms(8), ..BATCH }.ended_by(kept(ms(80), ms(95))));
        let ahead = |until| BATCH.ended_by(ThrottledLaunch { is_overdraft: true, ..kept(ms(70), until) });
        assert!(!ahead(ms(94)) && ahead(ms::<Monotonic>(94) + ns(1)), "what goes ahead is one launch");
    }

    #[test]
    fn a_batch_that_may_have_ended_later_is_ended_by_a_launch_before_its_latest_end() {
        let kept = ThrottledLaunch { since: ms(80), until: ms(107), is_overdraft: false };
        let ended_by = |after| MeasuredBatch { after: ms(after), ..BATCH }.ended_by(kept);
        assert!(!ended_by(6) && ended_by(7));
        assert!(
            MeasuredBatch { after: ms(50), ..BATCH }.ended_by(ThrottledLaunch { until: ms(95), ..kept }),
            "or at the earliest"
        );
    }

    #[test]
    fn a_batch_far_longer_than_its_estimate_may_wait_for_a_second() {
        let may_wait =
            |length| MeasuredBatch { predicted: ms(4), length, until: ns(0), after: ns(0) }.may_wait();
        assert_eq!(
            [ms(7), ms::<WallTime>(7) + ns(1), ms(1004), ms::<WallTime>(1004) + ns(1)].map(may_wait),
            [false, true, true, false]
        );
    }

    #[test]
    fn two_overruns_within_ten_seconds_or_a_long_one_prove_coupling() {
        let short = |until| MeasuredBatch { predicted: ms(1), length: ms(4), until, after: ns(0) };
        let long = MeasuredBatch {
            predicted: ms(1),
            length: ms::<WallTime>(11) + ns(1),
            until: ns(0),
            after: ns(0),
        };
        let (held, ahead) = (
            ThrottledLaunch::default(),
            ThrottledLaunch { is_overdraft: true, ..ThrottledLaunch::default() },
        );
        let mut seen = CouplingEvidence::default();
        assert_eq!([1, 2].map(|at| seen.add(&short(ms(at)), held)), [false, true]);
        let mut seen = CouplingEvidence::default();
        assert_eq!([1, 1 + 10_001, 10_003].map(|at| seen.add(&short(ms(at)), held)), [false, false, true]);
        let mut seen = CouplingEvidence::default();
        assert_eq!([11_000, 21_000].map(|at| seen.add(&short(ms(at)), held)), [false, true], "ten seconds");
        assert!(CouplingEvidence::default().add(&long, held));
        assert!(!CouplingEvidence::default().add(&MeasuredBatch { length: ms(11), ..long }, held));
        let mut seen = CouplingEvidence::default();
        assert_eq!(
            [1, 2, 3, 4].map(|_| seen.add(&long, ahead)),
            [false, false, false, true],
            "four that went ahead"
        );
    }

    #[test]
    fn a_ready_launch_waits_for_throttled_ones_once() {
        let now = ms(60);
        assert_eq!(wait(&OTHER, now), Some(ms(100)));
        assert_eq!(wait(&OTHER, ms(100)), None);
        assert_eq!(super::wait(&OTHER, 8, ms(20), now), Some(ms(100)), "it is behind");
        assert_eq!(super::wait(&OTHER, 6, ms(20), now), None, "it is ahead");
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
        // The first rank pays and asks again at once. The second rank pays its launch of the same round a moment later.
        let first = next_round(7, 7);
        let second = next_round(7, first);
        let late = PeerDevice { round: second, ..OTHER };
        assert_eq!(super::wait(&late, first, ms(20), ms(60)), Some(ms(100)));
        // The second rank pays once more, and so it is ahead.
        let ahead = PeerDevice { round: next_round(second, first), ..OTHER };
        assert_eq!(super::wait(&ahead, first, ms(20), ms(60)), None);
    }

    #[test]
    fn a_peer_device_without_a_request_is_waited_for_as_long_as_it_may_prepare() {
        let silent = PeerDevice { is_asked: false, ..OTHER };
        assert_eq!(wait(&silent, ms(60)), Some(ms(100)));
        let early = PeerDevice { ended: ms(30), ..silent };
        assert_eq!(wait(&early, ms(60)), Some(ms(80)));
        assert_eq!(wait(&early, ms(80)), None);
    }

    #[test]
    fn no_launch_waits_for_longer_than_ten_seconds() {
        let far = PeerDevice { paid_until: ns(u64::MAX), ..OTHER };
        assert_eq!(wait(&far, ms(60)), Some(ms::<Monotonic>(20) + MOST_WAIT));
        assert_eq!(wait(&far, ms::<Monotonic>(20) + MOST_WAIT), None);
        let ended_later = PeerDevice { is_asked: false, ended: ns(u64::MAX), ..far };
        assert_eq!(wait(&ended_later, ms(60)), Some(ms::<Monotonic>(20) + MOST_WAIT));
    }

    #[test]
    fn devices_are_in_step_for_a_minute_whatever_the_word_says() {
        assert_eq!(
            [
                ns(0),
                ns(9),
                ns(10),
                ns::<Monotonic>(10) + COUPLING_LASTS,
                ns::<Monotonic>(11) + COUPLING_LASTS,
                Monotonic::NEVER
            ]
            .map(|until| is_coupled(until, ns(10))),
            [false, false, false, true, false, false]
        );
    }

    #[test]
    fn as_much_may_be_saved_up_as_others_have_and_a_millisecond() {
        assert_eq!([70, 100].map(|now| saved(&OTHER, ms(now))), [69, 99].map(ms));
        assert_eq!(saved(&OTHER, ms(150)), ms(99));
    }

    #[test]
    fn of_launches_that_were_kept_the_longer_one_is_told_for_ten_milliseconds() {
        let kept = |since, until| ThrottledLaunch { since, until, is_overdraft: false };
        let told = |since, until| should_publish(kept(since, until), kept(ms(50), ms(100)));
        assert!(!told(ms(101), ms(110)) && told(ms(101), ms::<Monotonic>(110) + ns(1)), "seen by then");
        assert!(told(ms(101), ms(151)), "as long");
        assert_eq!(
            [us(500), us::<Monotonic>(500) + ns(1)]
                .map(|until| should_publish(kept(ns(0), until), ThrottledLaunch::default())),
            [false, true]
        );
    }
}
