//! Replays the GPU's time slicing from the busy intervals that all slices publish.
//!
//! The driver gives contexts time slices. The time between two events of one context contains the time slices of the
//! others. The length of a time slice is unknown. Suppose that the module split each instant evenly among
//! the contexts with work in flight. If a time slice is longer than the work, that would be wrong by up to 20 points.
//!
//! So the module replays the time slicing under each rule that a driver may use (`Replay`). The rules are 20 lengths of a
//! time slice, each with 3 ways to treat a context that is alone. The replay with the least evidence against it shows the
//! owner of each instant.
//!
//! The method needs no process numbers, no NVML, and no estimate of the work.

use std::collections::VecDeque;

use super::super::measuring::peer_intervals::Interval;
use super::replay::{MOST_CONTEXTS, OVERRUN_RULES, Replay, USUAL_SWITCH, bit};
use crate::time::{GpuTimeChange, Monotonic, WallTime};

/// Lengths of a time slice to try, in microseconds: 0.5 to 50 ms in small steps. They include the lengths of known drivers.
const TIME_SLICES: [u64; 20] = [
    500, 700, 1_000, 1_250, 1_600, 2_000, 2_500, 3_200, 4_000, 5_000, 6_300, 8_000, 10_000, 12_500, 16_000,
    20_000, 25_000, 30_000, 40_000, 50_000,
];

/// Shortest work that counts as evidence. Shorter work is a single launch among batches.
const TELLING: WallTime = WallTime::from_micros(500);

/// Half-life of the evidence against a replay.
const FORGETS: WallTime = WallTime::from_millis(2_000);

/// The most intervals of a context that wait for the replay.
const MOST_WAITING: usize = 4096;

/// Replayed time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayedPart {
    /// Time in which the slice had work in flight.
    pub covered: WallTime,
    /// Time in which the GPU worked for the slice. Corrections of earlier replayed time are included.
    pub own: GpuTimeChange,
}

/// The work of a context.
#[derive(Debug, Default)]
struct Context {
    /// Number of the slice, and of the context within it.
    id: (u64, u16),
    /// Intervals that have not begun, in the order of their starts.
    waiting: VecDeque<Interval>,
    /// Intervals that have begun.
    begun: Vec<Interval>,
}

impl Context {
    /// Returns the next change of the context: its instant, and whether it is an end.
    fn next(&self) -> Option<(Monotonic, bool)> {
        let begins = self.waiting.front().map(|span| (span.start, false));
        let ends = self.begun.iter().map(|span| (span.end, true)).min();
        begins.into_iter().chain(ends).min()
    }
}

/// All contexts of a GPU, and the replays of its time slicing.
#[derive(Debug)]
pub struct Slicing {
    contexts: Vec<Context>,
    replays: Vec<Replay>,
    at: Monotonic,
    /// The contexts with work in flight, and the contexts of the slice itself: one bit each.
    flying: u64,
    own: u64,
    forgot: Monotonic,
}

impl Slicing {
    /// Makes a replay without contexts. Time before the instant `at` is not replayed.
    #[must_use]
    pub fn new(at: Monotonic) -> Self {
        let replays = OVERRUN_RULES.iter().flat_map(|way| {
            TIME_SLICES.iter().map(|time_slice| Replay::new(WallTime::from_micros(*time_slice), *way))
        });
        Self { contexts: Vec::new(), replays: replays.collect(), at, flying: 0, own: 0, forgot: at }
    }

    /// Adds work in flight of a context of a slice. `is_own`: the slice is the caller's.
    pub fn add(&mut self, slice: u64, is_own: bool, span: Interval) {
        let Some(place) = self.place((slice, span.context)) else { return };
        let at = self.at;
        let Some(context) = self.contexts.get_mut(place).filter(|_| span.end > at) else { return };
        if context.waiting.len() >= MOST_WAITING {
            return;
        }
        let span = Interval { start: span.start.max(at), ..span };
        let behind = context.waiting.partition_point(|other| other.start <= span.start);
        context.waiting.insert(behind, span);
        self.own = if is_own { self.own | bit(place) } else { self.own & !bit(place) };
    }

    /// Returns the place of a context. If no place is free, a context without work in flight gives up its place.
    fn place(&mut self, id: (u64, u16)) -> Option<usize> {
        if let Some(place) = self.contexts.iter().position(|context| context.id == id) {
            return Some(place);
        }
        if self.contexts.len() < MOST_CONTEXTS {
            self.contexts.push(Context { id, ..Context::default() });
            return self.contexts.len().checked_sub(1);
        }
        let is_free = |context: &Context| context.waiting.is_empty() && context.begun.is_empty();
        let place = self.contexts.iter().position(is_free)?;
        if let Some(context) = self.contexts.get_mut(place) {
            context.id = id;
        }
        self.replays.iter_mut().for_each(|replay| replay.forget(place));
        Some(place)
    }

    /// Replays all time up to `to`. The caller has added all work that began earlier.
    pub fn advance(&mut self, to: Monotonic) -> ReplayedPart {
        let mut part = ReplayedPart::default();
        while let Some((place, (at, is_end))) = self.next().filter(|(_, (at, _))| *at <= to) {
            self.pass(at, &mut part);
            if is_end { self.end(place) } else { self.begin(place) }
        }
        self.pass(to, &mut part);
        while self.at.since(self.forgot) >= FORGETS {
            self.forgot = self.forgot.saturating_add(FORGETS);
            self.replays.iter_mut().for_each(|replay| replay.misfit /= 2);
        }
        let own = self.own;
        let reported: Vec<GpuTimeChange> = self.replays.iter_mut().map(|replay| replay.report(own)).collect();
        let best = self.replays.iter().zip(reported).min_by_key(|(replay, _)| replay.misfit);
        part.own = best.map_or(GpuTimeChange::NONE, |(_, own)| own);
        part
    }

    /// Skips all time up to `to` without a result. The knowledge about the time slicing stays.
    pub fn skip(&mut self, to: Monotonic) {
        for context in &mut self.contexts {
            context.waiting.retain(|span| span.end > to);
            context.begun.clear();
        }
        (self.flying, self.at) = (0, to.max(self.at));
        self.replays.iter_mut().for_each(|replay| replay.owner = None);
    }

    /// Returns the next change of all contexts. If one work begins at the instant at which another ends, it begins first.
    fn next(&self) -> Option<(usize, (Monotonic, bool))> {
        let all = self.contexts.iter().enumerate();
        all.filter_map(|(place, context)| Some((place, context.next()?))).min_by_key(|(_, next)| *next)
    }

    fn pass(&mut self, to: Monotonic, part: &mut ReplayedPart) {
        let time = to.since(self.at);
        if time.is_zero() {
            return;
        }
        if self.flying & self.own != 0 {
            part.covered = part.covered.saturating_add(time);
        }
        let (from, flying) = (self.at, self.flying);
        self.replays.iter_mut().for_each(|replay| replay.pass(from, to, flying));
        self.at = to;
    }

    fn begin(&mut self, place: usize) {
        let Some(context) = self.contexts.get_mut(place) else { return };
        let Some(span) = context.waiting.pop_front() else { return };
        context.begun.push(span);
        let at = self.at;
        if self.flying & bit(place) == 0 {
            self.flying |= bit(place);
            self.replays.iter_mut().for_each(|replay| replay.begin_work(place, at));
        }
    }

    fn end(&mut self, place: usize) {
        let at = self.at;
        let Some(context) = self.contexts.get_mut(place) else { return };
        let Some(first) = context.begun.iter().position(|span| span.end <= at) else { return };
        let span = context.begun.swap_remove(first);
        // Work that continues is in flight until it is published again, unless its process has died. Work that follows
        // within a switch was queued behind the work that ends: no other context runs in between. Ends are not known more
        // exactly. With a limit of 4 us, their errors would count as pauses (10 points).
        let gap = if span.goes_on { REPLAY_DELAY } else { USUAL_SWITCH };
        let follows = context.waiting.front().is_some_and(|next| next.start <= at.saturating_add(gap));
        let rests = context.begun.is_empty() && !follows;
        if !span.goes_on {
            let is_telling = span.length() >= TELLING;
            self.replays.iter_mut().for_each(|replay| replay.end_work(place, at, is_telling));
        }
        if rests {
            self.flying &= !bit(place);
            let flying = self.flying;
            self.replays.iter_mut().for_each(|replay| replay.rests(place, at, flying));
        }
    }
}

/// Time after which all work that began before an instant is published: 30 ms. It is twice the time for which a batch may
/// stay open, plus the time to read its events.
pub const REPLAY_DELAY: WallTime = WallTime::from_millis(30);

/// Time between two rounds in which the node agent relays published work to slices of other directories: 10 ms.
pub const RELAY_EVERY: WallTime = WallTime::from_millis(10);

/// Time after which all work is relayed, too: two rounds more than [`REPLAY_DELAY`], because a round may be late by one.
pub const RELAYED_DELAY: WallTime = REPLAY_DELAY.saturating_add(RELAY_EVERY.saturating_mul(2));

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test")]
mod tests {
    use super::*;
    use crate::time::literals::{ms, ns};
    use crate::time::testing::charge;

    const MS: u64 = 1_000_000;

    const TICK: u64 = USUAL_SWITCH.nanos();

    const START: Monotonic = Monotonic::from_nanos(1 << 40);

    /// Returns the intervals that each context publishes. `works` has the arrival and the duration of its work. Time slices
    /// last `time_slice`, and the GPU switches within a tick.
    fn published(time_slice: u64, works: &[Vec<(u64, u64)>], until: u64) -> Vec<Vec<Interval>> {
        let mut spans = vec![Vec::new(); works.len()];
        let mut queues: Vec<VecDeque<(u64, u64)>> =
            works.iter().map(|work| work.iter().copied().collect()).collect();
        let (mut owner, mut ends, mut last) = (0, time_slice, vec![0; works.len()]);
        for at in (0..until).step_by(usize::try_from(TICK).unwrap_or(1)) {
            let waits = |queue: &VecDeque<(u64, u64)>| queue.front().is_some_and(|(come, _)| *come <= at);
            if at >= ends || !waits(&queues[owner]) {
                let next =
                    (1..=works.len()).map(|by| (owner + by) % works.len()).find(|next| waits(&queues[*next]));
                let before = owner;
                (owner, ends) = (next.unwrap_or(owner), at + time_slice);
                if owner != before {
                    ends += TICK;
                    continue;
                }
            }
            let Some((come, left)) = queues[owner].front_mut().filter(|(come, _)| *come <= at) else {
                continue;
            };
            *left = left.saturating_sub(TICK);
            if *left == 0 {
                let (start, end) = ((*come).max(last[owner]), at + TICK);
                spans[owner].push(Interval {
                    start: START + ns(start),
                    end: START + ns(end),
                    ..Interval::default()
                });
                last[owner] = end;
                queues[owner].pop_front();
            }
        }
        spans
    }

    /// Returns the covered and the own milliseconds of the first context, in the last two of four seconds.
    fn replayed(spans: &[Vec<Interval>]) -> (u64, i64) {
        let mut slicing = Slicing::new(START);
        for (id, spans) in spans.iter().enumerate() {
            spans.iter().for_each(|span| slicing.add(id as u64, id == 0, *span));
        }
        let _learned = slicing.advance(START + ms(2000));
        let part = slicing.advance(START + ms(4000));
        (part.covered.count(ms(1)), part.own.nanos() / MS.cast_signed())
    }

    fn each(period: u64, work: u64) -> Vec<(u64, u64)> {
        (0..4500 * MS / period).map(|at| (at * period, work)).collect()
    }

    #[test]
    fn alone_all_is_the_slices_own() {
        let (covered, own) = replayed(&published(2 * MS, &[each(10 * MS, 3 * MS)], 4500 * MS));
        assert_eq!((covered, own), (600, 600));
    }

    #[test]
    fn work_that_is_shorter_than_a_turn_is_not_charged_for_the_others_turn_that_it_waits_for() {
        for time_slice in [MS, 2 * MS, 10 * MS, 30 * MS] {
            let (covered, own) =
                replayed(&published(time_slice, &[each(20 * MS, 4 * MS), each(MS, MS)], 4500 * MS));
            assert!(covered > 550, "{covered} within time slices of {time_slice}");
            assert!(
                (370..=430).contains(&own),
                "{own} of 400, covered {covered}, time slices of {time_slice}"
            );
        }
    }

    #[test]
    fn of_two_that_always_work_each_has_a_half() {
        for time_slice in [MS, 10 * MS] {
            let (covered, own) =
                replayed(&published(time_slice, &[each(3 * MS, 3 * MS), each(5 * MS, 5 * MS)], 4500 * MS));
            assert!(covered >= 1990 && (950..=1020).contains(&own), "{own} of {covered}");
        }
    }

    #[test]
    fn each_context_of_a_slice_has_a_turn() {
        let mut slicing = Slicing::new(START);
        let works = [each(3 * MS, 3 * MS), each(3 * MS, 3 * MS), each(5 * MS, 5 * MS)];
        for (context, spans) in (0..3).zip(published(2 * MS, &works, 4500 * MS)) {
            let is_own = context < 2;
            spans
                .iter()
                .for_each(|span| slicing.add(u64::from(!is_own), is_own, Interval { context, ..*span }));
        }
        let _learned = slicing.advance(START + ms(2000));
        let own = slicing.advance(START + ms(4000)).own.nanos() / MS.cast_signed();
        assert!((1270..=1370).contains(&own), "{own} of 1333");
    }

    #[test]
    fn the_order_of_turns_is_learned() {
        let mut slicing = Slicing::new(START);
        let works = [each(300_000, 300_000), each(400_000, 400_000), each(MS / 2, MS / 2), each(MS, MS)];
        let mut published = published(2 * MS, &works, 4500 * MS);
        published.reverse();
        for (slice, spans) in (0..).zip(&published) {
            spans.iter().for_each(|span| slicing.add(slice, slice == 0, *span));
        }
        let _part = slicing.advance(START + ms(4000));
        // This replay began with time slices as long as those of the GPU.
        let right = slicing.replays.iter().find(|replay| replay.nominal == ms(2)).unwrap();
        let order = right.circle.iter().cycle().skip_while(|context| **context != 3).take(4);
        assert_eq!(order.copied().collect::<Vec<_>>(), [3, 2, 1, 0]);
    }

    #[test]
    fn the_length_of_turns_is_learned() {
        let mut slicing = Slicing::new(START);
        // 1.8 ms lies between two lengths with which replays begin.
        let works = [each(300_000, 300_000), each(400_000, 400_000), each(MS, MS)];
        for (slice, spans) in (0..).zip(&published(1_800_000, &works, 4500 * MS)) {
            spans.iter().for_each(|span| slicing.add(slice, slice == 0, *span));
        }
        let _part = slicing.advance(START + ms(4000));
        let best = slicing.replays.iter().min_by_key(|replay| replay.misfit).unwrap();
        assert!(
            (1_750_000..=1_850_000).contains(&best.time_slice.nanos()),
            "{} instead of 1.8 ms",
            best.time_slice
        );
    }

    #[test]
    fn work_that_is_told_of_with_gaps_is_one_work() {
        let mut slicing = Slicing::new(START);
        let piece = |start, end, goes_on| Interval {
            start: START + ns(start),
            end: START + ns(end),
            goes_on,
            ..Interval::default()
        };
        slicing.add(0, true, piece(0, 3 * MS, true));
        slicing.add(0, true, piece(3 * MS + 100_000, 5 * MS, false));
        slicing.add(0, true, piece(9 * MS, 10 * MS, true));
        let part = slicing.advance(START + ms(50));
        assert_eq!((part.covered, part.own), (ms(6), charge(6_000_000)));
    }

    #[test]
    fn work_that_goes_on_does_not_say_whose_turn_it_is() {
        let spans = |goes_on| {
            let span = move |start, end| Interval {
                start: START + ns(start),
                end: START + ns(end),
                goes_on,
                context: 0,
            };
            vec![vec![span(0, 3 * MS), span(3 * MS, 40 * MS)], vec![span(0, 40 * MS)]]
        };
        let misfit = |goes_on| {
            let mut slicing = Slicing::new(START);
            for (id, spans) in spans(goes_on).iter().enumerate() {
                spans.iter().for_each(|span| slicing.add(id as u64, id == 0, *span));
            }
            let _part = slicing.advance(START + ms(50));
            slicing.replays.iter().map(|replay| replay.misfit).sum::<u64>()
        };
        assert_eq!(misfit(true), 0);
        assert!(misfit(false) > 0);
    }

    #[test]
    fn contexts_beyond_those_that_are_followed_are_left_out_until_a_place_is_free() {
        let mut slicing = Slicing::new(START);
        let span =
            |at: u64| Interval { start: START + ms(at), end: START + ms(at + 1), ..Interval::default() };
        (0..100).for_each(|id| slicing.add(id, id == 0, span(0)));
        assert_eq!(slicing.contexts.len(), MOST_CONTEXTS);
        let _part = slicing.advance(START + ms(5));
        slicing.add(99, false, span(6));
        assert!(slicing.contexts.iter().any(|context| context.id == (99, 0)));
    }

    #[test]
    fn skipped_time_is_not_replayed_and_later_time_is() {
        let mut slicing = Slicing::new(START);
        let span =
            |start, end| Interval { start: START + ns(start), end: START + ns(end), ..Interval::default() };
        for (start, end) in [(0, 10 * MS), (20 * MS, 30 * MS), (60 * MS, 70 * MS)] {
            slicing.add(0, true, span(start, end));
        }
        let _part = slicing.advance(START + ms(5));
        slicing.skip(START + ms(25));
        let part = slicing.advance(START + ms(100));
        assert_eq!((part.covered, part.own), (ms(15), charge(15_000_000)));
    }
}
