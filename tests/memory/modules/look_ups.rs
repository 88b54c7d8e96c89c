//! Look-ups and loads ask the driver and NVML for a twentieth of the time. Memory that they did not measure is charged later.

use super::{CODE, CONTEXT, MIB, QUOTA, Tenant, bench};
use crate::support::bench::Bench;
use crate::support::compiler;
use crate::support::outcome::Outcome;
use std::time::{Duration, Instant};

/// Makes NVML as slow as on a machine with several GPUs.
fn slow_nvml(bench: Bench) -> Bench {
    bench.with("SIMGPU_NVML_INIT_MS", "300").with("SIMGPU_NVML_LIST_US", "4500")
}

/// Runs 900 look-ups under a quota, each of which loads 100 KiB. Returns the outcome, and a function that finds a figure in it by
/// the text before and after it.
fn look_ups(bench: &Bench) -> (Outcome, impl Fn(&str, &str) -> u64) {
    let host = bench.host("many_look_ups", &[]).limited(&QUOTA.to_string());
    let outcome = host.preload(&compiler::wrapper("wrap_nvml")).run().quiet();
    let lines: Vec<String> = outcome.out.lines().map(str::to_owned).collect();
    let figure = move |before: &str, after: &str| {
        let find = |line: &String| line.strip_prefix(before)?.strip_suffix(after)?.parse().ok();
        lines.iter().find_map(find).unwrap_or_else(|| panic!("{before}: {lines:?}"))
    };
    (outcome, figure)
}

#[test]
fn look_ups_in_a_row_ask_nvml_for_a_twentieth_of_the_time_and_open_it_once() {
    let bench = slow_nvml(bench()).with("SIMGPU_MODULE_BYTES", "100KiB").with("SIMGPU_MODULE_GRANULE", "1");
    let (outcome, figure) = look_ups(&bench);
    // Bound for NVML's lists of 4.5 ms: two for the context, three at once, and one for each 90 ms that has begun.
    let most = 2 + 3 + 1 + figure("900_look_ups ", "") / 90_000_000;
    assert!(figure("nvml: 1 inits, 0 shutdowns, ", " lists") <= most, "at most {most}: {outcome}");
}

#[test]
fn look_ups_and_loads_in_a_row_ask_the_driver_for_a_twentieth_of_the_time() {
    let slow = "cuMemGetInfo_v2=delay:8ms";
    let bench = bench()
        .with("SIMGPU_FAULTS", slow)
        .with("SIMGPU_MODULE_BYTES", "100KiB")
        .with("SIMGPU_MODULE_GRANULE", "1");
    let (outcome, figure) = look_ups(&bench);
    // Without the budget, 1800 calls for the look-ups would take 14.4 s, and 3600 calls for the loads 28.8 s.
    for row in ["900_look_ups ", "start_with_900_look_ups "] {
        assert!(figure(row, "") < 2_000_000_000, "{row}: {outcome}");
    }
}

#[test]
fn look_ups_beyond_the_budget_are_charged_although_nvml_never_answers() {
    // Free memory is so slow that look-ups spend their budget, and they take longer than a silence of NVML.
    let bench = bench().with("SIMGPU_MODULE_BYTES", "100KiB").with("SIMGPU_MODULE_GRANULE", "1");
    let silent = "cuMemGetInfo_v2=delay:1ms;nvmlDeviceGetComputeRunningProcesses_v2=999";
    let bench = bench.with("SIMGPU_FAULTS", silent);
    let (outcome, figure) = look_ups(&bench);
    assert!(figure("900_look_ups ", "") > 1_500_000_000, "{outcome}");
    assert_eq!(figure("held ", ""), CONTEXT + 900 * (100 << 10), "{outcome}");
}

#[test]
fn a_load_whose_image_does_not_show_its_memory_is_measured_beyond_the_budget() {
    // The driver loads code at once. Or the variables are so small that they may fit into memory that the driver has.
    for (loading, bytes) in [("EAGER", 4194304), ("LAZY", 1_000_000)] {
        let bench = bench().with("SIMGPU_FAULTS", "cuMemGetInfo_v2=delay:8ms");
        let bench = bench.with("CUDA_MODULE_LOADING", loading);
        let mut tenant = Tenant::in_context(&bench);
        for _ in 0..4 {
            tenant.does(&format!("load data {bytes}"));
        }
        tenant.end();
    }
}

#[test]
fn variables_of_an_unmeasured_load_are_charged_at_once_and_refused_beyond_the_quota() {
    let bench = bench().with("SIMGPU_FAULTS", "cuMemGetInfo_v2=delay:8ms");
    let mut tenant = Tenant::in_context(&bench);
    for count in 1..=4 {
        assert_eq!(tenant.does("load data 4194304"), CONTEXT + count * 4 * MIB);
    }
    tenant.answers("load data 450000000", 2);
    tenant.end_saying("a module, code and variables, takes about");
}

#[test]
fn memory_of_an_unmeasured_look_up_is_charged_at_the_next_wait() {
    let bench = bench().with("SIMGPU_FAULTS", "cuMemGetInfo_v2=delay:8ms");
    let mut tenant = Tenant::in_context(&bench);
    // After the first look-up the budget is spent for more than 0.1 s.
    for count in 1..=3 {
        tenant.just("load data 4194304");
        tenant.just("use function");
        assert_eq!(tenant.does("wait"), CONTEXT + count * (4 * MIB + CODE));
    }
    tenant.end();
}

#[test]
fn memory_that_a_neighbour_took_beside_a_look_up_is_given_back_at_a_wait() {
    // A list that takes 30 ms spends the budget of look-ups for half a second.
    let bench = bench().with("SIMGPU_NVML_LIST_US", "30000");
    let slow = bench.host("modules", &["dlsym"]).set("SIMGPU_FAULTS", "cuModuleGetFunction=delay:200ms");
    let mut tenant = Tenant::started(&bench, slow.limited(&QUOTA.to_string())).with_context();
    let mut neighbour = Tenant::started(&bench, bench.host("modules", &["dlsym"]));
    neighbour.unlimited(&["retain", "current primary"]);
    for _ in 0..3 {
        tenant.does("load data 4194304");
        tenant.living.order("use function");
        neighbour.unlimited(&["alloc 20000000"]);
        assert!(tenant.living.hear().is_some_and(|answer| answer.starts_with("0 ")));
        let end = Instant::now() + Duration::from_secs(30);
        while tenant.order("wait").1 != CONTEXT + 4 * MIB + CODE {
            assert!(Instant::now() < end, "{:?}", tenant.order("wait"));
        }
        neighbour.unlimited(&["free"]);
        assert_eq!(tenant.does("unload"), CONTEXT);
    }
    neighbour.living.end();
    tenant.end();
}

#[test]
fn a_look_up_that_is_repeated_is_measured_once_and_again_after_code_has_ended() {
    let program =
        compiler::linked("look_ups.c", "look_ups", &[]).expect("it links with the simulated driver");
    // 200 look-ups with two calls of `cuMemGetInfo_v2` each would take 40 s. NVML does not know the process, so that no look-up
    // is put off.
    let bench = Bench::simulated_without_contexts().with("SIMGPU_FAULTS", "cuMemGetInfo_v2=delay:100ms");
    let bench = bench.with("SIMGPU_NVML_PIDS", "none");
    let outcome = bench.program(&program, &[]).limited("768MiB").run().quiet();
    outcome.says(&["looked up 0, asked a few times", "looked up 0, asked a few times"]);
}
