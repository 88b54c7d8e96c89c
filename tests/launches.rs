//! Calls that submit work: each way in leads through the library, and each call does the same as without it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod support;

use gpuslice_driver::table::{ALL, Treatment};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use support::bench::{Bench, Host};
use support::compiler;
use support::outcome::Outcome;
use support::timed::{self, Verdict};

const DOORS: &[&str] = &["linked", "dlsym", "first", "second"];

/// Makes a bench whose driver has every function.
fn bench() -> Bench {
    Bench::simulated_without_contexts().with("SIMGPU_CUDA_VERSION", "13040")
}

fn program(door: &str) -> PathBuf {
    if door == "linked" {
        compiler::linked("launches.c", "launches_linked", &[]).expect("launches.c links")
    } else {
        compiler::plain("launches")
    }
}

/// Returns the number of kernels that the only process has run, and their durations in nanoseconds.
fn kernels(bench: &Bench) -> (u64, u64) {
    let number = |name: &str| bench.figure(&format!("/processes/0/devices/0/{name}"));
    (number("launches"), number("kernel_ns"))
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

/// Runs the host. Returns its outcome and its effect on the GPU.
fn submit<'bench>(
    bench: &'bench Bench,
    door: &str,
    around: impl FnOnce(Host<'bench>) -> Host<'bench>,
) -> (Outcome, (u64, u64)) {
    let outcome = around(bench.program(&program(door), &[door])).run().quiet();
    (outcome, kernels(bench))
}

#[test]
fn every_call_that_submits_work_does_the_same_as_without_the_library() {
    for door in DOORS {
        let (bare, truth) = submit(&bench(), door, |host| host);
        assert!(bare.out.lines().filter(|line| line.contains(": 0, then 0, ")).count() > 60, "{bare}");
        // There are ten calls of one kernel each, and two of a graph of three, with a microsecond around each node.
        assert_eq!(truth, (16, 16 * 2_000 + 6 * 1_000), "{bare}");
        let limits: [&[(&str, &str)]; 6] = [
            &[],
            &[("GPU_MEM_LIMIT", "512MiB")],
            &[("GPU_CORE_PERCENT", "100")],
            &[("GPU_MEM_LIMIT", "512MiB"), ("GPU_CORE_PERCENT", "100"), ("GPU_CORE_COPIES", "1")],
            &[("GPU_CORE_PERCENT", "5")],
            &[("GPU_MEM_LIMIT", "512MiB"), ("GPU_CORE_PERCENT", "5"), ("GPU_CORE_COPIES", "1")],
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

/// Returns the GPU time that the only slice was charged, and the time that its GPU was busy, after `count` calls of one kind.
fn charged(name: &str, count: u32, settings: &[(&str, &str)]) -> (u64, u64) {
    let bench = bench();
    let arguments = ["dlsym", "each", name, &count.to_string(), "400us"];
    let host = settings
        .iter()
        .fold(bench.host("launches", &arguments).loaded(), |host, (name, value)| host.set(name, value));
    let host = host.start();
    assert_eq!(host.hear().as_deref(), Some("0, then 0"), "{name}");
    let busy = bench.figure("/devices/0/busy_ns");
    // The last batch is closed and measured a moment after the wait.
    let until = Instant::now() + Duration::from_millis(500);
    while bench.time_used().used.nanos() < busy * 9 / 10 && Instant::now() < until {
        std::thread::yield_now();
    }
    let charged = bench.time_used().used.nanos();
    assert!(host.end().0.success());
    (charged, busy)
}

#[test]
fn every_call_that_submits_work_is_charged_its_time() {
    let (mut missed, mut late) = (Vec::new(), Vec::new());
    for symbol in ALL.iter().filter(|symbol| symbol.treatment() == Treatment::Gate) {
        // Only the thread itself can end the last measurement on its own stream, of up to 3 ms. The work of each call is ten
        // times as long, so that a missing tail stays inside the bounds. A copy is as short as its call, and the time of a call
        // counts if the GPU has nothing to do meanwhile.
        let is_copy = symbol.name().starts_with("cuMem");
        let (count, copies, most) = if is_copy { (20_000, "1", 20) } else { (80, "0", 12) };
        let settings = [("GPU_CORE_PERCENT", "50"), ("GPU_CORE_COPIES", copies)];
        let ((charged, busy), lateness) = timed::beside(|| charged(symbol.name(), count, &settings));
        println!("{symbol:?}: {charged} ns of {busy}; {lateness:?}");
        let is_right = (busy * 8 / 10..busy * most / 10).contains(&charged);
        match timed::verdict(is_right, lateness, Duration::from_nanos(busy * 2 / 10)) {
            Verdict::Holds => {}
            Verdict::Missed => missed.push((symbol, charged, busy)),
            Verdict::Inconclusive => late.push((symbol, charged, busy)),
        }
    }
    assert!(missed.is_empty(), "charged, and busy in truth: {missed:?}");
    if !late.is_empty() {
        timed::inconclusive(&format!("charged, and busy in truth: {late:?}"));
    }
}
