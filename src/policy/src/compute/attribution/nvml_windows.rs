//! Sampling windows of NVML: the time that an answer covers, and the use of a process in it.
//!
//! The caller asks NVML for samples newer than an instant. The answer has one entry per process: its mean use since then,
//! and the time of its newest sample. So a window reaches from the newest sample of the last answer to the newest sample of
//! this one, whatever the processes. Answers that follow each other closely are merged. Otherwise one answer could have the
//! sample of one process, and the next answer the sample of another process for the same time.
//!
//! An answer without entries is ambiguous: no process was busy, or no window has ended. So it counts as no answer,
//! and the next window is longer.

use crate::time::{Monotonic, WallTime};

/// One process in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// NVML's number of the process. The numbering may be that of another namespace.
    pub pid: u32,
    /// Time of the newest sample by NVML's clock, in microseconds.
    pub stamp: u64,
    /// Mean use, in whole percents.
    pub percent: u32,
}

/// Readings of three clocks at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// The monotonic clock, on which windows lie.
    pub monotonic: Monotonic,
    /// The wall clock in nanoseconds, by which most drivers date samples. It can be set.
    pub wall: u64,
    /// The nanoseconds since the machine started, by which some drivers date samples.
    pub boot: u64,
}

/// A window on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Start.
    pub from: Monotonic,
    /// End.
    pub to: Monotonic,
    /// True if the window began earlier than `from`. The part before `from` is too old for the history of prepayments.
    pub is_cut: bool,
}

/// The result of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// A window has ended.
    Window(Window),
    /// No window has ended.
    NothingNew,
    /// No known clock explains the dates of the samples.
    Undated,
}

/// Shortest window, in microseconds: half of NVML's usual one.
const SHORTEST_WINDOW: u64 = 80_000;
/// Longest window. Prepayments are known for somewhat longer.
const LONGEST_WINDOW: WallTime = WallTime::from_millis(2_000);
/// Greatest age of a new sample: the longest window, and a delay of a second.
pub(super) const OLDEST_SAMPLE: WallTime = WallTime::from_millis(3_000);
/// Time by which a sample may seem to lie in the future, because it is dated by another clock.
const SAMPLE_CLOCK_SKEW: WallTime = WallTime::from_millis(50);
/// Time by which two readings of the wall clock may differ from the monotonic clock although nobody has set the wall clock.
/// Slewing gains half a thousandth.
const MOST_CLOCK_SLEW: WallTime = WallTime::from_millis(20);

/// The end of the last window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Windows {
    last: u64,
    lead: Option<i64>,
}

impl Windows {
    /// Returns the time from which the caller should ask NVML, by NVML's clock, in microseconds.
    ///
    /// It is 0 (everything) at first, and after somebody has set the wall clock. Otherwise samples that are dated before
    /// the last one would never arrive.
    pub fn since(&mut self, clocks: Clocks) -> u64 {
        let lead = clocks.wall.wrapping_sub(clocks.monotonic.nanos()).cast_signed();
        if self.lead.is_some_and(|before| lead.wrapping_sub(before).unsigned_abs() > MOST_CLOCK_SLEW.nanos())
        {
            self.last = 0;
        }
        self.lead = Some(lead);
        self.last
    }

    /// Closes a window with the answer to a question from that instant. The first answer only marks the start.
    pub fn close(&mut self, uses: &[Use], clocks: Clocks) -> Closed {
        let news = uses.iter().filter(|entry| is_valid(entry) && entry.stamp > self.last);
        let Some(newest) = news.map(|entry| entry.stamp).max() else { return Closed::NothingNew };
        let length = newest.saturating_sub(self.last);
        if self.last != 0 && length < SHORTEST_WINDOW {
            return Closed::NothingNew;
        }
        let is_first = core::mem::replace(&mut self.last, newest) == 0;
        if is_first {
            return Closed::NothingNew;
        }
        let Some(to) = instant(newest.saturating_mul(1000), clocks) else { return Closed::Undated };
        let length = WallTime::from_micros(length);
        Closed::Window(Window {
            from: to.saturating_sub(length.min(LONGEST_WINDOW)),
            to,
            is_cut: length > LONGEST_WINDOW,
        })
    }
}

impl Use {
    /// Returns true if the entry belongs to a process that was busy.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        is_valid(self) && self.percent > 0
    }
}

/// Returns true if an entry can be used. Drivers also return entries without a process, and percents above 100.
fn is_valid(entry: &Use) -> bool {
    entry.pid != 0 && entry.percent <= 100
}

/// Returns the instant of a sample on the monotonic clock. Uses the clock by which the sample is recent. `None`: no clock
/// is.
fn instant(stamp: u64, clocks: Clocks) -> Option<Monotonic> {
    [clocks.wall, clocks.boot, clocks.monotonic.nanos()].into_iter().find_map(|clock| {
        let age = WallTime::from_nanos(clock.saturating_add(SAMPLE_CLOCK_SKEW.nanos()).checked_sub(stamp)?);
        let is_recent = age <= OLDEST_SAMPLE.saturating_add(SAMPLE_CLOCK_SKEW);
        is_recent.then(|| clocks.monotonic.saturating_sub(age.saturating_sub(SAMPLE_CLOCK_SKEW)))
    })
}

/// The statement of NVML about one or several processes in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Start of the window.
    pub from: Monotonic,
    /// End of the window.
    pub to: Monotonic,
    /// Their use, in whole percents.
    pub percent: u32,
    /// Use of all processes of the GPU, in whole percents.
    pub total: u32,
    /// Number of entries of these processes.
    pub processes: u32,
}

/// Returns one sample for all processes whose numbers `is_wanted` accepts. A process that the answer does not name was
/// idle.
#[must_use]
pub fn of_processes(uses: &[Use], window: Window, is_wanted: impl Fn(u32) -> bool) -> Sample {
    let mut sample = Sample { from: window.from, to: window.to, percent: 0, total: 0, processes: 0 };
    for entry in uses.iter().filter(|entry| is_valid(entry)) {
        sample.total = sample.total.saturating_add(entry.percent);
        if is_wanted(entry.pid) {
            sample.percent = sample.percent.saturating_add(entry.percent);
            sample.processes = sample.processes.saturating_add(1);
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::ns;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;
    /// Nanoseconds by which the wall clock is ahead of the monotonic one.
    const LEAD: u64 = 1_700_000_000 * S;

    fn clocks(now: u64) -> Clocks {
        Clocks { monotonic: ns(now), wall: now + LEAD, boot: now + 5 * S }
    }

    fn entry(pid: u32, at: u64, percent: u32) -> Use {
        Use { pid, stamp: (at + LEAD) / 1000, percent }
    }

    fn window(from: u64, to: u64) -> Closed {
        Closed::Window(Window { from: ns(from), to: ns(to), is_cut: false })
    }

    /// Returns windows that have seen a sample of the instant `at`.
    fn begun(at: u64) -> Windows {
        let mut windows = Windows::default();
        assert_eq!(windows.since(clocks(at)), 0);
        assert_eq!(windows.close(&[entry(7, at, 10)], clocks(at + MS)), Closed::NothingNew);
        windows
    }

    #[test]
    fn a_window_reaches_from_the_newest_sample_of_one_answer_to_the_newest_of_the_next() {
        let mut windows = begun(100 * S);
        assert_eq!(windows.since(clocks(100 * S + 170 * MS)), (100 * S + LEAD) / 1000);
        let answer = [entry(7, 100 * S + 160 * MS, 30), entry(9, 100 * S + 166 * MS, 60)];
        assert_eq!(windows.close(&answer, clocks(100 * S + 190 * MS)), window(100 * S, 100 * S + 166 * MS));
        assert_eq!(windows.close(&answer, clocks(100 * S + 200 * MS)), Closed::NothingNew, "it is known");
        assert_eq!(windows.close(&[], clocks(100 * S + 200 * MS)), Closed::NothingNew);
    }

    #[test]
    fn answers_that_follow_each_other_closely_are_one_window() {
        let mut windows = begun(100 * S);
        let now = |at: u64| clocks(100 * S + at * MS);
        assert_eq!(windows.close(&[entry(7, 100 * S + 20 * MS, 30)], now(21)), Closed::NothingNew);
        assert_eq!(windows.since(now(40)), (100 * S + LEAD) / 1000, "it is asked for all of it again");
        let close = windows.close(&[entry(7, 100 * S + 80 * MS, 30)], now(81));
        assert_eq!(close, window(100 * S, 100 * S + 80 * MS));
    }

    #[test]
    fn a_wall_clock_that_is_set_loses_a_window_and_no_more() {
        for by in [-3600 * S.cast_signed(), 3600 * S.cast_signed()] {
            let mut windows = begun(100 * S);
            let set = |now: u64| {
                let clocks = clocks(now);
                Clocks { wall: clocks.wall.wrapping_add_signed(by), ..clocks }
            };
            let entry = |at: u64| {
                let entry = entry(7, at, 30);
                Use { stamp: entry.stamp.wrapping_add_signed(by / 1000), ..entry }
            };
            assert_eq!(windows.since(set(100 * S + 170 * MS)), 0);
            assert_eq!(
                windows.close(&[entry(100 * S + 166 * MS)], set(100 * S + 170 * MS)),
                Closed::NothingNew
            );
            assert_ne!(windows.since(set(100 * S + 340 * MS)), 0);
            let close = windows.close(&[entry(100 * S + 332 * MS)], set(100 * S + 340 * MS));
            assert_eq!(close, window(100 * S + 166 * MS, 100 * S + 332 * MS), "{by}");
        }
    }

    #[test]
    fn a_wall_clock_that_is_slewed_was_not_set() {
        let since = |by: u64| {
            let mut windows = begun(100 * S);
            let clocks = clocks(100 * S + 170 * MS);
            windows.since(Clocks { wall: clocks.wall - by, ..clocks })
        };
        assert_ne!(since(MOST_CLOCK_SLEW.nanos()), 0);
        assert_eq!(since(MOST_CLOCK_SLEW.nanos() + 1), 0);
    }

    #[test]
    fn samples_may_be_dated_by_the_time_since_the_machine_started() {
        let mut windows = Windows::default();
        let stamp = |at: u64| Use { pid: 7, stamp: (at + 5 * S) / 1000, percent: 10 };
        assert_eq!(windows.close(&[stamp(100 * S)], clocks(100 * S)), Closed::NothingNew);
        let close = windows.close(&[stamp(101 * S)], clocks(101 * S + 30 * MS));
        assert_eq!(close, window(100 * S, 101 * S));
        let close = windows.close(&[Use { pid: 7, stamp: 600 * S / 1000, percent: 10 }], clocks(102 * S));
        assert_eq!(close, Closed::Undated, "of no clock");
    }

    #[test]
    fn entries_that_cannot_be_are_passed_over() {
        let mut windows = begun(100 * S);
        let wrong = [entry(0, 101 * S, 30), entry(7, 101 * S, 4_000_000_000)];
        assert_eq!(windows.close(&wrong, clocks(101 * S)), Closed::NothingNew);
        let window = Window { from: ns(0), to: ns(S), is_cut: false };
        assert_eq!([0, 7].map(|pid| of_processes(&wrong, window, |named| named == pid).processes), [0, 0]);
    }

    #[test]
    fn a_process_is_known_by_its_number_and_idle_where_it_is_not_named() {
        let uses = [entry(7, S, 30), entry(9, S, 50)];
        let window = Window { from: ns(S), to: ns(2 * S), is_cut: false };
        let sample = |percent, processes| {
            let (from, to) = (window.from, window.to);
            Sample { from, to, percent, total: 80, processes }
        };
        assert_eq!(
            [7, 9, 8].map(|pid| of_processes(&uses, window, |named| named == pid)),
            [sample(30, 1), sample(50, 1), sample(0, 0)]
        );
        assert_eq!(
            of_processes(&uses, window, |named| named != 8),
            sample(80, 2),
            "a slice of two processes"
        );
    }

    #[test]
    fn a_window_after_a_long_pause_is_cut() {
        let mut windows = begun(100 * S);
        let close = windows.close(&[entry(7, 110 * S, 30)], clocks(110 * S + MS));
        let long = Window { from: ns(108 * S), to: ns(110 * S), is_cut: true };
        assert_eq!(close, Closed::Window(long));
        let close = begun(100 * S).close(&[entry(7, 102 * S, 30)], clocks(102 * S + MS));
        assert_eq!(close, window(100 * S, 102 * S), "not yet");
    }
}
