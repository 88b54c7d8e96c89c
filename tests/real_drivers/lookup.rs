//! Look-ups of driver functions have the same answers with the library as without it.

use crate::support::bench::Bench;
use crate::support::outcome::Outcome;
use crate::support::{artefacts, skip, table};

/// Runs all look-ups without and with the library.
fn ask(bench: &Bench, last: &[&str]) -> (Outcome, Outcome) {
    let names = if last.is_empty() { table::questions() } else { table::exports() };
    let names = bench.file("names", &names).display().to_string();
    let versions = bench.file("versions", &table::versions()).display().to_string();
    let arguments: Vec<_> =
        [names.as_str(), versions.as_str()].into_iter().chain(last.iter().copied()).collect();
    let run = |loaded: bool| {
        let host = bench.host("matrix", &arguments);
        if loaded { host.loaded().run() } else { host.run() }
    };
    (run(false).quiet(), run(true).quiet())
}

#[track_caller]
fn every_look_up_agrees(bench: &Bench) {
    let (bare, loaded) = ask(bench, &[]);
    assert!(bare.out.lines().count() > 5_000, "{} lines", bare.out.lines().count());
    bare.contains(&["answers outside the library of cuGetProcAddress: 0"]);
    loaded.same_as(&bare);
}

#[track_caller]
fn every_symbol_agrees(bench: &Bench) {
    let (bare, loaded) = ask(bench, &["symbols"]);
    assert!(bare.out.lines().filter(|line| line.ends_with(" there")).count() > 500, "{bare}");
    loaded.same_as(&bare);
}

/// API versions at which the table of the simulated driver has other answers.
const GENERATIONS: &[&str] = &["11040", "12000", "12020", "12040", "12050", "13000", "13050"];

#[test]
fn every_name_version_and_flag_gives_the_simulated_drivers_own_symbol() {
    for version in GENERATIONS {
        every_look_up_agrees(&Bench::simulated().with("SIMGPU_CUDA_VERSION", version));
    }
}

#[test]
fn a_name_the_simulated_driver_lacks_stays_null() {
    for version in GENERATIONS {
        every_symbol_agrees(&Bench::simulated().with("SIMGPU_CUDA_VERSION", version));
    }
}

#[test]
fn every_name_version_and_flag_gives_the_real_drivers_own_symbol() {
    real(every_look_up_agrees);
}

#[test]
fn a_name_a_real_driver_lacks_stays_null() {
    real(every_symbol_agrees);
}

fn real(agree: impl Fn(&Bench)) {
    let drivers = artefacts::real_drivers();
    if drivers.is_empty() {
        skip(
            "look-ups in real drivers: none in GPUSLICE_TEST_DRIVERS or build/drivers; to mend it: ci/drivers.sh",
        );
    }
    for (_series, driver) in drivers {
        agree(&Bench::real(&driver));
    }
}

#[test]
fn symbols_of_the_table_are_found_under_a_quota_too() {
    let bench = Bench::simulated();
    let names = bench.file("names", &table::questions()).display().to_string();
    let versions = bench.file("versions", &table::versions()).display().to_string();
    let bare = bench.host("matrix", &[&names, &versions]).run().quiet();
    bench.host("matrix", &[&names, &versions]).limited("64MiB").run().quiet().same_as(&bare);
}
