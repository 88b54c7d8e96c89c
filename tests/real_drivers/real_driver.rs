//! Real drivers on a machine without a GPU have the same answers with the library as without it.

use crate::support::bench::Bench;
use crate::support::{artefacts, compiler, skip};
use std::path::Path;
use std::sync::Mutex;

/// File that a driver makes when it starts as root. Other programs then believe that there is a GPU.
const CONTROL: &str = "/dev/nvidiactl";

/// Lets one test run at a time, so that the control file can be removed if it was not there.
static DRIVER: Mutex<()> = Mutex::new(());

fn on_each(check: impl Fn(&str, &Path)) {
    let _one = DRIVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let drivers = artefacts::real_drivers();
    if drivers.is_empty() {
        skip("real drivers: none in GPUSLICE_TEST_DRIVERS or build/drivers; to mend it: ci/drivers.sh");
    }
    if Path::new("/dev/nvidia0").exists() {
        skip("real drivers without a GPU: this machine has one; elsewhere: on a machine without a GPU");
        return;
    }
    let was_there = Path::new(CONTROL).exists();
    for (series, driver) in drivers {
        check(&series, &driver);
    }
    if !was_there {
        let _none = std::fs::remove_file(CONTROL);
    }
}

#[test]
fn statuses_are_the_drivers_own_before_and_after_a_failed_start() {
    on_each(|_series, driver| {
        let bench = Bench::real(driver);
        let bare = bench.host("statuses", &[]).run().quiet();
        bare.contains(&["cuInit: 100", "cuInit with flags: 1", "before cuMemGetInfo_v2: 3, 0 0"]);
        bench.host("statuses", &[]).loaded().run().quiet().same_as(&bare);
    });
}

#[test]
fn a_quota_changes_no_status_of_a_driver_that_cannot_start() {
    on_each(|_series, driver| {
        let bench = Bench::real(driver);
        let bare = bench.host("statuses", &[]).run().quiet();
        bench.host("statuses", &[]).limited("4GiB").run().quiet().same_as(&bare);
    });
}

#[test]
fn a_program_notices_nothing_of_the_library() {
    on_each(|_series, driver| {
        let bench = Bench::real(driver);
        let bare = bench.host("passive", &[]).run().quiet();
        bench.host("passive", &[]).loaded().run().quiet().same_as(&bare);
        assert!(!bench.region().exists(), "a region was made without a limit");
    });
}

/// Doors, each with whether the host is linked with the driver.
const DOORS: &[(&str, bool)] = &[
    ("plain", false),
    ("dlvsym", false),
    ("unversioned", false),
    ("absolute", false),
    ("noload", false),
    ("deepbind", false),
    ("dlmopen", false),
    ("second", false),
    ("global_default", false),
    ("global_next", false),
    ("global_main", false),
    ("four", false),
    ("four_by_itself", false),
    ("five", false),
    ("five_by_itself", false),
    ("five_by_four", false),
    ("linked", true),
    ("linked_default", true),
    ("linked_five", true),
];

#[test]
fn every_door_leads_to_our_entry() {
    on_each(|series, driver| {
        // The five-argument look-up came with CUDA 12, so an older driver does not have it.
        let old = series == "470";
        for (door, linked) in
            DOORS.iter().filter(|(door, linked)| !(old && (*linked || door.contains("five"))))
        {
            let bench = Bench::real(driver);
            let program = if *linked {
                compiler::linked("doors.c", "doors_linked", &[])
            } else {
                Some(compiler::plain("doors"))
            };
            let path = bench.absolute("libcuda.so.1");
            let program = program.expect("doors.c compiles");
            let bare = bench.program(&program, &[door, "0", &path]).run().quiet();
            let loaded = bench.program(&program, &[door, "0", &path]).loaded().run().quiet();
            // Drivers have no symbol versions, so a look-up by version finds nothing in them.
            assert!(*door == "dlvsym" || bare.out.contains(" by libcuda.so"), "{bare}");
            let ours: String = bare
                .out
                .lines()
                .map(|line| match line.split_once(" by libcuda.so") {
                    Some((name, _driver)) => format!("{name} by libgpuslice.so\n"),
                    None => format!("{line}\n"),
                })
                .collect();
            assert_eq!(loaded.out, ours, "{series} {door}");
        }
    });
}

#[test]
fn the_monitor_of_each_series_ends_as_without_the_library() {
    on_each(|_series, driver| {
        let monitor = driver.join("nvidia-smi");
        if !monitor.exists() {
            return skip(
                "nvidia-smi: not beside the driver; to mend it: rm -r build/drivers && ci/drivers.sh",
            );
        }
        let bench = Bench::real(driver);
        let bare = bench.program(&monitor, &[]).run();
        bench.program(&monitor, &[]).loaded().run().same_as(&bare);
        bench.program(&monitor, &[]).limited("4GiB").run().same_as(&bare);
    });
}
