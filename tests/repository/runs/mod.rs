//! Runs of tests: their division, their counts, and the tests that decide nothing.

mod counting;
mod division;
mod inconclusive;
