//! Tests the address table against a map, with random insertions and removals.

use gpuslice_policy::address_table::{AddressTable, spread};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

/// Addresses of which many have the same few slots, including the last slot of a table with at most 1024 slots.
static NEAR_EACH_OTHER: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let is_near = |address: &u64| matches!(spread(*address) & 1023, 0..6 | 1023);
    (0..).map(|number| number << 9).filter(is_near).take(280).collect()
});

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => (0_usize..280).prop_map(|which| NEAR_EACH_OTHER[which]),
        1 => (0_u64..200).prop_map(|number| 0x7f00_0000_0000 + (number << 9)),
        1 => prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
    ]
}

fn contents(table: &AddressTable<u32>) -> BTreeMap<u64, u32> {
    table.iter().collect()
}

proptest! {
    #[test]
    fn a_table_behaves_as_a_map(steps in vec((address(), any::<bool>()), 0..600)) {
        let (mut table, mut model) = (AddressTable::default(), HashMap::new());
        for (value, (address, inserts)) in (0_u32..).zip(steps) {
            // A driver does not return an address again before the program has freed it.
            if inserts && !model.contains_key(&address) {
                table.insert(address, value);
                model.insert(address, value);
            } else {
                prop_assert_eq!(table.get(address), model.get(&address).copied());
                prop_assert_eq!(table.take(address), model.remove(&address));
            }
        }
        prop_assert_eq!(contents(&table), model.clone().into_iter().collect());
        prop_assert_eq!(table.iter().count(), model.len());
        for (address, value) in model {
            prop_assert_eq!(table.get(address), Some(value));
            prop_assert_eq!(table.take(address), Some(value));
        }
        prop_assert_eq!(table.iter().count(), 0);
    }

    #[test]
    fn of_two_values_for_an_address_the_later_is_taken(
        others in vec(address(), 0..40), address in address(), between in 0_usize..40,
    ) {
        let mut table = AddressTable::default();
        let others: Vec<_> = others.into_iter().filter(|other| *other != address).collect();
        table.insert(address, 1);
        others.iter().take(between).for_each(|other| table.insert(*other, 0));
        table.insert(address, 2);
        others.iter().skip(between).for_each(|other| table.insert(*other, 0));
        prop_assert_eq!(table.take(address), Some(2));
        let left = table.take(address);
        prop_assert!(left.is_none() || left == Some(1));
        prop_assert_eq!(table.take(address), None);
    }
}

#[test]
fn addresses_that_come_and_go_need_no_more_memory_than_those_held_at_once() {
    const LIVE: u64 = 1 << 15;
    let address = |number: u64| 0x7f00_0000_0000 + (number << 12);
    let mut table = AddressTable::default();
    (0..LIVE).for_each(|number| table.insert(address(number), number));
    for number in LIVE..4 * LIVE {
        assert_eq!(table.take(address(number - LIVE)), Some(number - LIVE));
        table.insert(address(number), number);
    }
    assert_eq!(table.iter().count() as u64, LIVE);
    assert!(table.capacity() as u64 <= 2 * LIVE + 1, "{}", table.capacity());
}

#[test]
fn different_addresses_are_near_different_places_of_the_table_that_is_there() {
    let mut table = AddressTable::default();
    assert_eq!(table.near(0x7f00_0000_0000), None, "nothing is there");
    (0..1000_u64).for_each(|number| table.insert(0x7f00_0000_0000 + (number << 12), number));
    let near = |number: u64| table.near(0x7f00_0000_0000 + (number << 12)).unwrap();
    let places: BTreeSet<_> = (0..1000).map(near).collect();
    assert!(places.len() > 500, "{}", places.len());
    assert_eq!(near(7), near(7));
}

#[test]
fn addresses_of_one_table_have_different_places_for_each_distance_between_them() {
    // A caller with 1024 tables gives this table one of 1024 addresses, by the top bits.
    const ALL: u64 = 1 << 18;
    for distance in (8..=24).map(|bits| 1_u64 << bits) {
        let spreads = (0..ALL).map(|number| spread(0x7f00_0000_0000 + number * distance));
        let of_one: Vec<_> = spreads.filter(|spread| spread >> 54 == 0).collect();
        let places: BTreeSet<_> = of_one.iter().map(|spread| spread & 511).collect();
        assert!((200..320).contains(&of_one.len()), "{distance}: {} addresses", of_one.len());
        // By chance, 256 addresses have 201 of 512 places.
        assert!(places.len() > 160, "{distance}: {} places", places.len());
    }
}
