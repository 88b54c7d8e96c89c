//! Launches that a signal handler interrupts or leaves by a jump. The thread and its slice go on as before.

use super::hosts::{number, paced};
use crate::support::bench::Bench;
use crate::support::compiler;

/// Makes a bench whose driver takes 0.4 s for one launch, so that a signal meets it there.
fn slow_at(launch: u32) -> Bench {
    Bench::simulated().with("SIMGPU_FAULTS", &format!("cuLaunchKernel=delay:400ms@{launch}"))
}

#[test]
fn a_launch_that_is_left_while_it_waits_delays_no_other() {
    let bench = Bench::simulated();
    let outcome = paced(bench.host("paced_jumps", &["waiting", "20ms", "3"]), "30").run();
    outcome.contains(&["launched 0"]);
    assert!(number(&outcome, "took ") < 15_000, "{outcome}");
}

#[test]
fn where_no_thread_can_be_started_a_launch_that_is_left_while_it_waits_delays_no_other() {
    // The first launch that waits queries events. The signal handler jumps out of it meanwhile.
    let bench = Bench::simulated().with("SIMGPU_FAULTS", "cuEventQuery=delay:300ms");
    let host =
        bench.host("paced_jumps", &["waiting", "20ms", "3"]).preload(&compiler::wrapper("wrap_threads"));
    let outcome = paced(host, "95").run();
    assert!(outcome.err.contains("no thread can be started"), "{outcome}");
    outcome.contains(&["launched 0"]);
}

#[test]
fn launches_after_one_that_is_left_inside_the_driver_are_paid() {
    let bench = slow_at(2);
    let outcome = paced(bench.host("paced_jumps", &["inside", "20ms", "30"]), "30").run();
    outcome.contains(&["left 1"]);
    assert!(number(&outcome, "took ") > 1_500, "600 ms of kernels at 30 %: {outcome}");
}

#[test]
fn the_worker_sleeps_after_a_thread_has_left_its_last_launch_inside_the_driver() {
    let bench = slow_at(2);
    let outcome = paced(bench.host("paced_jumps", &["last", "20ms"]), "30").run();
    outcome.contains(&["left 1", "asleep 1"]);
}

#[test]
fn launches_are_measured_after_the_first_one_of_a_function_is_left_inside_the_driver() {
    // Batches that are not measured keep the worker awake.
    let bench = slow_at(4);
    let outcome = paced(bench.host("paced_jumps", &["loading", "20ms", "10"]), "30").run();
    outcome.contains(&["left 1", "failed 0", "asleep 1"]);
}

#[test]
fn launches_inside_another_are_not_paid_although_a_handler_has_launched_from_deeper_in_the_stack() {
    let bench = Bench::simulated().with("SIMGPU_FAULTS", "cuLaunchKernel=delay:300ms");
    let outcome = paced(bench.host("paced_jumps", &["handlers", "200ms"]), "10").run();
    outcome.contains(&["handled 1"]);
    // Five launches take 0.3 s each in the driver. If the library charged a nested launch, it would wait for 2 s.
    assert!(number(&outcome, "nested ") < 5_000, "{outcome}");
}
