//! Is every call that submits work for the GPU caught by every way in, and does it stay what it was?
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod support;

use gpuslice_driver::table::{ALL, Treatment};
use std::collections::BTreeSet;
use std::path::PathBuf;
use support::bench::{Bench, Host};
use support::compiler;
use support::outcome::Outcome;

const DOORS: &[&str] = &["linked", "dlsym", "first", "second"];

/// A driver that has every function.
fn bench() -> Bench {
    Bench::simulated().with("SIMGPU_CUDA_VERSION", "13040")
}

fn program(door: &str) -> PathBuf {
    if door == "linked" {
        compiler::linked("launches.c", "launches_linked", &[]).expect("launches.c links")
    } else {
        compiler::plain("launches")
    }
}

/// Kernels that the only process has run, and their durations.
fn kernels(bench: &Bench) -> (u64, u64) {
    let report: serde_json::Value = serde_json::from_str(&bench.report()).expect("the ground truth is JSON");
    let device = &report["processes"][0]["devices"][0];
    (device["launches"].as_u64().unwrap(), device["kernel_ns"].as_u64().unwrap())
}

#[test]
fn every_call_that_submits_work_leads_through_us_whatever_the_door() {
    let gated = ALL.iter().filter(|symbol| symbol.treatment() == Treatment::Gate);
    let gated: BTreeSet<String> =
        gated.map(|symbol| format!("{} by libgpuslice.so", symbol.name())).collect();
    assert!(gated.len() > 60, "{gated:?}");
    for door in DOORS {
        let outcome = bench().program(&program(door), &[door, "servers"]).loaded().run().quiet();
        let told: BTreeSet<String> = outcome.out.lines().map(str::to_owned).collect();
        assert_eq!(told, gated, "{door}");
    }
}

/// Runs the host, and tells what it has done to the GPU.
fn submit<'bench>(
    bench: &'bench Bench,
    door: &str,
    around: impl FnOnce(Host<'bench>) -> Host<'bench>,
) -> (Outcome, (u64, u64)) {
    let outcome = around(bench.program(&program(door), &[door])).run().quiet();
    (outcome, kernels(bench))
}

#[test]
fn every_call_that_submits_work_does_what_it_did_without_the_library() {
    for door in DOORS {
        let (bare, truth) = submit(&bench(), door, |host| host);
        assert!(bare.out.lines().filter(|line| line.contains(": 0, then 0, ")).count() > 60, "{bare}");
        // Ten calls of one kernel each, and two of a graph of three, with a microsecond around each node.
        assert_eq!(truth, (16, 16 * 2_000 + 6 * 1_000), "{bare}");
        let limits: [&[(&str, &str)]; 4] = [
            &[],
            &[("GPU_MEM_LIMIT", "512MiB")],
            &[("GPU_CORE_PERCENT", "100")],
            &[("GPU_MEM_LIMIT", "512MiB"), ("GPU_CORE_PERCENT", "100"), ("GPU_CORE_COPIES", "1")],
        ];
        for limits in limits {
            let bench = bench();
            let with =
                |host| limits.iter().fold(Host::loaded(host), |host, (name, value)| host.set(name, value));
            let (outcome, counted) = submit(&bench, door, with);
            outcome.same_as(&bare);
            assert_eq!(counted, truth, "{door} {limits:?}: kernels and their nanoseconds");
        }
    }
}
