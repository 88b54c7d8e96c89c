//! Proof that the simulated GPU detects the known mistakes of libraries that limit memory.
//!
//! `naive.c` limits memory by a quota and makes one mistake, which a variable names. Each test runs a host under it without and
//! with one mistake. It compares the answers that the host got and the memory that the device really gave out. Without a mistake
//! the quota holds, so a difference shows the mistake and not the library.

use crate::support::bench::Bench;
use crate::support::outcome::Outcome;
use crate::support::{compiler, table};

const QUOTA: &str = "67108864";
const FULL: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

/// Two devices. The second has half the quota of the first.
const TWO: &[(&str, &str)] = &[("SIMGPU_DEVICES", "2"), ("NAIVE_LIMIT", "67108864,33554432")];

/// A host that has run under the naive library.
struct Seen {
    outcome: Outcome,
    bench: Bench,
}

impl Seen {
    /// Returns the most bytes that the processes held of a device in truth.
    fn peak_of(&self, device: usize) -> u64 {
        self.bench.truth(device).peak
    }

    fn peak(&self) -> u64 {
        self.peak_of(0)
    }

    /// Fails unless the host printed each of these lines.
    #[track_caller]
    fn says(&self, lines: &[&str]) -> &Self {
        self.outcome.contains(lines);
        self
    }
}

fn bench(variables: &[(&str, &str)]) -> Bench {
    let bench = Bench::simulated_to_the_byte().with("NAIVE_LIMIT", QUOTA);
    variables.iter().fold(bench, |bench, (name, value)| bench.with(name, value))
}

fn run(bench: &Bench, mistake: &str, host: &[&str]) -> Outcome {
    let (name, arguments) = host.split_first().expect("a host has a name");
    let host = bench.host(name, arguments).preload(&compiler::wrapper("naive"));
    host.set("NAIVE_MISTAKE", mistake).run().quiet()
}

/// Runs a host under the library without a mistake, and under the library with `mistake`.
fn try_out(mistake: &str, host: &[&str], variables: &[(&str, &str)]) -> [Seen; 2] {
    ["", mistake].map(|mistake| {
        let bench = bench(variables);
        Seen { outcome: run(&bench, mistake, host), bench }
    })
}

fn trap(name: &str) -> [&str; 3] {
    ["traps", name, QUOTA]
}

// ---- Over the quota: the device gave out more than it should have

#[test]
fn a_library_that_checks_and_then_allocates_is_caught() {
    // The driver is slow, so that racers meet between the check and the allocation. Four pieces fit.
    let slow: &[_] = &[("NAIVE_LIMIT", "4194304"), ("SIMGPU_FAULTS", "cuMemAlloc_v2=delay:50ms")];
    for racers in ["threads", "processes"] {
        let [honest, naive] = try_out("check_then_allocate", &["race", racers, "8", "1048576"], slow);
        assert_eq!(honest.peak(), 4 * MIB, "{}", honest.outcome);
        assert!(honest.outcome.out.starts_with("granted 4"), "{}", honest.outcome);
        assert!(naive.peak() > 4 * MIB, "{racers}: {}", naive.outcome);
    }
}

#[test]
fn a_library_that_trusts_an_old_sample_is_caught() {
    let [honest, naive] = try_out("sampled", &["race", "threads", "2", "1048576"], &[]);
    assert_eq!(honest.peak(), FULL);
    assert!(naive.peak() > FULL, "{}", naive.outcome);
}

#[test]
fn a_library_that_counts_width_by_height_is_caught() {
    let [honest, naive] = try_out("width_by_height", &trap("pitched"), &[]);
    honest.says(&["one row too many 2"]);
    naive.says(&["one row too many 0"]);
    // The device gave out two rows too many: one beside the full quota, and one in the last allocation. Their pitch is 512.
    assert_eq!((honest.peak(), naive.peak()), (FULL, FULL + 2 * 512));
}

#[test]
fn a_library_that_checks_again_after_the_driver_is_caught() {
    let [honest, naive] = try_out("second_check", &trap("pitched"), &[]);
    // The host gets the same answers, but the memory of a denied allocation stays taken.
    naive.outcome.same_as(&honest.outcome);
    assert_eq!(honest.peak(), FULL);
    assert!(naive.peak() > FULL, "{} bytes", naive.peak());
}

#[test]
fn a_library_that_refunds_at_the_first_release_is_caught() {
    let [honest, naive] = try_out("first_release", &trap("release_while_mapped"), &[]);
    honest.says(&["released, still mapped: the whole quota 2, left 0"]);
    naive.says(&["released, still mapped: the whole quota 0, left 67108864"]);
    assert_eq!((honest.peak(), naive.peak()), (FULL, 2 * FULL));
}

#[test]
fn a_library_that_limits_nothing_without_a_context_is_caught() {
    let [honest, naive] = try_out("no_context_unlimited", &trap("create_without_context"), TWO);
    assert_eq!((honest.peak_of(0), honest.peak_of(1)), (FULL, FULL / 2));
    assert!(naive.peak_of(0) > FULL && naive.peak_of(1) > FULL / 2, "{}", naive.outcome);
}

#[test]
fn a_library_that_refunds_to_the_current_device_is_caught() {
    let [honest, naive] = try_out("refund_current", &trap("other_device"), TWO);
    honest.says(&["device 0: the whole quota 0, left 67108864"]);
    naive.says(&["device 0: the whole quota 2, left 0"]);
    assert_eq!((honest.peak_of(1), naive.peak_of(1)), (FULL / 2, FULL / 2 + 1));
}

#[test]
fn a_library_that_drops_the_drivers_error_on_free_is_caught() {
    let host = ["traps", "free_fails", QUOTA, "cuMemAlloc_v2"];
    let [honest, naive] = try_out("error_dropped", &host, &[("SIMGPU_FAULTS", "cuMemFree_v2=719@1")]);
    honest.says(&["take 0, give 719"]);
    naive.says(&["take 0, give 0"]);
    assert_eq!((honest.peak(), naive.peak()), (FULL, 2 * FULL));
}

#[test]
fn a_library_that_charges_a_pool_by_the_call_is_caught() {
    let [honest, naive] = try_out("pool_by_call", &trap("pool_reuse"), &[]);
    honest.says(&["half beside the pool 2", "again from the pool 0"]);
    naive.says(&["half beside the pool 0", "again from the pool 2"]);
    // The pool kept its two chunks while the host took half of the quota beside it.
    assert_eq!((honest.peak(), naive.peak()), (FULL, FULL + FULL / 2));
}

#[test]
fn a_library_that_uncharges_by_one_of_several_releases_is_caught() {
    let [honest, naive] = try_out("release_uncharges", &trap("released_last"), &[]);
    honest.says(&["one use left: the whole quota 2, left 0"]);
    naive.says(&["one use left: the whole quota 0, left 67108864"]);
    assert_eq!((honest.peak(), naive.peak()), (FULL, 2 * FULL));
}

#[test]
fn a_library_that_leaves_the_streams_of_threads_unhooked_is_caught() {
    let [honest, naive] = try_out("ptsz_unhooked", &["doors", "plain", QUOTA], &[]);
    assert_eq!(honest.peak(), FULL);
    assert!(naive.peak() > FULL, "{}", naive.outcome);
    for family in ["cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync_ptsz"] {
        honest.says(&[&filled(family)]);
        assert!(naive.outcome.out.contains(&format!("{family}: take 0, one more 0 (written)")));
    }
}

/// Returns the line that the host `doors` prints of a family that the quota holds.
fn filled(family: &str) -> String {
    format!("{family}: take 0, one more 2 (untouched), info 0 left 0, give 0, again 0, give 0")
}

#[test]
fn a_library_that_forgets_the_levels_of_a_chain_is_caught() {
    let [honest, naive] = try_out("array_levels", &["shapes", "chain"], &[]);
    honest.says(&["taken 11, then 2, given 11"]);
    naive.says(&["taken 16, then 2, given 16"]);
    assert!(honest.peak() <= FULL && naive.peak() > FULL, "{} and {}", honest.peak(), naive.peak());
}

#[test]
fn a_library_that_multiplies_by_no_height_is_caught() {
    let [honest, naive] = try_out("array_height", &["shapes", "line"], &[]);
    honest.says(&["taken 64, then 2, given 64"]);
    // Nothing is charged, so only the end of the device's memory stops the host.
    assert_eq!((honest.peak(), naive.peak()), (FULL, 1 << 30));
}

// ---- Short of the quota: free memory was denied

#[test]
fn a_library_that_takes_bits_for_bytes_is_caught() {
    for shape in ["line", "plane", "bytes", "volume"] {
        let [honest, naive] = try_out("array_bits", &["shapes", shape], &[]);
        honest.says(&["taken 64, then 2, given 64"]);
        naive.says(&["taken 8, then 2, given 8"]);
        assert_eq!((honest.peak(), naive.peak()), (FULL, FULL / 8), "{shape}");
    }
}

#[test]
fn a_library_that_charges_the_current_device_for_memory_elsewhere_is_caught() {
    let [honest, naive] = try_out("location_ignored", &trap("create_without_context"), TWO);
    honest.says(&["device 1 0"]);
    naive.says(&["device 1 2"]);
    assert_eq!((honest.peak_of(1), naive.peak_of(1)), (FULL / 2, 2 * MIB));
    let [honest, naive] = try_out("location_ignored", &trap("create_on_host"), &[]);
    honest.says(&["host 0"]);
    naive.says(&["host 2"]);
}

#[test]
fn a_library_that_charges_all_contexts_to_the_first_device_is_caught() {
    let context = 16 * MIB;
    let (cost, limits) = (context.to_string(), format!("{},{}", FULL + context, FULL / 2 + context));
    let variables =
        [TWO[0], ("NAIVE_LIMIT", &limits), ("NAIVE_CONTEXT", &cost), ("SIMGPU_CONTEXT_BYTES", &cost)];
    let [honest, naive] = try_out("context_on_first", &trap("other_device"), &variables);
    honest.says(&["device 0 0, device 1 0, one more there 2"]);
    naive.says(&["device 0 2, device 1 0, one more there 0"]);
    let peaks = [&honest, &naive].map(|seen| (seen.peak_of(0), seen.peak_of(1)));
    assert_eq!(peaks[0], (FULL + context, FULL / 2 + context));
    assert!(peaks[1].0 < FULL && peaks[1].1 > FULL / 2 + context, "{peaks:?}");
}

#[test]
fn a_library_that_charges_reused_memory_of_a_pool_again_is_caught() {
    let [honest, naive] = try_out("pool_reuse", &trap("pool_reuse"), &[]);
    honest.says(&["round 1: take 0, give 0, wait 0, the pool holds it"]);
    naive.says(&["round 1: take 2, give 1, wait 0, the pool holds it"]);
    assert_eq!(honest.peak(), FULL);
}

#[test]
fn a_library_that_keeps_a_pools_high_water_mark_is_caught() {
    let [honest, naive] = try_out("pool_high_water", &trap("pool_synchronised"), &[]);
    honest.says(&["waited: the whole quota 0, left 67108864"]);
    naive.says(&["waited: the whole quota 2, left 0"]);
}

#[test]
fn a_library_that_charges_managed_memory_twice_is_caught() {
    let [honest, naive] = try_out("managed_twice", &["doors", "plain", QUOTA], &[]);
    honest.says(&[&filled("cuMemAllocManaged"), &filled("cuMemAlloc_v2")]);
    naive.says(&[&filled("cuMemAlloc_v2")]);
    assert!(naive.outcome.out.contains("cuMemAllocManaged: take 2,"), "{}", naive.outcome);
}

#[test]
fn a_library_that_keeps_the_charge_of_an_ended_context_is_caught() {
    let [honest, naive] = try_out("context_kept", &trap("contexts"), &[]);
    for end in ["context destroyed", "primary context reset"] {
        honest.says(&[&format!("{end}: the whole quota 0, left 67108864")]);
        naive.says(&[&format!("{end}: the whole quota 2, left 0")]);
    }
}

#[test]
fn a_library_that_counts_processes_that_have_ended_is_caught() {
    let takes_all: &[_] = &["race", "threads", "1", "1048576"];
    for (mistake, granted) in [("", "granted 64"), ("dead_counted", "granted 0")] {
        let bench = bench(&[]);
        run(&bench, mistake, takes_all).says(&["granted 64"]);
        assert_eq!(bench.truth_at_rest(0).held, 0, "what the dead held is free");
        run(&bench, mistake, takes_all).says(&[granted]);
    }
}

#[test]
fn a_library_that_counts_processes_that_were_killed_is_caught() {
    let [honest, naive] = try_out("dead_counted", &["race", "killed", QUOTA], &[]);
    honest.says(&["afterwards 0, within a second"]);
    naive.says(&["afterwards 2, late"]);
}

// ---- Answers that the program gets

#[test]
fn a_library_that_keeps_frees_of_unknown_pointers_to_itself_is_caught() {
    let bare = bench(&[]).host("traps", &trap("unknown_free")[1..]).run().quiet();
    let frees = |outcome: &Outcome| {
        outcome.out.lines().filter(|line| line.starts_with("free ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let [honest, naive] = try_out("unknown_free", &trap("unknown_free"), &[]);
    assert_eq!(frees(&honest.outcome), frees(&bare));
    assert!(frees(&naive.outcome).iter().all(|line| line.ends_with(": -1, async -1")), "{}", naive.outcome);
    // Memory of a pool is not in the library's book of allocations, so its free never reaches the driver.
    let [honest, naive] = try_out("unknown_free", &trap("pool_synchronised"), &[]);
    honest.says(&["waited: the whole quota 0, left 67108864"]);
    naive.says(&["take 0, give -1, wait 0", "waited: the whole quota 2, left 0"]);
}

#[test]
fn a_library_that_refuses_in_stream_order_with_another_status_is_caught() {
    let [honest, naive] = try_out("async_status", &["race", "pool", "2", "65536"], &[]);
    honest.outcome.says(&["granted 1024"]);
    naive.says(&["refused with -1", "granted 1024"]);
    assert_eq!((honest.peak(), naive.peak()), (FULL, FULL));
}

#[test]
fn a_library_that_returns_the_status_of_another_call_is_caught() {
    let fails = [("SIMGPU_FAULTS", "cuMemCreate=719@1")];
    let [honest, naive] = try_out("other_status", &trap("driver_fails"), &fails);
    honest.says(&["cuMemCreate: 719, untouched"]);
    naive.says(&["cuMemCreate: 0, untouched"]);
}

#[test]
fn a_library_that_synchronises_before_it_allocates_is_caught() {
    let [honest, naive] = try_out("synchronises", &["queued"], &[]);
    honest.says(&["made 0, launched 0, take 0, the kernel still runs"]);
    naive.says(&["made 0, launched 0, take 0, the kernel is done"]);
}

#[test]
fn a_library_that_writes_eight_bytes_where_four_belong_is_caught() {
    let [honest, naive] = try_out("wide_info", &["doors", "plain", QUOTA], &[]);
    let says = |neighbours: &str| {
        format!("narrow device 1073741824, whole {QUOTA}, left {QUOTA}, neighbours {neighbours}")
    };
    honest.says(&[&says("untouched")]);
    naive.says(&[&says("written")]);
}

#[test]
fn a_library_that_tells_more_than_the_device_has_left_is_caught() {
    let small = [("SIMGPU_MEMORY", "32MiB")];
    let [honest, naive] = try_out("free_unreal", &["management", "take", "1048576"], &small);
    let says = |free: u64| format!("started 1, take 0, info 0: total {}, free {free}", 32 * MIB);
    honest.says(&[&says(31 * MIB)]);
    naive.says(&[&says(63 * MIB)]);
}

// ---- The look-up

#[test]
fn a_library_that_hands_out_the_newest_form_is_caught() {
    for door in ["four", "five"] {
        let [honest, naive] = try_out("newest_version", &["doors", door, QUOTA], &[]);
        honest.says(&[&filled("cuMemAlloc"), &filled("cuMemAlloc_v2")]);
        // The host has variables of 32 bits where addresses of 64 bits lie: one address runs into the next and is lost.
        assert!(naive.outcome.out.contains("cuMemAlloc: take 0, one more 2 (written)"), "{}", naive.outcome);
        assert!(naive.outcome.out.contains("cuMemAlloc_v2: take 2, "), "{}", naive.outcome);
    }
}

#[test]
fn a_library_that_ignores_the_version_and_the_flags_of_a_look_up_is_caught() {
    let bench = bench(&[]);
    let file = |name: &str, content: &str| bench.file(name, content).display().to_string();
    // Two bases are enough: one whose forms differ by version, one whose forms differ by stream.
    let names = file("names", "cuMemAlloc\ncuMemAlloc_v2\ncuMemAllocAsync\ncuMemAllocAsync_ptsz\n");
    let versions = file("versions", &table::versions());
    let answers = |outcome: &Outcome| {
        let lines = outcome.out.lines().filter(|line| !line.starts_with("answers outside"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let arguments = [names.as_str(), versions.as_str()];
    let bare = bench.host("matrix", &arguments).run().quiet();
    let [honest, naive] =
        ["", "newest_version"].map(|mistake| run(&bench, mistake, &["matrix", arguments[0], arguments[1]]));
    assert_eq!(answers(&honest), answers(&bare));
    bare.contains(&[
        "cuMemAlloc form 2 flags 0 from 2000: 0 0 cuMemAlloc",
        "cuMemAllocAsync form 2 flags 2 from 11020: 0 0 cuMemAllocAsync_ptsz",
    ]);
    naive.contains(&[
        "cuMemAlloc form 2 flags 0 from 2000: 0 0 cuMemAlloc_v2",
        "cuMemAllocAsync form 2 flags 2 from 11020: 0 0 cuMemAllocAsync",
    ]);
}
