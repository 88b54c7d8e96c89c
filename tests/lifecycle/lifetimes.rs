//! A program uses the driver at each moment of its life: it gets the same answers as without the library, and it is charged.

use crate::support::bench::Bench;

/// Moments at which a program uses the driver first, last, or again.
const MOMENTS: &[&str] = &[
    "constructor",
    "thread",
    "atexit",
    "atexit_only",
    "key",
    "destructor",
    "destructor_only",
    "fork_first",
    "fork_too_much",
    "exec",
    "vfork",
    "host_function",
    "exit_busy",
];

#[test]
fn each_moment_is_served_as_without_the_library() {
    for moment in MOMENTS {
        let bench = Bench::simulated_without_contexts();
        let bare = bench.host("lifetimes", &[moment]).run().quiet();
        bench.host("lifetimes", &[moment]).loaded().run().quiet().same_as(&bare);
    }
}

#[test]
fn each_moment_is_served_under_a_quota() {
    for moment in MOMENTS {
        let bench = Bench::simulated_without_contexts();
        let bare = bench.host("lifetimes", &[moment]).run().quiet();
        bench.host("lifetimes", &[moment]).limited("64MiB").run().quiet().same_as(&bare);
        assert_eq!(bench.truth_at_rest(0).held, 0, "{moment}");
    }
}

#[test]
fn a_driver_that_was_closed_can_be_opened_again() {
    let bench = Bench::simulated_without_contexts();
    let bare = bench.host("lifetimes", &["reopen"]).run().quiet();
    bench.host("lifetimes", &["reopen"]).loaded().run().quiet().same_as(&bare);
    bench.host("lifetimes", &["reopen"]).limited("64MiB").run().quiet().same_as(&bare);
}

#[test]
fn a_forked_child_is_a_process_of_its_own() {
    let bench = Bench::simulated_without_contexts();
    let bare = bench.host("lifetimes", &["fork_holding"]).run().quiet();
    bench.host("lifetimes", &["fork_holding"]).loaded().run().quiet().same_as(&bare);
    // The parent holds one piece of four. The child that executes another program can take three, and then the parent can take
    // three more.
    let limited = bench.host("lifetimes", &["fork_holding"]).limited("8MiB").run().quiet();
    limited.contains(&["parent takes 0", "new process: 3 pieces, then 2", "parent: 3 pieces, then 2"]);
}

#[test]
fn a_process_that_closes_all_descriptors_keeps_its_memory() {
    let bench = Bench::simulated_without_contexts();
    let limited = bench.host("lifetimes", &["close"]).limited("8MiB").run().quiet();
    limited.contains(&["takes 0", "after closing: 3 pieces, then 2"]);
    let others: Vec<_> = limited.out.lines().filter(|line| line.starts_with("new process: ")).collect();
    assert_eq!(others, ["new process: 3 pieces, then 2", "new process: 0 pieces, then 2"], "{limited}");
    assert_eq!(bench.truth(0).peak, 8 << 20);
}

#[test]
fn a_jump_out_of_an_allocation_does_not_open_the_gate() {
    let bench = Bench::simulated_without_contexts();
    let fault = ("SIMGPU_FAULTS", "cuMemAllocManaged=delay:1s");
    let bare = bench.host("lifetimes", &["jump"]).set(fault.0, fault.1).run().quiet();
    bare.contains(&["came back by signal 14"]);
    let limited = bench.host("lifetimes", &["jump"]).set(fault.0, fault.1).limited("8MiB").run().quiet();
    // The reservation of the abandoned call may stay. Nothing beyond the quota is granted.
    limited.contains(&["came back by signal 14"]);
    let granted = ["after the jump: 3 pieces, then 2", "after the jump: 4 pieces, then 2"];
    assert!(limited.out.lines().any(|line| granted.contains(&line)), "{limited}");
}

#[test]
fn leaving_while_other_threads_allocate_ends_well_every_time() {
    for _round in 0..20 {
        let bench = Bench::simulated_without_contexts();
        bench.host("lifetimes", &["exit_busy"]).limited("64MiB").run().quiet().says(&["leaves"]);
    }
}
