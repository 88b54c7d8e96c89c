//! Judges times that a test measures on a machine with other work.
//!
//! Example: 600 naps of 2 ms take less than 2.2 s. If they take longer, either the library made them longer or the machine did.
//! The test therefore takes two further measurements on which the library has no influence:
//!
//! - An idle thread on each processor sleeps for 1 ms at a time and measures how late it wakes.
//! - The kernel reports how long other processes ran, and how long a virtual machine stood still.
//!
//! If one of them is long enough to explain the miss, the test is *inconclusive*. Otherwise the test fails. The size of the miss
//! plays no part.

use super::host::Watch;
use super::others;
use std::fmt::Debug;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Number of threads through which one step of a program passes: a thread of the program, one of the library and one of the
/// simulated GPU. The machine may wake each of them as late as the idle thread.
const CHAIN: u32 = 3;

/// The result of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The claim holds. The state of the machine plays no part.
    Holds,
    /// The claim does not hold, and the machine kept up.
    Missed,
    /// The claim does not hold, and the machine was too late for it.
    Inconclusive,
}

impl Verdict {
    /// Returns the verdict on a claim. A miss on a late machine decides nothing.
    pub(crate) fn of(holds: bool, is_late: bool) -> Self {
        match (holds, is_late) {
            (true, _) => Self::Holds,
            (false, false) => Self::Missed,
            (false, true) => Self::Inconclusive,
        }
    }
}

/// Time that the machine withheld from the test.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lateness {
    /// Time by which the idle thread of one processor woke late, summed up.
    pub(crate) lost: Duration,
    /// Time for which other processes ran, summed over all processors.
    pub(crate) taken: Duration,
}

impl Lateness {
    /// Returns true if the machine was so late that a measurement can miss its bound by `slack`.
    pub(crate) fn explains(self, slack: Duration) -> bool {
        self.lost * CHAIN >= slack || self.taken >= slack
    }
}

/// Judges a measurement by the lateness of the machine meanwhile. `slack` is the bound of the claim less the time that the
/// measurement takes on an idle machine.
pub(crate) fn verdict(is_right: bool, late: Lateness, slack: Duration) -> Verdict {
    Verdict::of(is_right, late.explains(slack))
}

/// Measures once. Returns the measurement, and how late the machine was.
pub(crate) fn beside<T>(measure: impl FnOnce() -> T) -> (T, Lateness) {
    let (watch, before) = (Watch::start(&[]), others::taken());
    let measured = measure();
    let taken = others::taken().saturating_sub(before);
    (measured, Lateness { lost: Duration::from_micros(watch.end().lost), taken })
}

/// Measures once. Fails if `is_right` rejects the measurement, unless the machine was too late for the claim; `slack` is as for
/// [`verdict`]. Returns the measurement.
#[track_caller]
pub(crate) fn holds<T: Debug>(
    slack: Duration,
    measure: impl FnOnce() -> T,
    is_right: impl FnOnce(&T) -> bool,
) -> T {
    let (measured, late) = beside(measure);
    println!("{measured:?}; {late:?}");
    match verdict(is_right(&measured), late, slack) {
        Verdict::Holds => {}
        Verdict::Missed => panic!("{measured:?}, and the host kept up: {late:?}; slack {slack:?}"),
        Verdict::Inconclusive => inconclusive(&format!("{measured:?}; {late:?}; slack {slack:?}")),
    }
    measured
}

/// Does something that takes less than `most`, and `usual` on an idle machine. Fails if it takes longer, unless the machine was
/// too late for the bound. Returns the result.
#[track_caller]
pub(crate) fn within<T>(most: Duration, usual: Duration, act: impl FnOnce() -> T) -> T {
    let mut result = None;
    let measure = || {
        let began = Instant::now();
        result = Some(act());
        began.elapsed()
    };
    holds(most.saturating_sub(usual), measure, |took| *took < most);
    result.expect("it is done")
}

/// Reports that this test decided nothing. `ci/test.sh` counts it apart from the tests that passed.
#[track_caller]
pub(crate) fn inconclusive(why: &str) {
    let thread = std::thread::current();
    println!("INCONCLUSIVE {}: {why}; {}", thread.name().unwrap_or("main"), Location::caller());
}
