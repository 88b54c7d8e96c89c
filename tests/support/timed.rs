//! How does a test judge a time that it measures on a machine that others use too?
//!
//! Example: 600 naps of 2 ms take less than 2.2 s. If they take longer, either the library made them longer or the machine
//! did. Two things are measured beside them that the library has no part in:
//!
//! - An idle thread on each processor sleeps, a millisecond at a time, and tells how much later than asked it woke.
//! - The kernel tells for how long processes ran that are not the test's, and for how long a virtual machine stood still.
//!
//! If one of them is as long as would explain the miss, the measurement decides nothing: the test is *inconclusive*. If not,
//! the test fails. The size of the miss plays no part.

use super::host::Watch;
use super::others;
use std::fmt::Debug;
use std::panic::Location;
use std::time::Duration;

/// A step of a program passes through so many threads, one after the other: its own, the library's and the simulated GPU's.
/// The machine may wake each of them as late as the idle one.
const CHAIN: u32 = 3;

/// The result of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The claim holds, whatever the machine did.
    Holds,
    /// The claim does not hold, and the machine kept up.
    Missed,
    /// The claim does not hold, and the machine was so late that it could not.
    Inconclusive,
}

/// How far the machine was from being there for the test alone.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lateness {
    /// By how much the idle thread of one processor woke late, all in all.
    pub(crate) lost: Duration,
    /// For how long others had processors, all processors together.
    pub(crate) taken: Duration,
}

/// Judges a measurement by what the machine did meanwhile. `slack` is the time between what is measured on a machine that
/// does nothing else and the bound of the claim.
pub(crate) fn verdict(is_right: bool, late: Lateness, slack: Duration) -> Verdict {
    match (is_right, late.lost * CHAIN >= slack || late.taken >= slack) {
        (true, _) => Verdict::Holds,
        (false, false) => Verdict::Missed,
        (false, true) => Verdict::Inconclusive,
    }
}

/// Measures something once; returns it, and how late the machine was.
pub(crate) fn beside<T>(measure: impl FnOnce() -> T) -> (T, Lateness) {
    let (watch, before) = (Watch::start(&[]), others::taken());
    let measured = measure();
    let taken = others::taken().saturating_sub(before);
    (measured, Lateness { lost: Duration::from_micros(watch.end().lost), taken })
}

/// Measures something once, and fails if it is not right, unless the machine was too late for the claim; `slack` as for
/// [`verdict`]. Returns what was measured.
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

/// Says that this test decided nothing. `ci/test.sh` counts it apart from those that passed.
#[track_caller]
pub(crate) fn inconclusive(why: &str) {
    let thread = std::thread::current();
    println!("INCONCLUSIVE {}: {why}; {}", thread.name().unwrap_or("main"), Location::caller());
}
