//! Tests the charge for small memory against a driver that keeps it in shared blocks. The charge is never less than the
//! bytes that the driver holds, and equals them when all calls have returned.

use gpuslice_policy::sizes::blocks::{
    BLOCK, BlockFamily, Blocks, Change, Kind, LARGEST_SMALL, Payment, taken,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

#[test]
fn sizes_agree_with_the_measured_ones() {
    // Pairs of requested and taken bytes, from the sources that the module names.
    for (asked, took) in [
        (0, 0),
        (1, 512),
        (512, 512),
        (513, 1024),
        (786_432, MIB),
        (MIB, MIB),
        (MIB + 1, 2 * MIB),
        (3 * MIB / 2, 2 * MIB),
        (2 * MIB + 1, 4 * MIB),
        (6 * MIB, 6 * MIB),
        (u64::MAX, u64::MAX),
    ] {
        assert_eq!(taken(asked), took, "{asked}");
    }
}

/// A driver that keeps each family in separate blocks, and fills blocks before it takes a new one.
#[derive(Default)]
struct Driver {
    /// Blocks by start: family, and the slots in use.
    blocks: BTreeMap<u64, (u64, Vec<bool>)>,
}

impl Driver {
    /// Allocates a slot. `choice` picks among the blocks with room.
    fn alloc(&mut self, slot: u64, choice: usize) -> u64 {
        let has_room = |(start, (of, used)): (&u64, &(u64, Vec<bool>))| {
            (*of == slot && used.contains(&false)).then_some(*start)
        };
        let open: Vec<u64> = self.blocks.iter().filter_map(has_room).collect();
        let start = if open.is_empty() {
            // The driver takes the lowest free address, so it reuses addresses of ended blocks.
            let start =
                (1..).map(|number| number * BLOCK).find(|start| !self.blocks.contains_key(start)).unwrap();
            self.blocks.insert(start, (slot, vec![false; usize::try_from(BLOCK / slot).unwrap()]));
            start
        } else {
            open[choice % open.len()]
        };
        let used = &mut self.blocks.get_mut(&start).unwrap().1;
        let index = used.iter().position(|used| !used).unwrap();
        used[index] = true;
        start + index as u64 * slot
    }

    fn free(&mut self, address: u64) {
        let start = address / BLOCK * BLOCK;
        let (slot, used) = self.blocks.get_mut(&start).unwrap();
        used[usize::try_from((address - start) / *slot).unwrap()] = false;
        if !used.contains(&true) {
            self.blocks.remove(&start);
        }
    }

    fn held(&self) -> u64 {
        self.blocks.len() as u64
    }
}

/// Begins a call, and reserves its block if it needs one.
fn begin(blocks: &mut Blocks, family: BlockFamily) -> Payment {
    let way = blocks.begin(family);
    if way.needs_block() {
        blocks.reserved(&way);
    }
    way
}

/// A call in progress.
enum Call {
    /// The payment is decided, and the driver has not been called.
    Begun(Payment, u64),
    /// The driver has allocated.
    Made(Payment, u64),
    /// The allocation is to be freed, and the driver has not been called.
    Frees(u64),
    /// The driver has freed the allocation.
    Freed(u64),
}

#[derive(Default)]
struct World {
    driver: Driver,
    blocks: Blocks,
    charged: u64,
    live: Vec<u64>,
    calls: Vec<Call>,
    /// Number of blocks that were charged without a reservation.
    surprises: u64,
}

impl World {
    fn family(slot: u64) -> BlockFamily {
        BlockFamily::of(7, Kind::Linear, slot).unwrap()
    }

    fn begin(&mut self, slot: u64) {
        let way = begin(&mut self.blocks, Self::family(slot));
        self.charged += u64::from(way.needs_block());
        self.calls.push(Call::Begun(way, slot));
    }

    fn begin_free(&mut self, choice: usize) {
        if !self.live.is_empty() {
            let address = self.live.swap_remove(choice % self.live.len());
            self.blocks.begin_free(address);
            self.calls.push(Call::Frees(address));
        }
    }

    /// Makes one step of a call in progress.
    fn go_on(&mut self, choice: usize) {
        if self.calls.is_empty() {
            return;
        }
        match self.calls.swap_remove(choice % self.calls.len()) {
            Call::Begun(way, slot) if choice % 11 == 10 => {
                let change = self.blocks.failed(way);
                assert!(!change.more, "{slot}");
                self.apply(change);
            }
            Call::Begun(way, slot) => {
                let address = self.driver.alloc(slot, choice / 3);
                self.calls.push(Call::Made(way, address));
            }
            Call::Made(way, address) => {
                let change = self.blocks.finish(way, address);
                self.surprises += u64::from(change.more);
                self.apply(change);
                self.live.push(address);
            }
            Call::Frees(address) => {
                self.driver.free(address);
                self.calls.push(Call::Freed(address));
            }
            Call::Freed(address) => {
                let change = self.blocks.finish_free(address);
                self.apply(change);
            }
        }
    }

    fn apply(&mut self, change: Change) {
        self.charged = self.charged + change.charge + u64::from(change.more) - change.back;
    }

    /// Begins a call, or continues one.
    fn step(&mut self, what: u8, choice: usize, slots: &[u64]) {
        match what {
            0 | 1 => self.begin(slots[choice % slots.len()]),
            2 => self.begin_free(choice),
            _ => self.go_on(choice),
        }
    }

    fn finish(&mut self) {
        while !self.calls.is_empty() {
            self.go_on(0);
        }
    }
}

/// Sizes of slots, of which a block has 2, 4 and 16.
const SLOTS: [u64; 3] = [LARGEST_SMALL, LARGEST_SMALL / 2, LARGEST_SMALL / 8];

proptest! {
    #[test]
    fn whatever_overlaps_no_more_is_held_than_charged(steps in vec((0_u8..6, any::<u16>()), 0..300)) {
        let mut world = World::default();
        for (what, choice) in steps {
            world.step(what, choice.into(), &SLOTS[1..2]);
            prop_assert!(world.charged >= world.driver.held());
            prop_assert_eq!(world.surprises, 0);
        }
    }

    #[test]
    fn whatever_overlaps_the_charge_is_right_when_all_are_back(steps in vec((0_u8..6, any::<u16>()), 0..300)) {
        let mut world = World::default();
        for (what, choice) in steps {
            world.step(what, choice.into(), &SLOTS);
        }
        world.finish();
        prop_assert_eq!(world.charged, world.driver.held());
        while !world.live.is_empty() {
            world.begin_free(0);
            world.finish();
        }
        prop_assert_eq!((world.charged, world.driver.held()), (0, 0));
    }

    #[test]
    fn one_call_at_a_time_reserves_a_block_where_the_driver_takes_one(
        steps in vec((any::<bool>(), any::<u16>()), 0..300),
    ) {
        let mut world = World::default();
        for (allocates, choice) in steps {
            let (choice, before) = (usize::from(choice), world.driver.held());
            if allocates {
                world.begin(SLOTS[choice % SLOTS.len()]);
                prop_assert_eq!(world.charged - before, 1.min(world.charged - before));
                let reserved = world.charged;
                world.go_on(choice / 11 * 11);
                prop_assert_eq!(world.driver.held(), reserved);
                world.finish();
            } else {
                world.begin_free(choice);
                world.finish();
            }
            prop_assert_eq!(world.charged, world.driver.held());
            prop_assert_eq!(world.surprises, 0);
        }
    }
}

#[test]
fn a_driver_that_packs_otherwise_is_charged_by_its_addresses() {
    let mut blocks = Blocks::default();
    let mut charged = 0;
    let mut lands = |bytes: u64, address: u64, charged: &mut u64| {
        let way = begin(&mut blocks, BlockFamily::of(7, Kind::Linear, bytes).unwrap());
        *charged += u64::from(way.needs_block());
        let change = blocks.finish(way, address);
        *charged = *charged + change.charge + u64::from(change.more) - change.back;
        change.more
    };
    // The driver takes a new block although the first one has room.
    assert!(!lands(MIB, BLOCK, &mut charged));
    assert!(lands(MIB, 2 * BLOCK, &mut charged));
    // The driver puts another size into a known block.
    assert!(!lands(512, BLOCK + MIB, &mut charged));
    assert_eq!(charged, 2);
    for address in [BLOCK, BLOCK + MIB, 2 * BLOCK] {
        let change = blocks.ended(address);
        charged = charged + change.charge - change.back;
    }
    assert_eq!(charged, 0);
}

#[test]
fn no_allocation_counts_on_a_block_that_is_not_reserved_yet() {
    let mut blocks = Blocks::default();
    let family = BlockFamily::of(7, Kind::Linear, MIB).unwrap();
    let (first, second) = (blocks.begin(family), blocks.begin(family));
    assert!(first.needs_block() && second.needs_block());
    assert_eq!(blocks.refused(first), Err(Change::default()));
    blocks.reserved(&second);
    assert!(!blocks.begin(family).needs_block());
    assert!(blocks.begin(family).needs_block());
}

#[test]
fn a_refused_call_takes_a_slot_that_another_call_has_paid_for() {
    let mut blocks = Blocks::default();
    let family = BlockFamily::of(7, Kind::Linear, MIB).unwrap();
    // Both calls find no block. One of them reserves the last block of the quota, which has a slot for the other one.
    let (first, second) = (blocks.begin(family), blocks.begin(family));
    assert!(first.needs_block() && second.needs_block());
    blocks.reserved(&second);
    let first = blocks.refused(first).unwrap();
    assert!(!first.needs_block());
    assert_eq!(blocks.finish(second, BLOCK), Change::default());
    assert_eq!(blocks.finish(first, BLOCK + MIB), Change::default());
    assert!(blocks.begin(family).needs_block());
}

#[test]
fn of_two_refused_calls_and_one_slot_the_last_takes_it() {
    let mut blocks = Blocks::default();
    let family = BlockFamily::of(7, Kind::Linear, MIB).unwrap();
    let (first, second, third) = (blocks.begin(family), blocks.begin(family), blocks.begin(family));
    blocks.reserved(&third);
    assert_eq!(blocks.refused(first), Err(Change::default()));
    assert!(!blocks.refused(second).unwrap().needs_block());
}

#[test]
fn contexts_and_kinds_share_no_block_and_managed_slots_are_pages() {
    let mut blocks = Blocks::default();
    let families = [(7, Kind::Linear), (8, Kind::Linear), (7, Kind::Managed), (7, Kind::Low)];
    for (number, (context, kind)) in (1..).zip(families) {
        let way = begin(&mut blocks, BlockFamily::of(context, kind, 1).unwrap());
        assert!(way.needs_block(), "{kind:?}");
        let _none = blocks.finish(way, number * BLOCK);
    }
    // 32 pages of 64 KiB.
    for _ in 0..31 {
        let way = begin(&mut blocks, BlockFamily::of(7, Kind::Managed, 1).unwrap());
        assert!(!way.needs_block());
        let _none = blocks.finish(way, 3 * BLOCK);
    }
    assert!(begin(&mut blocks, BlockFamily::of(7, Kind::Managed, 1).unwrap()).needs_block());
    assert!(
        BlockFamily::of(7, Kind::Linear, MIB + 1).is_none() && BlockFamily::of(7, Kind::Linear, 0).is_none()
    );
}
