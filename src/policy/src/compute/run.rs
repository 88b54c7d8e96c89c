//! Which launches are measured together, and what did a measurement say?
//!
//! A timing event keeps its stream for one to a few microseconds: its cost ([`super::timeline::EventCost`]). A long kernel gets two
//! of its own; small ones are bracketed as a run of about 2 ms of predicted work. A run must be closed before every wait of
//! ours, or the wait would be charged.

use super::cost::{Estimate, Key, Outcome, Part};

/// Of what lies between two events because it is long, one event is at most one part in so many: a pair costs 0.5 % of the
/// throughput. All lengths from which work is measured by itself follow ([`long`], [`full`]).
const EVENTS: u64 = 400;
/// From here on a kernel is measured alone, in nanoseconds, however little an event costs: 0.5 ms.
pub const LONG: u64 = 500_000;
/// From here on a graph is measured alone, in nanoseconds, however little an event costs: 0.3 ms, since what is in it can change
/// from launch to launch.
pub const LONG_GRAPH: u64 = 300_000;
/// How much predicted work makes a run full, in nanoseconds, however little an event costs: 2 ms.
pub const FULL: u64 = 2_000_000;
/// How long after the GPU has stopped a waiting host is back, in nanoseconds, at most: 50 us for one that was put to
/// sleep; one that spins takes a tenth of it. What a run with waits costs is left to the estimates for so long. Without
/// it a program that launches 20 us and waits, over and over, is charged for its way back: a tenth too much.
pub const RETURN: u64 = 50_000;
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
/// After how many launches one is measured alone although its stream may have run empty.
const LATEST: u32 = 2 * SAMPLED;
/// One of so many launches that wait for that looks whether it can be: a look costs as much as a fifth of a launch.
///
/// A prime that few programs wait after. In a program that waits after each 10 launches one of ten can be measured: with 2, 4,
/// 5 or 6 the looks miss it, with 31 they come too seldom before `LATEST`, and shares are up to 2.6 points too small.
const LOOKS: u32 = 11;
/// From here on every launch is measured alone where runs have gaps, in nanoseconds: 0.1 ms. In a gap events keep nothing
/// waiting.
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
    /// How to measure a launch of which so much is known, where those of its kind are [`long`] from `long` nanoseconds on, and
    /// where its stream may have stood idle for `gap` nanoseconds because of the host.
    #[inline]
    #[must_use]
    pub const fn of(known: Option<&Estimate>, long: u64, gap: u64) -> Self {
        match known {
            Some(known) if gap < SPARSE && Self::is_together(known, long) => Self::Together,
            _ => Self::Alone,
        }
    }

    /// Whether a launch of which so much is known is measured with others, where those of its kind are [`long`] from `long`
    /// nanoseconds on and its stream was not idle for [`SPARSE`] or longer.
    #[inline]
    #[must_use]
    pub const fn is_together(known: &Estimate, long: u64) -> bool {
        known.is_certain() && known.plain < long
    }
}

/// From here on a kernel, or a graph, is measured alone, where an event costs `event`. In nanoseconds.
#[must_use]
pub const fn long(is_graph: bool, event: u64) -> u64 {
    beside_events(if is_graph { LONG_GRAPH } else { LONG }, event)
}

/// How much predicted work makes a run full, where an event costs `event`. In nanoseconds.
#[must_use]
pub const fn full(event: u64) -> u64 {
    beside_events(FULL, event)
}

/// The length of work from which two events are next to nothing of it, and no less than `least`.
const fn beside_events(least: u64, event: u64) -> u64 {
    let length = event.saturating_mul(EVENTS);
    if length > least { length } else { least }
}

/// How long after it was recorded an event passes in a stream that had ended, where another was recorded there `before` ago, and
/// each costs `event`. In nanoseconds.
#[must_use]
pub const fn delay(before: u64, event: u64) -> u64 {
    event.saturating_sub(before)
}

/// Chooses launches to be measured alone, in a program whose runs have gaps and so teach nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampler {
    count: u32,
    /// The count at which a launch is measured alone, or looks whether it can be.
    due: u32,
    /// From how many nanoseconds on every launch is measured alone: where runs have gaps.
    always: u64,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { count: 0, due: SAMPLED - 1, always: u64::MAX }
    }
}

impl Sampler {
    /// A launch of this estimate that belongs into a run; whether it is measured alone instead.
    ///
    /// `may_be_empty` tells whether the stream may have run empty ([`Spell::may_have_ended`]). The events around a launch of
    /// 10 us into an empty stream look as if its kernel had taken 10 us. So a small kernel is not measured until the stream is
    /// known to be busy, or known to be empty after a wait, for `LATEST` launches at most.
    pub fn launch(&mut self, estimate: &Estimate, may_be_empty: impl FnOnce() -> bool) -> bool {
        let is_due = self.count >= SAMPLED - 1 || estimate.plain >= self.always;
        let waits = is_due && estimate.plain < SAMPLED_ALWAYS && self.count < LATEST && may_be_empty();
        self.passes();
        if waits {
            self.due = self.count.saturating_add(LOOKS - 1);
            return false;
        }
        if self.count >= SAMPLED {
            *self = Self::default();
        }
        is_due
    }

    /// Whether the next launch, if it is of this estimate, is to be measured alone or to look whether it can be.
    #[inline]
    #[must_use]
    pub const fn is_due(&self, estimate: &Estimate) -> bool {
        self.count >= self.due || estimate.plain >= self.always
    }

    /// A launch was not chosen.
    #[inline]
    pub const fn passes(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// A run turned out to have gaps.
    pub const fn gaps(&mut self) {
        self.count = self.count.saturating_add(GAPPY);
        self.always = SAMPLED_ALWAYS;
    }
}

/// Launches of one thread on one stream between two events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    bracket: Bracket,
    /// From how much predicted work on it is closed.
    full: u64,
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
    /// Whether all estimates that it was prepaid by rest on measurements.
    is_certain: bool,
    parts: [Option<Part>; PARTS],
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
    /// another event ([`delay`]), after it passed. In nanoseconds.
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

    /// What `measured` nanoseconds between its events mean, where an event costs `event` nanoseconds.
    ///
    /// The events bound the work from both sides: it took `measured` at most, and at least `measured` less the time in which
    /// the stream may have been idle. Between the two bounds the estimate decides. A measurement whose bounds are far apart
    /// does not replace an estimate that is uncertain: the next launch is measured as well, and this one is charged for all that
    /// it may have taken. A batch of copies, for one, returns only when it has ended.
    #[must_use]
    pub fn judge(&self, measured: u64, opening: Opening, event: u64) -> Verdict {
        let (way, held) = self.lead_of(measured, opening, event);
        let measured = measured.saturating_sub(way).max(1);
        let switch = if opening == Opening::Switched { SWITCH } else { 0 };
        let held = held.saturating_add(self.late);
        let gaps = self.gaps.saturating_add(self.slack).saturating_add(held);
        let (idle, lesson) = match self.bracket {
            Bracket::Alone if !self.is_certain && held > measured.saturating_sub(held) => {
                (0, Lesson::Nothing)
            }
            Bracket::Alone => (held.saturating_add(switch), Lesson::Alone),
            Bracket::Together if gaps.saturating_mul(GAPLESS) > measured => {
                (gaps.saturating_add(switch), Lesson::Gaps)
            }
            Bracket::Together if switch > 0 => (switch, Lesson::Nothing),
            Bracket::Together => (0, Lesson::Run),
        };
        let length = self.plain.clamp(measured.saturating_sub(idle).max(1), measured);
        let after = self.tail.saturating_add(self.late).min(measured.saturating_sub(length));
        let events = match opening {
            Opening::Busy => event.saturating_mul(2),
            _ => event.saturating_sub(self.lead),
        };
        Verdict { length, events, after, held: held > 0, lesson }
    }

    /// How long after the opening event passed the first kernel began, and how long the stream may have been idle beyond that, in
    /// nanoseconds.
    ///
    /// The event keeps a stream that was busy. In one that was idle a launch takes a few microseconds each time, and its kernel
    /// begins at the end of them. A launch that takes longer was
    /// held up: before its kernel began, as where code is loaded, or while the kernel ran, as where the thread lost its
    /// processor. A launch that returned after the kernel's end shows the latter.
    fn lead_of(&self, measured: u64, opening: Opening, event: u64) -> (u64, u64) {
        let lead = self.lead.max(event);
        match opening {
            Opening::Busy => (event, 0),
            _ if self.lead > RETURN || lead >= measured => (0, lead),
            _ => (lead, 0),
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
    /// For how long they had to wait for events of ours before that, in nanoseconds: where the stream was busy, for the one that
    /// closes the run before and for the one that opens this. No other kernel of the stream can run meanwhile, so that is the
    /// slice's time as well, but nothing that estimates are to learn.
    pub events: u64,
    /// How long before the closing event they are taken to have ended, in nanoseconds.
    pub after: u64,
    /// Whether the host was held up, so that the stream may have been idle when the closing event passed. Of the next run its
    /// opening event then says nothing: it passed at once.
    pub held: bool,
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
        let mut run = Run::open(Bracket::Together, 0);
        run.lead(3 * US);
        for _ in 0..launches {
            run.add(&Key::graph(1), &estimate(20 * US));
        }
        run.idle(gaps);
        run
    }

    #[test]
    fn long_kernels_graphs_the_unknown_and_the_sparse_are_measured_alone() {
        let known = |plain, is_graph, gap| Bracket::of(Some(&estimate(plain)), long(is_graph, 0), gap);
        assert_eq!(known(499 * US, false, 0), Bracket::Together);
        assert_eq!(known(500 * US, false, 0), Bracket::Alone);
        assert_eq!(known(299 * US, true, 0), Bracket::Together);
        assert_eq!(known(300 * US, true, 0), Bracket::Alone);
        assert_eq!(known(20 * US, false, SPARSE), Bracket::Alone);
        assert_eq!(Bracket::of(None, LONG, 0), Bracket::Alone);
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
    fn a_run_without_gaps_costs_what_was_measured_less_the_lead_where_the_stream_was_idle() {
        let run = of(100, 100 * US);
        let verdict = Verdict { length: 2400 * US, events: 0, after: 0, held: false, lesson: Lesson::Run };
        assert_eq!(run.judge(2400 * US, Opening::Busy, 0), verdict);
        assert_eq!(run.judge(2403 * US, Opening::Idle, 0), verdict);
    }

    #[test]
    fn two_events_are_at_most_a_two_hundredth_of_what_is_measured_because_it_is_long() {
        assert_eq!([false, true].map(|is_graph| long(is_graph, 2_500)), [1_000 * US; 2]);
        assert_eq!([false, true].map(|is_graph| long(is_graph, 1_000)), [500 * US, 400 * US]);
        assert_eq!([2_500, 6_000].map(full), [FULL, 2_400 * US]);
    }

    #[test]
    fn what_events_take_is_told_apart_from_what_launches_take() {
        let judged = |measured, opening, event| {
            let verdict = of(100, 0).judge(measured, opening, event);
            (verdict.length, verdict.events)
        };
        assert_eq!(judged(2_402 * US, Opening::Busy, 2 * US), (2_400 * US, 4 * US));
        assert_eq!(judged(2_403 * US, Opening::Idle, 2 * US), (2_400 * US, 0), "it passed within the launch");
        assert_eq!(judged(2_407 * US, Opening::Idle, 7 * US), (2_400 * US, 4 * US));
        assert_eq!([0, 1_000, 2_500, 9_000].map(|before| delay(before, 2_500)), [2_500, 1_500, 0, 0]);
    }

    #[test]
    fn a_run_with_gaps_costs_what_was_predicted_within_what_is_possible() {
        let length = |measured| of(100, 1000 * US).judge(measured, Opening::Busy, 0).length;
        assert_eq!(length(2500 * US), 2000 * US);
        assert_eq!(length(1500 * US), 1500 * US);
        assert_eq!(length(3500 * US), 2500 * US);
        assert_eq!(of(100, 1000 * US).judge(2500 * US, Opening::Busy, 0).lesson, Lesson::Gaps);
    }

    #[test]
    fn a_run_has_gaps_if_they_are_more_than_a_twentieth_of_it() {
        let lesson = |measured| of(100, 100 * US).judge(measured, Opening::Busy, 0).lesson;
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
        assert_eq!(run.judge(240 * US, Opening::Busy, 0).length, 200 * US);
        assert_eq!(run.judge(260 * US, Opening::Busy, 0).length, 210 * US);
    }

    #[test]
    fn a_host_that_comes_back_late_from_a_wait_is_not_charged_for_it() {
        let mut run = of(10, 0);
        run.waited(5_200 * US);
        assert_eq!(run.judge(5_240 * US, Opening::Busy, 0).length, 240 * US);
        assert_eq!(run.judge(9_000 * US, Opening::Busy, 0).length, 4_000 * US);
        run.waited(30 * US);
        assert_eq!(
            run.judge(5_240 * US, Opening::Busy, 0).length,
            200 * US,
            "what was waited for counts once"
        );
    }

    #[test]
    fn the_way_from_another_process_is_left_to_the_estimate() {
        let switched = |measured| of(100, 0).judge(measured, Opening::Switched, 0);
        assert_eq!(switched(2053 * US).length, 2000 * US);
        assert_eq!(switched(2203 * US).length, 2100 * US);
        assert_eq!(switched(2053 * US).lesson, Lesson::Nothing);
    }

    #[test]
    fn work_ends_before_the_gap_that_a_run_is_closed_with() {
        let mut run = of(10, 0);
        run.close(800 * US);
        assert_eq!(run.judge(1000 * US, Opening::Busy, 0).after, 800 * US);
        assert_eq!(run.judge(900 * US, Opening::Busy, 0).after, 700 * US);
    }

    #[test]
    fn a_host_that_is_late_with_the_closing_event_is_not_charged_for_it() {
        let judged = |bracket, late, measured| {
            let mut run = Run::open(bracket, 0);
            run.add(&Key::graph(1), &estimate(1000 * US));
            run.close(0);
            run.late(late);
            let verdict = run.judge(measured, Opening::Busy, 0);
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

    /// A launch that is measured alone, of which `plain` is known or, where it is not `certain`, believed.
    fn single(plain: u64, certain: bool, lead: u64) -> Run {
        let mut run = Run::open(Bracket::Alone, 0);
        run.add(&Key::graph(1), &Estimate { samples: certain.into(), ..estimate(plain) });
        run.lead(lead);
        run
    }

    #[test]
    fn a_launch_that_returns_after_its_kernel_has_ended_teaches_nothing_that_is_not_known() {
        // 400 us, of a thread that loses its processor for 3 ms behind the launch.
        let judged = |certain| {
            let verdict = single(20 * US, certain, 3_004 * US).judge(3_008 * US, Opening::Idle, 0);
            (verdict.length, verdict.held, verdict.lesson)
        };
        assert_eq!(judged(false), (3_008 * US, true, Lesson::Nothing));
        assert_eq!(judged(true), (20 * US, true, Lesson::Alone));
        let known = |plain| single(plain, true, 3_004 * US).judge(3_008 * US, Opening::Idle, 0).length;
        assert_eq!([1, 400 * US, 9_000 * US].map(known), [4 * US, 400 * US, 3_008 * US]);
    }

    #[test]
    fn a_closing_event_that_is_late_teaches_nothing_of_a_launch_that_is_not_known() {
        let mut run = single(20 * US, false, 3 * US);
        run.late(3_000 * US);
        let verdict = run.judge(3_403 * US, Opening::Idle, 0);
        assert_eq!((verdict.length, verdict.lesson), (3_400 * US, Lesson::Nothing));
        assert_eq!(
            run.judge(90_000 * US, Opening::Busy, 0).lesson,
            Lesson::Alone,
            "of a long one it says enough"
        );
    }

    #[test]
    fn a_launch_that_is_held_up_for_less_than_its_kernel_takes_is_believed() {
        let verdict = single(20 * US, false, 1_000 * US).judge(9_000 * US, Opening::Idle, 0);
        assert_eq!((verdict.length, verdict.lesson), (8_000 * US, Lesson::Alone));
        let half = single(20 * US, false, 1_000 * US).judge(2_000 * US, Opening::Idle, 0);
        assert_eq!((half.length, half.lesson), (1_000 * US, Lesson::Alone));
        let less = single(20 * US, false, 1_000 * US).judge(1_999 * US, Opening::Idle, 0);
        assert_eq!((less.length, less.lesson), (1_999 * US, Lesson::Nothing));
    }

    #[test]
    fn what_a_launch_takes_each_time_is_over_before_its_kernel_begins() {
        let judged = |lead, measured| {
            let verdict = single(20 * US, false, lead).judge(measured, Opening::Idle, 0);
            (verdict.length, verdict.held, verdict.lesson)
        };
        assert_eq!(judged(6 * US, 8 * US), (2 * US, false, Lesson::Alone));
        assert_eq!(judged(RETURN, RETURN + 1), (1, false, Lesson::Alone));
        assert_eq!(
            judged(6 * US, 6 * US),
            (6 * US, true, Lesson::Nothing),
            "it was not: the kernel has ended"
        );
        let busy = single(20 * US, false, 3_000 * US).judge(400 * US, Opening::Busy, 0);
        assert_eq!((busy.length, busy.held, busy.lesson), (400 * US, false, Lesson::Alone));
    }

    #[test]
    fn a_run_whose_first_launch_is_held_up_is_left_to_the_estimates() {
        let mut run = of(100, 0);
        run.lead(3_000 * US);
        let judged = |measured| run.judge(measured, Opening::Idle, 0);
        assert_eq!((judged(4_900 * US).length, judged(4_900 * US).lesson), (2_000 * US, Lesson::Gaps));
        assert_eq!(judged(6_000 * US).length, 3_000 * US);
        assert_eq!(judged(2_900 * US).length, 2_000 * US);
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

    #[test]
    fn launches_that_take_longer_than_their_kernels_are_left_to_the_estimates() {
        let launched = |launches| {
            let mut run = of(launches, 0);
            run.lead(0);
            run
        };
        // Ten launches of 50 us with kernels of 20 us, and a wait.
        let mut run = launched(10);
        let spell = Spell::default();
        run.waited(spell.left(500 * US));
        assert_eq!(run.judge(500 * US, Opening::Busy, 0).length, 200 * US);
        // The run is closed after six of them, and the wait comes in the next one.
        let (mut first, mut second) = (launched(6), launched(4));
        let mut spell = Spell::default();
        spell.close(&mut first, 300 * US);
        assert_eq!(first.judge(300 * US, Opening::Busy, 0).length, 120 * US);
        second.waited(spell.left(500 * US));
        assert_eq!(second.judge(200 * US, Opening::Busy, 0).length, 80 * US);
        assert!(spell.may_have_ended(None, 101 * US, 20 * US));
        assert!(!spell.may_have_ended(None, 100 * US, 20 * US));
        assert!(!spell.may_have_ended(Some(&launched(1)), 120 * US, 20 * US));
        // Launches of 5 us keep nothing waiting.
        let (mut run, mut spell) = (launched(10), Spell::default());
        spell.close(&mut run, 50 * US);
        assert_eq!(run.judge(210 * US, Opening::Busy, 0).length, 210 * US);
    }

    #[test]
    fn a_small_launch_waits_to_be_sampled_until_its_stream_is_known_to_be_empty() {
        let due = || {
            let mut sampler = Sampler::default();
            (0..SAMPLED - 1).for_each(|_| sampler.passes());
            sampler
        };
        let small = estimate(20 * US);
        let mut sampler = due();
        assert!(!sampler.launch(&small, || true) && !sampler.launch(&small, || true));
        assert!(sampler.launch(&small, || false));
        assert_eq!(sampler, Sampler::default());
        let mut sampler = due();
        assert_eq!((0..2000).position(|_| sampler.launch(&small, || true)), Some(SAMPLED as usize + 1));
        assert!(due().launch(&estimate(SAMPLED_ALWAYS), || true), "a longer one does not");
    }

    #[test]
    fn of_launches_that_wait_to_be_sampled_one_in_eleven_looks() {
        let small = estimate(20 * US);
        let mut sampler = Sampler::default();
        let looks = |_: &u32| {
            let is_due = sampler.is_due(&small);
            if is_due {
                assert!(!sampler.launch(&small, || true));
            } else {
                sampler.passes();
            }
            is_due
        };
        assert_eq!((1..540).filter(looks).collect::<Vec<_>>(), [512, 523, 534]);
    }

    #[test]
    fn one_launch_in_512_is_sampled_and_a_run_with_gaps_counts_as_64() {
        let small = estimate(20 * US);
        let mut sampler = Sampler::default();
        assert_eq!((0..1024).filter(|_| sampler.launch(&small, || false)).count(), 2);
        (0..7).for_each(|_| sampler.gaps());
        assert_eq!((0..64).position(|_| sampler.launch(&small, || false)), Some(63));
        sampler.gaps();
        assert!(sampler.launch(&estimate(SAMPLED_ALWAYS), || false));
    }
}
