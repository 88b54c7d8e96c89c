//! The share is kept and no launch hangs, for each thing that a program does between its launches.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod support;

use gpuslice_region::{Monitor, Trust};
use std::path::Path;
use std::time::{Duration, Instant};
use support::bench::{Bench, Host};
use support::compiler;
use support::outcome::Outcome;
use support::timed;

/// Runs a host with launches paced at 30 percent.
fn paced(arguments: &[&str]) -> Outcome {
    paced_beside(arguments, None).quiet()
}

/// Runs a host with launches paced at 30 percent and with another preload.
fn paced_beside(arguments: &[&str], preload: Option<&Path>) -> Outcome {
    let bench = Bench::simulated().with("SIMGPU_CUDA_VERSION", "13040");
    let host = preload.into_iter().fold(bench.host("paced_more", arguments), Host::preload);
    host.loaded().set("GPU_CORE_PERCENT", "30").run()
}

/// Returns the number that follows `before` on its line.
fn number(outcome: &Outcome, before: &str) -> u64 {
    let line = outcome.out.lines().find_map(|line| line.strip_prefix(before)).expect("the line is there");
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_primary_context_that_is_let_go_and_lives_on_takes_no_cost_with_it() {
    let outcome = paced(&["retains", "10ms", "60"]);
    outcome.contains(&["failed 0"]);
    // 600 ms of kernels at 30 percent.
    assert!(number(&outcome, "took ") > 1500, "{outcome}");
}

#[test]
fn a_launch_on_two_devices_is_measured_on_the_one_that_need_not_wait_as_well() {
    let bench = Bench::simulated().with("SIMGPU_DEVICES", "2");
    let host = bench.host("paced_more", &["both-devices", "3ms", "20"]).loaded();
    let host = host.set("GPU_CORE_PERCENT", "0=90,1=10").start();
    assert_eq!(host.hear().as_deref(), Some("failed 0"));
    let region = Monitor::open(&bench.region(), Trust::AnyOwner).unwrap().expect("the slice has a region");
    let devices = region.devices();
    assert_eq!(devices.len(), 2);
    let used = || devices.iter().map(|listed| region.time_used(listed.device).used / 1_000_000).min();
    let until = Instant::now() + Duration::from_millis(500);
    while used() < Some(55) && Instant::now() < until {
        std::thread::yield_now();
    }
    println!("the one that was used less, for 60 ms: {:?}", used());
    assert!(used() >= Some(55));
    assert!(host.end().0.success());
}

#[test]
fn launches_find_events_that_were_made_ahead() {
    let bench = Bench::simulated();
    let host = bench.host("paced_more", &["stocked", "1500us", "12"]).loaded();
    let mut host = host.set("GPU_CORE_PERCENT", "95").start();
    assert_eq!(host.hear().as_deref(), Some("stocked 0"));
    // Each of 12 kernels of 1.5 ms takes two events. A launch that has to make an event would report that it cannot.
    bench.goes_wrong("cuEventCreate=2");
    assert_eq!(host.ask("launch"), "failed 0");
    let (status, said) = host.end();
    assert!(status.success() && said.is_empty(), "{said}");
}

#[test]
fn no_event_lies_between_launches_that_may_overlap() {
    // Each of 12 kernels of 1.5 ms has two events. Before them 14 events are recorded: those of three launches, and those that
    // measure the cost of an event. A batch of 10 ms has two.
    let survives = |attribute: &str| {
        let bench = Bench::simulated().with("SIMGPU_FAULTS", "cuEventRecord=kill@30");
        let host = bench.host("paced_more", &["chained", "1500us", attribute]).loaded();
        let outcome = host.set("GPU_CORE_PERCENT", "95").run();
        println!("attribute {attribute}: {outcome}");
        outcome.out.contains("failed 0")
    };
    let (serialization, event, none) = (survives("6"), survives("7"), survives("0"));
    assert!(serialization && event && !none, "{serialization}, {event}, {none}");
}

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
    // 5.05 ms at 30 percent take 16.8 ms. Out of step, one step takes seconds.
    let slack = slack_of(60, 17, 40);
    timed::holds(slack, || step_of_two("30", 60, "5ms", "1", ["1", "2"]), |took| *took < 40_000);
}

#[test]
fn threads_that_wait_for_each_other_all_the_time_keep_in_step() {
    // Ten times half a millisecond, each with a collective, take 50 ms at 10 percent. From what leases leave, more than a second.
    let slack = slack_of(40, 50, 250);
    timed::holds(slack, || step_of_two("10", 40, "500us", "1", ["10", "2"]), |took| *took < 250_000);
}

#[test]
fn threads_that_wait_for_each_other_keep_in_step_while_nvml_starts() {
    // NVML is asked after one second. A step takes 50 ms. If nothing were measured while NVML starts, the threads would fall out
    // of step, and charges of seconds would follow.
    let bench = Bench::simulated().with("SIMGPU_FAULTS", "nvmlInit_v2=delay:3s@1");
    let words = ["40", "500us", "1", "10", "2"];
    let step = || number(&collective_on(&bench, "10", "2", &words), "took ") * 1000 / 40;
    timed::holds(slack_of(40, 50, 250), step, |took| *took < 250_000);
}

#[test]
fn a_kernel_that_waits_for_a_launch_on_another_gpu_does_not_wait_for_what_that_one_owes() {
    // 100 ms at 20 percent take half a second, of which 400 ms are owed when they have ended.
    let outcome = collective("20", "2", &["12", "500us", "1", "1", "2", "100ms"]);
    println!("{outcome}");
    assert!(number(&outcome, "last ") < 300);
}

#[test]
fn threads_on_four_gpus_keep_in_step() {
    // 5.05 ms at 10 percent take 50.5 ms. Out of step, a step takes seconds.
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

#[test]
fn a_step_of_many_shapes_is_not_charged_twice_once_events_fail() {
    let bench = Bench::simulated().with("SIMGPU_FAULTS", "cuEventRecord=999@200+");
    let host = bench.host("paced_more", &["steps", "50us", "50000"]).loaded();
    let outcome = host.set("GPU_CORE_PERCENT", "50").run();
    outcome.contains(&["failed 0"]);
    println!("{outcome}");
    // 2.5 s of kernels. Estimates without events may be wrong by a fifth.
    assert!(number(&outcome, "took ") < 6000, "{outcome}");
}

#[test]
fn threads_that_launch_little_do_not_wait_for_what_others_hold_in_advance() {
    let longest = || number(&paced(&["threads", "20us", "200"]), "longest ");
    timed::holds(Duration::from_millis(100 - 30), longest, |longest| *longest < 100);
}

#[test]
fn while_nvml_keeps_the_meter_launches_go_on() {
    for fault in ["nvmlDeviceGetProcessesUtilizationInfo=delay:3s@5", "nvmlInit_v2=delay:3s@1"] {
        let bench = Bench::simulated().with("SIMGPU_FAULTS", fault);
        // One thread launches for two seconds without a pause.
        let host = bench.host("paced_more", &["threads", "1ms", "1", "0"]);
        let outcome = host.loaded().set("GPU_CORE_PERCENT", "95").run().quiet();
        println!("{fault}: {outcome}");
        assert!(number(&outcome, "longest ") < 700, "{fault}: {outcome}");
        // 1900 ms of kernels. If none were measured, one kernel would run each 50 ms.
        assert!(number(&outcome, "launches ") > 300, "{fault}: {outcome}");
    }
}

#[test]
fn where_a_sandbox_forbids_membarrier_others_look_after_a_threads_launches_all_the_same() {
    let sandbox = compiler::wrapper("wrap_sandbox");
    let inside = |words: &[&str]| {
        let outcome = paced_beside(words, Some(&sandbox));
        assert_eq!(outcome.err, "no membarrier here\n", "{outcome}");
        outcome
    };
    let longest = || number(&inside(&["threads", "20us", "200"]), "longest ");
    timed::holds(Duration::from_millis(100 - 30), longest, |longest| *longest < 100);
    inside(&["storm", "20us", "150"]).contains(&["failed 0, wait 0"]);
}

#[test]
fn where_a_sandbox_forbids_membarrier_later_streams_end_all_the_same() {
    let outcome = paced(&["late", "100us"]);
    if outcome.out == "no membarrier\n" {
        return support::skip(
            "a sandbox that is entered late: this kernel has no membarrier; elsewhere: on a kernel with membarrier",
        );
    }
    outcome.contains(&["sandbox 0", "launched 0 0, wait 0"]);
    assert!(number(&outcome, "ended 0 in ") < 5000, "{outcome}");
}

/// Returns the number of launches that the slice has counted.
fn counted(bench: &Bench) -> u64 {
    let monitor = Monitor::open(&bench.region(), Trust::AnyOwner).unwrap().expect("there is a region");
    let device = monitor.devices().first().expect("a device is in use").device;
    monitor.time_used(device).launches
}

/// Returns true if all launches are counted within `within` milliseconds.
fn are_counted(bench: &Bench, launched: u64, within: u64) -> bool {
    let end = Instant::now() + Duration::from_millis(within);
    while counted(bench) != launched {
        if Instant::now() > end {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn where_a_sandbox_forbids_membarrier_later_a_threads_launches_are_looked_after_from_its_next_one_on() {
    let bench = Bench::simulated();
    let mut host =
        bench.host("paced_more", &["sealed", "100us"]).loaded().set("GPU_CORE_PERCENT", "50").start();
    assert_eq!(host.hear().as_deref(), Some("ready"));
    host.ask("8");
    let mut launched = 8;
    assert!(are_counted(&bench, launched, 10_000));
    if host.ask("seal") == "-1" {
        return support::skip(
            "a sandbox that is entered late: this kernel has no membarrier; elsewhere: on a kernel with membarrier",
        );
    }
    // A batch of a thread that launches no more stays open until the thread launches again. The library has to find that out.
    let is_looked_after = (0..20).any(|_| {
        host.ask("8");
        launched += 8;
        are_counted(&bench, launched, 500)
    });
    assert!(is_looked_after, "{} of {launched}", counted(&bench));
    for order in ["8", "thread8", "8"] {
        host.ask(order);
        launched += 8;
        assert!(are_counted(&bench, launched, 10_000), "{order}: {} of {launched}", counted(&bench));
    }
}

#[test]
fn what_runs_on_a_stream_of_a_green_context_is_charged_though_that_ends() {
    // With `unnamed` the program never asks for the handle that the driver uses for the stream's context.
    for on in ["stream", "default", "unnamed"] {
        let bench = Bench::simulated().with("SIMGPU_CUDA_VERSION", "13040");
        let host =
            bench.host("paced_more", &["green", "300ms", on]).loaded().set("GPU_CORE_PERCENT", "50").start();
        assert_eq!(host.hear().as_deref(), Some("failed 0"));
        let monitor = Monitor::open(&bench.region(), Trust::AnyOwner).unwrap().expect("there is a region");
        let device = monitor.devices().first().expect("a device is in use").device;
        let end = Instant::now() + Duration::from_secs(10);
        while monitor.time_used(device).used < 250_000_000 {
            assert!(Instant::now() < end, "{on}: {:?}", monitor.time_used(device));
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_driver_that_keeps_events_of_a_green_context_apart_fails_no_launch_and_is_no_news() {
    let bench =
        Bench::simulated().with("SIMGPU_CUDA_VERSION", "13040").with("SIMGPU_FAULTS", "cuEventRecord=400@1");
    let host = bench.host("paced_more", &["green", "1ms", "default"]).loaded().set("GPU_CORE_PERCENT", "50");
    host.run().quiet().says(&["failed 0"]);
}

#[test]
fn a_context_that_ends_after_the_meter_waits_for_nobody() {
    let outcome = paced(&["exit"]);
    outcome.contains(&["launched 0"]);
    assert!(number(&outcome, "destroyed 0 in ") < 50, "{outcome}");
}

#[test]
fn a_launch_that_is_left_by_a_jump_while_it_waits_keeps_nobody() {
    let outcome = paced(&["jumps", "20ms", "3"]);
    outcome.contains(&["launched 0"]);
    assert!(number(&outcome, "took ") < 15_000, "{outcome}");
}

#[test]
fn where_no_thread_can_be_started_a_launch_that_is_left_by_a_jump_keeps_nobody() {
    // The first launch that waits is left while it looks at events.
    let bench = Bench::simulated().with("SIMGPU_FAULTS", "cuEventQuery=delay:300ms");
    let host = bench.host("paced_more", &["jumps", "20ms", "3"]).preload(&compiler::wrapper("wrap_threads"));
    let outcome = host.loaded().set("GPU_CORE_PERCENT", "95").run();
    assert!(outcome.err.contains("no thread can be started"), "{outcome}");
    outcome.contains(&["launched 0"]);
}

#[test]
fn a_context_that_ends_while_the_meter_is_kept_in_another_costs_nothing_from_then_on() {
    let bench = Bench::simulated().with("SIMGPU_FAULTS", "cuCtxDestroy_v2=delay:2s");
    let host = bench.host("paced_more", &["ends", "100us"]).loaded().set("GPU_CORE_PERCENT", "95");
    let mut host = host.start();
    match host.hear().as_deref() {
        Some("untold") => {
            return support::skip(
                "a context that ends beside a slow call: /proc tells no system calls; elsewhere: where /proc/PID/syscall can be read",
            );
        }
        said => assert_eq!(said, Some("ending 0")),
    }
    // The worker asks for the next event, which is of the other context: the first thread rests.
    bench.goes_wrong("cuEventQuery=delay:6s@1");
    assert_eq!(host.ask("go on"), "launched 0, destroyed 0");
    let monitor = Monitor::open(&bench.region(), Trust::AnyOwner).unwrap().expect("there is a region");
    let device = monitor.devices().first().expect("a device is in use").device;
    let used = || monitor.time_used(device).used;
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let before = used();
        std::thread::sleep(Duration::from_millis(500));
        if used() == before {
            break;
        }
        assert!(Instant::now() < end, "{:?}", monitor.time_used(device));
    }
}

#[test]
fn streams_and_threads_may_end_while_others_launch() {
    paced(&["storm", "20us", "150"]).contains(&["failed 0, wait 0"]);
}

#[test]
fn a_stream_that_waits_for_its_host_keeps_neither_the_host_nor_other_streams() {
    let bench = Bench::simulated().with("SIMGPU_CUDA_VERSION", "13040");
    let limited = |percent: &str, kernel: &str| {
        let host = bench.host("paced_more", &["held-up", kernel, "30"]).loaded();
        host.set("GPU_CORE_PERCENT", percent).run().quiet()
    };
    // 150 ms of work that cannot begin, and 100 ms beside it.
    let outcome = limited("95", "5ms");
    println!("{outcome}");
    outcome.contains(&["failed 0"]);
    assert!(number(&outcome, "queued after ") < 1000, "{outcome}");
    assert!(number(&outcome, "beside after ") < 1000, "{outcome}");
    // Unknown kernels are measured one by one if they can be measured. Here they cannot.
    let outcome = limited("50", "20us");
    outcome.contains(&["failed 0"]);
    assert!(number(&outcome, "queued after ") < 1000, "{outcome}");
}

#[test]
fn a_kernel_that_runs_on_does_not_keep_what_it_may_wait_for() {
    let bench = Bench::simulated().with("SIMGPU_CUDA_VERSION", "13040");
    // Without a limit it would be less than a millisecond. At 95 percent the saved time and the queue delay the launch. At 30
    // percent a debt does too, which grows as long as the kernel runs.
    for (percent, most) in [("95", 1_000), ("30", 8_000)] {
        let host = bench.host("paced_more", &["outlasts", "1ms", "3"]).loaded();
        let mut host = host.set("GPU_CORE_PERCENT", percent).start();
        let told = host.hear().expect("nothing waits for ever");
        println!("{percent} %: {told}");
        let after: u64 = told.split_whitespace().nth(2).unwrap().parse().unwrap();
        assert!(after < most, "{told}");
        assert_eq!(host.hear().as_deref(), Some("failed 0"));
        host.kill();
    }
}

/// Returns the most milliseconds that are queued when a launch returns, of a slice whose burst covers all of them.
fn ahead(words: &[&str]) -> u64 {
    let bench = Bench::simulated().with("SIMGPU_CUDA_VERSION", "13040");
    let host = bench.host("ahead", words).loaded();
    let outcome = host.set("GPU_CORE_PERCENT", "95").set("GPU_CORE_BURST", "60s").run().quiet();
    println!("{words:?}: {outcome}");
    outcome.contains(&["failed 0"]);
    number(&outcome, "ahead ")
}

#[test]
fn what_is_queued_ahead_is_bounded_whatever_is_saved_up() {
    // Open batches do not count. They are a millisecond or one launch long.
    for (kernel, most) in [("1", 25), ("5", 30), ("15", 55), ("40", 85)] {
        let ahead = ahead(&[kernel, "60"]);
        assert!(ahead <= most, "{ahead} ms of kernels of {kernel} ms");
    }
}

#[test]
fn what_a_graph_takes_that_was_changed_is_known_after_one_launch() {
    for way in ["1", "2", "3"] {
        let ahead = ahead(&["20", "60", way]);
        assert!(ahead <= 65, "{ahead} ms, changed by {way}");
    }
}

#[test]
fn launches_that_return_when_their_kernels_have_ended_are_charged() {
    let bench = Bench::simulated();
    let host = bench.host("paced_more", &["retains", "5ms", "60"]).loaded().set("GPU_CORE_PERCENT", "30");
    let outcome = host.set("CUDA_LAUNCH_BLOCKING", "1").run().quiet();
    println!("{outcome}");
    outcome.contains(&["failed 0"]);
    // 300 ms of kernels at 30 percent.
    assert!(number(&outcome, "took ") > 750, "{outcome}");
}

#[test]
fn a_threads_own_stream_is_measured_again_after_its_context_was_reset() {
    let outcome = paced(&["after-reset", "20us", "60"]);
    println!("{outcome}");
    outcome.contains(&["failed 0"]);
    // 600 ms of kernels at 30 percent.
    assert!(number(&outcome, "took ") > 1500, "{outcome}");
}

#[test]
fn what_a_stream_waits_for_between_kernels_is_not_charged() {
    for way in ["function", "form", "default", "event"] {
        let naps = || {
            let outcome = paced(&["between", "20us", "600", way]);
            outcome.contains(&["failed 0"]);
            number(&outcome, "took ")
        };
        // Naps of 2 ms, one after the other. If they were charged, each would cost its kernel 6 ms more.
        let took = timed::holds(Duration::from_millis(2200 - 1300), naps, |took| *took < 2200);
        assert!(took >= 1200, "{way}: {took} ms");
    }
}

#[test]
fn shapes_that_are_all_new_do_not_wait_for_the_meter_one_by_one() {
    let bench = Bench::simulated();
    let host = || bench.host("paced_more", &["shapes", "20us", "5000"]);
    let (bare, limited) = (host().run(), host().loaded().set("GPU_CORE_PERCENT", "95").run().quiet());
    println!("{bare}{limited}");
    limited.contains(&["failed 0"]);
    // If each eight of them waited for a tick of the worker, the run would be seven times as long.
    assert!(number(&limited, "took ") < 3 * number(&bare, "took ") + 50, "{bare}{limited}");
}

#[test]
fn what_measures_the_default_stream_waits_for_no_stream_that_is_held_up() {
    let bench = Bench::simulated();
    let outcome = bench.host("paced_more", &["one-held-up", "20us"]).loaded().set("GPU_CORE_PERCENT", "95");
    outcome.run().quiet().contains(&["failed 0"]);
}

/// Returns the milliseconds that a slice was charged for and used, with a thread that changes between streams.
fn charged_and_used_aside() -> (u64, u64) {
    let bench = Bench::simulated();
    let host =
        bench.host("paced_more", &["aside", "5us", "30"]).loaded().set("GPU_CORE_PERCENT", "95").start();
    assert_eq!(host.hear().as_deref(), Some("failed 0"));
    let region = Monitor::open(&bench.region(), Trust::AnyOwner).unwrap().expect("the slice has a region");
    let device = region.devices().first().expect("a device is in use").device;
    let report: serde_json::Value = serde_json::from_str(&bench.report()).expect("the ground truth is JSON");
    let truth = |path| report.pointer(path).unwrap().as_u64().unwrap();
    let (busy, launches) =
        (truth("/devices/0/busy_ns") / 1_000_000, truth("/processes/0/devices/0/launches"));
    let until = Instant::now() + Duration::from_secs(5);
    while region.time_used(device).launches < launches {
        assert!(Instant::now() < until, "not all has been charged");
        std::thread::yield_now();
    }
    let used = region.time_used(device).used / 1_000_000;
    println!("charged {used} ms, used {busy} ms");
    assert!(host.end().0.success());
    (used, busy)
}

#[test]
fn what_a_thread_does_elsewhere_is_not_charged_to_a_stream_that_it_left() {
    // Estimates tell kernels that are shorter than their launches from gaps. Without that, a sixth too much is charged. A host
    // that is delayed makes it more: 10 ms of gaps are half of the excess that is allowed.
    let is_kept = |(used, busy): &(u64, u64)| used * 100 > busy * 80 && used * 100 < busy * 112;
    timed::holds(Duration::from_millis(10), charged_and_used_aside, is_kept);
}

#[test]
fn what_measures_the_default_stream_is_no_barrier_between_others() {
    let bench = Bench::simulated();
    let host = || bench.host("paced_more", &["side-by-side", "20us"]);
    let took = |outcome: Outcome| {
        outcome.contains(&["failed 0"]);
        number(&outcome, "took ")
    };
    let limited = || took(host().loaded().set("GPU_CORE_PERCENT", "95").run().quiet());
    // 130 ms. It would be 200 ms if the second kernel waited for the first.
    let bare = took(host().run());
    timed::holds(Duration::from_millis(45), limited, |took| *took < bare + 45);
}
