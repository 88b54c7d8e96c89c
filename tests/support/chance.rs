//! Random numbers for tests, from a seed that repeats a run.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the number in an environment variable.
#[track_caller]
pub(crate) fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

/// Makes the random numbers of `test`. Prints their seed, so that a run can be repeated with `GPUSLICE_TEST_SEED`.
pub(crate) fn seed(test: &str) -> Chance {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
    let seed = variable("GPUSLICE_TEST_SEED").unwrap_or_else(|| u64::from(clock.subsec_nanos()) + 1);
    println!("{test}: GPUSLICE_TEST_SEED={seed}");
    Chance(seed)
}

/// Pseudo-random numbers: splitmix64.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound.max(1)
    }

    /// Returns an index below `count`.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("below a count")
    }
}
