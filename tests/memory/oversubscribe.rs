//! Oversubscription: memory beyond the quota comes from host memory, the device is never asked for it, and nothing stays behind.
//!
//! Managed memory of the simulated GPU is nowhere until something writes to it. Then it is at its preferred location. So memory
//! that the library did not keep on the host shows on the device, whose exact peak is never above the quota.

use crate::support::bench::Bench;
use crate::support::quotas::{Actor, Figures, Ground, MIB};
use std::thread::sleep;
use std::time::{Duration, Instant};

const QUOTA: u64 = 64 * MIB;
const ON: (&str, &str) = ("GPU_MEM_OVERSUBSCRIBE", "1");

impl Ground {
    fn new() -> Self {
        Self { bench: Bench::simulated_without_contexts().with("SIMGPU_MANAGED", "touched") }
    }

    #[track_caller]
    fn process(&self) -> Actor {
        self.actor("a", "64MiB", &[ON])
    }

    /// Starts a process whose driver has these faults.
    #[track_caller]
    fn faulty(&self, faults: &str) -> Actor {
        self.actor("a", "64MiB", &[ON, ("SIMGPU_FAULTS", faults)])
    }

    /// Asserts that the slice holds `held` bytes of the device and `spilled` bytes of host memory, by the ledger and in truth.
    /// Asserts also that the device never held more than the quota.
    #[track_caller]
    fn holds(&self, held: u64, spilled: u64) {
        let figures = self.figures("a");
        let (truth, host) = (self.bench.truth(0), self.on_host().0);
        assert_eq!((figures.held, figures.spilled), (held, spilled), "the ledger");
        // Memory of dead processes may still leave the device.
        assert_eq!((truth.living(), host), (held, spilled), "the truth");
        assert!(truth.peak <= QUOTA, "{truth:?}");
    }

    #[track_caller]
    fn refused(&self, times: u64) {
        assert_eq!(self.figures("a").refused, times);
    }
}

#[test]
fn memory_beyond_the_quota_is_served_from_host_memory_and_shown_nowhere() {
    let ground = Ground::new();
    let mut actor = ground.process();
    actor.does(&format!("take_alloc 0 {}", 48 * MIB));
    actor.shows(16 * MIB, QUOTA);
    actor.does(&format!("take_alloc 1 {}", 32 * MIB));
    actor.does("fill 0 1");
    actor.does("fill 1 2");
    ground.holds(48 * MIB, 32 * MIB);
    actor.shows(16 * MIB, QUOTA);
    // Memory that fits goes to the device, also after something has spilled.
    actor.does(&format!("take_alloc 2 {}", 16 * MIB));
    actor.does("fill 2 3");
    actor.does("take_alloc 3 1");
    actor.does("fill 3 4");
    ground.holds(QUOTA, 32 * MIB + 1);
    actor.shows(0, QUOTA);
    // Room on the device brings no spilled memory back to it.
    actor.does("give_free 0");
    actor.does("fill 1 5");
    ground.holds(16 * MIB, 32 * MIB + 1);
    ["give_free 1", "give_free 2", "give_free 3"].iter().for_each(|order| actor.does(order));
    ground.holds(0, 0);
    assert_eq!(ground.figures("a"), Figures { held: 0, spilled: 0, refused: 0, unmet: 0 });
    let said = actor.said();
    assert_eq!(
        said,
        [
            "gpuslice: the quota has no room for 32MiB: it is served from host memory, which the GPU reaches over the bus (GPU_MEM_OVERSUBSCRIBE=1)."
        ]
    );
}

#[test]
fn unless_it_is_asked_for_the_quota_is_hard() {
    for variables in [&[][..], &[("GPU_MEM_OVERSUBSCRIBE", "0")]] {
        let ground = Ground::new();
        let mut actor = ground.actor("a", "64MiB", variables);
        actor.does(&format!("take_alloc 0 {QUOTA}"));
        for how in ["alloc", "pitch", "managed", "async", "from"] {
            actor.answers(&format!("take_{how} 1 {MIB}"), 2);
        }
        ground.refused(5);
        assert!(actor.said().is_empty());
    }
}

#[test]
fn each_way_to_ask_and_each_way_to_free_is_served() {
    for how in ["alloc", "managed", "async", "async_ptsz", "from", "from_ptsz", "pitch"] {
        for free in ["free", "freeasync", "freeasync_ptsz"] {
            let ground = Ground::new();
            let mut actor = ground.process();
            actor.does(&format!("take_alloc 0 {}", QUOTA - 512));
            actor.does(&format!("take_{how} 1 {}", 8 * MIB));
            actor.does("fill 1 7");
            println!("{how}, {free}");
            ground.holds(QUOTA, 8 * MIB);
            actor.answers("preferred 1", -1);
            actor.does(&format!("give_{free} 1"));
            ground.holds(QUOTA, 0);
            actor.answers(&format!("give_{free} 1"), 1);
            actor.does("give_free 0");
            ground.holds(0, 0);
            ground.refused(0);
        }
    }
}

#[test]
fn rows_have_a_length_that_suits_the_device() {
    let ground = Ground::new();
    let mut actor = ground.process();
    actor.does(&format!("take_alloc 0 {QUOTA}"));
    actor.does(&format!("take_pitch 1 {MIB}"));
    actor.answers("row 1", 1024);
    // The driver refuses this size of an element, as without the library.
    actor.answers(&format!("take_pitch 2 {MIB} 5"), 2);
    // The library makes no memory for a call that has no place for the answer.
    actor.answers(&format!("nowhere {MIB}"), 2);
    assert_eq!(ground.figures("a").spilled, MIB);
    ground.refused(2);
}

#[test]
fn allocations_that_cannot_spill_are_refused() {
    let ground = Ground::new();
    let mut actor = ground.process();
    actor.does(&format!("take_alloc 0 {QUOTA}"));
    for order in ["take_alloc1 1", "take_pitch1 1", "take_create 1", "take_array 1", "graph 1"] {
        actor.answers(&format!("{order} {}", 4 * MIB), 2);
    }
    ground.refused(5);
    ground.holds(QUOTA, 0);
    assert!(actor.said().is_empty());
}

#[test]
fn neither_advice_nor_a_prefetch_brings_it_to_the_device() {
    for how in ["managed", "alloc"] {
        let ground = Ground::new();
        let mut actor = ground.process();
        actor.does(&format!("take_managed 0 {QUOTA}"));
        actor.does("fill 0 1");
        actor.does(&format!("take_{how} 1 {}", 8 * MIB));
        actor.does("lure 1");
        actor.does("fill 1 2");
        ground.holds(QUOTA, 8 * MIB);
        actor.answers("preferred 1", -1);
        // Memory within the quota moves as the program asks.
        actor.does("prefetch 0");
        actor.answers("preferred 0", -2);
        ground.holds(QUOTA, 8 * MIB);
    }
}

#[test]
fn a_prefetch_that_lacks_a_list_is_the_drivers_to_refuse() {
    let ground = Ground::new();
    let mut actor = ground.process();
    actor.does(&format!("take_managed 0 {QUOTA}"));
    actor.does(&format!("take_managed 1 {MIB}"));
    actor.answers("without_starts 1", 1);
    actor.answers("without_places 1", 1);
}

#[test]
fn a_program_can_query_its_spilled_memory() {
    const MEMORY_TYPE: u32 = 2;
    const IS_MANAGED: u32 = 8;
    const ORDINAL: u32 = 9;
    const IPC_CAPABLE: u32 = 10;
    let ground = Ground::new();
    let mut actor = ground.process();
    actor.does(&format!("take_alloc 0 {QUOTA}"));
    actor.does(&format!("take_alloc 1 {MIB}"));
    for (attribute, value) in [(MEMORY_TYPE, 2), (IS_MANAGED, 1), (ORDINAL, 0), (IPC_CAPABLE, 0)] {
        actor.answers(&format!("attribute 1 {attribute}"), value);
    }
    actor.does("range 1 1000");
    actor.answers("ipc 1", 1);
    actor.does("ipc 0");
}

#[test]
fn a_free_in_stream_order_waits_where_the_driver_knows_no_better() {
    for status in [1, 801] {
        let ground = Ground::new();
        let mut actor = ground.faulty(&format!("cuMemFreeAsync={status}"));
        actor.does(&format!("take_alloc 0 {QUOTA}"));
        actor.does(&format!("take_async 1 {MIB}"));
        actor.does("fill 1 1");
        actor.does("work 1000");
        actor.does("give_freeasync 1");
        actor.does("query");
        ground.holds(QUOTA, 0);
        // For memory of the device, the driver's status stands.
        actor.answers("give_freeasync 0", status);
        ground.holds(QUOTA, 0);
    }
}

#[test]
fn a_free_that_fails_gives_nothing_back() {
    let ground = Ground::new();
    let mut actor = ground.faulty("cuMemFree_v2=719@1;cuMemFreeAsync=719@1");
    actor.does(&format!("take_alloc 0 {QUOTA}"));
    actor.does(&format!("take_alloc 1 {MIB}"));
    actor.does("fill 1 1");
    actor.answers("give_free 1", 719);
    actor.answers("give_freeasync 1", 719);
    ground.holds(QUOTA, MIB);
    actor.does("give_free 1");
    ground.holds(QUOTA, 0);
}

#[test]
fn in_a_capture_the_driver_has_its_say() {
    let ground = Ground::new();
    let mut actor = ground.process();
    actor.does(&format!("take_alloc 0 {QUOTA}"));
    // A relaxed capture does not contain a spilled allocation. An allocation in the stream is a node of the graph.
    actor.does("capture 2");
    actor.does(&format!("take_alloc 1 {MIB}"));
    actor.does(&format!("take_async 2 {MIB}"));
    actor.does("captured");
    assert_eq!(ground.figures("a").spilled, MIB);
    // Other captures forbid it, as without the library.
    actor.does("capture 0");
    actor.answers(&format!("take_alloc 3 {MIB}"), 900);
    assert_eq!(ground.figures("a").spilled, MIB);
    ground.refused(0);
}

#[test]
fn a_spill_in_stream_order_spoils_no_capture_of_another_thread() {
    // With the fault, the driver frees no managed memory in stream order, and the library does it.
    for faults in ["", "cuMemFreeAsync=801"] {
        let ground = Ground::new();
        let mut actor = ground.faulty(faults);
        actor.does(&format!("take_alloc 0 {QUOTA}"));
        actor.does("apart");
        for how in ["async", "async_ptsz", "from", "from_ptsz"] {
            actor.does(&format!("take_{how} 1 {MIB}"));
            assert_eq!(ground.figures("a").spilled, MIB, "{how}");
            actor.does("give_freeasync 1");
            assert_eq!(ground.figures("a").spilled, 0, "{how}");
        }
        // A call that may spoil the capture without the library may do so with it.
        actor.answers(&format!("take_alloc 1 {MIB}"), 900);
        actor.answers("joined", 901);
        let ground = Ground::new();
        let mut actor = ground.faulty(faults);
        actor.does(&format!("take_alloc 0 {QUOTA}"));
        actor.does("apart");
        actor.does(&format!("take_async 1 {MIB}"));
        actor.does("give_freeasync 1");
        actor.does("joined");
    }
}

#[test]
fn spilled_memory_of_a_context_ends_with_it() {
    let ground = Ground::new();
    let mut actor = ground.process();
    actor.does(&format!("take_alloc 0 {QUOTA}"));
    actor.does(&format!("take_alloc 1 {MIB}"));
    actor.does("fill 1 1");
    actor.does("context");
    actor.does(&format!("take_alloc 2 {}", 2 * MIB));
    actor.does("fill 2 1");
    ground.holds(QUOTA, 3 * MIB);
    actor.does("end");
    ground.holds(QUOTA, MIB);
    actor.does("primary");
    actor.does("reset");
    ground.holds(0, 0);
}

#[test]
fn a_context_that_does_not_end_keeps_its_memory() {
    let ground = Ground::new();
    let mut actor = ground.faulty("cuCtxDestroy_v2=709@1");
    actor.does(&format!("take_alloc 0 {QUOTA}"));
    actor.does("context");
    actor.does(&format!("take_alloc 1 {MIB}"));
    actor.does("fill 1 1");
    actor.answers("end", 709);
    ground.holds(QUOTA, MIB);
    actor.does("give_free 1");
    ground.holds(QUOTA, 0);
}

#[test]
fn of_a_dead_process_nothing_is_spilled_any_more() {
    let ground = Ground::new();
    let (mut dies, mut lives) = (ground.process(), ground.process());
    dies.does(&format!("take_alloc 0 {QUOTA}"));
    lives.does(&format!("take_alloc 0 {MIB}"));
    dies.does(&format!("take_alloc 1 {}", 5 * MIB));
    dies.does("fill 1 1");
    lives.does("fill 0 1");
    ground.holds(QUOTA, 6 * MIB);
    dies.0.kill();
    // A program that reads `/proc` may keep the address space of a dead process for a moment, and with it the lock on its slot.
    let end = Instant::now() + Duration::from_secs(2);
    while ground.figures("a").held > 0 && Instant::now() < end {
        sleep(Duration::from_millis(10));
    }
    ground.holds(0, MIB);
    lives.does("fork");
    ground.holds(0, MIB);
    lives.does("give_free 0");
    ground.holds(0, 0);
}

#[test]
fn whatever_the_driver_fails_to_do_leaves_nothing_charged() {
    let refused = "; what passes the quota is refused although GPU_MEM_OVERSUBSCRIBE=1.";
    let cases = [
        ("cuMemAllocManaged=2@1", 2, Some("the driver gives no managed memory (status 2)")),
        ("cuMemAllocManaged=801@1", 2, Some("the driver gives no managed memory (status 801)")),
        ("cuMemAllocManaged=719@1", 719, None),
        ("cuMemAdvise=1@1", 2, Some("the driver does not keep managed memory with the host (status 1)")),
        ("cuMemAdvise=101@2", 2, Some("the driver does not keep managed memory with the host (status 101)")),
    ];
    for (fault, status, why) in cases {
        for how in ["alloc", "async", "pitch", "managed"] {
            let ground = Ground::new();
            let mut actor = ground.faulty(fault);
            actor.does(&format!("take_alloc 0 {QUOTA}"));
            actor.answers(&format!("take_{how} 1 {MIB}"), status);
            println!("{fault}, {how}");
            ground.holds(QUOTA, 0);
            assert_eq!((ground.on_host().1, ground.live()), (0, 1));
            ground.refused(u64::from(status == 2));
            // The next request is served.
            actor.does(&format!("take_{how} 1 {MIB}"));
            actor.does("fill 1 1");
            ground.holds(QUOTA, MIB);
            let said: Vec<_> = actor.said().into_iter().filter(|line| line.contains("is refused")).collect();
            assert_eq!(said.len(), usize::from(why.is_some()), "{said:?}");
            let whole = why.map(|why| format!("{why}{refused}"));
            assert!(
                said.iter().all(|line| whole.as_ref().is_some_and(|whole| line.ends_with(whole))),
                "{said:?}"
            );
        }
    }
}

#[test]
fn a_device_that_cannot_share_memory_with_the_host_has_a_hard_quota() {
    for managing in ["exclusive", "none"] {
        let ground = Ground { bench: Bench::simulated_without_contexts().with("SIMGPU_MANAGED", managing) };
        let mut actor = ground.process();
        actor.does(&format!("take_alloc 0 {QUOTA}"));
        for how in ["alloc", "async", "pitch"] {
            actor.answers(&format!("take_{how} 1 {MIB}"), 2);
        }
        ground.holds(QUOTA, 0);
        ground.refused(3);
        let said = actor.said();
        let [line] = said.as_slice() else { panic!("{said:?}") };
        assert!(line.contains("the device cannot use managed memory that the host has"), "{line}");
    }
}

#[test]
fn more_than_the_host_has_is_refused() {
    let ground = Ground::new();
    let mut actor = ground.process();
    actor.answers(&format!("take_alloc 0 {}", 3_u64 << 40), 2);
    ground.refused(1);
    ground.holds(0, 0);
    actor.does(&format!("take_alloc 0 {}", QUOTA + 1));
    let said = actor.said();
    assert!(said.iter().any(|line| line.contains("the host has no room for 3TiB")), "{said:?}");
}

#[test]
fn threads_that_race_at_the_quota_are_all_served() {
    let ground = Ground::new();
    let mut actor = ground.process();
    actor.does(&format!("take_alloc 0 {}", QUOTA - 40 * MIB));
    actor.does(&format!("race 8 60 {}", 3 * MIB));
    actor.does("give_free 0");
    actor.does("query");
    let truth = ground.bench.truth(0);
    assert!(truth.peak <= QUOTA, "{truth:?}");
    assert!(ground.on_host().1 > 0, "the race was no race");
    assert_eq!((ground.figures("a").spilled, ground.on_host().0), (0, 0));
    ground.refused(0);
}

#[test]
fn processes_that_race_at_the_quota_are_all_served() {
    let ground = Ground::new();
    let mut actors = [ground.process(), ground.process(), ground.process()];
    actors.iter_mut().for_each(|actor| actor.0.order(&format!("race 2 60 {}", 5 * MIB)));
    for actor in &actors {
        assert_eq!(actor.0.hear().as_deref(), Some("0"));
    }
    let truth = ground.bench.truth(0);
    assert!(truth.peak <= QUOTA, "{truth:?}");
    assert!(ground.on_host().1 > 0, "the race was no race");
    assert_eq!((ground.figures("a").spilled, ground.on_host().0), (0, 0));
    ground.refused(0);
}

#[test]
fn the_slice_decides_and_may_be_told_otherwise_while_it_runs() {
    let ground = Ground::new();
    let mut first = ground.process();
    let mut second = ground.actor("a", "64MiB", &[]);
    second.does(&format!("take_alloc 0 {}", QUOTA + MIB));
    second.does("fill 0 1");
    ground.holds(0, QUOTA + MIB);
    ground.change("a", |limits| gpuslice_region::Limits { oversubscribe: false, ..limits });
    for actor in [&mut first, &mut second] {
        actor.answers(&format!("take_alloc 1 {}", QUOTA + MIB), 2);
    }
    // Memory that the slice already has stays.
    ground.holds(0, QUOTA + MIB);
    second.does("give_free 0");
    ground.holds(0, 0);
    let said = second.said();
    let line = said.first().expect("the limits differ");
    assert!(
        line.ends_with(
            "this process was started with a hard quota; its slice has host memory beyond its quota; the slice's limits hold."
        ),
        "{line}"
    );
}
