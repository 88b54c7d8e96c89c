//! Every entry of the table survives a call.

use crate::support::bench::Bench;
use crate::support::table;

/// Calls every function of the table with zeros only: without the library, with it, and under a quota.
fn call_all(moment: &[&str]) {
    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    let names = bench.file("names", &table::exports()).display().to_string();
    let arguments: Vec<_> = [names.as_str()].into_iter().chain(moment.iter().copied()).collect();
    let bare = bench.host("smoke", &arguments).run().quiet();
    let wrong: Vec<_> =
        bare.out.lines().filter(|line| line.contains(": CRASH") || line.contains(": EXIT")).collect();
    assert!(wrong.is_empty(), "the simulated driver itself: {wrong:?}");
    assert!(bare.out.lines().count() >= gpuslice_driver::table::COUNT, "{} lines", bare.out.lines().count());
    bench.host("smoke", &arguments).loaded().run().quiet().same_as(&bare);
    bench.host("smoke", &arguments).limited("64MiB").run().quiet().same_as(&bare);
}

#[test]
fn every_function_answers_before_the_driver_is_started() {
    call_all(&[]);
}

#[test]
fn every_function_answers_after_the_driver_is_started() {
    call_all(&["started"]);
}
