//! Ranks that wait for each other on their GPUs keep their pace.

use super::hosts::number;
use crate::support::bench::Bench;
use crate::support::outcome::Outcome;
use crate::support::timed;
use std::time::Duration;

/// Runs `collective` with threads on `devices` GPUs, at `percent` of each.
fn collective(percent: &str, devices: &str, words: &[&str]) -> Outcome {
    collective_on(&Bench::simulated(), percent, devices, words)
}

/// Runs `collective` like [`collective`] on a bench.
fn collective_on(bench: &Bench, percent: &str, devices: &str, words: &[&str]) -> Outcome {
    let host =
        bench.host("collective", &[&[devices], words].concat()).set("SIMGPU_DEVICES", devices).loaded();
    let outcome = host.set("GPU_CORE_PERCENT", percent).run();
    outcome.contains(&["failed 0"]);
    outcome
}

/// Returns the time of a step in microseconds, of threads on two GPUs that have a share of each.
fn step_of_two(
    percent: &str,
    steps: u64,
    kernel: &str,
    kernels: &str,
    [meetings, together]: [&str; 2],
) -> u64 {
    let outcome = collective(percent, "2", &[&steps.to_string(), kernel, kernels, meetings, together]);
    number(&outcome, "took ") * 1000 / steps
}

/// Returns the slack of `steps` steps that take `each` milliseconds and may take `at_most`.
fn slack_of(steps: u64, each: u64, at_most: u64) -> Duration {
    Duration::from_millis(steps * (at_most - each))
}

#[test]
fn a_rank_on_the_simulated_gpu_waits_for_the_others() {
    for ranks in ["threads", "graphs", "processes", "apart,graphs"] {
        let bench = Bench::simulated().with("SIMGPU_DEVICES", "2");
        let words = ["2", "2", "500us", "1", "1", "2", "100ms", ranks];
        let outcome = bench.host("collective", &words).run();
        outcome.contains(&["failed 0"]);
        assert!((50..300).contains(&number(&outcome, "last ")), "{ranks}: {outcome}");
    }
}

#[test]
fn threads_that_wait_for_each_other_on_their_gpus_keep_in_step() {
    // 5.05 ms at 30 percent take 16.8 ms. If the threads fall out of step, one step takes seconds.
    let slack = slack_of(60, 17, 40);
    timed::holds(slack, || step_of_two("30", 60, "5ms", "1", ["1", "2"]), |took| *took < 40_000);
}

#[test]
fn threads_that_wait_for_each_other_all_the_time_keep_in_step() {
    // Ten times half a millisecond, each with a collective, take 50 ms at 10 percent. If launches got only the time that leases
    // leave over, they would take more than a second.
    let slack = slack_of(40, 50, 250);
    timed::holds(slack, || step_of_two("10", 40, "500us", "1", ["10", "2"]), |took| *took < 250_000);
}

#[test]
fn threads_that_wait_for_each_other_keep_in_step_while_nvml_starts() {
    // The library asks NVML after one second. A step takes 50 ms. If the library measured nothing while NVML starts, the threads
    // would fall out of step, and charges of seconds would follow.
    let bench = Bench::simulated().with("SIMGPU_FAULTS", "nvmlInit_v2=delay:3s@1");
    let words = ["40", "500us", "1", "10", "2"];
    let step = || number(&collective_on(&bench, "10", "2", &words), "took ") * 1000 / 40;
    timed::holds(slack_of(40, 50, 250), step, |took| *took < 250_000);
}

#[test]
fn a_kernel_that_waits_for_a_launch_on_another_gpu_does_not_wait_for_that_gpus_debt() {
    // The late kernel of 100 ms takes half a second at 20 percent. The slice owes 400 ms of that when the kernel has ended.
    let outcome = collective("20", "2", &["12", "500us", "1", "1", "2", "100ms"]);
    println!("{outcome}");
    assert!(number(&outcome, "last ") < 300);
}

#[test]
fn threads_on_four_gpus_keep_in_step() {
    // 5.05 ms at 10 percent take 50.5 ms. If the threads fall out of step, one step takes seconds.
    let step = || number(&collective("10", "4", &["40", "5ms", "1", "1", "4"]), "took ") * 1000 / 40;
    timed::holds(slack_of(40, 51, 150), step, |took| *took < 150_000);
}

#[test]
fn processes_that_wait_for_each_other_on_their_gpus_keep_in_step() {
    // Each process sees all GPUs or only its own, and a step may be a graph. A step takes 50.5 ms: 5.05 ms at 10 percent.
    for ranks in ["processes", "apart", "processes,graphs"] {
        let words = ["40", "5ms", "1", "1", "2", "0us", ranks];
        let step = || number(&collective("10", "2", &words), "took ") * 1000 / 40;
        let took = timed::holds(slack_of(40, 51, 150), step, |took| *took < 150_000);
        assert!(took > 40_000, "{ranks}: {took} us are more than the share and the burst");
    }
}

#[test]
fn threads_that_do_not_wait_for_each_other_each_have_their_share() {
    for (kernel, kernels) in [("5ms", "1"), ("100us", "50")] {
        // A step takes 16.8 ms.
        let step = || step_of_two("30", 60, kernel, kernels, ["1", "1"]);
        timed::holds(slack_of(60, 17, 20), step, |took| *took < 20_000);
    }
}
