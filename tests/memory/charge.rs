//! Charges of memory: to the device that holds it, for as long as it is held, and never beyond the quota.

use crate::support::bench::Bench;
use crate::support::families::FAMILIES;
use crate::support::outcome::Outcome;

const QUOTA: &str = "67108864";
const FULL: u64 = 64 << 20;

fn spring(bench: &Bench, trap: &str) -> Outcome {
    bench.host("traps", &[trap, QUOTA]).limited("64MiB").run().quiet()
}

/// Asserts that the library changes no status without a limit. With a limit, lines with `also` have the same statuses too.
fn statuses_agree(trap: &str, also: &str) {
    let bench = Bench::simulated_without_contexts();
    let bare = bench.host("traps", &[trap, QUOTA]).run().quiet();
    // The second run must find the device as the first did.
    bench.truth_at_rest(0);
    bench.host("traps", &[trap, QUOTA]).loaded().run().quiet().same_as(&bare);
    let limited = spring(&bench, trap);
    let pick = |outcome: &Outcome| {
        outcome.out.lines().filter(|line| line.contains(also)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(!pick(&bare).is_empty() && pick(&bare) == pick(&limited), "{limited}\nruns unlike\n{bare}");
}

#[test]
fn a_free_of_a_foreign_pointer_reaches_the_driver_and_refunds_nothing() {
    statuses_agree("unknown_free", "free ");
    let outcome = spring(&Bench::simulated_without_contexts(), "unknown_free");
    outcome.contains(&["after foreign frees: the whole quota 2, left 0", "give 0"]);
    outcome.contains(&["at the end: the whole quota 0, left 67108864"]);
}

#[test]
fn a_second_free_refunds_nothing() {
    statuses_agree("double_free", "give again");
    let outcome = spring(&Bench::simulated_without_contexts(), "double_free");
    outcome.contains(&["more than half 2, half 0", "full: the whole quota 2, left 0"]);
}

#[test]
fn a_free_credits_the_device_that_had_the_memory() {
    let bench = Bench::simulated_without_contexts().with("SIMGPU_DEVICES", "2");
    let outcome = bench.host("traps", &["other_device", QUOTA]).limited("0=64MiB,1=32MiB").run().quiet();
    outcome.says(&[
        "device 0 0, device 1 0, one more there 2",
        "device 0 given back 0, one more on device 1 2",
        "device 0: the whole quota 0, left 67108864",
        "give 0",
        "device 1 again 0",
    ]);
    assert_eq!((bench.truth(0).peak, bench.truth(1).peak), (FULL, FULL / 2));
}

#[test]
fn released_memory_stays_charged_while_it_is_mapped() {
    let bench = Bench::simulated_without_contexts();
    spring(&bench, "release_while_mapped").says(&[
        "reserve 0, create 0, map 0",
        "mapped: the whole quota 2, left 0",
        "release 0",
        "released, still mapped: the whole quota 2, left 0",
        "unmap 0",
        "unmapped: the whole quota 0, left 67108864",
        "reserve ends 0",
    ]);
    assert_eq!(bench.truth(0).peak, FULL);
}

#[test]
fn a_retained_handle_keeps_the_charge() {
    let outcome = spring(&Bench::simulated_without_contexts(), "retained");
    outcome.contains(&[
        "unmap 0, release 0",
        "one reference left: the whole quota 2, left 0",
        "release 0",
        "no reference left: the whole quota 0, left 67108864",
    ]);
}

#[test]
fn the_last_of_two_mappings_ends_the_charge() {
    let bench = Bench::simulated_without_contexts();
    spring(&bench, "mapped_twice").says(&[
        "reserve 0, create 0, map 0 0, release 0",
        "unmap 0",
        "one mapping left: the whole quota 2, left 0",
        "unmap 0",
        "no mapping left: the whole quota 0, left 67108864",
    ]);
    assert_eq!(bench.truth(0).peak, FULL);
}

#[test]
fn physical_memory_is_charged_to_its_location_without_a_context() {
    let bench = Bench::simulated_without_contexts().with("SIMGPU_DEVICES", "2");
    let host = bench.host("traps", &["create_without_context", QUOTA]);
    host.limited("0=64MiB,1=32MiB").run().quiet().says(&[
        "device 0 0",
        "one more 2",
        "device 1 0",
        "one more 2",
        "give 0",
        "one more on device 1 2",
        "device 0 again 0",
    ]);
}

#[test]
fn physical_memory_of_the_host_is_not_charged() {
    statuses_agree("create_on_host", "host 0");
    let outcome = spring(&Bench::simulated_without_contexts(), "create_on_host");
    outcome.contains(&["with host memory: the whole quota 0, left 67108864"]);
}

#[test]
fn odd_arguments_get_the_drivers_statuses_and_cost_nothing() {
    let bench = Bench::simulated_without_contexts();
    let bare = bench.host("traps", &["odd_create", QUOTA]).run().quiet();
    bench.host("traps", &["odd_create", QUOTA]).loaded().run().quiet().same_as(&bare);
    let outcome = spring(&bench, "odd_create");
    // A size beyond any device is also beyond the quota, which the library checks first.
    let comparable = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("everything") && !line.starts_with("after"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(comparable(&outcome.out), comparable(&bare.out));
    outcome.contains(&["after odd calls: the whole quota 0, left 67108864"]);
}

#[test]
fn memory_of_a_context_goes_back_with_it() {
    let bench = Bench::simulated_without_contexts();
    spring(&bench, "contexts").contains(&[
        "held: the whole quota 2, left 0",
        "context destroyed: the whole quota 0, left 67108864",
        "primary context reset: the whole quota 0, left 67108864",
    ]);
    spring(&bench, "released_last").contains(&[
        "one use left: the whole quota 2, left 0",
        "no use left: the whole quota 0, left 67108864",
    ]);
    assert_eq!(bench.truth(0).peak, FULL);
}

#[test]
fn pitched_memory_counts_its_real_pitch() {
    let bench = Bench::simulated_without_contexts();
    spring(&bench, "pitched").says(&[
        "probe 0, padded, rows 0, one more row 2",
        "give 0",
        "one row too many 2",
        "at the end: the whole quota 0, left 67108864",
    ]);
    assert_eq!(bench.truth(0).peak, FULL);
}

#[test]
fn memory_of_a_pool_is_charged_once_and_for_as_long_as_the_pool_holds_it() {
    let bench = Bench::simulated_without_contexts();
    let outcome = spring(&bench, "pool_reuse");
    for round in 0..3 {
        outcome.contains(&[&format!("round {round}: take 0, give 0, wait 0, the pool holds it")]);
    }
    outcome.contains(&[
        "half beside the pool 2",
        "again from the pool 0",
        "trim 0, the pool holds 0",
        "trimmed: the whole quota 0, left 67108864",
    ]);
    assert!(bench.truth(0).peak <= FULL);
}

#[test]
fn a_destroyed_pool_gives_its_memory_back() {
    spring(&Bench::simulated_without_contexts(), "pool_destroyed").says(&[
        "take 0",
        "held: the whole quota 2, left 0",
        "give 0, wait 0",
        "destroy 0",
        "pool destroyed: the whole quota 0, left 67108864",
        "linear 0",
    ]);
}

#[test]
fn a_destroyed_pool_is_not_charged_for_allocations_that_ended_with_their_context() {
    spring(&Bench::simulated_without_contexts(), "pool_outlives_context").says(&[
        "pool 0, threshold 0, context 0",
        "take 0 0, context ends 0",
        "take 0 at the same address, give 0, wait 0",
        "kept by the pool: the whole quota 2, left 33554432",
        "destroy 0",
        "pool destroyed: the whole quota 0, left 67108864",
    ]);
}

#[test]
fn managed_memory_of_a_pool_is_charged_in_full_wherever_the_pool_is() {
    let outcome = spring(&Bench::simulated_without_contexts(), "managed_pools");
    let of_place = |place: &str| {
        let make = format!("{place}: make 0, twice the quota 2, take 0");
        let held = ["held: the whole quota 2, left 0", "give 0, wait 0, destroy 0"];
        let rest = [held[0], held[1], "destroyed: the whole quota 0, left 67108864"];
        [&[make], rest.map(str::to_owned).as_slice()].concat()
    };
    let expected: Vec<_> = ["nowhere", "host", "device"].into_iter().flat_map(of_place).collect();
    outcome.says(&expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_pool_that_a_place_has_from_the_start_is_charged_by_its_kind_of_memory() {
    spring(&Bench::simulated_without_contexts(), "pools_of_places").says(&[
        "get 0",
        "default pool of the host: the whole quota 0, left 67108864",
        "take 0, give 0",
        "get 0",
        "current pool of the host: the whole quota 0, left 67108864",
        "take 0, give 0",
        "get 0",
        "threshold 0, twice the quota 2, take 0, give 0",
        "default managed pool of the host: the whole quota 2, left 0",
        "settle 0",
        "trimmed: the whole quota 0, left 67108864",
        "get 0",
        "threshold 0, twice the quota 2, take 0, give 0",
        "current managed pool of no place: the whole quota 2, left 0",
        "settle 0",
        "trimmed: the whole quota 0, left 67108864",
    ]);
}

#[test]
fn memory_that_a_pool_frees_is_free_when_the_program_has_waited() {
    spring(&Bench::simulated_without_contexts(), "pool_synchronised").says(&[
        "held: the whole quota 2, left 0",
        "take 0, give 0, wait 0",
        "waited: the whole quota 0, left 67108864",
    ]);
}

#[test]
fn a_request_that_fits_in_no_hole_does_not_make_a_full_pool_grow() {
    let bench = Bench::simulated_without_contexts();
    let outcome = spring(&bench, "pool_holes");
    assert!(
        outcome.out.contains("into a hole 0") && outcome.out.ends_with("no more than the quota\n"),
        "{outcome}"
    );
    assert!(bench.truth(0).peak <= FULL, "{} bytes: {outcome}", bench.truth(0).peak);
}

#[test]
fn memory_given_back_by_another_familys_call_is_refunded() {
    let bench = Bench::simulated_without_contexts();
    spring(&bench, "crossed_free").says(&[
        "linear: take 0, give 0, wait 0",
        "freed in stream order: the whole quota 0, left 67108864",
        "of a pool: take 0, give 0, settled 0",
        "freed at once: the whole quota 0, left 67108864",
        "narrow: take 0, give 0",
        "freed by the wide form: the whole quota 0, left 67108864",
    ]);
    assert_eq!(bench.truth(0).peak, FULL);
}

#[test]
fn memory_freed_in_a_stream_stays_charged_until_the_stream_reaches_the_free() {
    let bench = Bench::simulated_without_contexts();
    spring(&bench, "freed_behind_work").says(&[
        "take and give 0",
        "one piece: the whole quota 2, wait 0",
        "then: the whole quota 0, left 67108864",
        "take and give pieces 0",
        "small pieces: the whole quota 2, wait 0",
        "then: the whole quota 0, left 67108864",
        "take and give 1 pieces 0, take meanwhile 0, give 0",
        "take and give 128 pieces 0, take meanwhile 0, give 0",
        "take and give 0, take of a pool meanwhile 0, give 0, settled 0",
        "context 0, take and give 0, end 0",
        "after the context: the whole quota 0, left 67108864",
    ]);
    assert_eq!(bench.truth(0).peak, FULL);
    // Without a limit, the device holds memory that is about to be freed beside memory that is taken meanwhile.
    let bench = Bench::simulated_without_contexts();
    bench
        .host("traps", &["freed_behind_work", QUOTA])
        .run()
        .quiet()
        .contains(&["one piece: the whole quota 0, wait 0"]);
    assert_eq!(bench.truth(0).peak, 2 * FULL);
}

#[test]
fn threads_that_wait_for_memory_freed_in_a_stream_all_get_it() {
    let bench = Bench::simulated_without_contexts();
    spring(&bench, "freed_one_by_one").says(&["take and give 0, refused 0"]);
    assert_eq!(bench.truth(0).peak, FULL);
}

#[test]
fn an_allocation_that_the_driver_refuses_is_not_charged() {
    // Each family fails on its first call. The probes between them are later calls of cuMemAlloc_v2.
    let faults: Vec<_> = FAMILIES.iter().map(|family| format!("{family}=719@1")).collect();
    let bench = Bench::simulated_without_contexts();
    let host = bench.host("traps", &["driver_fails", QUOTA]).set("SIMGPU_FAULTS", &faults.join(";"));
    let outcome = host.limited("64MiB").run().quiet();
    // The probe after the first family meets the fault of cuMemAlloc_v2, so the test of cuMemAlloc_v2 itself then succeeds.
    for family in FAMILIES.iter().filter(|family| **family != "cuMemAlloc_v2") {
        outcome.contains(&[&format!("{family}: 719, untouched")]);
    }
    let probes: Vec<_> = outcome.out.lines().filter(|line| line.starts_with("  then")).collect();
    assert_eq!(probes.first(), Some(&"  then: the whole quota 719, left 67108864"), "{outcome}");
    assert!(
        probes.iter().skip(1).all(|line| *line == "  then: the whole quota 0, left 67108864"),
        "{outcome}"
    );
}

#[test]
fn memory_that_the_driver_fails_to_free_stays_charged() {
    let frees = [
        ("cuMemAlloc", "cuMemFree"),
        ("cuMemAlloc_v2", "cuMemFree_v2"),
        ("cuMemAllocPitch_v2", "cuMemFree_v2"),
        ("cuMemCreate", "cuMemRelease"),
        ("cuMemAllocAsync", "cuMemFreeAsync"),
        ("cuMemAllocAsync_ptsz", "cuMemFreeAsync_ptsz"),
        ("cuMemAllocFromPoolAsync", "cuMemFreeAsync"),
    ];
    for (family, free) in frees {
        let bench = Bench::simulated_without_contexts();
        let host = bench
            .host("traps", &["free_fails", QUOTA, family])
            .set("SIMGPU_FAULTS", &format!("{free}=719@1"));
        host.limited("64MiB").run().quiet().says(&[
            "take 0, give 719",
            "still held: the whole quota 2, left 0",
            "give 0",
            "then: the whole quota 0, left 67108864",
        ]);
        assert_eq!(bench.truth(0).peak, FULL, "{family}");
    }
}

#[test]
fn two_threads_share_the_quota_to_its_last_byte() {
    for threads in ["2", "8"] {
        let bench = Bench::simulated_without_contexts();
        let outcome = bench.host("race", &["threads", threads, "65536"]).limited("64MiB").run().quiet();
        outcome.says(&["granted 1024"]);
        assert_eq!(bench.truth(0).peak, FULL);
    }
}

#[test]
fn threads_that_empty_one_pool_share_the_quota_to_its_last_byte() {
    // The first 512 pieces fill 32 MiB. The delay holds the call in flight that makes the pool grow again, while others ask.
    for faults in ["", "cuMemAllocAsync=delay:20ms@513"] {
        for _round in 0..5 {
            let bench = Bench::simulated_without_contexts();
            let host = bench.host("race", &["pool", "4", "65536"]).set("SIMGPU_FAULTS", faults);
            host.limited("64MiB").run().quiet().says(&["granted 1024"]);
            assert_eq!(bench.truth(0).peak, FULL);
        }
    }
}

#[test]
fn a_pool_can_be_filled_to_the_last_byte_of_the_quota() {
    for (piece, granted) in [("65536", "granted 1024"), ("1048576", "granted 64")] {
        let bench = Bench::simulated_without_contexts();
        bench.host("race", &["pool", "1", piece]).limited("64MiB").run().quiet().says(&[granted]);
        assert_eq!(bench.truth(0).peak, FULL);
    }
}

#[test]
fn eight_processes_share_the_quota_to_its_last_byte() {
    for _round in 0..5 {
        let bench = Bench::simulated_without_contexts();
        let outcome = bench.host("race", &["processes", "8", "1048576"]).limited("64MiB").run().quiet();
        outcome.says(&["granted 64, failed 0"]);
        assert_eq!(bench.truth(0).peak, FULL);
    }
}

#[test]
fn of_racers_for_the_last_piece_exactly_one_gets_it() {
    for (racers, number) in [("threads", "2"), ("threads", "4"), ("processes", "2"), ("processes", "4")] {
        let bench = Bench::simulated_without_contexts();
        let outcome = bench.host("race", &["last", racers, number, QUOTA]).limited("64MiB").run().quiet();
        outcome.says(&["nobody 0, several 0, failed 0"]);
        assert_eq!(bench.truth(0).peak, FULL, "{number} {racers}");
    }
}

#[test]
fn memory_of_a_killed_process_is_free_within_a_second() {
    // `heir` forks a child before its death: the child inherits descriptors, but no slot of the slice.
    for way in ["killed", "heir"] {
        let bench = Bench::simulated_without_contexts();
        let outcome = bench.host("race", &[way, QUOTA]).limited("64MiB").run().quiet();
        outcome.says(&["while the other lives 2", "afterwards 0, within a second"]);
        assert_eq!(bench.truth(0).peak, FULL);
    }
}
