//! Random choices that depend only on a seed.

use gpuslice_policy::time::Nanos;

/// `SplitMix64`.
#[derive(Debug, Clone, Copy)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def0)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Returns a number from `low` up to `high`, exclusive.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        if high <= low { low } else { low + self.next() % (high - low) }
    }

    /// Returns a span from zero up to `most`, inclusive.
    pub fn span<T: Nanos>(&mut self, most: T) -> T {
        T::from_nanos(self.between(0, most.nanos() + 1))
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.between(0, choices.len() as u64) as usize]
    }

    /// Returns a time with an even distribution on a logarithmic scale.
    pub fn scale<T: Nanos>(&mut self, low: T, high: T) -> T {
        let (low, high) = (low.nanos() as f64, high.nanos() as f64);
        T::from_nanos((low * (high / low).powf(self.unit())) as u64)
    }

    /// Returns a time with an exponential distribution and this mean: the time between arrivals.
    pub fn wait<T: Nanos>(&mut self, mean: T) -> T {
        T::from_nanos((-(1.0 - self.unit()).ln() * mean.nanos() as f64) as u64)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
