//! Shares of slices that divide a GPU, and the times at which they change, from busy milliseconds.

use crate::course::Course;
use crate::figures::{self, share, sums};

/// Length of the window in which a share counts as reached, in milliseconds.
const SEEN: usize = 40;
/// Percent of a slice's part that count as having reached it. A GPU that changes from one process to the other has 95.3 % of its
/// time for kernels.
const NEARLY: i64 = 93;

/// Returns the share of a slice between two milliseconds, in hundredths of points.
pub(crate) fn part(course: &Course, slice: usize, from: usize, to: usize) -> i64 {
    share(&sums(&course.busy(slice)), from, to)
}

/// Returns the shares of all slices between two milliseconds, in hundredths of points.
pub(crate) fn parts(course: &Course, slices: usize, from: usize, to: usize) -> Vec<i64> {
    (0..slices).map(|slice| part(course, slice, from, to)).collect()
}

/// Returns how evenly the shares follow the weights: the Jain index in thousandths.
pub(crate) fn jain(shares: &[i64], weights: &[u64]) -> u64 {
    let each = shares.iter().zip(weights).map(|(share, weight)| *share as u64 * 1000 / weight);
    figures::jain(&each.collect::<Vec<_>>())
}

/// Returns how many milliseconds after `from` a slice first has nearly its part `due`, in hundredths of points, for a while.
/// Returns `None` if it does not before `until`.
pub(crate) fn reaches(busy: &[u32], from: usize, until: usize, due: i64) -> Option<u64> {
    let used = sums(busy);
    let last = until.min(busy.len()).saturating_sub(SEEN);
    (from..last).find(|at| share(&used, *at, at + SEEN) * 100 >= due * NEARLY).map(|at| (at - from) as u64)
}

/// Times of lending between a slice that works and pauses in turn, and a slice that always works.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    /// Milliseconds from the first slice's last work until the other slice had nearly all of the GPU, for each pause.
    pub(crate) lent: Vec<Option<u64>>,
    /// Milliseconds from the start of new work in the first slice until it had nearly its part.
    pub(crate) back: Vec<Option<u64>>,
}

/// Measures lending. The first slice is due `due` hundredths of points of the GPU, and works for `work_ms` at a time.
pub(crate) fn lending(course: &Course, due: i64, work_ms: usize) -> Lending {
    let (first, other) = (course.busy(0), course.busy(1));
    let mut lending = Lending::default();
    // The first start does not count, because the library knows nothing of the slice then.
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

/// Returns the median and the largest of `times`. A part that was never reached counts as the largest time.
pub(crate) fn median_and_most(times: &[Option<u64>]) -> (u64, u64) {
    let mut sorted: Vec<u64> = times.iter().map(|time| time.unwrap_or(9999)).collect();
    sorted.sort_unstable();
    (sorted.get(sorted.len() / 2).copied().unwrap_or(9999), sorted.last().copied().unwrap_or(9999))
}
