//! Which launches are measured together, and what did a measurement say?
//!
//! A timing event keeps its stream for one to a few microseconds: its cost ([`super::event_clock::EventCost`]). A long kernel gets two
//! of its own; small ones are bracketed as a run of about 2 ms of predicted work. A run must be closed before every wait of
//! ours, or the wait would be charged.

use super::super::cost::estimate::{Estimate, Key, Outcome, Part};
use super::when_alone::{Bracket, full};

/// How long after the GPU has stopped a waiting host is back, in nanoseconds, at most: 50 us for one that was put to
/// sleep; one that spins takes a tenth of it. What a run with waits costs is left to the estimates for so long. Without
/// it a program that launches 20 us and waits, over and over, is charged for its way back: a tenth too much.
pub const RETURN: u64 = 50_000;

/// How long a run stays open, in nanoseconds on the clock: 10 ms. Kernels that take longer than they did before, with
/// a host that waits for each, would otherwise go unmeasured until there is a full run of predicted work.
pub const OLD: u64 = 10_000_000;

/// Shapes of one run that can learn from it; those beyond are charged all the same.
const PARTS: usize = 8;

/// Launches of one thread on one stream between two events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub(super) bracket: Bracket,
    /// From how much predicted work on it is closed.
    pub(super) full: u64,
    pub(super) launches: u32,
    pub(super) prepaid: u64,
    pub(super) plain: u64,
    pub(super) gaps: u64,
    pub(super) lead: u64,
    pub(super) slack: u64,
    /// Predicted time of the launches before the host waited last.
    pub(super) awaited: u64,
    pub(super) tail: u64,
    pub(super) late: u64,
    /// Whether all estimates that it was prepaid by rest on measurements.
    pub(super) is_certain: bool,
    pub(super) parts: [Option<Part>; PARTS],
}

impl Run {
    /// Opened by an event that has just been recorded, where one costs `event` nanoseconds.
    #[must_use]
    pub const fn open(bracket: Bracket, event: u64) -> Self {
        Self {
            bracket,
            full: match bracket {
                Bracket::Alone => 0,
                Bracket::Together => full(event),
            },
            launches: 0,
            prepaid: 0,
            plain: 0,
            gaps: 0,
            lead: 0,
            slack: 0,
            awaited: 0,
            tail: 0,
            late: 0,
            is_certain: true,
            parts: [None; PARTS],
        }
    }

    /// How long the stream may have stood idle in it, in nanoseconds: what is not charged before it has ended.
    #[must_use]
    pub const fn gaps(&self) -> u64 {
        self.gaps.saturating_add(self.lead).saturating_add(self.slack).saturating_add(self.late)
    }

    /// How often something was launched in it.
    #[must_use]
    pub const fn launches(&self) -> u32 {
        self.launches
    }

    /// Whether nothing was launched in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.launches == 0
    }

    /// How its launches are measured.
    #[must_use]
    pub const fn bracket(&self) -> Bracket {
        self.bracket
    }

    /// GPU time that was prepaid for its launches, in nanoseconds.
    #[must_use]
    pub const fn prepaid(&self) -> u64 {
        self.prepaid
    }

    /// How long its launches are predicted to take one after the other, in nanoseconds.
    #[must_use]
    pub const fn plain(&self) -> u64 {
        self.plain
    }

    /// The run's first launch has left the driver so long after the opening event was recorded, or, where that had to wait for
    /// another event ([`delay`](super::when_alone::delay)), after it passed. In nanoseconds.
    pub const fn lead(&mut self, nanoseconds: u64) {
        self.lead = nanoseconds;
    }

    /// The host has waited for the GPU, and was inside the driver for `inside` nanoseconds: since the stream that was empty
    /// had its first launch ([`Spell`]), or in the wait alone. Time beyond the predicted work may have been idle: launches
    /// may take longer than their kernels, and the host comes back some time after the GPU has come to a stop, on a busy
    /// machine much later.
    #[inline]
    pub const fn waited(&mut self, inside: u64) {
        let late = inside.saturating_sub(self.unawaited());
        self.slack = self.slack.saturating_add(if late > RETURN { late } else { RETURN });
        self.awaited = self.plain;
    }

    /// Predicted time of the launches since the host waited last, in nanoseconds.
    const fn unawaited(&self) -> u64 {
        self.plain.saturating_sub(self.awaited)
    }

    /// The stream may have stood idle for so many nanoseconds because of the host: between the driver's return from a
    /// call and the entry of the next, and after a wait for the stream up to the return from the launch.
    #[inline]
    pub const fn idle(&mut self, nanoseconds: u64) {
        self.gaps = self.gaps.saturating_add(nanoseconds);
    }

    /// It is closed, so long after the last launch, of which the stream may have been idle for so many nanoseconds.
    pub const fn close(&mut self, idle: u64) {
        self.idle(idle);
        self.tail = idle;
    }

    /// The closing event was in the stream only `nanoseconds` after the run was closed, because of the host. A host that was
    /// not held up is late by less than [`RETURN`], which is of no account.
    pub const fn late(&mut self, nanoseconds: u64) {
        self.late = if nanoseconds > RETURN { nanoseconds } else { 0 };
    }

    /// A launch that was prepaid by this estimate. Whether the run is full and must be closed.
    #[inline]
    pub fn add(&mut self, key: &Key, estimate: &Estimate) -> bool {
        // A run is closed long before its launches could fill the counter.
        self.launches = self.launches.wrapping_add(1);
        self.prepaid = self.prepaid.saturating_add(estimate.charged);
        self.plain = self.plain.saturating_add(estimate.plain);
        self.is_certain &= estimate.is_certain();
        self.note(key, estimate);
        self.plain >= self.full
    }

    /// Whether it may go on although it is full, since an event behind its last launch would keep the next from beginning before
    /// that one has ended. As long as a run may be open at all, by what is predicted.
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        self.bracket == Bracket::Together && self.plain < OLD
    }

    fn note(&mut self, key: &Key, estimate: &Estimate) {
        let Estimate { charged, plain, .. } = *estimate;
        for part in &mut self.parts {
            match part {
                Some(part) if part.key.id() != key.id() => {}
                Some(part) => {
                    part.launches = part.launches.wrapping_add(1);
                    part.charged = part.charged.saturating_add(charged);
                    part.plain = part.plain.saturating_add(plain);
                    return;
                }
                None => return *part = Some(Part { key: *key, launches: 1, charged, plain }),
            }
        }
    }

    /// The keys that learn from it.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().flatten()
    }

    /// What its keys learn, where the measurement was of the whole run.
    #[must_use]
    pub const fn outcome(&self, charged: u64, plain: u64) -> Outcome {
        Outcome { charged, charged_predicted: self.prepaid, plain, plain_predicted: self.plain }
    }
}

/// The time from the first launch into an empty stream to the next wait for it, over which runs may be closed and opened.
///
/// A launch of 10 us keeps a kernel of 5 us waiting: the stream is idle for half of the time although the host never leaves
/// the driver. Of the time inside the driver all that is beyond the predicted work may have been idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spell {
    /// Predicted time of the runs that were closed in it, and what of it counts as idle in them.
    predicted: u64,
    counted: u64,
}

impl Spell {
    /// Of `inside` nanoseconds inside the driver since it began, those that no closed run accounts for.
    #[must_use]
    pub const fn left(&self, inside: u64) -> u64 {
        inside.saturating_sub(self.predicted.saturating_add(self.counted))
    }

    /// Whether the stream may have run empty `passed` nanoseconds after it began, where `open` is the run that is open in it:
    /// no more than `last` nanoseconds of predicted work are left.
    #[must_use]
    pub fn may_have_ended(&self, open: Option<&Run>, passed: u64, last: u64) -> bool {
        let predicted = self.predicted.saturating_add(open.map_or(0, Run::unawaited));
        passed.saturating_add(last) > predicted
    }

    /// `run` is closed in it. The host was inside the driver for `inside` nanoseconds until its last launch returned.
    pub const fn close(&mut self, run: &mut Run, inside: u64) {
        let idle = self.left(inside).saturating_sub(run.unawaited());
        run.slack = run.slack.saturating_add(idle);
        self.predicted = self.predicted.saturating_add(run.unawaited());
        self.counted = self.counted.saturating_add(idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    fn estimate(plain: u64) -> Estimate {
        let mut estimate = Estimate::NONE;
        (estimate.charged, estimate.plain, estimate.samples) = (plain, plain, 1);
        estimate
    }

    fn of(launches: u64, gaps: u64) -> Run {
        let mut run = Run::open(Bracket::Together, 0);
        run.lead(3 * US);
        for _ in 0..launches {
            run.add(&Key::graph(1), &estimate(20 * US));
        }
        run.idle(gaps);
        run
    }

    #[test]
    fn a_run_is_full_after_two_milliseconds_and_a_single_at_once() {
        let mut run = of(99, 0);
        assert!(run.add(&Key::graph(1), &estimate(20 * US)));
        assert!(!of(98, 0).add(&Key::graph(1), &estimate(20 * US)));
        assert!(Run::open(Bracket::Alone, 0).add(&Key::graph(1), &estimate(1)));
        assert_eq!(run.prepaid(), 2000 * US);
    }

    #[test]
    fn a_full_run_can_go_on_for_ten_milliseconds_and_a_single_cannot() {
        assert!(of(499, 0).can_go_on() && !of(500, 0).can_go_on());
        let mut single = Run::open(Bracket::Alone, 0);
        single.add(&Key::graph(1), &estimate(1));
        assert!(!single.can_go_on());
    }

    #[test]
    fn all_that_may_have_been_a_gap_is_not_charged_before_the_end() {
        let mut run = of(10, 100);
        assert_eq!(run.gaps(), 3 * US + 100);
        run.waited(0);
        run.close(7);
        run.late(RETURN + 1);
        assert_eq!(run.gaps(), 3 * US + 107 + 2 * RETURN + 1);
    }

    #[test]
    fn every_key_of_a_run_has_its_part_and_too_many_are_charged_all_the_same() {
        let mut run = Run::open(Bracket::Together, 0);
        assert!(run.is_empty());
        for key in 0..20 {
            run.add(&Key::graph(key % 10), &estimate(10));
        }
        assert!(!run.is_empty());
        assert_eq!((run.launches(), run.prepaid(), run.plain()), (20, 200, 200));
        assert_eq!(run.parts().count(), PARTS);
        assert!(run.parts().all(|part| (part.launches, part.plain) == (2, 20)));
    }
}
