//! The verdict on a measured batch: the duration of its launches, and the update of the estimates.

use super::batch::{Batch, HOST_RETURN};
use super::when_alone::{GAPLESS, Timing};
use crate::time::WallTime;

/// Longest time that the GPU takes to switch from one process to another: 0.1 ms. Public reports say 20 to 100 us.
///
/// No kernel runs in that time. So for this part of the first batch of a time slice the estimates decide. Otherwise the
/// batches of two processes would be 1 % too long.
pub const LONGEST_SWITCH: WallTime = WallTime::from_micros(100);

/// State of the stream when a batch on it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Busy with earlier work: the opening event passed at the end of that work.
    Busy,
    /// Empty: the opening event passed at once, and the first kernel began when its launch returned.
    Idle,
    /// Empty, and the GPU meanwhile switched from another process of the slice. Only for launches of known cost.
    Switched,
}

/// The update of the estimates by a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EstimateUpdate {
    /// The estimate learns the duration of one launch.
    Single,
    /// The estimates learn from the sum of several launches.
    Batch,
    /// The estimates learn nothing, because the host left the stream idle. The caller calls
    /// [`Sampler::note_gaps`](super::when_alone::Sampler::note_gaps).
    Gaps,
    /// The estimates learn nothing this time.
    Nothing,
}

/// The meaning of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Duration of the launches.
    pub length: WallTime,
    /// Time for which the launches waited for timing events. On a busy stream these are the closing event of the previous
    /// batch and the opening event of this one. No other kernel of the stream can run meanwhile, so this is the slice's
    /// time, but the estimates do not learn from it.
    pub events: WallTime,
    /// Time between the assumed end of the launches and the closing event.
    pub after: WallTime,
    /// True if the host was delayed, so that the stream may have been empty when the closing event passed. The opening
    /// event of the next batch then passed at once, and shows nothing.
    pub held: bool,
    /// The update of the estimates.
    pub update: EstimateUpdate,
}

impl Batch {
    /// Decides about a measurement of `measured` between the batch's events. `event` is the cost of an event.
    ///
    /// The events bound the work from both sides. The work took at most `measured`. It took at least `measured` less the
    /// time for which the stream may have been idle. Between the bounds the estimate decides.
    ///
    /// The estimate is necessary if the host was late. The upper bound would charge the slice for idle time. The lower
    /// bound would let its work run for nothing.
    ///
    /// Risk: a wrong estimate between two distant bounds would confirm itself. So such a measurement does not replace an
    /// uncertain estimate. The next launch is measured again, and this launch is charged the upper bound. Example: a launch
    /// of a batch of copies returns only when the copies have ended.
    #[must_use]
    pub fn verdict(&self, measured: WallTime, opening: Opening, event: WallTime) -> Verdict {
        let (way, held) = self.before_first(measured, opening, event);
        let measured = measured.saturating_sub(way).max(WallTime::NANOSECOND);
        let switch = if opening == Opening::Switched { LONGEST_SWITCH } else { WallTime::ZERO };
        let held = held.saturating_add(self.close_delay);
        let gaps = self.idle_between.saturating_add(self.idle_after_sync).saturating_add(held);
        let (idle, update) = match self.timing {
            Timing::Single if !self.is_certain && held > measured.saturating_sub(held) => {
                (WallTime::ZERO, EstimateUpdate::Nothing)
            }
            Timing::Single => (held.saturating_add(switch), EstimateUpdate::Single),
            Timing::Batched if gaps.saturating_mul(GAPLESS) > measured => {
                (gaps.saturating_add(switch), EstimateUpdate::Gaps)
            }
            Timing::Batched if !switch.is_zero() => (switch, EstimateUpdate::Nothing),
            Timing::Batched => (WallTime::ZERO, EstimateUpdate::Batch),
        };
        let length = self.predicted.clamp(measured.saturating_sub(idle).max(WallTime::NANOSECOND), measured);
        let after =
            self.idle_after_last.saturating_add(self.close_delay).min(measured.saturating_sub(length));
        let events = match opening {
            Opening::Busy => event.saturating_mul(2),
            _ => event.saturating_sub(self.idle_before_first),
        };
        Verdict { length, events, after, held: !held.is_zero(), update }
    }

    /// Returns two times. The first is the time from the opening event to the start of the first kernel. The second is
    /// further time for which the stream may have been idle.
    ///
    /// On a busy stream the event delays the kernel by its cost. On an empty stream a launch takes a few microseconds, and
    /// the kernel begins at the end of them. A longer launch was delayed. If the delay came before the kernel began, the
    /// driver may have loaded code. If it came while the kernel ran, the thread lost its processor. The second case is
    /// certain if the launch returned after the kernel's end.
    fn before_first(&self, measured: WallTime, opening: Opening, event: WallTime) -> (WallTime, WallTime) {
        let before_first = self.idle_before_first.max(event);
        match opening {
            Opening::Busy => (event, WallTime::ZERO),
            _ if self.idle_before_first > HOST_RETURN || before_first >= measured => {
                (WallTime::ZERO, before_first)
            }
            _ => (before_first, WallTime::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::cost::estimate::{Estimate, Key};
    use super::super::batch::Spell;
    use super::super::when_alone::delay;
    use super::*;
    use crate::time::literals::{ns, us};

    fn estimate(duration: WallTime) -> Estimate {
        let mut estimate = Estimate::NONE;
        (estimate.charged, estimate.duration, estimate.samples) = (duration.gpu_if_alone(), duration, 1);
        estimate
    }

    fn of(launches: u64, gaps: WallTime) -> Batch {
        let mut batch = Batch::open(Timing::Batched, ns(0));
        batch.set_idle_before_first(us(3));
        for _ in 0..launches {
            batch.add(&Key::graph(1), &estimate(us(20)));
        }
        batch.add_idle_between(gaps);
        batch
    }

    #[test]
    fn a_batch_without_gaps_costs_its_measurement_less_the_lead_on_an_idle_stream() {
        let batch = of(100, us(100));
        let verdict = Verdict {
            length: us(2400),
            events: ns(0),
            after: ns(0),
            held: false,
            update: EstimateUpdate::Batch,
        };
        assert_eq!(batch.verdict(us(2400), Opening::Busy, ns(0)), verdict);
        assert_eq!(batch.verdict(us(2403), Opening::Idle, ns(0)), verdict);
    }

    #[test]
    fn the_cost_of_events_is_separated_from_that_of_launches() {
        let verdict_of = |measured, opening, event| {
            let verdict = of(100, ns(0)).verdict(measured, opening, event);
            (verdict.length, verdict.events)
        };
        assert_eq!(verdict_of(us(2_402), Opening::Busy, us(2)), (us(2_400), us(4)));
        assert_eq!(
            verdict_of(us(2_403), Opening::Idle, us(2)),
            (us(2_400), ns(0)),
            "it passed within the launch"
        );
        assert_eq!(verdict_of(us(2_407), Opening::Idle, us(7)), (us(2_400), us(4)));
        assert_eq!(
            [0, 1_000, 2_500, 9_000].map(|before| delay(ns(before), ns(2_500))),
            [2_500, 1_500, 0, 0].map(ns)
        );
    }

    #[test]
    fn a_batch_with_gaps_costs_its_estimate_within_the_possible_range() {
        let length = |measured| of(100, us(1000)).verdict(measured, Opening::Busy, ns(0)).length;
        assert_eq!(length(us(2500)), us(2000));
        assert_eq!(length(us(1500)), us(1500));
        assert_eq!(length(us(3500)), us(2500));
        assert_eq!(of(100, us(1000)).verdict(us(2500), Opening::Busy, ns(0)).update, EstimateUpdate::Gaps);
    }

    #[test]
    fn a_batch_has_gaps_if_they_are_more_than_a_twentieth_of_it() {
        let update = |measured| of(100, us(100)).verdict(measured, Opening::Busy, ns(0)).update;
        assert_eq!(update(us(100 * GAPLESS)), EstimateUpdate::Batch);
        assert_eq!(update(us::<WallTime>(100 * GAPLESS) - ns(1)), EstimateUpdate::Gaps);
    }

    #[test]
    fn the_way_back_of_a_host_that_waited_is_left_to_the_estimate() {
        let mut batch = of(10, ns(0));
        batch.host_synchronised(us(210));
        assert_eq!(batch.verdict(us(240), Opening::Busy, ns(0)).length, us(200));
        assert_eq!(batch.verdict(us(260), Opening::Busy, ns(0)).length, us(210));
    }

    #[test]
    fn a_host_that_comes_back_late_from_a_wait_is_not_charged_for_it() {
        let mut batch = of(10, ns(0));
        batch.host_synchronised(us(5_200));
        assert_eq!(batch.verdict(us(5_240), Opening::Busy, ns(0)).length, us(240));
        assert_eq!(batch.verdict(us(9_000), Opening::Busy, ns(0)).length, us(4_000));
        batch.host_synchronised(us(30));
        assert_eq!(
            batch.verdict(us(5_240), Opening::Busy, ns(0)).length,
            us(200),
            "what was waited for counts once"
        );
    }

    #[test]
    fn the_way_from_another_process_is_left_to_the_estimate() {
        let switched = |measured| of(100, ns(0)).verdict(measured, Opening::Switched, ns(0));
        assert_eq!(switched(us(2053)).length, us(2000));
        assert_eq!(switched(us(2203)).length, us(2100));
        assert_eq!(switched(us(2053)).update, EstimateUpdate::Nothing);
    }

    #[test]
    fn work_ends_before_the_gap_that_a_batch_is_closed_with() {
        let mut batch = of(10, ns(0));
        batch.close(us(800));
        assert_eq!(batch.verdict(us(1000), Opening::Busy, ns(0)).after, us(800));
        assert_eq!(batch.verdict(us(900), Opening::Busy, ns(0)).after, us(700));
    }

    #[test]
    fn a_host_that_is_late_with_the_closing_event_is_not_charged_for_it() {
        let verdict_of = |timing, delay, measured| {
            let mut batch = Batch::open(timing, ns(0));
            batch.add(&Key::graph(1), &estimate(us(1000)));
            batch.close(ns(0));
            batch.set_close_delay(delay);
            let verdict = batch.verdict(measured, Opening::Busy, ns(0));
            (verdict.length, verdict.after)
        };
        for timing in [Timing::Single, Timing::Batched] {
            assert_eq!(verdict_of(timing, us(20_000), us(20_010)), (us(1000), us(19_010)));
            assert_eq!(
                verdict_of(timing, us(20_000), us(25_000)),
                (us(5000), us(20_000)),
                "it was busy before"
            );
            assert_eq!(verdict_of(timing, us(20_000), us(400)), (us(400), ns(0)));
            assert_eq!(verdict_of(timing, HOST_RETURN, us(1040)), (us(1040), ns(0)), "not held up");
        }
    }

    /// Makes a batch of one launch that is measured alone. Its `duration` is known if `certain`, and a guess otherwise.
    fn single(duration: WallTime, certain: bool, before_first: WallTime) -> Batch {
        let mut batch = Batch::open(Timing::Single, ns(0));
        batch.add(&Key::graph(1), &Estimate { samples: certain.into(), ..estimate(duration) });
        batch.set_idle_before_first(before_first);
        batch
    }

    #[test]
    fn a_launch_that_returns_after_its_kernel_has_ended_teaches_nothing_that_is_not_known() {
        // A kernel takes 400 us, and its thread loses the processor for 3 ms after the launch.
        let verdict_of = |certain| {
            let verdict = single(us(20), certain, us(3_004)).verdict(us(3_008), Opening::Idle, ns(0));
            (verdict.length, verdict.held, verdict.update)
        };
        assert_eq!(verdict_of(false), (us(3_008), true, EstimateUpdate::Nothing));
        assert_eq!(verdict_of(true), (us(20), true, EstimateUpdate::Single));
        let known =
            |duration| single(duration, true, us(3_004)).verdict(us(3_008), Opening::Idle, ns(0)).length;
        assert_eq!([ns(1), us(400), us(9_000)].map(known), [us(4), us(400), us(3_008)]);
    }

    #[test]
    fn a_closing_event_that_is_late_teaches_nothing_of_a_launch_that_is_not_known() {
        let mut batch = single(us(20), false, us(3));
        batch.set_close_delay(us(3_000));
        let verdict = batch.verdict(us(3_403), Opening::Idle, ns(0));
        assert_eq!((verdict.length, verdict.update), (us(3_400), EstimateUpdate::Nothing));
        assert_eq!(
            batch.verdict(us(90_000), Opening::Busy, ns(0)).update,
            EstimateUpdate::Single,
            "of a long one it says enough"
        );
    }

    #[test]
    fn a_launch_that_is_held_up_for_less_than_its_kernel_takes_is_believed() {
        let verdict = single(us(20), false, us(1_000)).verdict(us(9_000), Opening::Idle, ns(0));
        assert_eq!((verdict.length, verdict.update), (us(8_000), EstimateUpdate::Single));
        let half = single(us(20), false, us(1_000)).verdict(us(2_000), Opening::Idle, ns(0));
        assert_eq!((half.length, half.update), (us(1_000), EstimateUpdate::Single));
        let less = single(us(20), false, us(1_000)).verdict(us(1_999), Opening::Idle, ns(0));
        assert_eq!((less.length, less.update), (us(1_999), EstimateUpdate::Nothing));
    }

    #[test]
    fn the_usual_duration_of_a_launch_ends_before_its_kernel_begins() {
        let verdict_of = |before_first, measured| {
            let verdict = single(us(20), false, before_first).verdict(measured, Opening::Idle, ns(0));
            (verdict.length, verdict.held, verdict.update)
        };
        assert_eq!(verdict_of(us(6), us(8)), (us(2), false, EstimateUpdate::Single));
        assert_eq!(verdict_of(HOST_RETURN, HOST_RETURN + ns(1)), (ns(1), false, EstimateUpdate::Single));
        assert_eq!(
            verdict_of(us(6), us(6)),
            (us(6), true, EstimateUpdate::Nothing),
            "it was not: the kernel has ended"
        );
        let busy = single(us(20), false, us(3_000)).verdict(us(400), Opening::Busy, ns(0));
        assert_eq!((busy.length, busy.held, busy.update), (us(400), false, EstimateUpdate::Single));
    }

    #[test]
    fn a_batch_whose_first_launch_is_delayed_is_left_to_the_estimates() {
        let mut batch = of(100, ns(0));
        batch.set_idle_before_first(us(3_000));
        let verdict_of = |measured| batch.verdict(measured, Opening::Idle, ns(0));
        assert_eq!(
            (verdict_of(us(4_900)).length, verdict_of(us(4_900)).update),
            (us(2_000), EstimateUpdate::Gaps)
        );
        assert_eq!(verdict_of(us(6_000)).length, us(3_000));
        assert_eq!(verdict_of(us(2_900)).length, us(2_000));
    }

    #[test]
    fn launches_that_take_longer_than_their_kernels_are_left_to_the_estimates() {
        let launched = |launches| {
            let mut batch = of(launches, ns(0));
            batch.set_idle_before_first(ns(0));
            batch
        };
        // Ten launches of 50 us with kernels of 20 us, and then a wait.
        let mut batch = launched(10);
        let spell = Spell::default();
        batch.host_synchronised(spell.left(us(500)));
        assert_eq!(batch.verdict(us(500), Opening::Busy, ns(0)).length, us(200));
        // The batch is closed after six launches, and the wait falls into the next batch.
        let (mut first, mut second) = (launched(6), launched(4));
        let mut spell = Spell::default();
        spell.close(&mut first, us(300));
        assert_eq!(first.verdict(us(300), Opening::Busy, ns(0)).length, us(120));
        second.host_synchronised(spell.left(us(500)));
        assert_eq!(second.verdict(us(200), Opening::Busy, ns(0)).length, us(80));
        assert!(spell.may_have_ended(None, us(101), us(20)));
        assert!(!spell.may_have_ended(None, us(100), us(20)));
        assert!(!spell.may_have_ended(Some(&launched(1)), us(120), us(20)));
        // Launches of 5 us delay no kernel.
        let (mut batch, mut spell) = (launched(10), Spell::default());
        spell.close(&mut batch, us(50));
        assert_eq!(batch.verdict(us(210), Opening::Busy, ns(0)).length, us(210));
    }
}
