//! What will a launch cost?
//!
//! Every (function, grid, block, dynamic shared memory) and every executable graph has a running estimate, learned
//! from measurements. Two figures are kept: what was *charged*, which is prepaid, and the *plain* duration between
//! two events, which decides how the next launch is measured. They differ where streams or processes overlap.

/// The most that is prepaid for one launch, in nanoseconds: one second. What runs for longer is charged as it runs.
pub const MOST: u64 = 1_000_000_000;

/// A new measurement counts as one of so many.
const MEMORY: u64 = 8;
/// A run's error is believed to a part of so many: the run says nothing of who caused it.
const RUN_MEMORY: u64 = 4;
/// By how much a single run may change an estimate, as a factor.
const MOST_STEP: u64 = 4;

/// What makes launches of a function alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The function's handle.
    pub function: u64,
    /// Blocks of the grid in each direction.
    pub grid: [u32; 3],
    /// Threads of a block in each direction.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

/// Whose cost is learned: a shape of a function, or an executable graph.
///
/// Told apart by 64 bits that are mixed from all its parts: among a million shapes two are taken for one with a
/// chance of one in 30 millions, and would share an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    id: u64,
    pub(super) family: u64,
    pub(super) blocks: u64,
}

impl Key {
    /// Launches of this shape.
    #[inline]
    #[must_use]
    pub const fn kernel(shape: &Shape) -> Self {
        let [x, y, z] = shape.grid;
        let [bx, by, bz] = shape.block;
        // Two halves that do not wait for each other: every launch does this.
        let one = folded(shape.function, pair(x, y) ^ 0x9e37_79b9_7f4a_7c15);
        let other = folded(
            pair(z, shape.shared) ^ 0xbf58_476d_1ce4_e5b9,
            pair(bx, by) ^ (bz as u64).rotate_left(20) ^ 0x94d0_49bb_1331_11eb,
        );
        let id = folded(one ^ 0xd6e8_feb8_6659_fd93, other ^ 0x2545_f491_4f6c_dd1d);
        // No product that overflows is one of a launch: the driver takes no more than 65535 blocks along y and z.
        let blocks = (x as u64).wrapping_mul(y as u64).wrapping_mul(z as u64);
        Self { id: if id == 0 { 1 } else { id }, family: shape.function, blocks }
    }

    /// Launches of this executable graph.
    #[inline]
    #[must_use]
    pub const fn graph(executable: u64) -> Self {
        let id = mixed(executable, 0x6772_6170_6800_0001);
        Self { id: if id == 0 { 1 } else { id }, family: 0, blocks: 0 }
    }

    /// Blocks of the grid; of a copy what the caller counts, and 0 of a graph.
    #[inline]
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// What tells it from others; never 0.
    #[inline]
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Both multiplied, and the product's halves laid on each other (as in `wyhash`).
#[allow(clippy::cast_possible_truncation, reason = "the lower half is what is meant")]
const fn folded(left: u64, right: u64) -> u64 {
    let product = (left as u128).wrapping_mul(right as u128);
    product as u64 ^ (product >> u64::BITS) as u64
}

/// Spreads every bit of both over the result (multiplication and shift, as in `SplitMix64`).
pub(super) const fn mixed(state: u64, word: u64) -> u64 {
    let sum = (state.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let half = (sum ^ (sum >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    half ^ (half >> 29)
}

/// What launches of one key cost, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    /// GPU time that is charged for one.
    pub charged: u64,
    /// Time that passes between two events around one.
    pub plain: u64,
    /// How many measurements it rests on; stops counting where that makes no difference.
    pub(super) samples: u8,
}

/// What one key has in a run. Its prediction is kept as it was made: a dozen runs are under way at a time, and each would
/// correct the same error anew if it were compared with what the others have made of the estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Whose launches.
    pub key: Key,
    /// How many.
    pub launches: u32,
    /// What is charged for them together, as predicted, in nanoseconds of GPU time.
    pub charged: u64,
    /// Their plain durations together, as predicted, in nanoseconds.
    pub plain: u64,
}

/// What a run of several launches was measured to cost beside what was predicted, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// GPU time that was charged for the run.
    pub charged: u64,
    /// The sum of its estimates of that.
    pub charged_predicted: u64,
    /// Time between its events.
    pub plain: u64,
    /// The sum of its estimates of that.
    pub plain_predicted: u64,
}

impl Estimate {
    /// Of nothing.
    pub const NONE: Self = Self { charged: 0, plain: 0, samples: 0 };

    /// Whether it rests on a measurement of what its key stands for now.
    #[inline]
    #[must_use]
    pub const fn is_certain(&self) -> bool {
        self.samples > 0
    }

    /// Moved towards a measurement, of which `own` is the part in which no other process of the slice had the GPU.
    ///
    /// If 1 ms of 4 ms is own, the measurement says a quarter of what one says that was alone: which part of a single one
    /// others had is known on average only.
    pub(super) fn measured(self, charged: u64, (own, plain): (u64, u64)) -> Self {
        let samples = u64::from(self.samples);
        let all = samples.saturating_add(1);
        let of = by(all, plain, own).filter(|_| samples > 0).unwrap_or(all).max(all);
        let towards = |old: u64, new: u64| stepped(old, i128::from(new).saturating_sub(i128::from(old)), of);
        Self {
            charged: towards(self.charged, charged),
            plain: towards(self.plain, plain),
            samples: u8::try_from(all.min(MEMORY.saturating_sub(1))).unwrap_or(1),
        }
    }

    /// Moved towards what a launch of `part` cost, by as much as the part had of the run.
    pub(super) fn in_run(self, part: &Part, outcome: &Outcome) -> Self {
        let launches = u64::from(part.launches.max(1));
        let towards = |old: u64, predicted: u64, measured: u64, of: u64| {
            let measured = measured.clamp(of / MOST_STEP, of.saturating_mul(MOST_STEP));
            let sample = by(predicted.checked_div(launches).unwrap_or(old), measured, of).unwrap_or(old);
            let distance = i128::from(sample).saturating_sub(i128::from(old));
            let share = distance.saturating_mul(i128::from(predicted)).checked_div(i128::from(of.max(1)));
            stepped(old, share.unwrap_or(0), RUN_MEMORY).clamp(1, MOST)
        };
        let Outcome { charged, charged_predicted, plain, plain_predicted } = *outcome;
        Self {
            charged: towards(self.charged, part.charged, charged, charged_predicted),
            plain: towards(self.plain, part.plain, plain, plain_predicted),
            ..self
        }
    }
}

/// `value × numerator / denominator`.
pub(super) fn by(value: u64, numerator: u64, denominator: u64) -> Option<u64> {
    let product = u128::from(value).saturating_mul(u128::from(numerator));
    u64::try_from(product.checked_div(u128::from(denominator))?).ok()
}

/// `old` and one `of`th of the way by `distance`, rounded away from where it is, so that it arrives.
fn stepped(old: u64, distance: i128, of: u64) -> u64 {
    let of = i128::from(of.max(1));
    let rounding = of.saturating_sub(1).saturating_mul(distance.signum());
    let step = distance.saturating_add(rounding).checked_div(of).unwrap_or(0);
    u64::try_from(i128::from(old).saturating_add(step)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_shape_tells_keys_apart() {
        let base = Shape { function: 7, grid: [1, 2, 3], block: [4, 5, 6], shared: 7 };
        let others = [
            Shape { function: 8, ..base },
            Shape { grid: [2, 1, 3], ..base },
            Shape { grid: [1, 3, 2], ..base },
            Shape { block: [5, 4, 6], ..base },
            Shape { block: [4, 6, 5], ..base },
            Shape { shared: 8, ..base },
        ];
        for other in others {
            assert_ne!(Key::kernel(&base).id(), Key::kernel(&other).id(), "{other:?}");
        }
        assert_ne!(Key::graph(7).id(), Key::kernel(&base).id());
    }

    #[test]
    fn keys_of_shapes_that_are_alike_are_spread_over_all_bits() {
        let base = Shape { function: 0x7f00_1234_5600, grid: [64, 1, 1], block: [128, 1, 1], shared: 0 };
        // As programs have them: one thing grows, by one or by a power of two.
        let families: [fn(Shape, u32) -> Shape; 8] = [
            |base, at| Shape { grid: [at, 1, 1], ..base },
            |base, at| Shape { grid: [64, at, 7], ..base },
            |base, at| Shape { grid: [64, 2, at], block: [64, 2, 2], ..base },
            |base, at| Shape { block: [at, 4, 3], ..base },
            |base, at| Shape { block: [5, at, 1], ..base },
            |base, at| Shape { block: [8, 8, at], shared: 16, ..base },
            |base, at| Shape { shared: at * 1024 + 8, ..base },
            |base, at| Shape { function: base.function + (u64::from(at) + 1) * 64, ..base },
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
        let shape = Shape { function: 7, grid: [2, 3, 5], block: [1, 1, 1], shared: 0 };
        assert_eq!(Key::kernel(&shape).blocks(), 30);
        assert_eq!(Key::graph(7).blocks(), 0);
    }

    fn of(charged: u64, plain: u64, samples: u8) -> Estimate {
        Estimate { charged, plain, samples }
    }

    #[test]
    fn the_first_measurement_is_believed_and_each_further_one_counts_as_one_of_those_before_it_up_to_eight() {
        let first = of(900, 900, 0).measured(100, (200, 200));
        assert_eq!(first, of(100, 200, 1));
        let second = first.measured(200, (200, 200));
        assert_eq!(second, of(150, 200, 2));
        let many = (0..20).fold(second, |estimate, _| estimate.measured(200, (200, 200)));
        assert_eq!(many, of(200, 200, 7));
        assert_eq!(many.measured(1000, (200, 200)), of(300, 200, 7), "one of eight");
        assert_eq!(many.measured(200, (200, 400)), of(200, 213, 7), "one of sixteen: others had half of it");
    }

    #[test]
    fn a_run_moves_an_estimate_by_a_quarter_of_its_error_in_what_the_key_had_of_it() {
        let key = Key::graph(1);
        let part = |charged| Part { key, launches: 10, charged, plain: charged };
        let outcome = |measured, predicted| Outcome {
            charged: measured,
            charged_predicted: predicted,
            plain: measured,
            plain_predicted: predicted,
        };
        let estimate = of(1000, 1000, 3);
        // It was the whole run, half of it, and next to nothing of it.
        assert_eq!(estimate.in_run(&part(10_000), &outcome(20_000, 10_000)), of(1250, 1250, 3));
        assert_eq!(estimate.in_run(&part(10_000), &outcome(40_000, 20_000)), of(1125, 1125, 3));
        assert_eq!(estimate.in_run(&part(10_000), &outcome(20_000_000, 10_000_000)), of(1001, 1001, 3));
        // No run is believed by more than four times, up or down.
        assert_eq!(estimate.in_run(&part(10_000), &outcome(9_000_000, 10_000)), of(1750, 1750, 3));
        assert_eq!(estimate.in_run(&part(10_000), &outcome(0, 10_000)), of(812, 812, 3));
    }
}
