//! A quota that comes late counts the contexts and the code that are there. Without a quota, no call waits for NVML.

use super::{CODE, CONTEXT, ESTIMATE, GREEN, MIB, QUOTA, Tenant, bench};
use crate::support::bench::Bench;
use crate::support::timed::within;
use gpuslice_policy::sizes::blocks::BLOCK;
use gpuslice_region::{Limits, Monitor, Trust};
use std::time::{Duration, Instant};

#[test]
fn a_late_quota_counts_memory_that_is_there() {
    let bench = bench();
    let mut tenant = without_a_quota(&bench);
    let orders =
        ["retain", "current primary", "green", "load data 4194304", "use function", "limit 2 18874368"];
    tenant.unlimited(&orders);
    let held = CONTEXT + GREEN + 4 * MIB + CODE + 10 * MIB;
    assert_eq!(tenant.truth(), held);
    let slice = slice(&bench);
    let device = slice.devices()[0].device;
    // Before the quota is set, contexts are estimated, and code is charged at the loss of free memory.
    assert_eq!(slice.held(device), held - CONTEXT + ESTIMATE - GREEN + 4 * MIB);
    limit(&slice, Some(QUOTA));
    assert_eq!(tenant.does("left"), held);
    tenant.does("unload");
    tenant.just("ungreen");
    tenant.just("release");
    assert_eq!((tenant.truth(), slice.held(device)), (0, 0));
    tenant.end();
}

fn slice(bench: &Bench) -> Monitor {
    Monitor::open(&bench.region(), Trust::OwnerOnly).unwrap().expect("the tenant has made it")
}

/// Gives the slice a quota, or takes it away.
fn limit(slice: &Monitor, quota: Option<u64>) {
    let view = slice.devices().swap_remove(0);
    slice.set_limits(view.device, Limits { memory: quota, ..view.limits });
}

/// Starts a host in a slice that has a share of GPU time and no quota.
fn without_a_quota(bench: &Bench) -> Tenant<'_> {
    Tenant::started(bench, bench.host("modules", &["dlsym"]).loaded().set("GPU_CORE_PERCENT", "50"))
}

#[test]
fn a_quota_that_comes_late_counts_several_contexts_each_for_itself() {
    let bench = bench();
    let mut tenant = without_a_quota(&bench);
    tenant.unlimited(&["context usual", "context usual", "context usual"]);
    let slice = slice(&bench);
    limit(&slice, Some(QUOTA));
    assert_eq!(tenant.does("alloc 1000000"), 3 * CONTEXT + BLOCK);
    tenant.just("end");
    assert_eq!(slice.held(slice.devices()[0].device), 2 * CONTEXT);
    tenant.does("current usual 0");
    // Contexts and code that are made without a quota are measured once there is one again.
    limit(&slice, None);
    tenant.unlimited(&["context usual", "load data 4194304", "use function"]);
    limit(&slice, Some(QUOTA));
    assert_eq!(tenant.does("left"), 3 * CONTEXT + 4 * MIB + CODE);
    tenant.end();
}

#[test]
fn a_late_quota_counts_code_that_a_launch_loaded_before() {
    let bench = bench();
    let mut tenant = without_a_quota(&bench);
    tenant.unlimited(&[
        "retain",
        "current primary",
        "library data 4194304",
        "use kernel",
        "use launch",
        "wait",
    ]);
    let slice = slice(&bench);
    limit(&slice, Some(QUOTA));
    assert_eq!(tenant.does("alloc 1000000"), CONTEXT + 4 * MIB + CODE + BLOCK);
    tenant.end();
}

#[test]
fn a_quota_that_comes_while_nvml_fails_counts_by_estimates_until_it_answers() {
    let bench = bench();
    let mut tenant = without_a_quota(&bench);
    tenant.unlimited(&["retain", "current primary"]);
    bench.goes_wrong("nvmlInit_v2=999");
    let slice = slice(&bench);
    limit(&slice, Some(QUOTA));
    assert_eq!(tenant.order("left"), (0, QUOTA), "all of the quota and more");
    assert_eq!(slice.held(slice.devices()[0].device), ESTIMATE);
    bench.goes_wrong("");
    let end = Instant::now() + Duration::from_secs(30);
    while tenant.order("left").1 != CONTEXT {
        assert!(Instant::now() < end, "{:?}", tenant.order("left"));
    }
    tenant.end();
}

#[test]
fn a_late_quota_where_nvml_knows_no_process_leaves_estimates_and_nvml_alone() {
    let bench = bench().with("SIMGPU_NVML_PIDS", "none").with("GPU_CORE_METER", "events");
    let mut tenant = without_a_quota(&bench);
    tenant.unlimited(&["retain", "current primary"]);
    let (quota, slice) = (2 * ESTIMATE, slice(&bench));
    limit(&slice, Some(quota));
    assert_eq!(tenant.living.numbers("left"), [0, quota - ESTIMATE]);
    bench.goes_wrong("nvmlInit_v2=kill");
    // The sleep is longer than the time for which the library does not ask an NVML that fails.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(tenant.living.numbers("alloc 1000000"), [0, quota - ESTIMATE - BLOCK]);
    tenant.end();
}

#[test]
fn without_a_quota_nothing_waits_for_nvml() {
    let slow = ["nvmlDeviceGetComputeRunningProcesses_v2=delay:3s", "nvmlInit_v2=delay:3s"];
    // If the library does not ask NVML for times either, it does not ask NVML at all.
    for (fault, meter) in [(slow[0], "auto"), (slow[1], "auto"), ("nvmlInit_v2=kill", "events")] {
        let bench = bench().with("SIMGPU_FAULTS", fault).with("GPU_CORE_METER", meter);
        let mut tenant = without_a_quota(&bench);
        let orders = ["retain", "current primary", "load data 4194304", "use function", "green"];
        let late = ["library data 4194304", "use kernel", "use launch", "wait", "wait", "unload", "release"];
        for order in orders.into_iter().chain(late) {
            println!("{fault}: {order}");
            within(Duration::from_millis(1500), Duration::ZERO, || tenant.unlimited(&[order]));
        }
        tenant.end();
    }
}

#[test]
fn nvml_that_fails_is_left_alone_for_a_while() {
    for quota in [Some(QUOTA), None] {
        let bench = bench();
        let mut tenant = without_a_quota(&bench);
        limit(&slice(&bench), quota);
        tenant.unlimited(&["retain", "current primary", "library data 4194304", "use kernel", "use launch"]);
        // Each wait of the program looks for code that the launch has loaded: a thousand tries would take 50 s.
        let lists = "nvmlDeviceGetComputeRunningProcesses_v2";
        bench.goes_wrong(&format!("{lists}=delay:50ms;{lists}=999"));
        let began = Instant::now();
        (0..1000).for_each(|_| tenant.unlimited(&["wait"]));
        assert!(began.elapsed() < Duration::from_secs(15), "{quota:?}: {:?}", began.elapsed());
        bench.goes_wrong("");
        let end = Instant::now() + Duration::from_secs(30);
        while quota.is_some() && tenant.order("wait").1 != tenant.truth() {
            assert!(Instant::now() < end, "{:?}", tenant.order("wait"));
        }
        tenant.end();
    }
}

#[test]
fn without_a_limit_none_of_this_is_anybodys_business() {
    let bench = bench();
    let bare = bench.host("modules", &["dlsym", "2097152"]).run().quiet();
    // The second run must find the device as the first did.
    bench.truth_at_rest(0);
    bench.host("modules", &["dlsym", "2097152"]).loaded().run().quiet().same_as(&bare);
}
