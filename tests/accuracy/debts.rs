//! Debts of short programs: a slice keeps its share through programs that live no longer than a kernel.

use crate::support::bench::Bench;
use crate::support::command::{RegionFile, gpuslice, name};
use crate::support::{artefacts, compiler, machine};
use gpuslice_region::{Monitor, Trust};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Returns the nanoseconds for which the only device of the bench ran kernels.
fn busy(bench: &Bench) -> u64 {
    bench.figure("/devices/0/busy_ns")
}

/// Returns the part of the time for which the device is busy while `program` runs again and again, in thousandths. The first run
/// is left out, because the burst pays for it.
fn share_of_a_loop(bench: &Bench, span: Duration, mut program: impl FnMut()) -> u128 {
    program();
    let (began, before, mut runs) = (Instant::now(), busy(bench), 0_u32);
    while began.elapsed() < span {
        program();
        runs += 1;
    }
    let share = u128::from(busy(bench) - before) * 1000 / began.elapsed().as_nanos();
    println!("{runs} programs in {:.1?}: {}.{} %", began.elapsed(), share / 10, share % 10);
    share
}

/// Returns how long a loop runs. `ci/accuracy.sh debts` asks for a minute.
fn span() -> Duration {
    let seconds = std::env::var("GPUSLICE_TEST_SECONDS").ok().filter(|text| !text.is_empty());
    let seconds = seconds.map(|text| text.parse().expect("GPUSLICE_TEST_SECONDS is a number"));
    Duration::from_secs(seconds.unwrap_or(14))
}

/// Asserts that a share differs from the expected one by less than ten thousandths, i.e. one percent of the time.
#[track_caller]
fn is_about(found: u128, expected: u128) {
    assert!(found.abs_diff(expected) < 10, "{found} thousandths of the time instead of {expected}");
}

/// Runs a program of one kernel in the bench's slice.
fn brief(bench: &Bench, kernel: &str, ends: &str, share: &str) {
    let host = bench.host("brief", &[kernel, ends]).loaded().set("GPU_CORE_PERCENT", share);
    host.run().quiet();
}

#[test]
fn programs_one_after_the_other_have_their_share() {
    let _alone = machine();
    for (kernel, share, expected) in [("300ms", "10", 100), ("20ms", "30", 300)] {
        let bench = Bench::simulated();
        println!("programs of {kernel} at {share} %, one after the other:");
        let found = share_of_a_loop(&bench, span(), || brief(&bench, kernel, "wait", share));
        is_about(found, expected);
    }
}

/// Returns the share of programs that end `after` microseconds after their only launch, a kernel of 50 ms, under a share of a
/// tenth. The GPU goes on until a process finds out that they are dead.
fn share_of_the_dying(after: &str, is_beside: bool) -> u128 {
    let bench = Bench::simulated();
    let member = is_beside.then(|| {
        let host = bench.host("brief", &["1ms", "idle"]).loaded().set("GPU_CORE_PERCENT", "10").start();
        assert_eq!(host.hear().as_deref(), Some("ready"));
        host
    });
    let found = share_of_a_loop(&bench, Duration::from_secs(8), || brief(&bench, "50ms", after, "10"));
    println!("ended {after} us after the launch, beside a member {is_beside}: {found} thousandths");
    drop(member);
    found
}

#[test]
fn programs_that_end_before_their_kernel_does_have_their_share() {
    let _alone = machine();
    for after in ["500", "5000", "20000"] {
        for is_beside in [true, false] {
            let found = share_of_the_dying(after, is_beside);
            assert!(
                (60..=130).contains(&found),
                "{after} us: {found} thousandths of the time instead of 100"
            );
        }
    }
}

#[test]
fn runs_of_one_name_one_after_the_other_have_the_share_of_the_slice() {
    let _alone = machine();
    let bench = Bench::simulated();
    let slice = RegionFile::of(&name("loop"));
    let name = name("loop");
    let program = compiler::plain("brief").display().to_string();
    println!("gpuslice run --name NAME --cores 10, programs of 300ms:");
    let found = share_of_a_loop(&bench, span(), || {
        let mut run = gpuslice(&["run", "--name", &name, "--cores", "10", "--", &program, "300ms", "wait"]);
        run.env("SIMGPU_STATE", bench.region().with_file_name("state"));
        run.env("LD_LIBRARY_PATH", artefacts::simulated_driver());
        assert!(run.status().unwrap().success());
        assert!(slice.0.exists(), "the region stays: the slice owes time");
    });
    is_about(found, 100);
    let mut list = gpuslice(&["list"]);
    let waits = Instant::now();
    while slice.0.exists() {
        assert!(waits.elapsed() < Duration::from_secs(6), "no process removes a paid debt");
        assert!(list.stdout(Stdio::null()).status().unwrap().success());
    }
}

#[test]
fn members_of_a_removed_region_keep_to_their_share() {
    let _alone = machine();
    let bench = Bench::simulated().with("GPU_CORE_PERCENT", "30");
    let began = Instant::now();
    let start = || bench.host("paced", &["plain", "2ms", "500"]).loaded().start();
    let members = [start(), start()];
    // The region is removed once both are members.
    loop {
        match Monitor::open(&bench.region(), Trust::AnyOwner).unwrap() {
            Some(monitor) if monitor.processes().len() == 2 => break,
            _ => assert!(began.elapsed() < Duration::from_secs(10), "they do not come"),
        }
    }
    std::fs::remove_file(bench.region()).unwrap();
    let (removed, before) = (Instant::now(), busy(&bench));
    for member in members {
        assert!(member.hear().unwrap().starts_with("launches 0 0, wait 0"));
        let (status, said) = member.end();
        assert!(
            status.success() && said.lines().count() == 1 && said.contains("was removed"),
            "{status}: {said}"
        );
    }
    let found = u128::from(busy(&bench) - before) * 1000 / removed.elapsed().as_nanos();
    println!("two members without a file: {found} thousandths over {:?}", removed.elapsed());
    assert!((270..=315).contains(&found), "{found} thousandths of the time instead of 300");
}
