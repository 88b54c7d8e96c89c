//! Which launches are measured together, and what did a measurement say?
//!
//! Timing events cost about a microsecond each. A long kernel gets two of its own; small ones are bracketed as a run
//! of about 2 ms of predicted work. A run must be closed before every wait of ours, or the wait would be charged.

use super::cost::{Estimate, Key, Outcome, Part};

/// From here on a kernel is measured alone, in nanoseconds: 0.5 ms, of which two events are less than 1 %.
pub const LONG: u64 = 500_000;
/// From here on a graph is measured alone, in nanoseconds: 0.3 ms, since what is in it can change from launch to
/// launch. Two events are 0.7 % of it; with the 1 % of 0.2 ms nothing is left for whatever else is lost.
pub const LONG_GRAPH: u64 = 300_000;
/// How much predicted work makes a run full, in nanoseconds: 2 ms.
pub const FULL: u64 = 2_000_000;
/// How long after the GPU has stopped a waiting host is back, in nanoseconds, at most: 50 us for one that was put to
/// sleep; one that spins takes a tenth of it. What a run with waits costs is left to the estimates for so long. Without
/// it a program that launches 20 us and waits, over and over, is charged for its way back: a tenth too much.
const RETURN: u64 = 50_000;
/// How long the GPU takes to come from another process, in nanoseconds, at most: 0.1 ms. No kernel runs meanwhile, so
/// the first run of a turn is left to the estimates for so long; those of two processes would be 1 % too much.
const SWITCH: u64 = 100_000;
/// How long a run stays open, in nanoseconds on the clock: 10 ms. Kernels that take longer than they did before, with
/// a host that waits for each, would otherwise go unmeasured until there is a full run of predicted work.
pub const OLD: u64 = 10_000_000;
/// After how long a gap a launch is measured alone, in nanoseconds: 50 us, of which two events are 2 %. The GPU had nothing
/// to do meanwhile, and a run that goes on over such gaps says little of when its kernels ran.
pub const SPARSE: u64 = 50_000;
/// Gaps are of no account up to this part of a run: one in 20.
const GAPLESS: u64 = 20;
/// One launch in so many is measured alone where runs have gaps.
const SAMPLED: u32 = 512;
/// From here on every launch is measured alone where runs have gaps, in nanoseconds: 0.1 ms, of which two events are 1 %.
const SAMPLED_ALWAYS: u64 = 100_000;
/// As how many launches a run with gaps counts.
const GAPPY: u32 = 64;
/// Shapes of one run that can learn from it; those beyond are charged all the same.
const PARTS: usize = 8;

/// How a launch is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bracket {
    /// Between two events of its own.
    Alone,
    /// In a run with others on the same stream.
    Together,
}

impl Bracket {
    /// How to measure a launch of which so much is known, where its stream may have stood idle for `gap` nanoseconds
    /// because of the host.
    #[inline]
    #[must_use]
    pub const fn of(known: Option<&Estimate>, is_graph: bool, gap: u64) -> Self {
        match known {
            Some(known) if gap < SPARSE && Self::is_together(known, is_graph) => Self::Together,
            _ => Self::Alone,
        }
    }

    /// Whether a launch of which so much is known is measured with others, where its stream was not idle for
    /// [`SPARSE`] or longer.
    #[inline]
    #[must_use]
    pub const fn is_together(known: &Estimate, is_graph: bool) -> bool {
        known.is_certain() && known.plain < long(is_graph)
    }
}

const fn long(is_graph: bool) -> u64 {
    if is_graph { LONG_GRAPH } else { LONG }
}

/// Chooses launches to be measured alone, in a program whose runs have gaps and so teach nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sampler {
    count: u32,
    has_gaps: bool,
}

impl Sampler {
    /// A launch of this estimate that belongs into a run; whether it is measured alone instead.
    pub const fn launch(&mut self, estimate: &Estimate) -> bool {
        let is_due = self.is_due(estimate);
        self.passes();
        if self.count >= SAMPLED {
            *self = Self { count: 0, has_gaps: false };
        }
        is_due
    }

    /// Whether the next launch is to be measured alone if it is of this estimate.
    #[inline]
    #[must_use]
    pub const fn is_due(&self, estimate: &Estimate) -> bool {
        self.count >= SAMPLED.saturating_sub(1) || (self.has_gaps && estimate.plain >= SAMPLED_ALWAYS)
    }

    /// A launch was not chosen.
    #[inline]
    pub const fn passes(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// A run turned out to have gaps.
    pub const fn gaps(&mut self) {
        *self = Self { count: self.count.saturating_add(GAPPY), has_gaps: true };
    }
}

/// Launches of one thread on one stream between two events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    bracket: Bracket,
    launches: u32,
    prepaid: u64,
    plain: u64,
    gaps: u64,
    lead: u64,
    slack: u64,
    /// Predicted time of the launches before the host waited last.
    awaited: u64,
    tail: u64,
    late: u64,
    parts: [Option<Part>; PARTS],
}

impl Run {
    /// Opened by an event that has just been recorded.
    #[must_use]
    pub const fn open(bracket: Bracket) -> Self {
        Self {
            bracket,
            launches: 0,
            prepaid: 0,
            plain: 0,
            gaps: 0,
            lead: 0,
            slack: 0,
            awaited: 0,
            tail: 0,
            late: 0,
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

    /// The run's first launch has left the driver so long after the opening event was recorded, in nanoseconds.
    pub const fn lead(&mut self, nanoseconds: u64) {
        self.lead = nanoseconds;
    }

    /// The host has waited for the GPU inside the driver, for so many nanoseconds. It comes back some time after the GPU
    /// has come to a stop, and where the machine is busy much later: what is beyond the work that it waited for may have
    /// been that.
    #[inline]
    pub const fn waited(&mut self, inside: u64) {
        let late = inside.saturating_sub(self.plain.saturating_sub(self.awaited));
        self.slack = self.slack.saturating_add(if late > RETURN { late } else { RETURN });
        self.awaited = self.plain;
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

    /// The closing event was in the stream only so many nanoseconds after the run was closed, because of the host. Only for
    /// launches whose cost is known: of others nothing but the measurement says how long they took. What a host is late by
    /// that was not held up is of no account.
    pub const fn late(&mut self, nanoseconds: u64) {
        self.late = if nanoseconds > RETURN { nanoseconds } else { 0 };
    }

    /// A launch that was prepaid by this estimate. Whether the run is full and must be closed.
    #[inline]
    pub fn add(&mut self, key: &Key, estimate: &Estimate) -> bool {
        self.launches = self.launches.saturating_add(1);
        self.prepaid = self.prepaid.saturating_add(estimate.charged);
        self.plain = self.plain.saturating_add(estimate.plain);
        self.note(key, estimate);
        self.bracket == Bracket::Alone || self.plain >= FULL
    }

    fn note(&mut self, key: &Key, estimate: &Estimate) {
        let Estimate { charged, plain, .. } = *estimate;
        for part in &mut self.parts {
            match part {
                Some(part) if part.key.id() != key.id() => {}
                Some(part) => {
                    part.launches = part.launches.saturating_add(1);
                    part.charged = part.charged.saturating_add(charged);
                    part.plain = part.plain.saturating_add(plain);
                    return;
                }
                None => return *part = Some(Part { key: *key, launches: 1, charged, plain }),
            }
        }
    }

    /// What `measured` nanoseconds between its events mean.
    #[must_use]
    pub fn judge(&self, measured: u64, opening: Opening) -> Verdict {
        let lead = if opening == Opening::Busy { 0 } else { self.lead };
        let measured = measured.saturating_sub(lead).max(1);
        let switch = if opening == Opening::Switched { SWITCH } else { 0 };
        let gaps = self.gaps.saturating_add(self.slack).saturating_add(self.late);
        let (idle, lesson) = match self.bracket {
            Bracket::Alone => (self.late.saturating_add(switch), Lesson::Alone),
            Bracket::Together if gaps.saturating_mul(GAPLESS) > measured => {
                (gaps.saturating_add(switch), Lesson::Gaps)
            }
            Bracket::Together if switch > 0 => (switch, Lesson::Nothing),
            Bracket::Together => (0, Lesson::Run),
        };
        let length = self.plain.clamp(measured.saturating_sub(idle).max(1), measured);
        let after = self.tail.saturating_add(self.late).min(measured.saturating_sub(length));
        Verdict { length, after, lesson }
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

/// What a stream did when a run on it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// It was busy with what came before: the opening event passed when that had ended.
    Busy,
    /// It had come to its end: the opening event passed at once, and the first kernel began no sooner than its launch
    /// returned.
    Idle,
    /// The same, and the GPU came from another process of the slice meanwhile. Only for launches whose cost is known.
    Switched,
}

/// What estimates learn from a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lesson {
    /// The launch's own duration.
    Alone,
    /// The sum of several.
    Run,
    /// Nothing: the host was idle in between. [`Sampler::gaps`] is told.
    Gaps,
    /// Nothing, this time.
    Nothing,
}

/// What a measurement means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// How long the launches took, in nanoseconds.
    pub length: u64,
    /// How long before the closing event they are taken to have ended, in nanoseconds.
    pub after: u64,
    /// What is learned.
    pub lesson: Lesson,
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
        let mut run = Run::open(Bracket::Together);
        run.lead(3 * US);
        for _ in 0..launches {
            run.add(&Key::graph(1), &estimate(20 * US));
        }
        run.idle(gaps);
        run
    }

    #[test]
    fn long_kernels_graphs_the_unknown_and_the_sparse_are_measured_alone() {
        let known = |plain, is_graph, gap| Bracket::of(Some(&estimate(plain)), is_graph, gap);
        assert_eq!(known(499 * US, false, 0), Bracket::Together);
        assert_eq!(known(500 * US, false, 0), Bracket::Alone);
        assert_eq!(known(299 * US, true, 0), Bracket::Together);
        assert_eq!(known(300 * US, true, 0), Bracket::Alone);
        assert_eq!(known(20 * US, false, SPARSE), Bracket::Alone);
        assert_eq!(Bracket::of(None, false, 0), Bracket::Alone);
    }

    #[test]
    fn a_run_is_full_after_two_milliseconds_and_a_single_at_once() {
        let mut run = of(99, 0);
        assert!(run.add(&Key::graph(1), &estimate(20 * US)));
        assert!(!of(98, 0).add(&Key::graph(1), &estimate(20 * US)));
        assert!(Run::open(Bracket::Alone).add(&Key::graph(1), &estimate(1)));
        assert_eq!(run.prepaid(), 2000 * US);
    }

    #[test]
    fn a_run_without_gaps_costs_what_was_measured_less_the_lead_where_the_stream_was_idle() {
        let run = of(100, 100 * US);
        let verdict = Verdict { length: 2400 * US, after: 0, lesson: Lesson::Run };
        assert_eq!(run.judge(2400 * US, Opening::Busy), verdict);
        assert_eq!(run.judge(2403 * US, Opening::Idle), verdict);
    }

    #[test]
    fn a_run_with_gaps_costs_what_was_predicted_within_what_is_possible() {
        let length = |measured| of(100, 1000 * US).judge(measured, Opening::Busy).length;
        assert_eq!(length(2500 * US), 2000 * US);
        assert_eq!(length(1500 * US), 1500 * US);
        assert_eq!(length(3500 * US), 2500 * US);
        assert_eq!(of(100, 1000 * US).judge(2500 * US, Opening::Busy).lesson, Lesson::Gaps);
    }

    #[test]
    fn a_run_has_gaps_if_they_are_more_than_a_twentieth_of_it() {
        let lesson = |measured| of(100, 100 * US).judge(measured, Opening::Busy).lesson;
        assert_eq!(lesson(100 * US * GAPLESS), Lesson::Run);
        assert_eq!(lesson(100 * US * GAPLESS - 1), Lesson::Gaps);
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
    fn the_way_back_of_a_host_that_waited_is_left_to_the_estimate() {
        let mut run = of(10, 0);
        run.waited(210 * US);
        assert_eq!(run.judge(240 * US, Opening::Busy).length, 200 * US);
        assert_eq!(run.judge(260 * US, Opening::Busy).length, 210 * US);
    }

    #[test]
    fn a_host_that_comes_back_late_from_a_wait_is_not_charged_for_it() {
        let mut run = of(10, 0);
        run.waited(5_200 * US);
        assert_eq!(run.judge(5_240 * US, Opening::Busy).length, 240 * US);
        assert_eq!(run.judge(9_000 * US, Opening::Busy).length, 4_000 * US);
        run.waited(30 * US);
        assert_eq!(run.judge(5_240 * US, Opening::Busy).length, 200 * US, "what was waited for counts once");
    }

    #[test]
    fn the_way_from_another_process_is_left_to_the_estimate() {
        let switched = |measured| of(100, 0).judge(measured, Opening::Switched);
        assert_eq!(switched(2053 * US).length, 2000 * US);
        assert_eq!(switched(2203 * US).length, 2100 * US);
        assert_eq!(switched(2053 * US).lesson, Lesson::Nothing);
    }

    #[test]
    fn work_ends_before_the_gap_that_a_run_is_closed_with() {
        let mut run = of(10, 0);
        run.close(800 * US);
        assert_eq!(run.judge(1000 * US, Opening::Busy).after, 800 * US);
        assert_eq!(run.judge(900 * US, Opening::Busy).after, 700 * US);
    }

    #[test]
    fn a_host_that_is_late_with_the_closing_event_is_not_charged_for_it() {
        let judged = |bracket, late, measured| {
            let mut run = Run::open(bracket);
            run.add(&Key::graph(1), &estimate(1000 * US));
            run.close(0);
            run.late(late);
            let verdict = run.judge(measured, Opening::Busy);
            (verdict.length, verdict.after)
        };
        for bracket in [Bracket::Alone, Bracket::Together] {
            assert_eq!(judged(bracket, 20_000 * US, 20_010 * US), (1000 * US, 19_010 * US));
            assert_eq!(
                judged(bracket, 20_000 * US, 25_000 * US),
                (5000 * US, 20_000 * US),
                "it was busy before"
            );
            assert_eq!(judged(bracket, 20_000 * US, 400 * US), (400 * US, 0));
            assert_eq!(judged(bracket, RETURN, 1040 * US), (1040 * US, 0), "not held up");
        }
    }

    #[test]
    fn every_key_of_a_run_has_its_part_and_too_many_are_charged_all_the_same() {
        let mut run = Run::open(Bracket::Together);
        assert!(run.is_empty());
        for key in 0..20 {
            run.add(&Key::graph(key % 10), &estimate(10));
        }
        assert!(!run.is_empty());
        assert_eq!((run.launches(), run.prepaid(), run.plain()), (20, 200, 200));
        assert_eq!(run.parts().count(), PARTS);
        assert!(run.parts().all(|part| (part.launches, part.plain) == (2, 20)));
    }

    #[test]
    fn one_launch_in_512_is_sampled_and_a_run_with_gaps_counts_as_64() {
        let small = estimate(20 * US);
        let mut sampler = Sampler::default();
        assert_eq!((0..1024).filter(|_| sampler.launch(&small)).count(), 2);
        (0..7).for_each(|_| sampler.gaps());
        assert_eq!((0..64).position(|_| sampler.launch(&small)), Some(63));
        sampler.gaps();
        assert!(sampler.launch(&estimate(SAMPLED_ALWAYS)));
    }
}
