//! Property tests of the choice of GPUs, on random nodes and pods.

use gpuslice_kubernetes::objects::{Gpu, Inventory, Part, Request};
use gpuslice_kubernetes::placement::{Order, Used, place, score};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn inventory(gpus: &[(u64, bool)]) -> Inventory {
    let gpu = |(number, (mem_mib, healthy)): (usize, &(u64, bool))| Gpu {
        uuid: format!("GPU-{number}"),
        model: String::new(),
        mem_mib: *mem_mib,
        core: 100,
        healthy: *healthy,
    };
    Inventory { v: 1, driver: String::new(), gpus: gpus.iter().enumerate().map(gpu).collect() }
}

fn gpus() -> impl Strategy<Value = Vec<(u64, bool)>> {
    prop::collection::vec((1..100_u64, prop::bool::weighted(0.9)), 0..6)
}

fn request() -> impl Strategy<Value = Request> {
    (1..4_u64, 1..60_u64, 0..=100_u32).prop_map(|(slices, mem_mib, core)| Request {
        container: "main".to_owned(),
        slices,
        mem_mib,
        core,
    })
}

proptest! {
    /// Checks the parts that are given to any number of pods. They are on working GPUs, each slice of a container on another one,
    /// never exceed a GPU, and are exactly the requested amounts. A refusal means that too few GPUs have room.
    #[test]
    fn no_gpu_is_given_away_twice_and_no_room_is_overlooked(
        gpus in gpus(),
        requests in prop::collection::vec(request(), 1..30),
        spread in any::<bool>(),
    ) {
        let (inventory, order) = (inventory(&gpus), if spread { Order::Spread } else { Order::Binpack });
        let mut given: Vec<Part> = Vec::new();
        for request in requests {
            let mut left = Used::of(&given).left(&inventory);
            let fitting = left.iter().filter(|room| room.has(request.mem_mib, request.core)).count();
            match place(&mut left, std::slice::from_ref(&request), order) {
                Ok(placed) => {
                    let parts = &placed["main"];
                    let distinct: BTreeSet<&String> = parts.iter().map(|part| &part.uuid).collect();
                    prop_assert_eq!(distinct.len() as u64, request.slices);
                    prop_assert!(parts.iter().all(|part| (part.mem_mib, part.core) == (request.mem_mib, request.core)));
                    given.extend(parts.iter().cloned());
                    prop_assert_eq!(&left, &Used::of(&given).left(&inventory));
                }
                Err(why) => {
                    prop_assert!((fitting as u64) < request.slices, "{}", why);
                    prop_assert_eq!(&left, &Used::of(&given).left(&inventory), "a refusal takes nothing");
                }
            }
        }
        for (number, (memory, healthy)) in gpus.iter().enumerate() {
            let uuid = format!("GPU-{number}");
            let on_it = || given.iter().filter(|part| part.uuid == uuid);
            prop_assert!(on_it().map(|part| part.mem_mib).sum::<u64>() <= *memory);
            prop_assert!(on_it().map(|part| part.core).sum::<u32>() <= 100);
            prop_assert!(*healthy || on_it().next().is_none());
        }
    }

    /// Checks that a fuller node is better for one order, and worse for the other.
    #[test]
    fn scores_follow_what_is_left(gpus in prop::collection::vec((1..100_u64, Just(true)), 1..6), mem_mib in 1..50_u64) {
        let inventory = inventory(&gpus);
        let part = Part { uuid: "GPU-0".to_owned(), mem_mib, core: 0 };
        let [empty, fuller] = [Used::default(), Used::of([&part])].map(|used| used.left(&inventory));
        prop_assert!(score(&empty, Order::Binpack) <= score(&fuller, Order::Binpack));
        prop_assert!(score(&empty, Order::Spread) >= score(&fuller, Order::Spread));
        prop_assert_eq!((score(&empty, Order::Binpack), score(&empty, Order::Spread)), (0, 10));
    }
}
