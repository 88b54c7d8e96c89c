//! Which part of the time between events was ours, and which the neighbours'?
//!
//! Under time slicing an event's interval contains the slices of other containers. NVML tells, with a delay and in
//! whole percents, how busy our processes were. The factor is the ratio of both sums over the same windows: a gain per
//! sample (`factor × (1 + error / 10)`) is 3 to 5 points off at 30 beside 70, the ratio within 0.3.

/// One, in the parts in which factors are given.
pub const ONE: u32 = 1_000_000;
/// The least factor: 2 %. A turn of 1 ms among eight slices waits for seven neighbours with 2 ms each, and is a
/// fifteenth of the time between its events; less than a fiftieth is taken for a wrong sample.
const LEAST: u32 = ONE / 50;
/// What is left of a sum after a window of a sixth of a second, in parts of [`ONE`]: a half.
///
/// A longer memory settles late: whose factor is too large gets too little, its neighbours find less of it between their
/// events, and what all are to learn moves on while they do. With 0.8 a slice of 50 % beside one of 46 % is two points low in
/// its second and third second. Whole percents make less difference than that; with 0.3 they begin to.
const DECAY: u64 = 500_000;
/// NVML's own window on most devices, in nanoseconds: a sixth of a second.
pub(super) const WINDOW: u64 = 166_666_667;
/// No window is longer than so many of them: two seconds, where the slowest devices have one.
const MOST_WINDOWS: u64 = 12;
/// More than the sums come to, in nanoseconds: a minute.
const MOST: u64 = 60_000_000_000;
/// Windows alone after which the neighbours have gone. One could be a neighbour's pause.
const ALONE: u8 = 2;

/// Busy time in bins of about 17 ms, for the last four seconds: what was covered in a window of the past.
#[derive(Debug, Clone)]
pub struct History {
    bins: Vec<(u64, u64)>,
}

/// Nanoseconds of a bin: a power of two, so that finding one is a shift.
const BIN: u64 = 1 << BIN_BITS;
const BIN_BITS: u32 = 24;
/// More than four seconds of them: samples of the slowest devices are of one second, and late.
const BINS: usize = 256;

impl Default for History {
    fn default() -> Self {
        Self { bins: vec![(0, 0); BINS] }
    }
}

impl History {
    /// The GPU was busy for us in this interval, which no other one covers.
    pub fn add(&mut self, start: u64, end: u64) {
        let oldest = end.saturating_sub(BIN.saturating_mul(255));
        let mut at = start.max(oldest);
        while at < end {
            let number = at >> BIN_BITS;
            let next = number.saturating_add(1).saturating_mul(BIN).min(end).max(at.saturating_add(1));
            if let Some(bin) = self.bins.get_mut(place(number)) {
                let before = if bin.0 == number { bin.1 } else { 0 };
                *bin = (number, before.saturating_add(next.saturating_sub(at)));
            }
            at = next;
        }
    }

    /// How much of an interval was covered, in nanoseconds; bins at its ends count in proportion.
    #[must_use]
    pub fn covered(&self, from: u64, to: u64) -> u64 {
        let from = from.max(to.saturating_sub(BIN.saturating_mul(255)));
        let numbers = (from >> BIN_BITS)..=(to >> BIN_BITS);
        numbers.map(|number| self.part(number, from, to)).fold(0, u64::saturating_add)
    }

    fn part(&self, number: u64, from: u64, to: u64) -> u64 {
        let busy = self.bins.get(place(number)).filter(|bin| bin.0 == number).map_or(0, |bin| bin.1);
        let start = number.saturating_mul(BIN);
        let inside = to.min(start.saturating_add(BIN)).saturating_sub(from.max(start));
        busy.saturating_mul(inside) / BIN
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0) & BINS.saturating_sub(1)
}

/// What NVML says of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When the window began, on the monotonic clock.
    pub from: u64,
    /// When it ended.
    pub to: u64,
    /// The sum of our processes' utilisations, in whole percents.
    pub percent: u32,
    /// How many of our processes were busy.
    pub processes: u32,
    /// Whether any process that is not ours was busy.
    pub others: bool,
}

/// The factor, from decayed sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    seen: u64,
    covered: u64,
    alone: u8,
    last: u64,
    rounding: u64,
}

impl Trim {
    /// Nothing is known. `rounded_down` says that this NVML cuts percents off, so that half a percent a process is
    /// missing on average.
    #[must_use]
    pub const fn new(rounded_down: bool) -> Self {
        Self { seen: 0, covered: 0, alone: 0, last: 0, rounding: if rounded_down { 5 } else { 0 } }
    }

    /// What another process had learned up to now, from the words in which it left it: [`words`](Self::words).
    ///
    /// They are brought into their range, so that no word keeps the factor from being learned.
    #[must_use]
    pub fn from_words(words: [u64; 4], now: u64, rounded_down: bool) -> Self {
        let [seen, covered, alone, last] = words;
        Self {
            seen: seen.min(MOST),
            covered: covered.min(MOST),
            alone: u8::try_from(alone).unwrap_or(u8::MAX),
            last: last.min(now),
            ..Self::new(rounded_down)
        }
    }

    /// All that was learned, for the process that goes on with it.
    #[must_use]
    pub const fn words(&self) -> [u64; 4] {
        [self.seen, self.covered, self.alone as u64, self.last]
    }

    /// The factor in parts of [`ONE`]: from a fiftieth to one; one while nothing is known or nobody else is there.
    #[must_use]
    pub fn factor(&self) -> u32 {
        let parts =
            u128::from(self.seen).saturating_mul(u128::from(ONE)).checked_div(u128::from(self.covered));
        let parts = parts.map_or(ONE, |parts| u32::try_from(parts).unwrap_or(ONE));
        parts.clamp(LEAST, ONE)
    }

    /// A window of which NVML says this, and of which our events covered so many nanoseconds.
    ///
    /// What cannot be is ignored: windows that are too short or too long, older than the last, or busier than whole.
    pub fn learn(&mut self, sample: &Sample, covered: u64) {
        let length = sample.to.saturating_sub(sample.from);
        let is_possible = (WINDOW / 16..=WINDOW.saturating_mul(MOST_WINDOWS)).contains(&length)
            && sample.to > self.last
            && sample.percent <= 100_u32.saturating_add(sample.processes);
        if !is_possible {
            return;
        }
        self.last = sample.to;
        if !sample.others {
            self.alone = self.alone.saturating_add(1);
            if self.alone >= ALONE {
                (self.seen, self.covered) = (0, 0);
            }
            return;
        }
        self.alone = 0;
        self.fade(length);
        self.seen = self.seen.saturating_add(self.seen_in(sample, length));
        self.covered = self.covered.saturating_add(covered);
    }

    fn seen_in(&self, sample: &Sample, length: u64) -> u64 {
        let tenths = u64::from(sample.percent).saturating_mul(10);
        let tenths = tenths.saturating_add(u64::from(sample.processes).saturating_mul(self.rounding));
        length.saturating_mul(tenths.min(1000)) / 1000
    }

    fn fade(&mut self, length: u64) {
        for _ in 0..windows(length) {
            self.seen = scale(self.seen, DECAY);
            self.covered = scale(self.covered, DECAY);
        }
    }
}

/// How many of NVML's usual windows one of so many nanoseconds counts for: the nearest number, one at least.
pub(super) fn windows(length: u64) -> u64 {
    (length.saturating_add(WINDOW / 2) / WINDOW).clamp(1, MOST_WINDOWS)
}

/// The factor that a shared word says: one if it was never written, and none that [`Trim::factor`] does not give.
#[must_use]
pub fn factor_of(word: u32) -> u32 {
    if word == 0 { ONE } else { word.clamp(LEAST, ONE) }
}

/// So many nanoseconds by a factor in parts of [`ONE`].
#[must_use]
pub fn apply(covered: u64, factor: u32) -> u64 {
    scale(covered, u64::from(factor))
}

pub(super) fn scale(value: u64, parts: u64) -> u64 {
    let scaled = u128::from(value).saturating_mul(u128::from(parts)).checked_div(u128::from(ONE));
    scaled.and_then(|scaled| u64::try_from(scaled).ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn sample(window: u64, percent: u32, others: bool) -> Sample {
        let from = S + window * WINDOW;
        Sample { from, to: from + WINDOW, percent, processes: 1, others }
    }

    #[test]
    fn history_gives_back_what_was_covered_in_a_window() {
        let mut history = History::default();
        for at in 0..100 {
            history.add(S + at * 10_000_000, S + at * 10_000_000 + 3_000_000);
        }
        let covered = history.covered(S, 2 * S);
        assert!((295_000_000..=305_000_000).contains(&covered), "{covered}");
        assert_eq!(history.covered(9 * S, 10 * S), 0, "what was not added, whatever the place held");
        history.add(20 * S, 20 * S + 8 * S);
        let covered = history.covered(26 * S, 27 * S);
        assert!((S - 1000..=S).contains(&covered), "{covered}");
        let mut bins = History::default();
        bins.add(BIN - 7, BIN);
        bins.add(BIN, 3 * BIN);
        let mut pieces = History::default();
        (0..1000).for_each(|at| pieces.add(2 * at, 2 * at + 1));
        assert_eq!(pieces.covered(0, BIN), 1000);
        assert_eq!(
            [0, 1, 2, 3].map(|bin| bins.covered(bin * BIN, (bin + 1) * BIN - 1)),
            [6, BIN - 1, BIN - 1, 0]
        );
    }

    #[test]
    fn the_factor_is_the_ratio_of_what_was_seen_to_what_was_covered() {
        let mut trim = Trim::new(true);
        assert_eq!(trim.factor(), ONE);
        for window in 0..20 {
            trim.learn(&sample(window, 29, true), WINDOW * 59 / 100);
        }
        assert_eq!((trim.factor() + 500) / 1000, 500);
        assert_eq!(apply(2_000, 500_000), 1_000);
    }

    #[test]
    fn what_neighbours_do_now_counts_after_three_windows() {
        let mut trim = Trim::new(false);
        (0..20).for_each(|window| trim.learn(&sample(window, 48, true), WINDOW * 6 / 10));
        (20..23).for_each(|window| trim.learn(&sample(window, 36, true), WINDOW * 6 / 10));
        assert!(trim.factor() < ONE * 63 / 100, "{} of 600000", trim.factor());
    }

    #[test]
    fn a_window_of_a_second_counts_as_six() {
        let (mut one, mut six) = (Trim::new(false), Trim::new(false));
        for trim in [&mut one, &mut six] {
            (0..20).for_each(|window| trim.learn(&sample(window, 48, true), WINDOW * 6 / 10));
        }
        one.learn(&Sample { to: sample(26, 0, true).from, ..sample(20, 12, true) }, 6 * (WINDOW * 6 / 10));
        (20..26).for_each(|window| six.learn(&sample(window, 12, true), WINDOW * 6 / 10));
        // Together at its end they weigh more than one after the other, so that it is nearer to what is new.
        assert!(200_000 < one.factor() && one.factor() < six.factor(), "{} {}", one.factor(), six.factor());
        assert!(six.factor() < 230_000, "{}", six.factor());
    }

    #[test]
    fn a_window_counts_as_so_many_as_it_is_nearest_to() {
        let learned = |length| {
            let mut trim = Trim::new(false);
            trim.learn(&sample(0, 48, true), WINDOW);
            trim.learn(&Sample { to: sample(1, 0, true).from + length, ..sample(1, 0, true) }, 0);
            trim.covered
        };
        let faded = |times| (0..times).fold(WINDOW, |sum, _| scale(sum, DECAY));
        assert_eq!(
            [8, 14, 16, 24, 26].map(|tenths| learned(WINDOW * tenths / 10)),
            [1, 1, 2, 2, 3].map(faded)
        );
    }

    #[test]
    fn alone_nothing_is_trimmed_after_two_windows() {
        let mut trim = Trim::new(false);
        trim.learn(&sample(0, 40, true), WINDOW * 8 / 10);
        assert_eq!((trim.factor() + 500) / 1000, 500);
        trim.learn(&sample(1, 80, false), WINDOW * 8 / 10);
        assert_eq!((trim.factor() + 500) / 1000, 500, "one could be a pause");
        trim.learn(&sample(2, 80, false), WINDOW * 8 / 10);
        assert_eq!(trim.factor(), ONE);
    }

    #[test]
    fn the_factor_stays_between_a_fiftieth_and_one_whatever_nvml_says() {
        let mut trim = Trim::new(true);
        trim.learn(&sample(0, 0, true), WINDOW);
        assert_eq!(trim.factor(), LEAST);
        trim.learn(&sample(1, 100, true), 0);
        trim.learn(&sample(2, 100, true), 0);
        assert_eq!(trim.factor(), ONE);
    }

    #[test]
    fn another_process_goes_on_where_the_first_ended_whatever_the_words_are() {
        let mut first = Trim::new(true);
        first.learn(&sample(0, 29, true), WINDOW * 59 / 100);
        let mut second = Trim::from_words(first.words(), 10 * S, true);
        assert_eq!(second, first);
        for trim in [&mut first, &mut second] {
            trim.learn(&sample(1, 20, true), WINDOW / 2);
        }
        assert_eq!(second, first);
        // The first was alone for one window, the second sees the next.
        first.learn(&sample(2, 20, false), WINDOW / 2);
        let mut second = Trim::from_words(first.words(), 10 * S, true);
        second.learn(&sample(3, 20, false), WINDOW / 2);
        assert_eq!(second.factor(), ONE);
        let mut wild = Trim::from_words([u64::MAX; 4], S, false);
        for window in 0..200 {
            wild.learn(&sample(window, 30, true), WINDOW * 6 / 10);
        }
        assert_eq!((wild.factor() + 500) / 1000, 500);
        assert_eq!([0, 1, ONE, u32::MAX].map(factor_of), [ONE, LEAST, ONE, ONE]);
    }

    #[test]
    fn samples_that_cannot_be_change_nothing() {
        let mut trim = Trim::new(false);
        trim.learn(&sample(5, 50, true), WINDOW);
        let before = trim;
        for wrong in [
            sample(4, 10, true),
            sample(5, 10, true),
            Sample { percent: 4_000_000, ..sample(6, 0, true) },
            Sample { to: 0, ..sample(6, 10, true) },
            Sample { to: u64::MAX, ..sample(6, 10, true) },
            Sample { to: sample(6, 0, true).from + WINDOW / 16 - 1, ..sample(6, 10, true) },
            Sample { to: sample(18, 0, true).from + 1, ..sample(6, 10, true) },
        ] {
            trim.learn(&wrong, WINDOW);
            assert_eq!(trim, before);
        }
    }
}
