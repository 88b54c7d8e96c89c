//! Figures of a share from the busy time of each millisecond, as in the tests in virtual time.

const MS: u64 = 1_000_000;
/// Interval between the starts of two sliding windows, in milliseconds.
const LOOK: usize = 50;
/// A share holds if some windows in a row are near it: the number of windows, their length in milliseconds, and the largest
/// difference in hundredths of a point.
const SETTLED: (usize, usize, i64) = (3, 300, 300);
/// Resolution of the time at which a share begins to hold, in milliseconds.
const STEP: usize = 10;
/// Milliseconds that are left out: figures begin with the second second.
pub(crate) const WARM_UP: usize = 1000;

/// Figures of a run. Shares are in hundredths of points.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Share beyond the target, over all the time from the second second on.
    pub(crate) mean: i64,
    /// Mean error of the windows of one second.
    pub(crate) absolute: i64,
    /// Error that 95 % of the windows do not pass.
    pub(crate) p95: i64,
    /// Milliseconds until the share holds, or `None` if it never does.
    pub(crate) settling: Option<usize>,
    /// Longest time without work beyond the time of the debt, in milliseconds.
    pub(crate) stall: u64,
}

/// Target and debt of a slice, on which its figures depend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// Share that the slice should have, in hundredths of points.
    pub(crate) target: i64,
    /// Most that the slice may owe, in nanoseconds of GPU time: its burst and its longest kernel.
    pub(crate) debt: u64,
}

/// Computes the figures from the nanoseconds of each millisecond in which the slice was busy.
pub(crate) fn figures(busy: &[u32], terms: Terms) -> Figures {
    let used = sums(busy);
    let late = WARM_UP.min(busy.len().saturating_sub(1));
    let windows = windows(&used, late, busy.len(), terms.target);
    Figures {
        mean: share(&used, late, busy.len()) - terms.target,
        absolute: windows.iter().sum::<i64>() / windows.len().max(1) as i64,
        p95: windows.get(windows.len() * 95 / 100).copied().unwrap_or_default(),
        settling: settling(busy, terms.target),
        stall: stall(busy, terms),
    }
}

/// Returns the GPU time that was used before each millisecond.
pub(crate) fn sums(busy: &[u32]) -> Vec<u64> {
    let mut used = vec![0];
    used.extend(busy.iter().scan(0, |sum, busy| {
        *sum += u64::from(*busy);
        Some(*sum)
    }));
    used
}

/// Returns the share between two milliseconds, in hundredths of points.
pub(crate) fn share(used: &[u64], from: usize, to: usize) -> i64 {
    let time = (to - from).max(1) as u64 * MS;
    (u128::from(used[to] - used[from]) * 10_000 / u128::from(time)) as i64
}

/// Returns the errors of the windows of one second, in rising order.
fn windows(used: &[u64], from: usize, to: usize, target: i64) -> Vec<i64> {
    let starts = (from..(to + 1).saturating_sub(1000)).step_by(LOOK);
    let mut windows: Vec<i64> = starts.map(|at| (share(used, at, at + 1000) - target).abs()).collect();
    windows.sort_unstable();
    windows
}

/// Returns the millisecond from which the share holds.
pub(crate) fn settling(busy: &[u32], target: i64) -> Option<usize> {
    let (count, length, spare) = SETTLED;
    let used = sums(busy);
    let holds = |at: usize| (share(&used, at, at + length) - target).abs() <= spare;
    let starts = (0..(busy.len() + 1).saturating_sub(count * length)).step_by(STEP);
    starts.into_iter().find(|at| (0..count).all(|next| holds(at + next * length)))
}

/// Returns the longest stall in milliseconds. Time without work is no stall while the slice pays for earlier use
/// beyond its share, up to a burst and a kernel.
fn stall(busy: &[u32], terms: Terms) -> u64 {
    let rate = terms.target.max(1) as u64;
    let (mut debt, mut owed, mut idle, mut longest) = (0_u64, 0_u64, 0_u64, 0);
    for busy in busy.iter().copied().skip_while(|busy| *busy == 0).map(u64::from) {
        idle = if busy == 0 { idle + MS } else { 0 };
        longest = longest.max(idle.saturating_sub(owed));
        debt = (debt + busy).saturating_sub(rate * MS / 10_000).min(terms.debt);
        if busy > 0 {
            owed = debt * 10_000 / rate;
        }
    }
    longest / MS
}

/// Returns how evenly processes were served: the Jain index in thousandths.
pub(crate) fn jain(served: &[u64]) -> u64 {
    let sum: u128 = served.iter().map(|served| u128::from(*served)).sum();
    let squares: u128 = served.iter().map(|served| u128::from(*served).pow(2)).sum();
    (sum * sum * 1000 / (squares * served.len() as u128).max(1)) as u64
}

/// Returns the value that 99 % of the values do not pass.
pub(crate) fn p99(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() * 99 / 100).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Terms = Terms { target: 5_000, debt: 22 * MS };

    /// Returns busy nanoseconds for parts, each of a number of milliseconds that are busy for a number of thousandths.
    fn course(parts: &[(usize, u32)]) -> Vec<u32> {
        let busy = parts.iter().flat_map(|(count, part)| std::iter::repeat_n(part * 1000, *count));
        busy.collect()
    }

    #[test]
    fn a_share_that_is_held_from_the_start_has_no_error() {
        let held = figures(&course(&[(5000, 500)]), HALF);
        assert_eq!(held, Figures { settling: Some(0), ..Figures::default() });
    }

    #[test]
    fn the_first_second_does_not_count_but_for_settling_and_stalls() {
        let late = figures(&course(&[(800, 1000), (3200, 500)]), HALF);
        assert_eq!((late.mean, late.absolute, late.p95, late.settling), (0, 0, 0, Some(790)));
        let waits = figures(&course(&[(1, 500), (800, 0), (3199, 500)]), HALF);
        assert_eq!((waits.mean, waits.stall), (0, 800));
    }

    #[test]
    fn errors_have_their_sign_and_windows_do_not() {
        let low = figures(&course(&[(1000, 500), (4000, 480)]), HALF);
        assert_eq!((low.mean, low.absolute, low.p95), (-200, 200, 200));
        let uneven = figures(&course(&[(2000, 500), (2000, 600), (2000, 400)]), HALF);
        assert_eq!(uneven.mean, 0);
        assert!(uneven.absolute > 0 && uneven.absolute < 1000 && uneven.p95 == 1000, "{uneven:?}");
    }

    #[test]
    fn one_window_of_a_hundred_does_not_make_the_95th_percentile() {
        let dip = figures(&course(&[(30_000, 500), (50, 0), (30_000, 500)]), HALF);
        assert_eq!((dip.p95, dip.stall), (0, 50));
    }

    #[test]
    fn one_window_of_ten_does() {
        let low = figures(&course(&[(30_000, 500), (3000, 400), (7000, 500)]), HALF);
        assert_eq!((low.p95, low.mean), (1000, -77));
    }

    #[test]
    fn time_that_pays_a_debt_is_no_stall() {
        // The slice is busy for 20 ms of every 40 ms.
        let parts: Vec<_> = (0..200).flat_map(|_| [(20, 1000), (20, 0)]).collect();
        assert_eq!(figures(&course(&parts), HALF).stall, 0);
        let parts: Vec<_> = (0..200).flat_map(|_| [(20, 1000), (23, 0)]).collect();
        assert_eq!(figures(&course(&parts), HALF).stall, 3);
        assert_eq!(figures(&course(&[(300, 0), (3000, 500)]), HALF).stall, 0, "it has not begun");
    }

    #[test]
    fn a_slice_owes_a_burst_and_a_kernel_at_most() {
        assert_eq!(figures(&course(&[(2000, 1000), (100, 0), (1000, 500)]), HALF).stall, 56);
    }

    #[test]
    fn a_share_has_settled_when_it_holds_for_a_while() {
        assert_eq!(figures(&course(&[(400, 500), (300, 800), (3000, 500)]), HALF).settling, Some(670));
    }

    #[test]
    fn a_share_that_never_holds_does_not_settle() {
        assert_eq!(figures(&course(&[(5000, 600)]), HALF).settling, None);
    }

    #[test]
    fn fairness_and_percentiles_follow_their_definitions() {
        assert_eq!((jain(&[5, 5]), jain(&[1, 0]), jain(&[3, 1])), (1000, 500, 800));
        assert_eq!(p99(&(1..=200).rev().collect::<Vec<_>>()), 199);
    }
}
