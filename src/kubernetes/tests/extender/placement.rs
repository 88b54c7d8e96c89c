//! Property tests of the choice of GPUs, on random nodes and pods.

use gpuslice_kubernetes::objects::{Constraints, Gpu, Inventory, Part, Request, Topology};
use gpuslice_kubernetes::placement::{Order, Used, place, score};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn inventory(gpus: &[(u64, bool)]) -> Inventory {
    let gpu = |(number, (mem_mib, healthy)): (usize, &(u64, bool))| Gpu {
        uuid: format!("GPU-{number}"),
        mem_mib: *mem_mib,
        core: 100,
        healthy: *healthy,
        ..Gpu::default()
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
        ..Request::default()
    })
}

proptest! {
    /// Checks the parts that any number of pods get. They are on working GPUs, and each slice of a container is on another GPU.
    /// They never exceed a GPU, and have exactly the requested amounts. A refusal means that too few GPUs have room.
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

    /// Checks that a fuller node has a higher score in one order, and a lower score in the other.
    #[test]
    fn scores_follow_the_part_that_is_left(gpus in prop::collection::vec((1..100_u64, Just(true)), 1..6), mem_mib in 1..50_u64) {
        let inventory = inventory(&gpus);
        let part = Part { uuid: "GPU-0".to_owned(), mem_mib, core: 0 };
        let [empty, fuller] = [Used::default(), Used::of([&part])].map(|used| used.left(&inventory));
        prop_assert!(score(&empty, Order::Binpack) <= score(&fuller, Order::Binpack));
        prop_assert!(score(&empty, Order::Spread) >= score(&fuller, Order::Spread));
        prop_assert_eq!((score(&empty, Order::Binpack), score(&empty, Order::Spread)), (0, 10));
    }

    /// Checks that a container gets connected GPUs exactly if the node has some, whatever its connections are.
    #[test]
    fn connected_gpus_are_found_where_there_are_any(
        links in prop::collection::vec((0..8_usize, 0..8_usize), 0..30),
        numa in prop::collection::vec(prop::option::of(0..3_u32), 8),
        full in prop::collection::vec(any::<bool>(), 8),
        slices in 1..6_u64,
        by_numa in any::<bool>(),
        spread in any::<bool>(),
    ) {
        let has_link = |one: usize, other: usize| one != other && (links.contains(&(one, other)) || links.contains(&(other, one)));
        let mut inventory = inventory(&[(10, true); 8]);
        for (position, gpu) in inventory.gpus.iter_mut().enumerate() {
            gpu.nvlink = (0..8).filter(|other| has_link(position, *other)).collect();
            gpu.numa = numa[position];
        }
        let are_connected = |one: usize, other: usize| if by_numa { numa[one] == numa[other] } else { has_link(one, other) };
        let used: Vec<Part> = (0..8).filter(|position| full[*position])
            .map(|position| Part { uuid: format!("GPU-{position}"), mem_mib: 9, core: 0 }).collect();
        let is_set = |set: &[usize]| set.iter().enumerate().all(|(at, one)| {
            !full[*one] && set[at + 1..].iter().all(|other| are_connected(*one, *other))
        });
        let sets = (0..1_u32 << 8).filter(|bits| u64::from(bits.count_ones()) == slices);
        let sets = sets.map(|bits| (0..8).filter(|position| bits & 1 << position != 0).collect::<Vec<usize>>());
        let is_there = sets.into_iter().any(|set| is_set(&set));
        let topology = Some(if by_numa { Topology::Numa } else { Topology::Nvlink });
        let constraints = Constraints { topology, ..Constraints::default() };
        let request = Request { container: "main".to_owned(), slices, mem_mib: 5, core: 0, constraints };
        let order = if spread { Order::Spread } else { Order::Binpack };
        match place(&mut Used::of(&used).left(&inventory), &[request], order) {
            Ok(placed) => {
                let chosen: Vec<usize> = placed["main"].iter()
                    .map(|part| part.uuid.trim_start_matches("GPU-").parse().unwrap()).collect();
                prop_assert!(chosen.len() as u64 == slices && is_set(&chosen), "{:?}", chosen);
            }
            Err(why) => prop_assert!(!is_there, "{}", why),
        }
    }
}

#[test]
fn a_refusal_names_the_model_and_the_connection() {
    let mut inventory = inventory(&[(10, true), (10, true)]);
    inventory.gpus[0].model = "NVIDIA H100 PCIe".to_owned();
    let refused = |models: &[&str], topology, slices| {
        let models = models.iter().map(|model| (*model).to_owned()).collect();
        let constraints = Constraints { models, topology };
        let request = Request { container: "main".to_owned(), slices, mem_mib: 5, core: 0, constraints };
        place(&mut Used::default().left(&inventory), &[request], Order::Binpack).err()
    };
    assert_eq!(refused(&["h100"], None, 1), None);
    let why = refused(&["h100", "a100"], None, 2).unwrap();
    assert!(why.contains("1 of 2 GPUs of the model h100 or a100"), "{why}");
    let why = refused(&[], Some(Topology::Nvlink), 2).unwrap();
    assert!(
        why.contains("2 GPUs have 5 MiB") && why.contains("no 2 of them are connected by NVLink"),
        "{why}"
    );
    assert_eq!(refused(&[], Some(Topology::Numa), 2), None);
}
