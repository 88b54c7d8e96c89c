//! Ways past the library: the library refuses GPU work or warns if a program could call the driver's functions directly.

use crate::support::bench::Bench;
use crate::support::compiler;
use crate::support::outcome::Outcome;

const OURS: &str = "libgpuslice.so";
const THEIRS: &str = "libcuda.so.1";

/// Takes steps inside a quota. Asserts that standard error has one line with all of `words`, or none if `words` is empty.
#[track_caller]
fn told(bench: &Bench, steps: &[&str], words: &[&str]) -> Outcome {
    let outcome = bench.host("bypass", steps).limited("64MiB").run();
    assert_eq!(outcome.ended, "exit 0", "{outcome}");
    assert_eq!(outcome.err.lines().count(), usize::from(!words.is_empty()), "{outcome}");
    for word in words {
        assert!(outcome.err.contains(word), "{word}: {outcome}");
    }
    outcome
}

#[test]
fn a_driver_that_hides_a_function_that_limits_rest_on_is_refused_by_its_name() {
    for name in ["cuMemAlloc", "cuMemAllocAsync", "cuMemCreate", "cuLaunchKernel", "cuGraphLaunch"] {
        let bench = Bench::simulated_without_contexts().with("SIMGPU_PRIVATE_ENTRIES", name);
        let words = [
            &format!("gives {name} (with the legacy default stream)"),
            "use a newer gpuslice",
            "GPU work is refused.",
        ];
        let outcome = told(&bench, &[&format!("thread:{name}"), "init", "take"], &words);
        outcome.says(&[&format!("thread {name} by {THEIRS}"), "init 800", "context 800, take 800"]);
        assert!(!bench.region().exists(), "{name}: it joined its slice");
        // Without a limit, there is nothing to refuse.
        let free = bench.host("bypass", &["init", "take"]).loaded().run().quiet();
        free.says(&["init 0", "context 0, take 0"]);
    }
}

#[test]
fn of_one_stream_alone_it_is_refused_too() {
    let bench = Bench::simulated_without_contexts().with("SIMGPU_PRIVATE_ENTRIES", "cuGraphLaunch/2");
    let outcome = told(&bench, &["init"], &["cuGraphLaunch (with the per-thread default stream)"]);
    outcome.says(&["init 800"]);
}

#[test]
fn older_drivers_are_tried_as_well() {
    let bench = Bench::simulated_without_contexts().with("SIMGPU_CUDA_VERSION", "11040");
    told(&bench, &["init", "take"], &[]).says(&["init 0", "context 0, take 0"]);
    let bench = bench.with("SIMGPU_PRIVATE_ENTRIES", "cuLaunchKernel");
    told(&bench, &["init"], &["cuLaunchKernel"]).says(&["init 800"]);
}

#[test]
fn another_name_that_takes_memory_or_launches_is_warned_of_once() {
    let bench = Bench::simulated_without_contexts()
        .with("SIMGPU_PRIVATE_ENTRIES", "cuMemAllocManaged")
        .with("SIMGPU_NEWER_NAMES", "1");
    let unknown = "looks up cuLaunchUnheardOf, which this version";
    for how in ["dlsym", "legacy", "thread"] {
        let step = format!("{how}:cuLaunchUnheardOf");
        let outcome = told(&bench, &[&step, "init", "take", &step], &[unknown]);
        let line = format!("{how} cuLaunchUnheardOf by {THEIRS}");
        outcome.says(&[&line, "init 0", "context 0, take 0", &line]);
    }
    told(&bench, &["legacy:cuMemAllocManaged"], &["looks up cuMemAllocManaged"]);
    let both =
        bench.host("bypass", &["legacy:cuMemAllocManaged", "dlsym:cuLaunchUnheardOf"]).limited("64MiB").run();
    assert_eq!(both.err.lines().count(), 2, "{both}");
    // Without a limit the library does not warn.
    bench.host("bypass", &["dlsym:cuLaunchUnheardOf", "legacy:cuMemAllocManaged"]).loaded().run().quiet();
}

#[test]
fn unknown_names_and_names_that_do_neither_are_not_warned_of() {
    let bench = Bench::simulated_without_contexts().with("SIMGPU_PRIVATE_ENTRIES", "cuEventQuery");
    let steps = [
        "dlsym:cuLaunchNothing",
        "legacy:cuLaunchNothing",
        "legacy:cuLaunchUnheardOf",
        "legacy:cuEventQuery",
        "init",
    ];
    let outcome = told(&bench, &steps, &[]);
    outcome.says(&[
        "dlsym cuLaunchNothing by nobody",
        "legacy cuLaunchNothing by nobody",
        "legacy cuLaunchUnheardOf by nobody",
        &format!("legacy cuEventQuery by {THEIRS}"),
        "init 0",
    ]);
    told(&bench, &["legacy:cuLaunchKernel"], &[]).says(&[&format!("legacy cuLaunchKernel by {OURS}")]);
}

#[test]
fn the_private_table_that_can_launch_is_warned_of_where_an_untried_runtime_is_loaded() {
    let bench = Bench::simulated_without_contexts().with("SIMGPU_PRIVATE_TABLE", "1");
    let runtime = |version: &str| {
        let soname = format!("-Wl,-soname,libcudart.so.{version}");
        compiler::compile("nothing.c", &format!("libcudart.so.{version}"), &["-shared", "-fPIC", &soname])
            .expect("it compiles")
    };
    let ask = |versions: &[&str]| {
        let host = bench.host("bypass", &["table", "init", "table"]).limited("64MiB");
        let outcome = versions.iter().fold(host, |host, version| host.preload(&runtime(version))).run();
        let table = format!("table 0, {THEIRS}");
        outcome.says(&[&table, "init 0", &table]);
        outcome.err
    };
    for versions in [&[][..], &["12"], &["13"], &["12", "13"]] {
        assert_eq!(ask(versions), "", "{versions:?}");
    }
    for version in ["11.0", "14"] {
        let said = ask(&["12", version]);
        assert!(
            said.contains(&format!("libcudart.so.{version} may launch")) && said.lines().count() == 1,
            "{said}"
        );
    }
}
