//! Host programs whose launches are throttled, and their figures.

use crate::support::bench::{Bench, Host};
use crate::support::living::Living;
use crate::support::outcome::Outcome;
use gpuslice_region::TimeUsed;
use std::fmt::Debug;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time within which an expected state is reached, on a machine that has other things to do.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Looks every 20 ms until `is_so` accepts the result, for [`TIMEOUT`] at most.
#[track_caller]
pub(super) fn until<T: Debug>(mut look: impl FnMut() -> T, is_so: impl Fn(&T) -> bool) {
    let end = Instant::now() + TIMEOUT;
    loop {
        let seen = look();
        if is_so(&seen) {
            return;
        }
        assert!(Instant::now() < end, "{seen:?}");
        sleep(Duration::from_millis(20));
    }
}

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

/// Returns the nanoseconds for which the only device ran kernels.
pub(super) fn busy(bench: &Bench) -> u64 {
    bench.figure("/devices/0/busy_ns")
}

/// Returns the number of kernels that the only process has run.
pub(super) fn kernels(bench: &Bench) -> u64 {
    bench.figure("/processes/0/devices/0/launches")
}

/// Returns the number that follows `before` on its line.
pub(super) fn number(outcome: &Outcome, before: &str) -> u64 {
    let line = outcome.out.lines().find_map(|line| line.strip_prefix(before)).expect("the line is there");
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Returns the time that the slice has used, once it no longer changes.
pub(super) fn used(bench: &Bench) -> TimeUsed {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let before = bench.time_used();
        sleep(Duration::from_millis(50));
        if bench.time_used() == before {
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
    let bench = bench();
    let host = preload.into_iter().fold(bench.host("paced_streams", arguments), Host::preload);
    paced(host, "30").run()
}
