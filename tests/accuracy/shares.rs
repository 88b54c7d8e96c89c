//! How do slices divide a GPU? From busy milliseconds to shares, and to when they changed.

use crate::course::Course;
use crate::figures::{self, share, sums};

/// A share that was reached is seen over so many milliseconds.
const SEEN: usize = 40;
/// Percents of its part that count as having it: a GPU that goes from one process to the other has 97.6 % of its time for
/// kernels.
const NEARLY: i64 = 93;

/// The share of a slice between two milliseconds, in hundredths of points.
pub(crate) fn part(course: &Course, slice: usize, from: usize, to: usize) -> i64 {
    share(&sums(&course.busy(slice)), from, to)
}

/// The same, of all slices.
pub(crate) fn parts(course: &Course, slices: usize, from: usize, to: usize) -> Vec<i64> {
    (0..slices).map(|slice| part(course, slice, from, to)).collect()
}

/// How evenly shares were for their weights, in thousandths.
pub(crate) fn jain(shares: &[i64], weights: &[u64]) -> u64 {
    let each = shares.iter().zip(weights).map(|(share, weight)| *share as u64 * 1000 / weight);
    figures::jain(&each.collect::<Vec<_>>())
}

/// How many milliseconds after one a slice first has nearly its part, in hundredths of points, for a while; none: not before
/// the end of the others.
pub(crate) fn reaches(busy: &[u32], from: usize, until: usize, due: i64) -> Option<u64> {
    let used = sums(busy);
    let last = until.min(busy.len()).saturating_sub(SEEN);
    (from..last).find(|at| share(&used, *at, at + SEEN) * 100 >= due * NEARLY).map(|at| (at - from) as u64)
}

/// One slice works in turns beside another one that always does.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    /// How long after the first stopped the other one had nearly all, in milliseconds; each time.
    pub(crate) lent: Vec<Option<u64>>,
    /// How long after the first had work again it had nearly its part.
    pub(crate) back: Vec<Option<u64>>,
}

/// What came of lending, where the first is due so much of the GPU, in hundredths of points, and works for so long.
pub(crate) fn lending(course: &Course, due: i64, work_ms: usize) -> Lending {
    let (first, other) = (course.busy(0), course.busy(1));
    let mut lending = Lending::default();
    // The first time nothing is known of it.
    for began in course.tracks[0].began.iter().skip(1).map(|ms| *ms as usize) {
        if began + work_ms + 500 > first.len() {
            break;
        }
        lending.back.push(reaches(&first, began, began + work_ms, due));
        let end = (began..first.len())
            .filter(|ms| *ms < began + work_ms + 200 && first[*ms] > 0)
            .max()
            .unwrap_or(began)
            + 1;
        lending.lent.push(reaches(&other, end, end + 450, 9_900));
    }
    lending
}

/// The middle one, and the last, of times; what was never reached is the last.
pub(crate) fn median_and_most(times: &[Option<u64>]) -> (u64, u64) {
    let mut sorted: Vec<u64> = times.iter().map(|time| time.unwrap_or(9999)).collect();
    sorted.sort_unstable();
    (sorted.get(sorted.len() / 2).copied().unwrap_or(9999), sorted.last().copied().unwrap_or(9999))
}
