//! The correction factor: the slice's own part of the time between events.
//!
//! Under time slicing, the interval between two events contains the turns of other slices. The slice's part of the
//! interval is a factor, which the [replay](super::slicing) learns.

use crate::time::{GpuTime, WallTime};

/// A factor of one. Factors are given in millionths.
pub const ONE: u32 = 1_000_000;
/// Smallest factor: 2 %. A turn of 1 ms among eight slices waits for seven co-tenants with 2 ms each; it is a
/// fifteenth of the time between its events. A factor below a fiftieth is taken for an error.
const LEAST: u32 = ONE / 50;

/// Reads the factor in a shared word. A word that was never written is one; no factor is below the smallest.
#[must_use]
pub fn factor_of(word: u32) -> u32 {
    if word == 0 { ONE } else { word.clamp(LEAST, ONE) }
}

/// Returns the GPU time of `covered` wall time of which a part, `factor` in parts of [`ONE`], is the slice's own.
#[must_use]
pub fn apply(covered: WallTime, factor: u32) -> GpuTime {
    covered.gpu_if_alone().scaled(u64::from(factor), u64::from(ONE)).unwrap_or(GpuTime::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::ns;

    #[test]
    fn a_factor_is_a_part() {
        assert_eq!(apply(ns(2_000), 500_000), ns(1_000));
        assert_eq!(apply(ns(u64::MAX), ONE), ns(u64::MAX));
    }

    #[test]
    fn a_word_is_a_factor_between_a_fiftieth_and_one_whatever_it_is() {
        assert_eq!([0, 1, ONE / 2, ONE, u32::MAX].map(factor_of), [ONE, LEAST, ONE / 2, ONE, ONE]);
    }
}
