//! Reports of a device's memory agree with each other, while processes allocate, free and die.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::support::bench::{Bench, Host};
use crate::support::living::Living;
use crate::support::outcome::Outcome;
use crate::support::{artefacts, skip};
use gpuslice_region::{Limits, Member, Monitor, Trust};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const QUOTA: u64 = 64 * MIB;
const HOLDS: u64 = 6 * MIB;

fn bench() -> Bench {
    Bench::simulated_without_contexts().with_quick_nvml().with("GPU_MEM_LIMIT", &QUOTA.to_string())
}

/// Starts a member that reads all reports. With `holds` zero, it holds no memory.
#[track_caller]
fn watch(bench: &Bench, quota: u64, holds: u64) -> Living {
    let watch = bench.host("reports", &["watch", &quota.to_string(), &holds.to_string()]).loaded().start();
    assert_eq!(watch.hear().as_deref(), Some("ready"));
    watch
}

#[track_caller]
fn storm(bench: &Bench, seed: usize) -> Living {
    let storm = bench.host("reports", &["storm", &seed.to_string()]).loaded().start();
    assert_eq!(storm.hear().as_deref(), Some("ready"));
    storm
}

/// Lets the host read all reports `count` times and asserts that nothing is wrong. Returns the number of samples in which other
/// processes held memory.
#[track_caller]
fn samples(watch: &mut Living, count: u32) -> u32 {
    let answer = watch.ask(&format!("sample {count}"));
    let Some(others) = answer.strip_prefix("fine ") else { panic!("{answer}") };
    others.parse().unwrap()
}

/// Returns size, free, used, the number of processes, and the bytes that they hold.
#[track_caller]
fn figures(watch: &mut Living) -> [u64; 5] {
    watch.numbers("figures").try_into().expect("five figures")
}

#[test]
fn all_reports_agree_while_others_allocate_free_and_are_killed() {
    let bench = bench();
    let mut member = watch(&bench, QUOTA, HOLDS);
    let mut onlooker = watch(&bench, QUOTA, 0);
    let mut others = 0;
    for round in 0..20 {
        let mut storms: Vec<_> = (0..3).map(|number| storm(&bench, 10 * round + number)).collect();
        others += samples(&mut member, 40) + samples(&mut onlooker, 40);
        let mut last = storms.pop().expect("there are three");
        for mut storm in storms {
            let pid = storm.pid();
            storm.kill();
            // From this instant no report names the dead process, and its memory is charged to no process.
            assert_eq!(member.ask(&format!("has {pid}")), "0");
            assert_eq!(onlooker.ask(&format!("has {pid}")), "0");
            others += samples(&mut member, 10);
        }
        last.kill();
        // Once the device has the memory back, it is free. The process that is asked first has to find that out itself.
        bench.truth_at_rest(0);
        let settled = [QUOTA, QUOTA - HOLDS, HOLDS, 1, HOLDS];
        match round % 3 {
            0 => assert_eq!(member.numbers("short"), [QUOTA, QUOTA - HOLDS, QUOTA, QUOTA - HOLDS]),
            1 => assert_eq!(figures(&mut onlooker), settled),
            _ => {}
        }
        assert_eq!([figures(&mut member), figures(&mut onlooker)], [settled; 2]);
    }
    println!("others held something in {others} samples");
    assert!(others > 500, "the storm was a calm");
}

#[test]
fn processes_together_hold_no_more_than_is_used() {
    // The driver uses more memory of each process than the process asked for.
    let bench = bench().with("SIMGPU_UNEXPLAINED_BYTES", "3MiB");
    let mut member = watch(&bench, QUOTA, HOLDS);
    let mut others: Vec<_> = (1..4).map(|number| watch(&bench, QUOTA, number * MIB)).collect();
    let [total, free, used, count, sum] = figures(&mut member);
    assert_eq!((total, used + free, count), (QUOTA, QUOTA, 4));
    assert!(sum <= used, "{sum} of {used}");
    assert!(bench.truth(0).held > used, "the driver used nothing for itself");
    for other in &mut others {
        other.kill();
    }
    bench.truth_at_rest(0);
    assert_eq!(figures(&mut member), [QUOTA, QUOTA - HOLDS, HOLDS, 1, HOLDS]);
}

#[test]
fn a_quota_below_the_held_memory_shows_a_full_device() {
    let bench = bench();
    let mut member = watch(&bench, QUOTA, HOLDS);
    let mut onlooker = watch(&bench, QUOTA, 0);
    let monitor = Monitor::open(&bench.region(), Trust::AnyOwner).unwrap().expect("there is a region");
    let device = monitor.devices()[0].device;
    for quota in [HOLDS - 1, 1, HOLDS, 2 * QUOTA] {
        monitor.set_limits(device, Limits { memory: Some(quota), cores_permille: 1000, ..Limits::NONE });
        let left = quota.saturating_sub(HOLDS);
        let expected = [quota, left, quota - left, 1, HOLDS];
        assert_eq!([figures(&mut member), figures(&mut onlooker)], [expected; 2]);
        assert_eq!(member.numbers("short"), [quota, left, quota, left]);
    }
    // Without a quota, a process is shown the device as it is.
    monitor.set_limits(device, Limits::NONE);
    let whole = [GIB, GIB - HOLDS, HOLDS, 1, HOLDS];
    assert_eq!([figures(&mut member), figures(&mut onlooker)], [whole; 2]);
}

#[test]
fn sizes_of_32_bits_end_at_the_largest_and_never_wrap() {
    let most = u64::from(u32::MAX);
    for (quota, shown) in [(3 * GIB, 3 * GIB), (4 * GIB - 1, most), (4 * GIB, most), (9 * GIB + 5, most)] {
        let bench = Bench::simulated_without_contexts()
            .with_quick_nvml()
            .with("SIMGPU_MEMORY", "16GiB")
            .with("GPU_MEM_LIMIT", &quota.to_string());
        let mut member = watch(&bench, quota, HOLDS);
        let free = quota - HOLDS;
        assert_eq!(member.numbers("short"), [shown, free.min(most), quota, free]);
        samples(&mut member, 1);
    }
}

#[test]
fn sizes_are_the_devices_where_that_is_asked_for_and_free_memory_stays_the_slices() {
    let (bench, usual) = (bench().with("GPU_MEM_REPORT_TOTAL", "device"), bench());
    let mut member = watch(&bench, QUOTA, HOLDS);
    let mut onlooker = watch(&bench, QUOTA, 0);
    let free = QUOTA - HOLDS;
    assert_eq!(member.numbers("short"), [GIB, free, GIB, free]);
    // The older form of NVML counts memory of others as used, the newer form as reserved.
    assert_eq!([figures(&mut member), figures(&mut onlooker)], [[GIB, free, GIB - free, 1, HOLDS]; 2]);
    assert_eq!(member.numbers("sizes"), [GIB, GIB, GIB, GIB - QUOTA, free, HOLDS]);
    // Without the setting, the sizes are the quota.
    let mut usual = watch(&usual, QUOTA, 1);
    assert_eq!(usual.numbers("sizes")[..4], [QUOTA, QUOTA, QUOTA, 0]);
}

/// Returns the unaccounted bytes and the UUID of the first device, from `gpuslice status`. `change` adjusts its environment.
#[track_caller]
fn status(bench: &Bench, change: impl FnOnce(Host<'_>) -> Host<'_>) -> (Option<i64>, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_gpuslice"));
    let region = bench.region().display().to_string();
    let json = change(bench.program(program, &["status", &region, "--json"])).run().quiet();
    let report: serde_json::Value = serde_json::from_str(&json.out).expect("it is JSON");
    let device = report.pointer("/slices/0/devices/0").expect("there is a device");
    let unaccounted = device.get("unaccounted").expect("it is reported").as_i64();
    (unaccounted, device["uuid"].as_str().unwrap_or_default().to_owned())
}

/// Memory that the driver uses for each process beyond the requested bytes.
const UNEXPLAINED: i64 = 3 << 20;

fn unexplained() -> Bench {
    bench().with("SIMGPU_UNEXPLAINED_BYTES", &UNEXPLAINED.to_string())
}

#[test]
fn status_shows_memory_that_the_ledger_does_not_know_to_the_byte() {
    let bench = unexplained();
    let mut members = vec![watch(&bench, QUOTA, HOLDS)];
    let outside = bench.host("holder", &["1048576", "1"]).set("GPU_MEM_LIMIT", "").start();
    outside.hear();
    assert_eq!(status(&bench, |status| status).0, Some(UNEXPLAINED));
    members.push(watch(&bench, QUOTA, 1));
    assert_eq!(status(&bench, |status| status).0, Some(2 * UNEXPLAINED));
    // If the library is preloaded into every program, `status` does not mistake the library's figures for NVML's own.
    assert_eq!(status(&bench, |status| status.loaded()).0, Some(2 * UNEXPLAINED));
    let program = Path::new(env!("CARGO_BIN_EXE_gpuslice"));
    let text = bench.program(program, &["status", &bench.region().display().to_string()]).run().quiet();
    assert!(text.out.contains(" 0 denied (quota), 0 denied (device full), 6.00 MiB unaccounted\n"), "{text}");
    members[0].kill();
    assert_eq!(status(&bench, |status| status).0, Some(UNEXPLAINED));
}

#[test]
fn nothing_is_unaccounted_where_the_driver_uses_exactly_the_requested_memory() {
    let bench = bench();
    let _member = watch(&bench, QUOTA, HOLDS);
    assert_eq!(status(&bench, |status| status).0, Some(0));
}

#[test]
fn memory_that_is_charged_and_not_used_makes_the_unaccounted_unknown() {
    let bench = bench();
    let member = watch(&bench, QUOTA, HOLDS);
    let charged = Member::join(&bench.region(), Trust::AnyOwner, &[]).expect("it can be joined").0;
    let device = charged.devices()[0].device;
    assert_eq!(status(&bench, |status| status).0, Some(0));
    // NVML does not name this process, which holds a byte from here on.
    charged.reserve(device, 1).expect("it fits");
    assert_eq!(status(&bench, |status| status).0, None);
    charged.leave();
    drop(member);
}

#[test]
fn the_unaccounted_is_unknown_where_nvml_does_not_report_it() {
    let bench = unexplained();
    let _member = watch(&bench, QUOTA, HOLDS);
    assert_eq!(status(&bench, |status| status.set("SIMGPU_NVML_PIDS", "none")).0, None);
    let (unaccounted, uuid) = status(&bench, |status| status.set("LD_LIBRARY_PATH", "/nowhere"));
    assert_eq!((unaccounted, uuid.starts_with("GPU-")), (None, true));
    let program = Path::new(env!("CARGO_BIN_EXE_gpuslice"));
    let words = ["status", &bench.region().display().to_string()];
    let text = bench.program(program, &words).set("LD_LIBRARY_PATH", "/nowhere").run().quiet();
    assert!(text.out.contains(" unknown unaccounted\n"), "{text}");
}

#[test]
fn the_unaccounted_beside_allocations_is_unknown_or_off_by_those_under_way() {
    let bench = unexplained();
    let _member = watch(&bench, QUOTA, HOLDS);
    // Each storm is charged up to 8 MiB a moment before the driver takes them.
    let storms: Vec<_> = (0..2).map(|number| storm(&bench, number)).collect();
    let possible = UNEXPLAINED - (16 << 20)..=3 * UNEXPLAINED + (16 << 20);
    for _ in 0..5 {
        let unaccounted = status(&bench, |status| status).0;
        assert!(unaccounted.is_none_or(|bytes| possible.contains(&bytes)), "{unaccounted:?}");
    }
    drop(storms);
}

#[test]
fn status_calls_an_instance_by_its_name() {
    let bench = bench().with("SIMGPU_MIG", "2").with("GPU_MEM_LIMIT", "512MiB");
    let member = bench.host("identity", &["cuda", "take", "0", "1", "hold"]).loaded().start();
    while member.hear().is_some_and(|line| line != "holds") {}
    let (_, uuid) = status(&bench, |status| status);
    assert!(uuid.starts_with("MIG-"), "{uuid}");
}

/// Returns the `nvidia-smi` of each driver series at hand.
fn monitors() -> Vec<(String, PathBuf)> {
    let drivers = artefacts::real_drivers().into_iter();
    let programs = drivers.map(|(series, folder)| (series, folder.join("nvidia-smi")));
    programs.filter(|(_, program)| program.exists()).collect()
}

#[track_caller]
fn ask(bench: &Bench, monitor: &(String, PathBuf), words: &[&str]) -> Outcome {
    let outcome = bench.program(&monitor.1, words).loaded().run();
    assert!(outcome.ended == "exit 0" && outcome.err.is_empty(), "{}: {outcome}", monitor.0);
    outcome
}

/// Returns the number behind each of these words.
fn numbers(text: &str, words: &[&str]) -> Vec<u64> {
    let of = |word: &&str| {
        let (_before, rest) = text.split_once(*word)?;
        rest.split(|letter: char| !letter.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
    };
    words.iter().filter_map(of).collect()
}

/// Returns true if a view names a process.
fn names(view: &str, pid: u32) -> bool {
    let pid = pid.to_string();
    let of_processes = |line: &&str| [" C ", "Process ID", "<pid>"].iter().any(|mark| line.contains(mark));
    let words = |line: &str| line.split(|letter: char| !letter.is_ascii_digit()).any(|word| word == pid);
    view.lines().filter(of_processes).any(words)
}

#[test]
fn the_monitor_of_every_series_shows_how_busy_the_slice_is() {
    let monitors = monitors();
    if monitors.is_empty() {
        return skip("nvidia-smi: not in build/drivers; to mend it: ci/drivers.sh");
    }
    let busy = |bench: &Bench, monitor: &(String, PathBuf)| {
        let query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"];
        let (inside, whole) =
            (ask(bench, monitor, &query).out, bench.program(&monitor.1, &query).run().quiet().out);
        [inside, whole].map(|text| text.trim().parse::<u32>().unwrap_or_else(|_| panic!("{text}")))
    };
    let work = |bench: &Bench, limit: &str| {
        let worker = bench.host("reports", &["work"]).loaded().set("GPU_MEM_LIMIT", limit).start();
        assert_eq!(worker.hear().as_deref(), Some("ready"));
        worker
    };
    let bench = bench();
    let _member = watch(&bench, QUOTA, HOLDS);
    let outside = work(&bench, "");
    for monitor in &monitors {
        let [inside, whole] = busy(&bench, monitor);
        assert!(inside == 0 && whole > 0, "{}: {inside} of {whole}", monitor.0);
    }
    let _worker = work(&bench, &QUOTA.to_string());
    for monitor in &monitors {
        let [inside, whole] = busy(&bench, monitor);
        assert!(inside > 0 && whole > 0, "{}: {inside} of {whole}", monitor.0);
    }
    drop(outside);
}

#[test]
fn the_monitor_of_every_series_shows_the_slice_in_every_view() {
    let monitors = monitors();
    if monitors.is_empty() {
        return skip("nvidia-smi: not in build/drivers; to mend it: ci/drivers.sh");
    }
    let bench = bench();
    // A member holds 24 MiB, and a process outside the slice holds 256 MiB.
    let inside = bench.host("holder", &[&(24 * MIB).to_string(), "1"]).loaded().start();
    let outside = bench.host("holder", &[&(256 * MIB).to_string(), "1"]).set("GPU_MEM_LIMIT", "").start();
    inside.hear();
    outside.hear();
    for monitor in &monitors {
        let query = ["--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits"];
        assert_eq!(ask(&bench, monitor, &query).out, "64, 24, 40\n", "{}", monitor.0);
        let screen = ask(&bench, monitor, &[]).out;
        let line = screen.lines().find(|line| line.contains("MiB /")).expect("a line of memory");
        let cells: String = line.split('|').nth(2).unwrap_or_default().split_whitespace().collect();
        assert_eq!(cells, "24MiB/64MiB", "{}: {screen}", monitor.0);
        let (all, page) = (ask(&bench, monitor, &["-q"]).out, ask(&bench, monitor, &["-q", "-x"]).out);
        let part = all.split_once("FB Memory Usage").expect("a part about memory").1;
        assert_eq!(numbers(part, &["Total", "Used", "Free"]), [64, 24, 40], "{}", monitor.0);
        let part = page.split_once("<fb_memory_usage>").expect("a part about memory").1;
        assert_eq!(numbers(part, &["<total>", "<used>", "<free>"]), [64, 24, 40], "{}", monitor.0);
        for text in [&screen, &all, &page] {
            assert!(!names(text, outside.pid()), "{}: {text}", monitor.0);
        }
    }
    for monitor in monitors.iter().filter(|(series, _)| series == "470") {
        let own = inside.pid().to_string();
        let query = ["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"];
        assert_eq!(ask(&bench, monitor, &query).out, format!("{own}, 24\n"));
        let screen = ask(&bench, monitor, &[]).out;
        let lines: Vec<_> = screen.lines().filter(|line| line.contains(" C ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(&own) && lines[0].contains(" 24MiB"), "{screen}");
    }
    drop((inside, outside));
}
