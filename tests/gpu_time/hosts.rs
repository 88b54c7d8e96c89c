//! Hosts whose launches are paced, and figures of them.

use crate::support::bench::{Bench, Host};
use crate::support::living::Living;
use crate::support::outcome::Outcome;
use gpuslice_region::{Monitor, TimeUsed, Trust};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Makes a bench whose driver has every function.
pub(super) fn bench() -> Bench {
    Bench::simulated().with("SIMGPU_CUDA_VERSION", "13040")
}

pub(super) fn paced<'bench>(host: Host<'bench>, percent: &str) -> Host<'bench> {
    host.loaded().set("GPU_CORE_PERCENT", percent)
}

/// Runs a host without the library and with launches paced at 30 percent, and asserts that it does the same.
pub(super) fn same(program: &str, arguments: &[&str]) -> Outcome {
    let bare = bench().host(program, arguments).run();
    let bench = bench();
    let outcome = paced(bench.host(program, arguments), "30").run();
    outcome.same_as(&bare);
    outcome
}

/// Returns a number of the ground truth.
pub(super) fn truth(bench: &Bench, place: &str) -> u64 {
    let report: serde_json::Value = serde_json::from_str(&bench.report()).expect("the ground truth is JSON");
    report.pointer(place).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{place} in {report}"))
}

/// Returns the nanoseconds for which the only device ran kernels.
pub(super) fn busy(bench: &Bench) -> u64 {
    truth(bench, "/devices/0/busy_ns")
}

/// Returns the number of kernels that the only process has run.
pub(super) fn kernels(bench: &Bench) -> u64 {
    truth(bench, "/processes/0/devices/0/launches")
}

/// Returns the number that follows `before` on its line.
pub(super) fn number(outcome: &Outcome, before: &str) -> u64 {
    let line = outcome.out.lines().find_map(|line| line.strip_prefix(before)).expect("the line is there");
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Returns the time that the slice has used, once it no longer changes.
pub(super) fn used(bench: &Bench) -> TimeUsed {
    let monitor = Monitor::open(&bench.region(), Trust::AnyOwner).unwrap().expect("there is a region");
    let device = monitor.devices().first().expect("a device is in use").device;
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let before = monitor.time_used(device);
        sleep(Duration::from_millis(50));
        if monitor.time_used(device) == before {
            return before;
        }
        assert!(Instant::now() < end, "{before:?} and more");
    }
}

/// Starts a member that launches on order.
pub(super) fn member(bench: &Bench, kernel: &str, percent: &str) -> Living {
    let host = paced(bench.host("paced", &["waits", kernel]), percent).start();
    assert_eq!(host.hear().as_deref(), Some("ready"));
    host
}

/// Returns how long a member's launches took: all of them, and the longest.
pub(super) fn launches(member: &mut Living, count: u32) -> (Duration, Duration) {
    told(member, &count.to_string())
}

pub(super) fn told(member: &mut Living, order: &str) -> (Duration, Duration) {
    let answer = member.numbers(order);
    let &[all, longest] = answer.as_slice() else { panic!("{answer:?}") };
    (Duration::from_micros(all), Duration::from_micros(longest))
}

/// Runs a host with launches paced at 30 percent.
pub(super) fn at_30(arguments: &[&str]) -> Outcome {
    at_30_beside(arguments, None).quiet()
}

/// Runs a host with launches paced at 30 percent and with another preload.
pub(super) fn at_30_beside(arguments: &[&str], preload: Option<&Path>) -> Outcome {
    let bench = Bench::simulated().with("SIMGPU_CUDA_VERSION", "13040");
    let host = preload.into_iter().fold(bench.host("paced_streams", arguments), Host::preload);
    host.loaded().set("GPU_CORE_PERCENT", "30").run()
}
