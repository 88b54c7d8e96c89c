//! Prepayments of a process for its launches, by the time at which they were paid.
//!
//! NVML reports the use of a window after its end. [The cost model](super::nvml_only) compares it with the prepayments of the
//! same window. Processes of a slice divide the use of a window by the time that each has prepaid in it.

use crate::time::{GpuTime, Monotonic};

/// Prepaid time, and the number of launches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prepaid {
    /// GPU time.
    pub time: GpuTime,
    /// Number of launches.
    pub launches: u64,
}

/// Prepayments of a process, and the time that the other processes of its slice counted meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prepayments {
    /// The process.
    pub own: Prepaid,
    /// Time of the process that the slice counted as used.
    pub counted: GpuTime,
    /// Time of the other processes of the slice that the slice counted as used.
    pub beside: GpuTime,
}

impl Prepayments {
    fn plus(self, other: Self) -> Self {
        Self {
            own: Prepaid {
                time: self.own.time.saturating_add(other.own.time),
                launches: self.own.launches.saturating_add(other.own.launches),
            },
            counted: self.counted.saturating_add(other.counted),
            beside: self.beside.saturating_add(other.beside),
        }
    }
}

/// Length of a bin, as a power of two in nanoseconds: 16.8 ms.
const BIN_BITS: u32 = 24;
/// Number of bins: more than four seconds.
const BINS: usize = 256;

/// The prepayments of the last four seconds, in bins.
#[derive(Debug, Clone)]
pub struct PrepaymentHistory {
    bins: Vec<(u64, Prepayments)>,
    beside: Option<GpuTime>,
    overcounted: GpuTime,
}

impl Default for PrepaymentHistory {
    fn default() -> Self {
        Self { bins: vec![(0, Prepayments::default()); BINS], beside: None, overcounted: GpuTime::ZERO }
    }
}

impl PrepaymentHistory {
    /// Adds `launches` launches of the process that were prepaid at `now` with `time` in all. Returns the time to count as
    /// used. It is less than `time` while [refunded time](Self::uncount) is still counted.
    #[must_use]
    pub fn add(&mut self, now: Monotonic, launches: u32, time: GpuTime) -> GpuTime {
        let less = self.overcounted.min(time.part(2));
        self.overcounted = self.overcounted.saturating_sub(less);
        let (own, counted) = (Prepaid { time, launches: launches.into() }, time.saturating_sub(less));
        self.plus(now, Prepayments { own, counted, beside: GpuTime::ZERO });
        counted
    }

    /// Records a refund of prepaid time. Used time never falls, so later launches count for less instead. They count for at
    /// least half of their time, because the processes of the slice divide its use by the counted time.
    pub fn uncount(&mut self, refunded: GpuTime) {
        self.overcounted = self.overcounted.saturating_add(refunded);
    }

    /// Adds a charge of the process that the slice counted as used. Without it, the process would get less than its part of
    /// the slice's time.
    pub fn count(&mut self, now: Monotonic, charged: GpuTime) {
        self.plus(now, Prepayments { counted: charged, ..Prepayments::default() });
    }

    /// Begins a pause, in which the time of the others is not added.
    pub const fn pause(&mut self) {
        self.beside = None;
    }

    /// Adds the time that the others have counted since the last call. `sum` is their time until `now`. It falls if another
    /// process gets the slot of a process that has ended. Then nothing is added.
    ///
    /// The own time is added when it is paid. If it came together with the time of the others, it could come a window
    /// later, in which the process launches nothing. The process would then have no part of that window.
    pub fn add_beside(&mut self, now: Monotonic, sum: GpuTime) {
        let before = self.beside.replace(sum).unwrap_or(sum);
        self.plus(now, Prepayments { beside: sum.saturating_sub(before), ..Prepayments::default() });
    }

    /// Returns the prepayments of a window. They are those of the bins that begin in the window, so consecutive windows
    /// count each bin once.
    #[must_use]
    pub fn within(&self, from: Monotonic, to: Monotonic) -> Prepayments {
        let first = bin(from).max(bin(to).saturating_sub(255));
        let bins = (first..bin(to))
            .filter_map(|number| self.bins.get(place(number)).filter(|bin| bin.0 == number).map(|bin| bin.1));
        bins.fold(Prepayments::default(), Prepayments::plus)
    }

    fn plus(&mut self, now: Monotonic, prepaid: Prepayments) {
        let number = bin(now);
        let Some(bin) = self.bins.get_mut(place(number)) else { return };
        let before = if bin.0 == number { bin.1 } else { Prepayments::default() };
        *bin = (number, before.plus(prepaid));
    }
}

/// Returns the number of the bin in which an instant lies.
const fn bin(at: Monotonic) -> u64 {
    at.nanos() >> BIN_BITS
}

fn place(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0) & BINS.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::{ms, ns};

    /// The start of the first window.
    const BEGIN: Monotonic = Monotonic::from_nanos(90_000_000_000_000);

    fn prepaid(launches: u64, time: GpuTime) -> Prepaid {
        Prepaid { time, launches }
    }

    #[test]
    fn the_time_of_others_in_a_pause_is_in_no_window() {
        let mut course = PrepaymentHistory::default();
        course.add_beside(BEGIN, ns(0));
        course.pause();
        course.add_beside(BEGIN + ms(100), ms(5000));
        course.add_beside(BEGIN + ms(101), ms::<GpuTime>(5000) + ns(7));
        assert_eq!(course.within(BEGIN - ms(20), BEGIN + ms(200)).beside, ns(7));
    }

    #[test]
    fn windows_that_follow_on_each_other_have_each_launch_once() {
        let mut course = PrepaymentHistory::default();
        for at in 0..1000 {
            assert_eq!(course.add(BEGIN + ms(at), 1, ns(7)), ns(7));
            course.add_beside(BEGIN + ms(at), ns(at * 10));
        }
        let cuts =
            [0, 123_456_789, 200_000_001, 850_000_000, 3_000_000_000].map(|cut| BEGIN - ms(20) + ns(cut));
        let windows = cuts.windows(2).map(|cut| course.within(cut[0], cut[1]));
        let sum = windows.fold(Prepayments::default(), Prepayments::plus);
        assert_eq!(sum, Prepayments { own: prepaid(1000, ns(7000)), counted: ns(7000), beside: ns(9990) });
        assert_eq!(
            course.within(BEGIN + ms(9_000), BEGIN + ms(10_000)),
            Prepayments::default(),
            "whatever the place held"
        );
    }

    #[test]
    fn a_refund_is_taken_from_half_of_the_time_that_later_launches_count() {
        let mut course = PrepaymentHistory::default();
        course.uncount(ns(70));
        assert_eq!([100, 100, 100].map(|time| course.add(BEGIN, 1, ns(time))), [50, 80, 100].map(ns));
        let window = course.within(BEGIN - ms(20), BEGIN + ms(20));
        assert_eq!((window.own, window.counted), (prepaid(3, ns(300)), ns(230)));
    }

    #[test]
    fn a_sum_of_the_others_that_falls_adds_nothing() {
        let mut course = PrepaymentHistory::default();
        for sum in [50, 70, 30, 40] {
            course.add_beside(BEGIN, ns(sum));
        }
        assert_eq!(course.within(BEGIN - ms(20), BEGIN + ms(20)).beside, ns(30));
    }
}
