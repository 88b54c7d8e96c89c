//! The clock of timing events: its position on the monotonic clock, and the cost of an event.
//!
//! The GPU dates events by a clock of its own. The driver returns the difference of two events as a float of milliseconds.
//! Three types turn this into instants:
//!
//! - [`EventCost`]: the time that an event itself takes.
//! - [`EventEpoch`]: the position of an event on the time line of its context.
//! - [`ClockOffset`]: the position of that time line on the monotonic clock.

use crate::time::{Monotonic, WallTime};

/// Time of an event on the time line of its context, in nanoseconds. It can be compared with other events of the context,
/// and not with instants of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct EventTime(u64);

impl EventTime {
    /// The beginning of the time line, before any event.
    pub const BEGIN: Self = Self(0);

    /// Makes the time that lies `nanoseconds` after the beginning of the time line.
    #[must_use]
    pub const fn new(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the time since an earlier event; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> WallTime {
        WallTime::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Largest distance of two events with no work in between: 2 us, two steps of the slowest clock of a driver.
const MOST_ADJACENT: WallTime = WallTime::from_micros(2);

/// Returns true if a stream was empty before an event. `before` and `event` are the times of the previous event and of this
/// event, and `cost` is the cost of an event ([`EventCost`]).
#[must_use]
pub fn was_idle(before: EventTime, event: EventTime, cost: WallTime) -> bool {
    event.since(before) > MOST_ADJACENT.saturating_add(cost)
}

/// The time for which a timing event occupies its stream. It is measured with events in a row.
///
/// A host that records the next event late makes the distance larger. Nothing makes it smaller. So the shortest
/// distance is right up to a step of the event clock. The cost is the mean of all distances within one step of the
/// shortest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCost {
    least: WallTime,
    sum: WallTime,
    count: u64,
}

/// Largest cost of an event: 20 us. Two events at a larger distance have other work between them.
const MOST_COST: WallTime = WallTime::from_micros(20);

/// Events in a row that a thread records once for each context, after its first work.
pub const AT_FIRST: usize = 8;

impl EventCost {
    /// Adds the distance of two events in a row.
    pub fn adjacent(&mut self, apart: WallTime) {
        // One step of a clock whose steps are 1 us.
        let near = MOST_ADJACENT.part(2);
        if apart > MOST_COST {
            return;
        }
        if self.count == 0 || apart.saturating_add(near) < self.least {
            *self = Self { least: apart, sum: apart, count: 1 };
        } else if apart <= self.least.saturating_add(near) {
            self.least = self.least.min(apart);
            (self.sum, self.count) = (self.sum.saturating_add(apart), self.count.saturating_add(1));
        }
    }

    /// Returns the cost; zero while it is unknown.
    #[must_use]
    pub const fn get(&self) -> WallTime {
        self.sum.part(self.count)
    }
}

/// Calibration of the event clock: the offset from event time to the monotonic clock.
///
/// Each event gives two bounds. The GPU passes the event after the host records it, and before the host sees that it has
/// passed:
///
/// - lower bound: host time of the record minus event time;
/// - upper bound: host time of the observation minus event time.
///
/// The offset lies between the largest lower bound and the smallest upper bound. The lower bound is exact if a stream is
/// sometimes idle. If no stream is ever idle, the lower bound is far too small. The upper bound is then exact to a fraction
/// of the worker's millisecond.
///
/// Risk: the clocks drift, and the host's clock may jump. So a bound counts only for 0.1 to 0.2 s. The offset changes only
/// when a bound requires it. When it falls, later intervals fall on time that is covered already, and are not charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockOffset {
    /// The bounds of the present tenth of a second, and of the tenth before.
    bounds: [Bounds; 2],
    since: Monotonic,
    offset: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Bounds {
    /// The largest lower bound, from records.
    above: Option<i64>,
    /// The smallest upper bound, from observations.
    below: Option<i64>,
}

/// Time for which observations are combined: 0.1 s, in which a busy stream gives a hundred.
const TOGETHER: WallTime = WallTime::from_millis(100);

/// Nanoseconds by which the clocks may drift while observations count: 20 us, 1/10,000 of 0.2 s. Oscillators of computers
/// are at least that exact.
const DRIFT: i64 = 20_000;

/// Nanoseconds by which the latest of all observations may be late. The worker looks every millisecond, and may itself be
/// late.
const MOST_POLL_DELAY: i64 = 2_000_000;

/// Time for which the base event of a context is used: one second.
const BASE_EVENT_LASTS: WallTime = WallTime::from_millis(1_000);

impl ClockOffset {
    /// Adds a record: the host recorded the event of time `event` at the instant `host`. The caller knows the time of the
    /// event only after the event has passed.
    pub fn recorded(&mut self, host: Monotonic, event: EventTime) {
        self.rotate_bounds(host);
        let offset = host.nanos().wrapping_sub(event.0).cast_signed();
        if self.below().is_some_and(|below| offset > below.saturating_add(DRIFT)) {
            // This is impossible, unless the host's clock has jumped.
            self.bounds = [Bounds::default(); 2];
        }
        let [current, _] = &mut self.bounds;
        current.above = Some(current.above.map_or(offset, |above| above.max(offset)));
        self.fit();
    }

    /// Adds an observation: the host saw at the instant `host` that the event of time `event` had passed.
    pub fn passed(&mut self, host: Monotonic, event: EventTime) {
        self.rotate_bounds(host);
        let offset = host.nanos().wrapping_sub(event.0).cast_signed();
        let [current, _] = &mut self.bounds;
        current.below = Some(current.below.map_or(offset, |below| below.min(offset)));
        self.fit();
    }

    /// Returns the instant of an event on the monotonic clock. `None` before the first record.
    #[must_use]
    pub fn instant(&self, event: EventTime) -> Option<Monotonic> {
        Some(Monotonic::from_nanos(event.0.saturating_add_signed(self.offset?)))
    }

    /// Moves the offset between its bounds.
    fn fit(&mut self) {
        let above = self.bounds.iter().filter_map(|bounds| bounds.above).max();
        let (least, most) = (above.unwrap_or(i64::MIN), self.below().unwrap_or(i64::MAX));
        let kept = self.offset.or(above).unwrap_or(most);
        let is_late = most != i64::MAX && most.saturating_sub(kept) > MOST_POLL_DELAY;
        self.offset = Some(if is_late { most } else { kept.max(least).min(most) });
    }

    fn below(&self) -> Option<i64> {
        self.bounds.iter().filter_map(|bounds| bounds.below).min()
    }

    fn rotate_bounds(&mut self, host: Monotonic) {
        if host.since(self.since) >= TOGETHER {
            let [current, _] = self.bounds;
            (self.bounds, self.since) = ([Bounds::default(), current], host);
        }
    }
}

/// The time line of a context.
///
/// The driver returns the milliseconds between two events as a float with a mantissa of 24 bits. After ten seconds such a
/// value is half a microsecond off. So the base event is replaced every second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventEpoch {
    /// Time of the base event.
    origin: EventTime,
    since: Monotonic,
}

impl EventEpoch {
    /// Makes a time line whose first base event was recorded at the instant `now`.
    #[must_use]
    pub const fn new(now: Monotonic) -> Self {
        // Far from 0, so that events before the base have a time.
        Self { origin: EventTime(1 << 62), since: now }
    }

    /// Returns true if the base event should be replaced.
    #[must_use]
    pub fn is_due(&self, now: Monotonic) -> bool {
        now.since(self.since) >= BASE_EVENT_LASTS
    }

    /// Returns the time of an event `elapsed` nanoseconds after the base event; negative before it.
    #[must_use]
    pub const fn time(&self, elapsed: i64) -> EventTime {
        EventTime(self.origin.0.saturating_add_signed(elapsed))
    }

    /// Replaces the base event by one that is `elapsed` nanoseconds after it.
    pub const fn replace(&mut self, elapsed: i64, now: Monotonic) {
        *self = Self { origin: self.time(elapsed), since: now };
    }
}

/// Converts the driver's milliseconds to nanoseconds. `None`: the value is not finite or is beyond 139 years.
///
/// The conversion is exact: it uses the mantissa and the exponent of the float as integers.
#[must_use]
pub fn nanoseconds(milliseconds: f32) -> Option<i64> {
    let bits = milliseconds.to_bits();
    let exponent = i32::try_from((bits >> 23) & 0xff).ok()?.saturating_sub(127 + 23);
    // A mantissa of 24 bits times a million has 44 bits, so 18 more fit into the result.
    if !(-200..=18).contains(&exponent) {
        return None;
    }
    let mantissa = i64::from(bits & 0x7f_ffff | u32::from(exponent > -150) << 23).saturating_mul(1_000_000);
    let shifted = match u32::try_from(exponent) {
        Ok(left) => mantissa.checked_shl(left)?,
        Err(_) => mantissa.checked_shr(exponent.unsigned_abs()).unwrap_or(0),
    };
    Some(if bits >> 31 == 0 { shifted } else { shifted.saturating_neg() })
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::float_arithmetic,
    reason = "small numbers, and the driver's floats"
)]
mod tests {
    use super::*;
    use crate::time::literals::ns;
    use proptest::prelude::*;

    const SECOND: u64 = BASE_EVENT_LASTS.nanos();

    fn recorded(offset: &mut ClockOffset, host: u64, event: u64) {
        offset.recorded(ns(host), EventTime(event));
    }

    fn passed(offset: &mut ClockOffset, host: u64, event: u64) {
        offset.passed(ns(host), EventTime(event));
    }

    fn instant(offset: &ClockOffset, event: u64) -> Option<u64> {
        offset.instant(EventTime(event)).map(Monotonic::nanos)
    }

    #[test]
    fn a_stream_was_idle_if_more_than_the_clocks_step_lies_between_two_events() {
        let was_idle = |before, event, cost| was_idle(EventTime(before), EventTime(event), ns(cost));
        let step = MOST_ADJACENT.nanos();
        assert!(!was_idle(1_000, 1_000 + step, 0));
        assert!(was_idle(1_000, 1_001 + step, 0));
        assert!(!was_idle(9_000, 1_000, 0), "clocks that were laid on each other anew");
        assert!(!was_idle(1_000, 3_500 + step, 2_500) && was_idle(1_000, 3_501 + step, 2_500));
    }

    #[test]
    fn an_event_costs_the_time_between_the_nearest_two() {
        let of = |apart: &[u64]| {
            let mut cost = EventCost::default();
            apart.iter().for_each(|apart| cost.adjacent(ns(*apart)));
            cost.get().nanos()
        };
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[9_000, 3_000, 2_000, 3_000, 2_000, 900_000]), 2_500, "a clock of 1 us");
        assert_eq!(of(&[2_000, 3_001]), 2_000, "the host was late");
        assert_eq!(of(&[0, 0, 500]), 166, "events that cost nothing");
        assert_eq!(of(&[MOST_COST.nanos() + 1]), 0);
    }

    #[test]
    fn an_offset_lies_between_the_recording_and_the_first_poll_after_an_event() {
        let mut offset = ClockOffset::default();
        assert_eq!(instant(&offset, 5), None);
        recorded(&mut offset, 1_000, 900);
        assert_eq!(instant(&offset, 900), Some(1_000));
        recorded(&mut offset, 1_100, 1_080);
        assert_eq!(instant(&offset, 1_080), Some(1_180), "it waited behind other work");
        passed(&mut offset, 1_150, 1_080);
        assert_eq!(instant(&offset, 1_080), Some(1_150));
    }

    #[test]
    fn where_no_stream_is_ever_idle_many_polls_tell_the_offset() {
        let mut offset = ClockOffset::default();
        for event in (0..5_000_000_000_u64).step_by(2_100_000) {
            recorded(&mut offset, SECOND + event - 20_000_000, event);
            passed(&mut offset, SECOND + event + event % 1_000_000, event);
            let error = instant(&offset, event).unwrap().abs_diff(SECOND + event);
            assert!(event < 100_000_000 || error <= 100_000, "{error}");
        }
    }

    #[test]
    fn a_clock_that_jumps_is_believed_at_once() {
        let mut offset = ClockOffset::default();
        for event in (0..100).map(|at| at * 1000) {
            recorded(&mut offset, SECOND + event, event);
            passed(&mut offset, SECOND + event, event);
        }
        recorded(&mut offset, 9 * SECOND, 200_000);
        assert_eq!(instant(&offset, 200_000), Some(9 * SECOND));
    }

    #[test]
    fn clocks_that_drift_apart_do_not_jump() {
        let mut offset = ClockOffset::default();
        // Kernels of 20 ms run on two streams, and the event clock gains 500 ns meanwhile. The end of the second kernel has
        // not been seen.
        recorded(&mut offset, SECOND, 0);
        passed(&mut offset, SECOND + 20_000_000, 20_000_500);
        recorded(&mut offset, SECOND + 6_000, 6_000);
        passed(&mut offset, SECOND + 20_000_000, 6_000);
        assert_eq!(instant(&offset, 20_000_500), Some(SECOND + 20_000_000));
    }

    #[test]
    fn a_clock_that_loses_is_followed_by_seen_events_alone() {
        let mut offset = ClockOffset::default();
        recorded(&mut offset, SECOND, 0);
        for event in (0..SECOND).step_by(1_000_000) {
            let host = SECOND + event + event / 100;
            passed(&mut offset, host, event);
            // The bound is the part that two tenths of a second hide, and the delay of a late observation.
            assert!(
                instant(&offset, event).unwrap().abs_diff(host) <= 2_000_000 + MOST_POLL_DELAY.unsigned_abs(),
                "{event}"
            );
        }
    }

    #[test]
    fn a_clock_that_drifts_is_followed() {
        let mut offset = ClockOffset::default();
        for second in 0..100_u64 {
            // The event clock gains 100 us in a second.
            recorded(&mut offset, second * SECOND, second * (SECOND + 100_000));
            passed(&mut offset, second * SECOND + 500_000, second * (SECOND + 100_000));
            let at = instant(&offset, second * (SECOND + 100_000)).unwrap();
            assert!(at.abs_diff(second * SECOND) <= 500_000);
        }
    }

    #[test]
    fn times_go_on_across_a_change_of_base() {
        let mut base = EventEpoch::new(ns(0));
        let before = base.time(1_500_000_000);
        assert!(!base.is_due(ns(SECOND - 1)) && base.is_due(ns(SECOND)));
        base.replace(1_000_000_000, ns(SECOND));
        assert_eq!(base.time(500_000_000), before);
        assert_eq!(base.time(0).since(base.time(-1)), ns(1));
        assert!(!base.is_due(ns(SECOND + 1)));
    }

    #[test]
    fn the_drivers_floats_are_read_exactly() {
        for (milliseconds, expected) in [
            (0.0, Some(0)),
            (1.0, Some(1_000_000)),
            (0.5, Some(500_000)),
            (-2.25, Some(-2_250_000)),
            (1.0e-3, Some(1_000)),
            (1.0e-30, Some(0)),
            (86_400_000.0, Some(86_400_000_000_000)),
            (8_589_934_592.0, Some(8_589_934_592_000_000)),
            (-4_398_046_248_960.0, Some(-4_398_046_248_960_000_000)),
            (4_398_046_511_104.0, None),
            (f32::NAN, None),
            (f32::INFINITY, None),
            (f32::MAX, None),
        ] {
            assert_eq!(nanoseconds(milliseconds), expected, "{milliseconds}");
        }
    }

    proptest! {
        #[test]
        fn a_time_is_within_a_nanosecond_of_the_float(milliseconds in -1.0e7_f32..1.0e7) {
            let exact = f64::from(milliseconds) * 1.0e6;
            prop_assert!((nanoseconds(milliseconds).unwrap() as f64 - exact).abs() <= 1.0);
        }
    }
}
