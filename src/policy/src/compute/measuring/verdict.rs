//! Judges a measured batch: how long its launches took, and what the estimates learn.

use super::batch::{RETURN, Run};
use super::when_alone::Bracket;

/// How long the GPU takes to come from another process, in nanoseconds, at most: 0.1 ms. No kernel runs meanwhile, so
/// the first run of a turn is left to the estimates for so long; those of two processes would be 1 % too much.
const SWITCH: u64 = 100_000;

/// Gaps are of no account up to this part of a run: one in 20.
const GAPLESS: u64 = 20;

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
    /// Nothing: the host was idle in between. [`Sampler::gaps`](super::when_alone::Sampler::gaps) is told.
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

impl Run {
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
}

#[cfg(test)]
mod tests {
    use super::super::super::cost::estimate::{Estimate, Key};
    use super::super::batch::Spell;
    use super::super::when_alone::delay;
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
    fn a_run_without_gaps_costs_what_was_measured_less_the_lead_where_the_stream_was_idle() {
        let run = of(100, 100 * US);
        let verdict = Verdict { length: 2400 * US, events: 0, after: 0, held: false, lesson: Lesson::Run };
        assert_eq!(run.judge(2400 * US, Opening::Busy, 0), verdict);
        assert_eq!(run.judge(2403 * US, Opening::Idle, 0), verdict);
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
}
