//! The verdict on a measured batch: the duration of its launches, and the lesson for the estimates.

use super::batch::{Batch, RETURN};
use super::when_alone::Timing;

/// Nanoseconds that the GPU takes to switch from another process, at most: 0.1 ms. No kernel runs in that time, so
/// this part of the first batch of a turn is left to the estimates. Otherwise the batches of two processes would be 1
/// % too long.
const SWITCH: u64 = 100_000;

/// Gaps below one part in 20 of a batch do not count.
const GAPLESS: u64 = 20;

/// State of the stream when a batch on it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Busy with earlier work: the opening event passed at the end of that work.
    Busy,
    /// Empty: the opening event passed at once, and the first kernel began when its launch returned.
    Idle,
    /// Empty, and the GPU came from another process of the slice meanwhile. For launches of known cost only.
    Switched,
}

/// The lesson of a measurement for the estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EstimateUpdate {
    /// The duration of one launch.
    Single,
    /// The sum of several launches.
    Batch,
    /// Nothing: the host left the stream idle. The caller calls [`Sampler::gaps`](super::when_alone::Sampler::gaps).
    Gaps,
    /// Nothing this time.
    Nothing,
}

/// The meaning of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Duration of the launches, in nanoseconds.
    pub length: u64,
    /// Nanoseconds for which the launches waited for timing events. On a busy stream these are the closing event of
    /// the batch before and the opening event of this one. No other kernel of the stream can run meanwhile, so this
    /// is the slice's time, but no lesson for the estimates.
    pub events: u64,
    /// Nanoseconds between the assumed end of the launches and the closing event.
    pub after: u64,
    /// True if the host was delayed, so that the stream may have been empty when the closing event passed. The
    /// opening event of the next batch then says nothing: it passed at once.
    pub held: bool,
    /// The lesson.
    pub lesson: EstimateUpdate,
}

impl Batch {
    /// Judges a measurement of `measured` nanoseconds between the batch's events, where an event costs `event`
    /// nanoseconds.
    ///
    /// The events bound the work from both sides. It took at most `measured`, and at least `measured` less the time
    /// for which the stream may have been idle. Between the bounds the estimate decides.
    ///
    /// Why the estimate: with a late host the upper bound charges the slice for idle time, and the lower bound lets
    /// it run for nothing.
    ///
    /// What could go wrong: a wrong estimate between two distant bounds would confirm itself. So such a measurement
    /// does not replace an uncertain estimate. The next launch is measured again, and this one is charged the upper
    /// bound. Example: a batch of copies returns only when it has ended.
    #[must_use]
    pub fn judge(&self, measured: u64, opening: Opening, event: u64) -> Verdict {
        let (way, held) = self.lead_of(measured, opening, event);
        let measured = measured.saturating_sub(way).max(1);
        let switch = if opening == Opening::Switched { SWITCH } else { 0 };
        let held = held.saturating_add(self.late);
        let gaps = self.gaps.saturating_add(self.slack).saturating_add(held);
        let (idle, lesson) = match self.timing {
            Timing::Single if !self.is_certain && held > measured.saturating_sub(held) => {
                (0, EstimateUpdate::Nothing)
            }
            Timing::Single => (held.saturating_add(switch), EstimateUpdate::Single),
            Timing::Batched if gaps.saturating_mul(GAPLESS) > measured => {
                (gaps.saturating_add(switch), EstimateUpdate::Gaps)
            }
            Timing::Batched if switch > 0 => (switch, EstimateUpdate::Nothing),
            Timing::Batched => (0, EstimateUpdate::Batch),
        };
        let length = self.plain.clamp(measured.saturating_sub(idle).max(1), measured);
        let after = self.tail.saturating_add(self.late).min(measured.saturating_sub(length));
        let events = match opening {
            Opening::Busy => event.saturating_mul(2),
            _ => event.saturating_sub(self.lead),
        };
        Verdict { length, events, after, held: held > 0, lesson }
    }

    /// Returns the nanoseconds from the opening event to the start of the first kernel, and nanoseconds for which the stream may
    /// have been idle beyond that.
    ///
    /// On a busy stream the event delays the kernel by its cost. On an empty stream a launch takes a few
    /// microseconds, and the kernel begins at the end of them. A longer launch was delayed. If the delay came before
    /// the kernel began, the driver loaded code, for example. If it came while the kernel ran, the thread lost its
    /// processor. A launch that returns after the kernel's end shows the latter.
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

    fn of(launches: u64, gaps: u64) -> Batch {
        let mut run = Batch::open(Timing::Batched, 0);
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
        let verdict =
            Verdict { length: 2400 * US, events: 0, after: 0, held: false, lesson: EstimateUpdate::Batch };
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
        assert_eq!(of(100, 1000 * US).judge(2500 * US, Opening::Busy, 0).lesson, EstimateUpdate::Gaps);
    }

    #[test]
    fn a_run_has_gaps_if_they_are_more_than_a_twentieth_of_it() {
        let lesson = |measured| of(100, 100 * US).judge(measured, Opening::Busy, 0).lesson;
        assert_eq!(lesson(100 * US * GAPLESS), EstimateUpdate::Batch);
        assert_eq!(lesson(100 * US * GAPLESS - 1), EstimateUpdate::Gaps);
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
        assert_eq!(switched(2053 * US).lesson, EstimateUpdate::Nothing);
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
        let judged = |timing, late, measured| {
            let mut run = Batch::open(timing, 0);
            run.add(&Key::graph(1), &estimate(1000 * US));
            run.close(0);
            run.late(late);
            let verdict = run.judge(measured, Opening::Busy, 0);
            (verdict.length, verdict.after)
        };
        for timing in [Timing::Single, Timing::Batched] {
            assert_eq!(judged(timing, 20_000 * US, 20_010 * US), (1000 * US, 19_010 * US));
            assert_eq!(
                judged(timing, 20_000 * US, 25_000 * US),
                (5000 * US, 20_000 * US),
                "it was busy before"
            );
            assert_eq!(judged(timing, 20_000 * US, 400 * US), (400 * US, 0));
            assert_eq!(judged(timing, RETURN, 1040 * US), (1040 * US, 0), "not held up");
        }
    }

    /// Makes a batch of one launch that is measured alone. Its duration `plain` is known if `certain`, and a guess otherwise.
    fn single(plain: u64, certain: bool, lead: u64) -> Batch {
        let mut run = Batch::open(Timing::Single, 0);
        run.add(&Key::graph(1), &Estimate { samples: certain.into(), ..estimate(plain) });
        run.lead(lead);
        run
    }

    #[test]
    fn a_launch_that_returns_after_its_kernel_has_ended_teaches_nothing_that_is_not_known() {
        // A kernel of 400 us, of a thread that loses its processor for 3 ms after the launch.
        let judged = |certain| {
            let verdict = single(20 * US, certain, 3_004 * US).judge(3_008 * US, Opening::Idle, 0);
            (verdict.length, verdict.held, verdict.lesson)
        };
        assert_eq!(judged(false), (3_008 * US, true, EstimateUpdate::Nothing));
        assert_eq!(judged(true), (20 * US, true, EstimateUpdate::Single));
        let known = |plain| single(plain, true, 3_004 * US).judge(3_008 * US, Opening::Idle, 0).length;
        assert_eq!([1, 400 * US, 9_000 * US].map(known), [4 * US, 400 * US, 3_008 * US]);
    }

    #[test]
    fn a_closing_event_that_is_late_teaches_nothing_of_a_launch_that_is_not_known() {
        let mut run = single(20 * US, false, 3 * US);
        run.late(3_000 * US);
        let verdict = run.judge(3_403 * US, Opening::Idle, 0);
        assert_eq!((verdict.length, verdict.lesson), (3_400 * US, EstimateUpdate::Nothing));
        assert_eq!(
            run.judge(90_000 * US, Opening::Busy, 0).lesson,
            EstimateUpdate::Single,
            "of a long one it says enough"
        );
    }

    #[test]
    fn a_launch_that_is_held_up_for_less_than_its_kernel_takes_is_believed() {
        let verdict = single(20 * US, false, 1_000 * US).judge(9_000 * US, Opening::Idle, 0);
        assert_eq!((verdict.length, verdict.lesson), (8_000 * US, EstimateUpdate::Single));
        let half = single(20 * US, false, 1_000 * US).judge(2_000 * US, Opening::Idle, 0);
        assert_eq!((half.length, half.lesson), (1_000 * US, EstimateUpdate::Single));
        let less = single(20 * US, false, 1_000 * US).judge(1_999 * US, Opening::Idle, 0);
        assert_eq!((less.length, less.lesson), (1_999 * US, EstimateUpdate::Nothing));
    }

    #[test]
    fn what_a_launch_takes_each_time_is_over_before_its_kernel_begins() {
        let judged = |lead, measured| {
            let verdict = single(20 * US, false, lead).judge(measured, Opening::Idle, 0);
            (verdict.length, verdict.held, verdict.lesson)
        };
        assert_eq!(judged(6 * US, 8 * US), (2 * US, false, EstimateUpdate::Single));
        assert_eq!(judged(RETURN, RETURN + 1), (1, false, EstimateUpdate::Single));
        assert_eq!(
            judged(6 * US, 6 * US),
            (6 * US, true, EstimateUpdate::Nothing),
            "it was not: the kernel has ended"
        );
        let busy = single(20 * US, false, 3_000 * US).judge(400 * US, Opening::Busy, 0);
        assert_eq!((busy.length, busy.held, busy.lesson), (400 * US, false, EstimateUpdate::Single));
    }

    #[test]
    fn a_run_whose_first_launch_is_held_up_is_left_to_the_estimates() {
        let mut run = of(100, 0);
        run.lead(3_000 * US);
        let judged = |measured| run.judge(measured, Opening::Idle, 0);
        assert_eq!(
            (judged(4_900 * US).length, judged(4_900 * US).lesson),
            (2_000 * US, EstimateUpdate::Gaps)
        );
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
        // The batch is closed after six of them, and the wait comes in the next one.
        let (mut first, mut second) = (launched(6), launched(4));
        let mut spell = Spell::default();
        spell.close(&mut first, 300 * US);
        assert_eq!(first.judge(300 * US, Opening::Busy, 0).length, 120 * US);
        second.waited(spell.left(500 * US));
        assert_eq!(second.judge(200 * US, Opening::Busy, 0).length, 80 * US);
        assert!(spell.may_have_ended(None, 101 * US, 20 * US));
        assert!(!spell.may_have_ended(None, 100 * US, 20 * US));
        assert!(!spell.may_have_ended(Some(&launched(1)), 120 * US, 20 * US));
        // Launches of 5 us delay nothing.
        let (mut run, mut spell) = (launched(10), Spell::default());
        spell.close(&mut run, 50 * US);
        assert_eq!(run.judge(210 * US, Opening::Busy, 0).length, 210 * US);
    }
}
