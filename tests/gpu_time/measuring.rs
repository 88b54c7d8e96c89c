//! Tests that launches are measured and queued by the GPU time that they take, in each state of the meter.

use super::hosts::{at_30, bench, number, paced};
use crate::support::bench::Bench;
use crate::support::outcome::Outcome;
use crate::support::{skip, skip_untold, timed};
use gpuslice_region::{Monitor, Trust};
use std::fs;
use std::time::{Duration, Instant};

#[test]
fn a_launch_on_two_devices_is_measured_on_the_one_that_need_not_wait_as_well() {
    let bench = Bench::simulated().with("SIMGPU_DEVICES", "2");
    let host = bench.host("paced_streams", &["both-devices", "3ms", "20"]).loaded();
    let host = host.set("GPU_CORE_PERCENT", "0=90,1=10").start();
    assert_eq!(host.hear().as_deref(), Some("failed 0"));
    let region = Monitor::open(&bench.region(), Trust::AnyOwner).unwrap().expect("the slice has a region");
    let devices = region.devices();
    assert_eq!(devices.len(), 2);
    let used = || devices.iter().map(|listed| region.time_used(listed.device).used.nanos() / 1_000_000).min();
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
    let host = bench.host("paced_streams", &["stocked", "1500us", "12"]).loaded();
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
        let host = bench.host("paced_streams", &["chained", "1500us", attribute]).loaded();
        let outcome = host.set("GPU_CORE_PERCENT", "95").run();
        println!("attribute {attribute}: {outcome}");
        outcome.out.contains("failed 0")
    };
    let (serialization, event, none) = (survives("6"), survives("7"), survives("0"));
    assert!(serialization && event && !none, "{serialization}, {event}, {none}");
}

#[test]
fn a_step_of_many_shapes_is_not_charged_twice_once_events_fail() {
    let bench = Bench::simulated().with("SIMGPU_FAULTS", "cuEventRecord=999@200+");
    let host = bench.host("paced_streams", &["steps", "50us", "50000"]).loaded();
    let outcome = host.set("GPU_CORE_PERCENT", "50").run();
    outcome.contains(&["failed 0"]);
    println!("{outcome}");
    // The kernels take 2.5 s. Estimates without events may be wrong by a fifth.
    assert!(number(&outcome, "took ") < 6000, "{outcome}");
}

#[test]
fn threads_that_launch_little_do_not_wait_for_credit_that_others_hold() {
    let longest = || number(&at_30(&["threads", "20us", "200"]), "longest ");
    timed::holds(Duration::from_millis(100 - 30), longest, |longest| *longest < 100);
}

#[test]
fn while_nvml_keeps_the_meter_launches_go_on() {
    for fault in ["nvmlDeviceGetProcessesUtilizationInfo=delay:3s@5", "nvmlInit_v2=delay:3s@1"] {
        let bench = Bench::simulated().with("SIMGPU_FAULTS", fault);
        // One thread launches for two seconds without a pause.
        let host = bench.host("paced_streams", &["threads", "1ms", "1", "0"]);
        let outcome = host.loaded().set("GPU_CORE_PERCENT", "95").run().quiet();
        println!("{fault}: {outcome}");
        assert!(number(&outcome, "longest ") < 700, "{fault}: {outcome}");
        // The kernels take 1900 ms. If none were measured, one kernel would run each 50 ms.
        assert!(number(&outcome, "launches ") > 300, "{fault}: {outcome}");
    }
}

/// Returns the number of the library's worker in a process, once it has started.
fn worker_of(process: u32) -> libc::pid_t {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs").flatten();
        let is_worker = |name: String| name == "gpuslice\n";
        let worker = tasks
            .map(|task| task.path())
            .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(is_worker));
        if let Some(worker) = worker {
            return worker.file_name().unwrap().to_str().unwrap().parse().expect("a number");
        }
        assert!(Instant::now() < end, "no worker starts");
        std::thread::yield_now();
    }
}

/// Makes a request of `ptrace` for a thread that the calling thread traces or begins to trace. Returns true if it is granted.
fn trace(request: libc::c_uint, thread: libc::pid_t) -> bool {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the requests of this file neither read nor write memory of this process.
    unsafe { libc::ptrace(request, thread, none, none) == 0 }
}

/// Stops a traced thread between two of its ticks, while it sleeps. So it holds no lock.
fn stop_in_its_sleep(process: u32, thread: libc::pid_t) {
    let end = Instant::now() + Duration::from_secs(60);
    let syscall = format!("/proc/{process}/task/{thread}/syscall");
    loop {
        assert!(trace(libc::PTRACE_INTERRUPT, thread));
        // SAFETY: `waitpid` writes no status if the pointer is null.
        assert_eq!(unsafe { libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) }, thread);
        let text = fs::read_to_string(&syscall).expect("the tracer may read it");
        if text.split_whitespace().next() == Some(&libc::SYS_clock_nanosleep.to_string()) {
            return;
        }
        assert!(Instant::now() < end && trace(libc::PTRACE_CONT, thread), "{text}");
    }
}

#[test]
fn while_the_worker_gets_no_processor_launches_go_on() {
    // One thread launches for two seconds without a pause. A debugger stops the worker for one of them.
    let bench = Bench::simulated().with_quick_nvml();
    let host = paced(bench.host("paced_streams", &["threads", "1ms", "1", "0"]), "95").start();
    let worker = worker_of(host.pid());
    if !trace(libc::PTRACE_SEIZE, worker) {
        return skip(
            "launches beside a stopped worker: ptrace is refused; elsewhere: where a process may trace its child",
        );
    }
    stop_in_its_sleep(host.pid(), worker);
    std::thread::sleep(Duration::from_secs(1));
    assert!(trace(libc::PTRACE_DETACH, worker));
    let told = host.hear().expect("the program ends");
    println!("{told}");
    let longest: u64 = told.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(longest < 700, "{told}");
}

#[test]
fn a_context_that_ends_while_the_meter_is_kept_in_another_costs_nothing_from_then_on() {
    let bench = Bench::simulated().with("SIMGPU_FAULTS", "cuCtxDestroy_v2=delay:2s");
    let host = paced(bench.host("paced_streams", &["ends", "100us"]), "95");
    let mut host = host.start();
    match host.hear().as_deref() {
        Some("untold") => return skip_untold("a context that ends beside a slow call"),
        said => assert_eq!(said, Some("ending 0")),
    }
    // The worker queries the next event. That event is of the other context, because the first thread rests.
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
fn while_code_is_loaded_on_a_device_launches_go_on_on_another() {
    // The driver holds the lock of the context until its kernel of a second has ended.
    let bench = Bench::simulated().with_quick_nvml();
    let bench = bench.with("SIMGPU_DEVICES", "2").with("CUDA_MODULE_LOADING", "LAZY");
    let loads = |is_open: &str| {
        let outcome = paced(bench.host("paced_streams", &["loads", "1ms", is_open]), "95").run().quiet();
        outcome.contains(&["failed 0, launches 0"]);
        assert!(number(&outcome, "loaded in ") > 700, "{outcome}");
        (number(&outcome, "longest "), number(&outcome, "ticks "))
    };
    for is_open in ["0", "1"] {
        // The worker ticks about once a millisecond, unless the driver blocks it.
        timed::holds(
            Duration::from_millis(400 - 100),
            || loads(is_open),
            |(longest, ticks)| *longest < 400 && *ticks > 50,
        );
    }
}

#[test]
fn a_kernel_that_runs_on_does_not_delay_a_launch_that_it_may_wait_for() {
    let bench = bench();
    // Without a limit the launch would take less than a millisecond. At 95 percent the saved time and the queue delay the
    // launch. At 30 percent a debt does too, which grows as long as the kernel runs.
    for (percent, most) in [("95", 1_000), ("30", 8_000)] {
        let host = bench.host("paced_streams", &["outlasts", "1ms", "3"]).loaded();
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
    number(&queued_ahead(&bench(), words), "ahead ")
}

fn queued_ahead(bench: &Bench, words: &[&str]) -> Outcome {
    let host = bench.host("ahead", words).loaded();
    let outcome = host.set("GPU_CORE_PERCENT", "95").set("GPU_CORE_BURST", "60s").run().quiet();
    println!("{words:?}: {outcome}");
    outcome.contains(&["failed 0"]);
    outcome
}

#[test]
fn launches_do_not_fill_the_queue_of_the_driver() {
    // The driver of this test has room for all launches, so the library alone bounds them. 20 ms are 4000 launches.
    for (scale, least, most) in [("1x", 1, 1024), ("4x", 1024, 4096)] {
        let bench = bench().with("SIMGPU_TIME", "stream_depth=100000,client_depth=100000");
        let bench = bench.with("CUDA_SCALE_LAUNCH_QUEUES", scale);
        let launches = number(&queued_ahead(&bench, &["5us", "20000"]), "launches ");
        assert!((least..most).contains(&launches), "{launches} launches at {scale}");
    }
}

#[test]
fn queued_work_is_bounded_regardless_of_saved_time() {
    // Open batches do not count. They are a millisecond or one launch long.
    for (kernel, most) in [("1ms", 25), ("5ms", 30), ("15ms", 55), ("40ms", 85)] {
        let ahead = ahead(&[kernel, "60"]);
        assert!(ahead <= most, "{ahead} ms of kernels of {kernel}");
    }
}

#[test]
fn the_cost_of_a_changed_graph_is_known_after_one_launch() {
    for way in ["1", "2", "3"] {
        let ahead = ahead(&["20ms", "60", way]);
        assert!(ahead <= 65, "{ahead} ms, changed by {way}");
    }
}

#[test]
fn launches_that_return_when_their_kernels_have_ended_are_charged() {
    let bench = Bench::simulated();
    let host = paced(bench.host("paced_streams", &["retains", "5ms", "60"]), "30");
    let outcome = host.set("CUDA_LAUNCH_BLOCKING", "1").run().quiet();
    println!("{outcome}");
    outcome.contains(&["failed 0"]);
    // The kernels take 300 ms, and so a second at 30 percent.
    assert!(number(&outcome, "took ") > 750, "{outcome}");
}

#[test]
fn shapes_that_are_all_new_do_not_wait_for_the_meter_one_by_one() {
    let bench = Bench::simulated();
    let host = || bench.host("paced_streams", &["shapes", "20us", "5000"]);
    let (bare, limited) = (host().run(), host().loaded().set("GPU_CORE_PERCENT", "95").run().quiet());
    println!("{bare}{limited}");
    limited.contains(&["failed 0"]);
    // If launches waited for a tick of the worker, eight at a time, the run would be seven times as long.
    assert!(number(&limited, "took ") < 3 * number(&bare, "took ") + 50, "{bare}{limited}");
}
