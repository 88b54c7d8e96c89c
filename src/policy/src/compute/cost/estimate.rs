//! Estimates of the cost of a launch, learned from measurements.
//!
//! Each function with its grid, block and dynamic shared memory has an estimate. So has each executable graph. An estimate
//! has two figures:
//!
//! - *charged*: the GPU time that the slice is charged. A launch prepays it.
//! - *duration*: the time between two events. It decides how the next launch is measured.
//!
//! The two differ where streams or processes overlap.

use crate::time::{GpuTime, Nanos, WallTime};

/// Largest prepayment for one launch: one second. A longer kernel is charged while it runs.
pub const MOST_PREPAID: GpuTime = GpuTime::from_millis(1_000);

/// Weight of a new measurement of one launch: one part in eight.
const LAUNCH_MEMORY: u64 = 8;
/// Weight of the error of a batch: one part in four. A batch does not show which of its keys caused the error.
const BATCH_MEMORY: u64 = 4;
/// Largest factor by which a single batch may change an estimate.
const MOST_ESTIMATE_STEP: u64 = 4;

/// The properties that all launches of one key share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaunchShape {
    /// The function's handle.
    pub function: u64,
    /// Blocks of the grid in each direction.
    pub grid: [u32; 3],
    /// Threads of a block in each direction.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

/// The unit of learning: a shape of a function, or an executable graph.
///
/// The key is a hash of 64 bits. Among a million shapes, two have the same key with a probability of one in 30
/// million. They would then share one estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    id: u64,
    pub(super) family: u64,
    pub(super) blocks: u64,
}

impl Key {
    /// Returns the key of launches of this shape.
    #[inline]
    #[must_use]
    pub const fn kernel(shape: &LaunchShape) -> Self {
        let [x, y, z] = shape.grid;
        let [bx, by, bz] = shape.block;
        // The two halves have no data dependency, because every launch computes them.
        let one = folded(shape.function, pair(x, y) ^ 0x9e37_79b9_7f4a_7c15);
        let other = folded(
            pair(z, shape.shared) ^ 0xbf58_476d_1ce4_e5b9,
            pair(bx, by) ^ (bz as u64).rotate_left(20) ^ 0x94d0_49bb_1331_11eb,
        );
        let id = folded(one ^ 0xd6e8_feb8_6659_fd93, other ^ 0x2545_f491_4f6c_dd1d);
        // A product that overflows belongs to no launch: the driver takes no more than 65535 blocks along y and z.
        let blocks = (x as u64).wrapping_mul(y as u64).wrapping_mul(z as u64);
        Self { id: if id == 0 { 1 } else { id }, family: shape.function, blocks }
    }

    /// Returns a number of the code that the launch runs: the number of the function, or of the graph.
    #[must_use]
    pub const fn code(&self) -> u64 {
        if self.family == 0 { self.id } else { self.family }
    }

    /// Returns the key of launches of this executable graph.
    #[inline]
    #[must_use]
    pub const fn graph(executable: u64) -> Self {
        let id = mixed(executable, 0x6772_6170_6800_0001);
        Self { id: if id == 0 { 1 } else { id }, family: 0, blocks: 0 }
    }

    /// Returns the blocks of the grid. For a copy, the number that the caller counts; for a graph, 0.
    #[inline]
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the hash that identifies the key; never 0.
    #[inline]
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Multiplies both, and combines the halves of the product by exclusive or, as `wyhash` does.
#[allow(clippy::cast_possible_truncation, reason = "the lower half is what is meant")]
const fn folded(left: u64, right: u64) -> u64 {
    let product = (left as u128).wrapping_mul(right as u128);
    product as u64 ^ (product >> u64::BITS) as u64
}

/// Spreads each bit of both over the result by multiplication and shift, as `SplitMix64` does.
pub(super) const fn mixed(state: u64, word: u64) -> u64 {
    let sum = (state.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let half = (sum ^ (sum >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    half ^ (half >> 29)
}

/// Cost of the launches of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    /// GPU time that one launch is charged.
    pub charged: GpuTime,
    /// Time between two events around one launch.
    pub duration: WallTime,
    /// Number of measurements behind the estimate. The counter stops where one more makes no difference.
    pub(in crate::compute) samples: u8,
}

/// The part of one key in a batch.
///
/// The prediction stays as it was at the launch. A dozen batches are in flight at a time. If each of them were compared
/// with the present estimate, each would correct the same error again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPart {
    /// The key of the launches.
    pub key: Key,
    /// Number of launches.
    pub launches: u32,
    /// Predicted charge of all these launches.
    pub charged: GpuTime,
    /// Predicted duration of all these launches.
    pub duration: WallTime,
}

/// The measured and the predicted cost of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// GPU time that the batch was charged.
    pub charged: GpuTime,
    /// The sum of the predicted charges.
    pub charged_predicted: GpuTime,
    /// Time between the batch's events.
    pub duration: WallTime,
    /// The sum of the predicted durations.
    pub duration_predicted: WallTime,
}

impl Estimate {
    /// The estimate of no work.
    pub const NONE: Self = Self { charged: GpuTime::ZERO, duration: WallTime::ZERO, samples: 0 };

    /// Returns true if the estimate comes from a measurement since the key last changed its meaning.
    #[inline]
    #[must_use]
    pub const fn is_certain(&self) -> bool {
        self.samples > 0
    }

    /// Returns the estimate after one measured launch. `own` is the part of `duration` in which no other process of the slice had
    /// the GPU.
    ///
    /// Example: if 1 ms of 4 ms is own, the measurement counts a quarter of a measurement without other processes. The part
    /// of the other processes in a single measurement is known only on average.
    pub(super) fn measured(self, charged: GpuTime, (own, duration): (WallTime, WallTime)) -> Self {
        let samples = u64::from(self.samples);
        let all = samples.saturating_add(1);
        let of = by(all, duration.nanos(), own.nanos()).filter(|_| samples > 0).unwrap_or(all).max(all);
        Self {
            charged: stepped(self.charged, distance(self.charged, charged), of),
            duration: stepped(self.duration, distance(self.duration, duration), of),
            samples: u8::try_from(all.min(LAUNCH_MEMORY.saturating_sub(1))).unwrap_or(1),
        }
    }

    /// Returns the estimate after a measured batch. It moves towards the cost of a launch of `part`, in proportion to the part's
    /// share of the batch.
    pub(super) fn in_batch(self, part: &BatchPart, outcome: &Outcome) -> Self {
        let Outcome { charged, charged_predicted, duration, duration_predicted } = *outcome;
        Self {
            charged: corrected(self.charged, (part.charged, part.launches), charged, charged_predicted),
            duration: corrected(self.duration, (part.duration, part.launches), duration, duration_predicted),
            ..self
        }
    }
}

/// Returns the estimate `old` of a launch after a batch that was predicted to take `of` and took `measured`. `predicted` is the
/// part of `launches` launches in the prediction.
fn corrected<T: Nanos>(old: T, (predicted, launches): (T, u32), measured: T, of: T) -> T {
    let (predicted, of) = (predicted.nanos(), of.nanos());
    let measured = measured.nanos().clamp(of / MOST_ESTIMATE_STEP, of.saturating_mul(MOST_ESTIMATE_STEP));
    let launch = predicted.checked_div(u64::from(launches.max(1)));
    let sample = launch.and_then(|launch| by(launch, measured, of)).map_or(old, T::from_nanos);
    let share =
        distance(old, sample).saturating_mul(i128::from(predicted)).checked_div(i128::from(of.max(1)));
    bounded(stepped(old, share.unwrap_or(0), BATCH_MEMORY))
}

/// Returns the cost of one launch, at least a nanosecond and at most [`MOST_PREPAID`].
pub(super) fn bounded<T: Nanos>(cost: T) -> T {
    cost.clamp(T::from_nanos(1), T::from_nanos(MOST_PREPAID.nanos()))
}

/// Returns the nanoseconds from `old` to `new`.
fn distance<T: Nanos>(old: T, new: T) -> i128 {
    i128::from(new.nanos()).saturating_sub(i128::from(old.nanos()))
}

/// Returns `value × numerator / denominator`.
pub(super) fn by(value: u64, numerator: u64, denominator: u64) -> Option<u64> {
    let product = u128::from(value).saturating_mul(u128::from(numerator));
    u64::try_from(product.checked_div(u128::from(denominator))?).ok()
}

/// Moves `old` by `distance / of`, rounded away from zero, so that repeated steps reach the target.
fn stepped<T: Nanos>(old: T, distance: i128, of: u64) -> T {
    let of = i128::from(of.max(1));
    let rounding = of.saturating_sub(1).saturating_mul(distance.signum());
    let step = distance.saturating_add(rounding).checked_div(of).unwrap_or(0);
    T::from_nanos(u64::try_from(i128::from(old.nanos()).saturating_add(step)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::ns;

    #[test]
    fn every_part_of_a_shape_tells_keys_apart() {
        let base = LaunchShape { function: 7, grid: [1, 2, 3], block: [4, 5, 6], shared: 7 };
        let others = [
            LaunchShape { function: 8, ..base },
            LaunchShape { grid: [2, 1, 3], ..base },
            LaunchShape { grid: [1, 3, 2], ..base },
            LaunchShape { block: [5, 4, 6], ..base },
            LaunchShape { block: [4, 6, 5], ..base },
            LaunchShape { shared: 8, ..base },
        ];
        for other in others {
            assert_ne!(Key::kernel(&base).id(), Key::kernel(&other).id(), "{other:?}");
        }
        assert_ne!(Key::graph(7).id(), Key::kernel(&base).id());
    }

    #[test]
    fn keys_of_shapes_that_are_alike_are_spread_over_all_bits() {
        let base =
            LaunchShape { function: 0x7f00_1234_5600, grid: [64, 1, 1], block: [128, 1, 1], shared: 0 };
        // The shapes are like those of programs: one dimension grows, by one or by a power of two.
        let families: [fn(LaunchShape, u32) -> LaunchShape; 8] = [
            |base, at| LaunchShape { grid: [at, 1, 1], ..base },
            |base, at| LaunchShape { grid: [64, at, 7], ..base },
            |base, at| LaunchShape { grid: [64, 2, at], block: [64, 2, 2], ..base },
            |base, at| LaunchShape { block: [at, 4, 3], ..base },
            |base, at| LaunchShape { block: [5, at, 1], ..base },
            |base, at| LaunchShape { block: [8, 8, at], shared: 16, ..base },
            |base, at| LaunchShape { shared: at * 1024 + 8, ..base },
            |base, at| LaunchShape { function: base.function + (u64::from(at) + 1) * 64, ..base },
        ];
        let kernels = families.map(|shape| (0..1000).map(|at| Key::kernel(&shape(base, at)).id()).collect());
        let graphs = (0..1000).map(|at| Key::graph(0x5555_0000 + at * 16).id()).collect();
        let families: Vec<Vec<u64>> = kernels.into_iter().chain([graphs]).collect();
        for ids in &families {
            for bit in 0..u64::BITS {
                let ones = ids.iter().filter(|id| *id >> bit & 1 == 1).count();
                assert!((400..600).contains(&ones), "bit {bit}: {ones} of {}", ids.len());
            }
        }
        let mut all: Vec<u64> = families.into_iter().flatten().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn a_key_knows_how_many_blocks_its_launches_have() {
        let shape = LaunchShape { function: 7, grid: [2, 3, 5], block: [1, 1, 1], shared: 0 };
        assert_eq!(Key::kernel(&shape).blocks(), 30);
        assert_eq!(Key::graph(7).blocks(), 0);
    }

    fn of(charged: u64, duration: u64, samples: u8) -> Estimate {
        Estimate { charged: ns(charged), duration: ns(duration), samples }
    }

    #[test]
    fn the_first_measurement_is_believed_and_each_further_one_counts_as_one_of_those_before_it_up_to_eight() {
        let first = of(900, 900, 0).measured(ns(100), (ns(200), ns(200)));
        assert_eq!(first, of(100, 200, 1));
        let second = first.measured(ns(200), (ns(200), ns(200)));
        assert_eq!(second, of(150, 200, 2));
        let many = (0..20).fold(second, |estimate, _| estimate.measured(ns(200), (ns(200), ns(200))));
        assert_eq!(many, of(200, 200, 7));
        assert_eq!(many.measured(ns(1000), (ns(200), ns(200))), of(300, 200, 7), "one of eight");
        assert_eq!(
            many.measured(ns(200), (ns(200), ns(400))),
            of(200, 213, 7),
            "one of sixteen: others had half of it"
        );
    }

    #[test]
    fn a_batch_moves_an_estimate_by_a_quarter_of_its_error_in_the_part_of_the_key() {
        let key = Key::graph(1);
        let part = |charged| BatchPart { key, launches: 10, charged: ns(charged), duration: ns(charged) };
        let outcome = |measured, predicted| Outcome {
            charged: ns(measured),
            charged_predicted: ns(predicted),
            duration: ns(measured),
            duration_predicted: ns(predicted),
        };
        let estimate = of(1000, 1000, 3);
        // The part was the whole batch, half of the batch, and next to nothing of it.
        assert_eq!(estimate.in_batch(&part(10_000), &outcome(20_000, 10_000)), of(1250, 1250, 3));
        assert_eq!(estimate.in_batch(&part(10_000), &outcome(40_000, 20_000)), of(1125, 1125, 3));
        assert_eq!(estimate.in_batch(&part(10_000), &outcome(20_000_000, 10_000_000)), of(1001, 1001, 3));
        // No batch changes an estimate by more than a factor of four.
        assert_eq!(estimate.in_batch(&part(10_000), &outcome(9_000_000, 10_000)), of(1750, 1750, 3));
        assert_eq!(estimate.in_batch(&part(10_000), &outcome(0, 10_000)), of(812, 812, 3));
    }
}
