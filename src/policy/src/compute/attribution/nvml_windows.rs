//! Of which window does an answer of NVML tell, and what does it say of a process?
//!
//! NVML is asked for what is newer than an instant, and gives one entry per process: its mean use since then, and the
//! time of its newest sample. So a window reaches from the newest sample of the last answer to the newest of this one,
//! whoever's they are. Answers that follow each other closely are put together: one could hold one process's sample and
//! the next another's of the same time.
//!
//! No entry means both that nobody was busy and that no window has ended since. So it says nothing, and the next window
//! is the longer.

/// One process in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Its number, whoever's numbering that is.
    pub pid: u32,
    /// The time of its newest sample by NVML's clock, in microseconds.
    pub stamp: u64,
    /// Its mean use, in whole percents.
    pub percent: u32,
}

/// Clocks at one instant, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// The monotonic clock, on which windows are laid.
    pub monotonic: u64,
    /// The wall clock, by which most drivers date samples. It can be set.
    pub wall: u64,
    /// The time since the machine started, by which some do.
    pub boot: u64,
}

/// A stretch of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// When it began, in nanoseconds.
    pub from: u64,
    /// When it ended.
    pub to: u64,
    /// Whether it began earlier: too long ago to say what was covered.
    pub is_cut: bool,
}

/// What comes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// A window has ended.
    Window(Window),
    /// None has.
    NothingNew,
    /// The samples are of no clock that is known.
    Undated,
}

/// No shorter windows than this, in microseconds: half of NVML's usual one.
const SHORTEST: u64 = 80_000;
/// No longer ones, in nanoseconds: what was prepaid is known for somewhat longer.
const LONGEST: u64 = 2_000_000_000;
/// How old a new sample may be, in nanoseconds: the longest window, and as much again to be late.
const OLDEST: u64 = 3_000_000_000;
/// By how much a sample may seem to come from the future, since it is dated by another clock's reading.
const AHEAD: u64 = 50_000_000;
/// What two readings of the wall clock may differ against the monotonic one without having been set, in nanoseconds:
/// slewing gains half a thousandth.
const STEADY: u64 = 20_000_000;

/// Where the last window ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Windows {
    last: u64,
    lead: Option<i64>,
}

impl Windows {
    /// From when on NVML is to be asked, by its clock, in microseconds. From the beginning of all at first, and after the
    /// wall clock was set: samples that are dated before what was seen last would never come.
    pub fn since(&mut self, clocks: Clocks) -> u64 {
        let lead = clocks.wall.wrapping_sub(clocks.monotonic).cast_signed();
        if self.lead.is_some_and(|before| lead.wrapping_sub(before).unsigned_abs() > STEADY) {
            self.last = 0;
        }
        self.lead = Some(lead);
        self.last
    }

    /// What an answer to that question says of windows. The first one only says where to begin.
    pub fn close(&mut self, uses: &[Use], clocks: Clocks) -> Closed {
        let news = uses.iter().filter(|entry| is_valid(entry) && entry.stamp > self.last);
        let Some(newest) = news.map(|entry| entry.stamp).max() else { return Closed::NothingNew };
        let length = newest.saturating_sub(self.last);
        if self.last != 0 && length < SHORTEST {
            return Closed::NothingNew;
        }
        let is_first = core::mem::replace(&mut self.last, newest) == 0;
        if is_first {
            return Closed::NothingNew;
        }
        let Some(to) = instant(newest.saturating_mul(1000), clocks) else { return Closed::Undated };
        let length = length.saturating_mul(1000);
        Closed::Window(Window { from: to.saturating_sub(length.min(LONGEST)), to, is_cut: length > LONGEST })
    }
}

impl Use {
    /// Whether the entry is one of a process, and says that it was busy.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        is_valid(self) && self.percent > 0
    }
}

/// Drivers are known to give entries of no process, and percents beyond all reason.
fn is_valid(entry: &Use) -> bool {
    entry.pid != 0 && entry.percent <= 100
}

/// Where on the monotonic clock a sample lies, by whichever clock makes it a recent one.
fn instant(stamp: u64, clocks: Clocks) -> Option<u64> {
    [clocks.wall, clocks.boot, clocks.monotonic].into_iter().find_map(|clock| {
        let age = clock.saturating_add(AHEAD).checked_sub(stamp)?;
        let is_recent = age <= OLDEST.saturating_add(AHEAD);
        is_recent.then(|| clocks.monotonic.saturating_sub(age.saturating_sub(AHEAD)))
    })
}

/// What NVML says of a process in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When the window began, on the monotonic clock.
    pub from: u64,
    /// When it ended.
    pub to: u64,
    /// Its use, in whole percents.
    pub percent: u32,
    /// 1 if it was named, and 0 otherwise.
    pub processes: u32,
}

/// What a window says of the process with this number. One that is not named was not busy.
#[must_use]
pub fn of_process(uses: &[Use], window: Window, number: u32) -> Sample {
    let mut sample = Sample { from: window.from, to: window.to, percent: 0, processes: 0 };
    for entry in uses.iter().filter(|entry| is_valid(entry) && entry.pid == number) {
        sample.percent = sample.percent.saturating_add(entry.percent);
        sample.processes = sample.processes.saturating_add(1);
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;
    /// The wall clock is so far ahead of the monotonic one.
    const LEAD: u64 = 1_700_000_000 * S;

    fn clocks(now: u64) -> Clocks {
        Clocks { monotonic: now, wall: now + LEAD, boot: now + 5 * S }
    }

    fn entry(pid: u32, at: u64, percent: u32) -> Use {
        Use { pid, stamp: (at + LEAD) / 1000, percent }
    }

    fn window(from: u64, to: u64) -> Closed {
        Closed::Window(Window { from, to, is_cut: false })
    }

    /// Windows that have seen the sample of that instant.
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
        assert_ne!(since(STEADY), 0);
        assert_eq!(since(STEADY + 1), 0);
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
        let window = Window { from: 0, to: S, is_cut: false };
        assert_eq!([0, 7].map(|pid| of_process(&wrong, window, pid).processes), [0, 0]);
    }

    #[test]
    fn a_process_is_known_by_its_number_and_idle_where_it_is_not_named() {
        let uses = [entry(7, S, 30), entry(9, S, 50)];
        let window = Window { from: S, to: 2 * S, is_cut: false };
        let sample = |percent, processes| Sample { from: S, to: 2 * S, percent, processes };
        assert_eq!(
            [7, 9, 8].map(|pid| of_process(&uses, window, pid)),
            [sample(30, 1), sample(50, 1), sample(0, 0)]
        );
    }

    #[test]
    fn a_window_after_a_long_pause_is_cut() {
        let mut windows = begun(100 * S);
        let close = windows.close(&[entry(7, 110 * S, 30)], clocks(110 * S + MS));
        let long = Window { from: 108 * S, to: 110 * S, is_cut: true };
        assert_eq!(close, Closed::Window(long));
        let close = begun(100 * S).close(&[entry(7, 102 * S, 30)], clocks(102 * S + MS));
        assert_eq!(close, window(100 * S, 102 * S), "not yet");
    }
}
