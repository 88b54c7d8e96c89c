//! The estimate table of a process.

use super::estimate::{BatchPart, Estimate, Key, Outcome, bounded, by, mixed};
use crate::time::{GpuTime, Nanos, WallTime};

/// Prepayment for a launch of an unknown function: 20 us, as a usual small kernel takes. A wrong value is settled after the
/// first launch. At most two such launches are in flight before that.
pub const FIRST_PRIOR: GpuTime = GpuTime::from_micros(20);
/// Largest factor by which the cost of one shape is scaled to another shape, by the number of blocks.
const MOST_SCALE: u64 = 8;
/// Number of estimates in one set. A search for a key looks through them.
const WAYS: usize = 4;

/// The estimate of one key.
#[derive(Debug, Clone, Copy, Default)]
struct EstimateEntry {
    id: u64,
    estimate: Estimate,
    /// The table's count of measurements at the last measurement of this key.
    used: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Family {
    function: u64,
    blocks: u64,
    estimate: Estimate,
}

/// The estimates of a process, in memory that is allocated once. The table is set-associative: each set keeps the
/// four keys that were measured last.
#[derive(Debug)]
pub struct EstimateTable {
    slots: Vec<[EstimateEntry; WAYS]>,
    families: Vec<Family>,
    clock: u64,
}

impl EstimateTable {
    /// Makes a table for at least `estimates` estimates of 40 bytes each, and for a quarter as many functions.
    #[must_use]
    pub fn new(estimates: usize) -> Self {
        let places = (estimates / WAYS).clamp(1, 1 << 20).next_power_of_two();
        Self {
            slots: vec![[EstimateEntry::default(); WAYS]; places],
            families: vec![Family::default(); places],
            clock: 0,
        }
    }

    /// Returns the estimate of a key, if the table has one.
    #[must_use]
    pub fn known(&self, key: &Key) -> Option<Estimate> {
        let place = self.slots.get(place(key.id(), self.slots.len()))?;
        place.iter().find(|slot| slot.id == key.id()).map(|slot| slot.estimate)
    }

    /// Returns the assumed cost of a launch of an unknown key: the cost of the function's latest shape, scaled by the number of
    /// blocks.
    #[must_use]
    pub fn prior(&self, key: &Key) -> Estimate {
        let family = self.families.get(place(mixed(key.family, 1), self.families.len()));
        let known = family.filter(|family| key.family != 0 && family.function == key.family);
        let Some(family) = known else {
            return Estimate { charged: FIRST_PRIOR, duration: FIRST_PRIOR.wall_if_alone(), samples: 0 };
        };
        let Estimate { charged, duration, .. } = family.estimate;
        let blocks = (key.blocks, family.blocks);
        Estimate { charged: by_blocks(charged, blocks), duration: by_blocks(duration, blocks), samples: 0 }
    }

    /// Learns from the measurement of a single launch. The launch took `duration`, and in `own` of that time no other
    /// process of the slice had the GPU.
    ///
    /// Returns the ids of the keys whose estimates have changed: the measured key, and a key that was evicted.
    pub fn measure(
        &mut self,
        key: &Key,
        charged: GpuTime,
        (own, duration): (WallTime, WallTime),
    ) -> [Option<u64>; 2] {
        let (charged, duration) = (bounded(charged), bounded(duration));
        self.clock = self.clock.saturating_add(1);
        let clock = self.clock;
        let before = self.known(key);
        let estimate = before.unwrap_or_default().measured(charged, (bounded(own).min(duration), duration));
        let mut evicted = None;
        if let Some(slot) = self.slot(key.id()) {
            let old = core::mem::replace(slot, EstimateEntry { id: key.id(), estimate, used: clock });
            evicted = Some(old.id).filter(|old| *old != 0 && *old != key.id());
        }
        self.relate(key, estimate);
        [Some(key.id()).filter(|_| before != Some(estimate)), evicted]
    }

    /// Learns from the measurement of a batch with this part. A key that was never measured alone learns nothing. Returns
    /// the id of the changed estimate. The function evicts no key.
    pub fn measure_batch(&mut self, part: &BatchPart, outcome: &Outcome) -> [Option<u64>; 2] {
        self.clock = self.clock.saturating_add(1);
        let clock = self.clock;
        let Some(slot) = self.slot(part.key.id()).filter(|slot| slot.id == part.key.id()) else {
            return [None; 2];
        };
        let estimate = slot.estimate.in_batch(part, outcome);
        let before = core::mem::replace(&mut slot.estimate, estimate);
        slot.used = clock;
        [Some(part.key.id()).filter(|_| before != estimate), None]
    }

    /// Marks the estimate of a key as uncertain, because the meaning of the key has changed: a graph was updated.
    ///
    /// The estimate stays in use, since most updates change little and some programs update before each launch. The
    /// next launch is measured alone, and its measurement replaces the estimate.
    pub fn invalidate(&mut self, key: &Key) {
        if let Some(slot) = self.slot(key.id()).filter(|slot| slot.id == key.id()) {
            slot.estimate.samples = 0;
        }
    }

    /// Returns the slot of a key: its own slot, or the least recently measured slot of its set.
    fn slot(&mut self, id: u64) -> Option<&mut EstimateEntry> {
        let at = place(id, self.slots.len());
        self.slots
            .get_mut(at)?
            .iter_mut()
            .min_by_key(|slot| if slot.id == id { 0 } else { slot.used.saturating_add(1) })
    }

    fn relate(&mut self, key: &Key, estimate: Estimate) {
        let at = place(mixed(key.family, 1), self.families.len());
        if key.family != 0
            && let Some(family) = self.families.get_mut(at)
        {
            *family = Family { function: key.family, blocks: key.blocks, estimate };
        }
    }
}

/// Returns the cost of a shape of `blocks` blocks, if a shape of `known` blocks costs `cost`.
fn by_blocks<T: Nanos>(cost: T, (blocks, known): (u64, u64)) -> T {
    let cost = cost.nanos();
    let scaled = by(cost, blocks, known.max(1)).unwrap_or(u64::MAX);
    bounded(T::from_nanos(scaled.clamp(cost / MOST_SCALE, cost.saturating_mul(MOST_SCALE))))
}

/// Returns the index of an id's set among `places` sets (a power of two).
fn place(id: u64, places: usize) -> usize {
    usize::try_from(id >> 20).unwrap_or(0) & places.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::super::estimate::LaunchShape;
    use super::*;
    use crate::compute::measuring::when_alone::{LONG_GRAPH, Timing};
    use crate::time::literals::ns;

    fn shape(function: u64, blocks: u32) -> Key {
        Key::kernel(&LaunchShape { function, grid: [blocks, 1, 1], block: [128, 1, 1], shared: 0 })
    }

    fn batch(key: Key, launches: u32, predicted: u64) -> (BatchPart, Outcome) {
        let part = BatchPart { key, launches, charged: ns(predicted), duration: ns(predicted) };
        let outcome = Outcome {
            charged: ns(0),
            charged_predicted: ns(predicted),
            duration: ns(0),
            duration_predicted: ns(predicted),
        };
        (part, outcome)
    }

    #[test]
    fn a_first_measurement_is_believed_and_later_ones_count_one_in_eight() {
        let mut table = EstimateTable::new(64);
        let key = shape(1, 1);
        assert_eq!(table.known(&key), None);
        table.measure(&key, ns(800), (ns(1600), ns(1600)));
        assert_eq!(table.known(&key).map(|known| (known.charged, known.duration)), Some((ns(800), ns(1600))));
        for _ in 0..200 {
            table.measure(&key, ns(801), (ns(1599), ns(1599)));
        }
        assert_eq!(table.known(&key).map(|known| (known.charged, known.duration)), Some((ns(801), ns(1599))));
        table.measure(&key, ns(1601), (ns(1599), ns(1599)));
        assert_eq!(table.known(&key).unwrap().charged, ns(901));
    }

    #[test]
    fn an_unknown_shape_costs_as_much_per_block_as_its_function() {
        let mut table = EstimateTable::new(64);
        assert_eq!(table.prior(&shape(1, 1)).charged, FIRST_PRIOR);
        table.measure(&shape(1, 10), ns(1000), (ns(2000), ns(2000)));
        assert_eq!(table.prior(&shape(1, 20)).charged, ns(2000));
        assert_eq!(table.prior(&shape(1, 20)).duration, ns(4000));
        assert_eq!(table.prior(&shape(1, u32::MAX)).charged, ns(8000));
        assert_eq!(table.prior(&shape(1, 0)).charged, ns(125));
        assert_eq!(table.prior(&shape(2, 20)).charged, FIRST_PRIOR);
        assert_eq!(table.prior(&Key::graph(1)).charged, FIRST_PRIOR);
    }

    #[test]
    fn a_batch_moves_an_estimate_towards_the_cost_of_its_launches() {
        let mut table = EstimateTable::new(64);
        let key = shape(1, 1);
        table.measure(&key, ns(1000), (ns(1000), ns(1000)));
        let (part, outcome) = batch(key, 100, 100_000);
        table.measure_batch(&part, &Outcome { charged: ns(200_000), duration: ns(100_000), ..outcome });
        assert_eq!(
            table.known(&key).map(|known| (known.charged, known.duration)),
            Some((ns(1250), ns(1000)))
        );
    }

    #[test]
    fn batches_with_the_same_estimate_do_not_correct_its_error_again_and_again() {
        let mut table = EstimateTable::new(64);
        let key = shape(1, 1);
        table.measure(&key, ns(1000), (ns(1000), ns(1000)));
        let (part, outcome) = batch(key, 100, 100_000);
        for _ in 0..100 {
            table.measure_batch(&part, &Outcome { charged: ns(200_000), duration: ns(200_000), ..outcome });
        }
        assert_eq!(
            table.known(&key).map(|known| (known.charged, known.duration)),
            Some((ns(2000), ns(2000)))
        );
    }

    #[test]
    fn it_is_told_whether_a_measurement_has_changed_an_estimate() {
        let mut table = EstimateTable::new(64);
        let key = shape(1, 1);
        let own = [Some(key.id()), None];
        assert_eq!(table.measure(&key, ns(1000), (ns(1000), ns(1000))), own);
        let changes = (0..20).filter(|_| table.measure(&key, ns(1000), (ns(1000), ns(1000))) == own).count();
        assert!(changes < 8, "until it makes no difference how many measurements there were");
        assert_eq!(table.measure(&key, ns(1000), (ns(1000), ns(1000))), [None; 2]);
        assert_eq!(table.measure(&key, ns(1001), (ns(1000), ns(1000))), own);
        let (part, outcome) = batch(key, 100, 100_100);
        let as_predicted = Outcome { charged: ns(100_100), duration: ns(100_100), ..outcome };
        let known = table.known(&key);
        assert_eq!(table.measure_batch(&part, &as_predicted) == own, table.known(&key) != known);
        assert_eq!(table.measure_batch(&part, &Outcome { charged: ns(200_000), ..as_predicted }), own);
        assert_eq!(
            table.measure_batch(&batch(shape(2, 1), 1, 1).0, &outcome),
            [None; 2],
            "never measured alone"
        );
    }

    #[test]
    fn the_key_that_made_room_is_returned() {
        let mut table = EstimateTable::new(WAYS);
        let keys: Vec<_> = (0..=WAYS as u64).map(Key::graph).collect();
        let told: Vec<_> = keys.iter().map(|key| table.measure(key, ns(5), (ns(5), ns(5)))[1]).collect();
        assert_eq!(told, [None, None, None, None, Some(keys[0].id())]);
        assert_eq!(table.known(&keys[0]), None);
    }

    #[test]
    fn a_batch_teaches_nothing_about_keys_that_were_never_measured_alone() {
        let mut table = EstimateTable::new(64);
        let (part, outcome) = batch(shape(1, 1), 100, 100_000);
        table.measure_batch(&part, &Outcome { charged: ns(200_000), duration: ns(200_000), ..outcome });
        assert_eq!(table.known(&part.key), None);
    }

    #[test]
    fn a_million_shapes_take_no_more_memory_and_those_in_use_are_kept() {
        let mut table = EstimateTable::new(1024);
        let used = shape(9, 1);
        let taken = table.slots.len();
        for function in 0..1_000_000 {
            table.measure(&Key::graph(function), ns(5), (ns(5), ns(5)));
            if function % 50 == 0 {
                table.measure(&used, ns(77), (ns(77), ns(77)));
            }
        }
        assert_eq!(table.slots.len(), taken);
        assert_eq!(table.known(&used).unwrap().charged, ns(77));
    }

    #[test]
    fn a_graph_that_was_updated_is_measured_alone_and_the_measurement_believed() {
        let mut table = EstimateTable::new(64);
        for _ in 0..20 {
            table.measure(&Key::graph(3), ns(50), (ns(50), ns(50)));
        }
        table.invalidate(&Key::graph(4));
        assert_eq!(Timing::of(table.known(&Key::graph(3)).as_ref(), LONG_GRAPH, ns(0)), Timing::Batched);
        table.invalidate(&Key::graph(3));
        let doubted = table.known(&Key::graph(3)).unwrap();
        assert_eq!(
            (doubted.charged, Timing::of(Some(&doubted), LONG_GRAPH, ns(0))),
            (ns(50), Timing::Single)
        );
        table.measure(&Key::graph(3), ns(90), (ns(90), ns(90)));
        let known = table.known(&Key::graph(3)).unwrap();
        assert_eq!((known.charged, Timing::of(Some(&known), LONG_GRAPH, ns(0))), (ns(90), Timing::Batched));
    }

    #[test]
    fn no_measurement_makes_an_estimate_wrap_around() {
        let mut table = EstimateTable::new(64);
        let key = shape(1, 1);
        table.measure(&key, ns(u64::MAX), (ns(0), ns(0)));
        let (part, outcome) = batch(key, 0, u64::MAX);
        table.measure_batch(&part, &Outcome { charged: ns(u64::MAX), duration: ns(u64::MAX), ..outcome });
        table.measure_batch(
            &BatchPart { charged: ns(0), duration: ns(0), ..part },
            &Outcome { charged_predicted: ns(0), ..outcome },
        );
        let known = table.known(&key).unwrap();
        assert!(bounded(known.charged) == known.charged && bounded(known.duration) == known.duration);
    }
}
