//! Tests that a context is charged at the bytes that it takes, for each answer of NVML and each action of neighbours.
//!
//! The judge is the simulated GPU: the bytes that each process holds in truth, and the peak of all processes.
#![allow(clippy::indexing_slicing, reason = "a test")]

use crate::support::bench::{Bench, Host};
use crate::support::command::{ask, end, gpuslice, json};
use crate::support::living::Living;
use gpuslice_region::{Monitor, Trust};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Bytes of a context.
const CONTEXT: u64 = 500 * MIB;
/// Bytes of the code of a module.
const CODE: u64 = 6 * MIB;
/// A quota with room for two contexts and not for three.
const QUOTA: u64 = 1200 * MIB;
/// Percent by which a charge may differ from the bytes of the context.
const PERCENT: u64 = 15;

fn bench() -> Bench {
    let bench = Bench::simulated_without_contexts()
        .with("SIMGPU_MEMORY", "8GiB")
        .with("SIMGPU_CONTEXT_BYTES", "500MiB");
    bench.with("SIMGPU_MODULE_BYTES", "6MiB")
}

/// Answers of NVML about a process, with the settings that cause them.
const NVML: [(&str, &[(&str, &str)]); 10] = [
    ("all that it holds", &[]),
    ("all that it holds, and its use by the host's numbers", &[("SIMGPU_NVML_PIDS", "mixed")]),
    ("all that it holds, and nothing of other containers", &[("SIMGPU_NVML_PIDS", "foreign")]),
    ("nothing: it knows processes by the host's numbers", &[("SIMGPU_NVML_PIDS", "offset")]),
    ("nothing: it knows no process", &[("SIMGPU_NVML_PIDS", "none")]),
    (
        "0 bytes, in a container of an old driver",
        &[("SIMGPU_NVML_PIDS", "mixed"), ("SIMGPU_NVML_BYTES", "0"), ("SIMGPU_CUDA_VERSION", "12040")],
    ),
    ("0 bytes, of any driver", &[("SIMGPU_NVML_BYTES", "0")]),
    (
        "nothing: it has no list of processes",
        &[("SIMGPU_FAULTS", "nvmlDeviceGetComputeRunningProcesses_v2=3")],
    ),
    (
        "nothing: its list of processes fails",
        &[("SIMGPU_FAULTS", "nvmlDeviceGetComputeRunningProcesses_v2=999")],
    ),
    ("less than it holds: what another process of the host holds", &[("SIMGPU_NVML_BYTES", "3MiB")]),
];

/// Starts a host of `modules` and waits until it has begun.
fn begin(host: Host<'_>) -> Living {
    let living = host.start();
    assert_eq!(living.hear().as_deref(), Some("init 0"));
    living
}

#[track_caller]
fn does(living: &mut Living, orders: &[&str]) {
    orders.iter().for_each(|order| assert_eq!(living.numbers(order).first(), Some(&0), "{order}"));
}

fn region(path: &std::path::Path) -> Monitor {
    Monitor::open(path, Trust::OwnerOnly).unwrap().expect("a process has made it")
}

/// Returns the bytes that a slice is charged for.
fn charged(slice: &Monitor) -> u64 {
    slice.held(slice.devices()[0].device)
}

#[track_caller]
fn is_about(charged: u64, truth: u64, when: &str) {
    assert!(charged.abs_diff(truth) * 100 <= truth * PERCENT, "{when}: {charged} charged for {truth}");
}

#[test]
fn contexts_of_three_processes_stay_within_the_quota_whatever_nvml_says() {
    for (says, settings) in NVML {
        let bench = settings.iter().fold(bench(), |bench, (name, value)| bench.with(name, value));
        let mut hosts: Vec<_> =
            (0..3).map(|_| begin(bench.host("modules", &["dlsym"]).limited(&QUOTA.to_string()))).collect();
        let slice = region(&bench.region());
        for (number, expected) in [(0, 0), (1, 0), (2, 2)] {
            assert_eq!(hosts[number].numbers("retain").first(), Some(&expected), "{says}: {number}");
            let truth = bench.truth(0);
            is_about(charged(&slice), truth.held, says);
            assert!(truth.peak <= QUOTA, "{says}: {truth:?}");
        }
        let each: Vec<u64> = slice.processes().iter().map(|process| process.held[0]).collect();
        each.iter().take(2).for_each(|held| is_about(*held, CONTEXT, says));
        assert_eq!(bench.truth(0).held, 2 * CONTEXT, "{says}");
    }
}

/// Makes a context while a neighbour obeys `meanwhile`, after it obeyed `before`. Returns the charge.
fn beside(before: &[&str], meanwhile: &str) -> (u64, Bench) {
    let bench = bench().with("SIMGPU_NVML_PIDS", "none");
    let mut neighbour = begin(bench.host("modules", &["dlsym"]).limited("4GiB").in_slice("other"));
    does(&mut neighbour, &["retain", "current primary"]);
    does(&mut neighbour, before);
    // The delay is longer than the neighbour needs, on a busy machine too.
    let slow = bench.host("modules", &["dlsym"]).set("SIMGPU_FAULTS", "cuDevicePrimaryCtxRetain=delay:3s");
    let mut host = begin(slow.limited("4GiB"));
    let slice = region(&bench.region());
    host.order("retain");
    let until = Instant::now() + Duration::from_secs(60);
    while slice.context_creations(None).under_way == 0 {
        assert!(Instant::now() < until, "it makes no context");
        std::thread::yield_now();
    }
    // The library marks the creation as under way after it has read free memory. So the neighbour acts between the two readings.
    does(&mut neighbour, &[meanwhile]);
    assert_eq!(host.heard(), None, "the neighbour was faster");
    assert_eq!(host.hear().as_deref().map(|answer| answer.starts_with("0 ")), Some(true));
    let charged = charged(&slice);
    assert_eq!(slice.context_creations(None).under_way, 0);
    (charged, bench)
}

#[test]
fn memory_that_a_neighbour_takes_and_gives_back_while_a_context_is_made_is_not_charged() {
    for (before, meanwhile) in [(&[][..], "alloc 419430400"), (&["alloc 419430400"], "free")] {
        let (charged, _bench) = beside(before, meanwhile);
        assert_eq!(charged, CONTEXT, "{meanwhile}");
    }
}

#[test]
fn a_context_that_a_neighbour_makes_meanwhile_is_not_charged() {
    let (charged, _bench) = beside(&[], "context usual");
    assert_eq!(charged, CONTEXT, "by the context that the neighbour's slice has measured before");
}

#[test]
fn where_the_devices_memory_is_the_hosts_contexts_and_code_count_by_estimates_and_it_is_said() {
    for attribute in ["1", "2", "3", "1", "2"] {
        let bench = bench().with("SIMGPU_INTEGRATED", attribute).with("SIMGPU_NVML_PIDS", "none");
        let mut host = begin(bench.host("modules", &["dlsym"]).limited("4GiB"));
        does(&mut host, &["retain", "current primary"]);
        let slice = region(&bench.region());
        let before = charged(&slice);
        is_about(before, CONTEXT, "a context");
        // Free memory moves by up to 1 GiB between the two readings.
        does(&mut host, &["load data 4194304", "use function"]);
        assert!(charged(&slice) - before <= 8 * MIB + CODE, "{before} and {}", charged(&slice));
        let path = bench.region().display().to_string();
        let report = json(&["status", &path, "--json"]);
        assert_eq!(report["slices"][0]["devices"][0]["host_memory"], true, "{report}");
        ask(&["status", &path]).code(0).says("memory is the host's: contexts and code count by estimates");
        host.end();
    }
}

#[test]
fn doctor_says_where_the_devices_memory_is_the_hosts() {
    // Each of three attributes of the device says so.
    for (setting, expected) in [("0", false), ("1", true), ("2", true), ("3", true)] {
        let bench = bench();
        let mut command = gpuslice(&["doctor", "--json"]);
        command.env("LD_LIBRARY_PATH", bench.absolute("")).env("SIMGPU_INTEGRATED", setting);
        command.env("SIMGPU_STATE", bench.region_of("state"));
        let told = end(&mut command);
        assert_eq!(told.out.contains("driver.host-memory"), expected, "{setting}: {told:?}");
    }
}

#[test]
fn imported_memory_that_nvml_counts_as_the_processs_own_is_not_charged() {
    let bench = bench().with("SIMGPU_NVML_IMPORTS", "1");
    let mut maker = begin(bench.host("modules", &["dlsym"]).limited("4GiB").in_slice("maker"));
    does(&mut maker, &["retain", "current primary", "lend 104857600"]);
    let mut user = begin(bench.host("modules", &["dlsym"]).limited("4GiB"));
    let slice = region(&bench.region());
    let mut expects = |orders: &[&str], bytes: u64| {
        does(&mut user, orders);
        assert_eq!(charged(&slice), bytes, "{orders:?}");
    };
    expects(&["retain", "current primary", "library data 4194304", "use kernel"], CONTEXT + 4 * MIB);
    expects(&["borrow"], CONTEXT + 4 * MIB);
    // The wait measures the code that the launch loaded, and nothing else.
    expects(&["use launch", "wait"], CONTEXT + 4 * MIB + CODE);
    expects(&["load data 4194304", "use function", "wait"], CONTEXT + 8 * MIB + 2 * CODE);
    expects(&["restore", "wait"], CONTEXT + 8 * MIB + 2 * CODE);
    expects(&["unload"], CONTEXT + 4 * MIB + CODE);
    expects(&["unlibrary"], CONTEXT);
    user.end();
    maker.end();
}

#[test]
fn managed_memory_that_nvml_does_not_count_hides_no_code() {
    let bench = bench();
    let mut host = begin(bench.host("modules", &["dlsym"]).limited("4GiB"));
    let slice = region(&bench.region());
    let mut expects = |orders: &[&str], bytes: u64| {
        does(&mut host, orders);
        assert_eq!(charged(&slice), bytes, "{orders:?}");
    };
    expects(&["retain", "current primary", "manage 104857600"], CONTEXT + 100 * MIB);
    // A load, a look-up, and code that a launch loads.
    expects(&["load data 4194304", "use function"], CONTEXT + 104 * MIB + CODE);
    expects(&["manage 52428800", "library data 4194304", "use kernel"], CONTEXT + 158 * MIB + CODE);
    expects(&["use launch", "wait"], CONTEXT + 158 * MIB + 2 * CODE);
    expects(&["free", "wait", "unload"], CONTEXT + 104 * MIB + CODE);
    expects(&["free", "wait", "unlibrary", "wait"], CONTEXT);
    host.end();
}
