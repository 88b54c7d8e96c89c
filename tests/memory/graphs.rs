//! Memory of graphs counts against the quota from the moment at which a launch can take it.

use crate::support::bench::Bench;
use crate::support::compiler;
use crate::support::outcome::Outcome;

const MIB: u64 = 1 << 20;
const DOORS: &[&str] = &["linked", "dlsym", "cuGetProcAddress"];

/// Returns the host that has the part `what`.
fn host(what: &str) -> &'static str {
    let alone = ["capture", "unspoiled", "beside", "small", "devices", "threads", "killed"];
    if alone.contains(&what) { "graph_life" } else { "graphs" }
}

/// Runs a part of a host through a door, in a slice with a quota of `quota` MiB.
fn run(bench: &Bench, door: &str, what: &str, quota: u64) -> Outcome {
    let program = if door == "linked" {
        compiler::linked("graphs.c", "graphs_linked", &[]).expect("graphs.c links with the simulated driver")
    } else {
        compiler::plain(host(what))
    };
    let bytes = (quota * MIB).to_string();
    bench.program(&program, &[door, what, &bytes]).limited(&format!("{quota}MiB")).run().quiet()
}

/// Runs a part of a host without a limit, and asserts that the library changes nothing.
fn unlimited(bench: &Bench, what: &str, quota: u64) -> Outcome {
    let bytes = (quota * MIB).to_string();
    let bare = bench.host("graphs", &["dlsym", what, &bytes]).run().quiet();
    bench.host("graphs", &["dlsym", what, &bytes]).loaded().run().quiet().same_as(&bare);
    bare
}

/// Returns the most memory that the simulated GPU had in use, and the memory in use after the program has ended. Both in MiB.
fn truth(bench: &Bench) -> (u64, u64) {
    let truth = bench.truth_at_rest(0);
    (truth.peak / MIB, truth.held / MIB)
}

/// Returns the statuses of the lines that end with a charge.
fn statuses(outcome: &Outcome) -> Vec<String> {
    outcome.out.lines().filter_map(|line| Some(line.split_once(", charged")?.0.to_owned())).collect()
}

#[test]
fn every_way_of_instantiating_reserves_the_most_that_a_launch_can_take() {
    let ways = [
        "cuGraphInstantiate",
        "cuGraphInstantiate_v2",
        "cuGraphInstantiateWithFlags",
        "cuGraphInstantiateWithParams",
        "cuGraphInstantiateWithParams_ptsz",
    ];
    let mut expected = Vec::new();
    for way in ways {
        expected.push(format!("{way}: 0, one more 2 (untouched), charged 64, pool 0"));
        expected.extend(
            [
                "  launch 0, charged 64, pool 64",
                "  destroy 0, charged 64, pool 64",
                "  trim 0, charged 0, pool 0",
                "  again 0, charged 32, pool 0",
                "  destroy 0, charged 0, pool 0",
            ]
            .map(str::to_owned),
        );
    }
    let expected: Vec<_> = expected.iter().map(String::as_str).collect();
    for door in DOORS {
        let bench = Bench::simulated_without_contexts();
        run(&bench, door, "rows", 64).says(&expected);
        assert_eq!(truth(&bench), (64, 0), "{door}");
    }
}

#[test]
fn every_way_of_making_an_allocation_node_is_seen() {
    let ways = [
        "cuGraphAddMemAllocNode",
        "cuGraphAddNode",
        "cuGraphAddNode_v2",
        "child",
        "grandchild",
        "cuMemAllocAsync",
        "cuMemAllocAsync_ptsz",
        "cuMemAllocFromPoolAsync",
        "cuMemAllocFromPoolAsync_ptsz",
        "the thread's own stream",
    ];
    for door in DOORS {
        let bench = Bench::simulated_without_contexts();
        let outcome = run(&bench, door, "nodes", 64);
        for way in ways {
            outcome.contains(&[&format!("{way}: made 0, instantiate 0 2, charged 64, pool 0")]);
        }
        assert_eq!(outcome.out.matches("  launch 0, charged 64, pool 64\n").count(), ways.len(), "{outcome}");
        assert_eq!(outcome.out.matches("  reset, charged 0, pool 0\n").count(), ways.len(), "{outcome}");
        assert_eq!(truth(&bench), (64, 0), "{outcome}");
    }
}

#[test]
fn memory_that_a_graph_uses_twice_counts_once() {
    let bench = Bench::simulated_without_contexts();
    run(&bench, "dlsym", "reuse", 64).says(&[
        "behind the free: the same address",
        "instantiate 0, charged 32, pool 0",
        "launch 0, charged 32, pool 32",
        "destroy 0, charged 32, pool 32",
        "trim 0, charged 0, pool 0",
        "beside the free: another address",
        "instantiate 0, charged 64, pool 0",
        "launch 0, charged 64, pool 64",
    ]);
    assert_eq!(truth(&bench), (64, 0));
}

#[test]
fn memory_that_a_graph_leaves_alive_stays_charged_until_it_is_freed_and_trimmed() {
    let bench = Bench::simulated_without_contexts();
    let outcome = run(&bench, "dlsym", "alive", 64);
    outcome.says(&[
        "instantiate 0, charged 32, pool 0",
        "upload 0, charged 32, pool 32",
        "launch 0, charged 32, pool 32",
        "launch again 1, charged 32, pool 32",
        "trim 0, charged 32, pool 32",
        "free 0, charged 32, pool 32",
        "free again 1, charged 32, pool 32",
        "trim 0, charged 32, pool 0",
        "launch 0, charged 32, pool 32",
        "free in order 0, charged 32, pool 32",
        "launch 0, charged 32, pool 32",
        "a graph that frees: instantiate 0, charged 32, pool 32",
        "launch it 0, charged 32, pool 32",
        "launch 0, charged 32, pool 32",
        "destroy 0, charged 32, pool 32",
        "trim 0, charged 32, pool 32",
        "the whole quota 2, charged 32, pool 32",
        "free 0, charged 32, pool 32",
        "the whole quota 0, charged 64, pool 0",
        "destroy 0, charged 0, pool 0",
        "free on launch: instantiate 0, charged 32, pool 32",
        "launch 0, charged 32, pool 32",
        "launch 0, charged 32, pool 32",
        "launch 0, charged 32, pool 32",
        "destroy 0, charged 32, pool 32",
        "trim 0, charged 32, pool 32",
        "free 0, charged 32, pool 32",
        "trim 0, charged 0, pool 0",
    ]);
    assert_eq!(truth(&bench), (32, 0));
    // The quota decides one status only.
    let bare = statuses(&unlimited(&Bench::simulated_without_contexts(), "alive", 64));
    let limited = statuses(&outcome);
    let different: Vec<_> = limited.iter().zip(&bare).filter(|(one, other)| one != other).collect();
    assert_eq!(different.len(), 1, "{different:?}");
}

#[test]
fn executables_are_charged_together_and_go_in_any_order() {
    let bench = Bench::simulated_without_contexts();
    run(&bench, "dlsym", "several", 128).says(&[
        "instantiate 0 0 0 0, one more 2, charged 128, pool 32",
        "in one stream 0 0 0 0, charged 128, pool 32",
        "in two streams 0 0 0 0, charged 128, pool 64",
        "destroy 0, charged 128, pool 64",
        "destroy 0, charged 128, pool 64",
        "destroy 0, charged 96, pool 64",
        "destroy 0, charged 64, pool 64",
        "anew 0 0 0 0, charged 128, pool 0",
        "destroyed, charged 0, pool 0",
    ]);
    assert_eq!(truth(&bench), (64, 0));
}

#[test]
fn an_executable_that_ends_while_it_runs_is_charged_until_it_is_done() {
    let bench = Bench::simulated_without_contexts();
    run(&bench, "dlsym", "running", 64).says(&[
        "instantiate 0, charged 64, pool 0",
        "launch 0, charged 64, pool 64",
        "destroy 0, charged 64, pool 64",
        "trim 0, charged 64, pool 64",
        "next 2, charged 64, pool 64",
        "allocation 2, charged 64, pool 64",
        "done: next 0, charged 64, pool 0",
        "launch 0, charged 64, pool 64",
        "destroy 0, charged 64, pool 64",
        "allocation 0, charged 64, pool 0",
        "free 0, charged 0, pool 0",
    ]);
    assert_eq!(truth(&bench), (64, 0));
}

#[test]
fn a_graph_that_the_driver_refuses_costs_nothing_and_gets_its_status() {
    let bench = Bench::simulated_without_contexts();
    let outcome = run(&bench, "dlsym", "refused", 64);
    assert_eq!(statuses(&outcome), statuses(&unlimited(&Bench::simulated_without_contexts(), "refused", 64)));
    outcome.contains(&[
        "second 801, charged 32, pool 32",
        "flags 1, charged 32, pool 32",
        "update 910, charged 32, pool 32",
        "destroy 0, charged 32, pool 32",
        "trim 0, charged 0, pool 0",
        "update 0, charged 0, pool 0",
    ]);
    assert_eq!(truth(&bench), (32, 0));
}

#[test]
fn captured_allocations_are_no_pools_and_cost_nothing_until_they_are_instantiated() {
    let bench = Bench::simulated_without_contexts();
    let once = [
        "captured 0, charged 0, pool 0",
        "free in the capture 0, charged 0, pool 0",
        "instantiate 0, charged 64, pool 0",
        "launch 0, charged 64, pool 64",
        "free in order 0, charged 64, pool 64",
        "destroy 0, charged 64, pool 64",
        "trim 0, charged 0, pool 0",
        "the whole quota 0, charged 64, pool 0",
        "captured without room 0, charged 64, pool 0",
        "instantiate 2, charged 64, pool 0",
        "of the pool without room 2, charged 64, pool 0",
        "free 0, charged 0, pool 0",
        "of the pool 0, charged 32, pool 0",
        "free in order 0, charged 32, pool 0",
    ];
    run(&bench, "dlsym", "capture", 64).says(&[once, once].concat());
    assert_eq!(truth(&bench), (64, 0));
}

#[test]
fn making_room_spoils_no_capture_of_another_thread() {
    run(&Bench::simulated_without_contexts(), "dlsym", "unspoiled", 64).says(&[
        "another thread captures, charged 64, pool 64",
        "instantiate 0, capture 0, charged 64, pool 0",
    ]);
}

#[test]
fn memory_in_the_order_of_another_stream_spoils_no_capture() {
    let whole = "capture 0, end 0, instantiate 0, launch 0, ran 1";
    let sixty_four = (64 * MIB).to_string();
    let program = compiler::plain(host("beside"));
    let bare = Bench::simulated_without_contexts()
        .program(&program, &["dlsym", "beside", &sixty_four])
        .run()
        .quiet();
    let without = "beside 0, beyond the quota 0, wait 0";
    bare.says(&[without, whole, without, whole]);
    // The program has in turn a quota, a share of GPU time, and both.
    for limits in [&["GPU_MEM_LIMIT"][..], &["GPU_CORE_PERCENT"], &["GPU_MEM_LIMIT", "GPU_CORE_PERCENT"]] {
        let bench = Bench::simulated_without_contexts();
        let mut host = bench.program(&program, &["dlsym", "beside", &sixty_four]).loaded();
        for limit in limits {
            host = host.set(limit, if *limit == "GPU_MEM_LIMIT" { "64MiB" } else { "30" });
        }
        let beside =
            if limits.contains(&"GPU_MEM_LIMIT") { "beside 0, beyond the quota 2, wait 0" } else { without };
        host.run().quiet().says(&[beside, whole, beside, whole]);
    }
}

#[test]
fn small_graphs_cost_the_step_by_which_the_drivers_pool_can_grow() {
    // The driver may take 32 MiB for each allocation until it has shown that it takes less. A pool of 4 MiB shows that it takes
    // at most 4 MiB at a time.
    let bench = Bench::simulated_without_contexts();
    run(&bench, "dlsym", "small", 64).says(&[
        "instantiate 0 0, charged 64, pool 0",
        "launch 0 0, pool 4",
        "one more 0, charged 12, pool 4",
    ]);
    assert_eq!(truth(&bench), (4, 0));
    let bench = Bench::simulated_without_contexts().with("SIMGPU_GRAPH_BLOCK", "32MiB");
    run(&bench, "dlsym", "small", 64).says(&[
        "instantiate 0 0, charged 64, pool 0",
        "launch 0 0, pool 64",
        "one more 2, charged 64, pool 64",
    ]);
    assert_eq!(truth(&bench), (64, 0));
}

#[test]
fn each_device_is_charged_for_its_own_allocations() {
    let bench = Bench::simulated_without_contexts()
        .with("SIMGPU_DEVICES", "2")
        .with("GPU_MEM_LIMIT", "0=64MiB,1=32MiB");
    let bytes = (64 * MIB).to_string();
    bench.host(host("devices"), &["dlsym", "devices", &bytes]).loaded().run().quiet().says(&[
        "too much for the second 2, charged 0, pool 0",
        "both 0, charged 64, pool 0",
        "one more on the second 2, charged 64, pool 0",
        "launch 0, charged 64, pool 64",
        "reset, one more on the second 0, charged 0, pool 0",
    ]);
    assert_eq!((bench.truth(0).peak / MIB, bench.truth(1).peak / MIB), (64, 32));
}

#[test]
fn threads_that_launch_while_others_instantiate_end_and_trim_never_pass_the_quota() {
    for block in ["2MiB", "32MiB"] {
        let bench = Bench::simulated_without_contexts().with("SIMGPU_GRAPH_BLOCK", block);
        let outcome = run(&bench, "dlsym", "threads", 128);
        outcome.says(&["failures 0, some launched yes, some refused yes, charged 0, pool 0"]);
        let (peak, held) = truth(&bench);
        assert!(peak > 64 && peak <= 128 && held == 0, "{peak} MiB of 128 in blocks of {block}");
    }
}

#[test]
fn processes_with_such_threads_never_pass_the_quota_together() {
    let bench = Bench::simulated_without_contexts();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let hosts: Vec<_> = (0..3).map(|_| scope.spawn(|| run(&bench, "dlsym", "threads", 128))).collect();
        hosts.into_iter().map(|host| host.join().unwrap()).collect()
    });
    // A process may find the quota taken by the others each time that it asks.
    assert!(outcomes.iter().all(|outcome| outcome.out.starts_with("failures 0, ")), "{outcomes:?}");
    assert!(outcomes.iter().any(|outcome| outcome.out.contains("some launched yes")), "{outcomes:?}");
    let (peak, held) = truth(&bench);
    assert!(peak > 64 && peak <= 128 && held == 0, "{peak} MiB of 128");
}

#[test]
fn a_graph_of_which_the_driver_does_not_tell_the_size_is_refused() {
    for call in ["cuGraphMemAllocNodeGetParams", "cuGraphNodeGetType", "cuGraphChildGraphNodeGetGraph"] {
        let bench = Bench::simulated_without_contexts().with("SIMGPU_FAULTS", &format!("{call}=999"));
        let outcome = run(&bench, "dlsym", "nodes", 64);
        outcome.contains(&["child: made 0, instantiate 2 2, charged 0, pool 0"]);
        assert!(call.starts_with("cuGraphChild") || truth(&bench) == (0, 0), "{outcome}");
    }
}

#[test]
fn a_killed_process_leaves_nothing_of_its_graphs() {
    let bench = Bench::simulated_without_contexts();
    run(&bench, "dlsym", "killed", 64)
        .says(&["before: charged 64, pool 64", "after: the whole quota 0, charged 64, pool 0"]);
    assert_eq!(truth(&bench), (64, 0));
}
