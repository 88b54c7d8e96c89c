//! Quotas that sum to more than the GPU: the library tells a full device from a full quota.

use crate::support::bench::Bench;
use crate::support::quotas::{Figures, Ground, MIB};

const QUOTA: &str = "700MiB";

/// Makes a GPU of 1 GiB.
fn ground() -> Ground {
    Ground { bench: Bench::simulated_without_contexts() }
}

#[test]
fn an_allocation_beyond_the_device_is_told_apart_from_one_beyond_the_quota() {
    let ground = ground();
    let (mut first, mut second) = (ground.actor("a", QUOTA, &[]), ground.actor("b", QUOTA, &[]));
    first.does(&format!("take_alloc 0 {}", 600 * MIB));
    second.does(&format!("take_alloc 0 {}", 100 * MIB));
    for _ in 0..20 {
        second.answers(&format!("take_alloc 1 {}", 500 * MIB), 2);
    }
    // This request is also beyond the quota, so the driver is not asked.
    second.answers(&format!("take_alloc 1 {}", 601 * MIB), 2);
    assert_eq!(ground.figures("a"), Figures { held: 600 * MIB, spilled: 0, refused: 0, unmet: 0 });
    assert_eq!(ground.figures("b"), Figures { held: 100 * MIB, spilled: 0, refused: 1, unmet: 20 });
    // Once the neighbour frees memory, there is room.
    first.does("give_free 0");
    second.does(&format!("take_alloc 1 {}", 500 * MIB));
    assert_eq!(ground.figures("b").unmet, 20);
    let said = second.said();
    let [line] = said.as_slice() else { panic!("{said:?}") };
    assert!(line.starts_with("gpuslice: GPU-"), "{line}");
    assert!(
        line.ends_with(
            ": the device has no memory for 500MiB that the quota has room for: this slice holds 100MiB of 700MiB, and 324MiB of the device's 1GiB are free. Others hold the rest."
        ),
        "{line}"
    );
    assert!(first.said().is_empty());
}

#[test]
fn each_way_to_ask_is_counted() {
    let ground = ground();
    let (mut first, mut second) = (ground.actor("a", QUOTA, &[]), ground.actor("b", QUOTA, &[]));
    first.does(&format!("take_alloc 0 {}", 690 * MIB));
    second.does("graph 5 104857600");
    second.does(&format!("take_alloc 0 {}", 310 * MIB));
    let ways = [
        "alloc",
        "alloc1",
        "pitch",
        "pitch1",
        "managed",
        "async",
        "async_ptsz",
        "from",
        "from_ptsz",
        "create",
        "array",
    ];
    let mut unmet = 0;
    for how in ways {
        second.answers(&format!("take_{how} 1 {}", 100 * MIB), 2);
        unmet += 1;
        assert_eq!(ground.figures("b").unmet, unmet, "{how}");
        // For a pool, the library does not know the bytes that the call reserved, only that the pool holds nothing.
        assert_eq!(ground.figures("b").refused, 0, "{how}");
    }
    // A graph gets its grant when it is made. The driver takes the memory later.
    for order in ["upload 5", "launch 5"] {
        second.answers(order, 2);
        unmet += 1;
        assert_eq!(ground.figures("b").unmet, unmet, "{order}");
    }
    second.does("give_free 0");
    assert_eq!(ground.figures("a").unmet, 0);
    assert_eq!(second.said().len(), 1);
}

#[test]
fn a_context_that_the_device_has_no_memory_for_counts() {
    let ground = Ground { bench: Bench::simulated_without_contexts().with("SIMGPU_CONTEXT_BYTES", "50MiB") };
    let (mut first, mut second) = (ground.actor("a", QUOTA, &[]), ground.actor("b", QUOTA, &[]));
    first.does(&format!("take_alloc 0 {}", 650 * MIB));
    second.does(&format!("take_alloc 0 {}", 260 * MIB));
    second.answers("context", 2);
    assert_eq!((ground.figures("b").unmet, ground.figures("b").refused), (1, 0));
    assert_eq!(ground.figures("b").held, 310 * MIB);
}

#[test]
fn without_a_context_nvml_reports_the_free_memory() {
    let ground = ground();
    let (mut first, mut second) = (ground.actor("a", QUOTA, &[]), ground.actor("b", QUOTA, &[]));
    first.does(&format!("take_alloc 0 {}", 600 * MIB));
    second.does("none");
    second.answers(&format!("take_create 1 {}", 500 * MIB), 2);
    let said = second.said();
    let [line] = said.as_slice() else { panic!("{said:?}") };
    assert!(line.contains(" holds 0 B of 700MiB, and 424MiB of the device's 1GiB are free."), "{line}");
}

#[test]
fn an_allocation_beyond_the_device_is_not_served_from_host_memory() {
    let ground = ground();
    let mut first = ground.actor("a", QUOTA, &[]);
    let mut second = ground.actor("b", QUOTA, &[("GPU_MEM_OVERSUBSCRIBE", "1")]);
    first.does(&format!("take_alloc 0 {}", 600 * MIB));
    second.answers(&format!("take_alloc 0 {}", 500 * MIB), 2);
    assert_eq!(ground.figures("b"), Figures { held: 0, spilled: 0, refused: 0, unmet: 1 });
}

#[test]
fn other_failures_of_the_driver_are_not_counted() {
    let ground = ground();
    let mut actor = ground.actor("a", QUOTA, &[("SIMGPU_FAULTS", "cuMemAlloc_v2=719@1")]);
    actor.answers("take_alloc 0 1", 719);
    assert_eq!(ground.figures("a"), Figures { held: 0, spilled: 0, refused: 0, unmet: 0 });
    assert!(actor.said().is_empty());
}
