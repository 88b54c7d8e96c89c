//! Settings of the memory limit: names, spellings, lists of devices, and the order of sources.

use crate::support::bench::{Bench, Host};
use crate::support::compiler;
use crate::support::outcome::Outcome;
use std::path::Path;

const GIB: u64 = 1 << 30;

/// Prepares a host that takes 2 MiB of CUDA's first device and asks NVML for the memory of the device with NVML's index `index`.
/// Waits first until the device has got back the memory of the host before it.
fn ask<'bench>(bench: &'bench Bench, index: &str) -> Host<'bench> {
    if bench.has_run() {
        bench.truth_at_rest(0);
    }
    bench.host("management", &["take", "2097152", index])
}

#[track_caller]
fn shows(outcome: &Outcome, total: u64, used: u64) {
    let free = total - used;
    outcome.contains(&[&format!("memory 0: total {total}, free {free}, used {used}")]);
}

#[test]
fn a_size_is_read_in_all_its_spellings() {
    let half = GIB / 2;
    let spellings = [
        ("64MiB", 64 << 20),
        ("64m", 64 << 20),
        ("64Mi", 64 << 20),
        (" 65536KiB ", 64 << 20),
        ("67108864", 64 << 20),
        ("64MB", 64_000_000),
        ("62.5MiB", 65_536_000),
        ("0.0625g", 64 << 20),
        ("50%", half),
        ("0=64MiB", 64 << 20),
        ("0=50%", half),
    ];
    for (spelling, quota) in spellings {
        let bench = Bench::simulated_without_contexts().with_quick_nvml();
        shows(&ask(&bench, "0").limited(spelling).run().quiet(), quota, 2 << 20);
    }
}

#[test]
fn the_other_name_of_the_limit_is_accepted_and_yields_to_ours() {
    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    let other = ("CUDA_DEVICE_MEMORY_LIMIT", "64m");
    shows(&ask(&bench, "0").loaded().set(other.0, other.1).run().quiet(), 64 << 20, 2 << 20);
    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    shows(&ask(&bench, "0").limited("128MiB").set(other.0, other.1).run().quiet(), 128 << 20, 2 << 20);
    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    shows(&ask(&bench, "0").loaded().set(other.0, "0").run().quiet(), GIB, 2 << 20);
    assert!(!bench.region().exists(), "a region was made although there is no limit");
}

#[test]
fn the_operators_file_wins_over_the_environment() {
    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    let file = bench.file("config", "GPU_MEM_LIMIT=64MiB # for two\n").display().to_string();
    for host in [ask(&bench, "0").loaded(), ask(&bench, "0").limited("512MiB")] {
        let outcome = host.set("GPUSLICE_CONFIG", &file).run();
        assert_eq!(outcome.ended, "exit 0", "{outcome}");
        shows(&outcome, 64 << 20, 2 << 20);
    }
}

#[test]
fn a_misspelt_key_in_an_operators_file_refuses() {
    for (line, meant) in
        [("GPU_MEM_LIMT=64MiB", "write GPU_MEM_LIMIT if"), ("GPUSLICE_CONFIG=/x", "has no effect")]
    {
        let bench = Bench::simulated_without_contexts().with_quick_nvml();
        let file = bench.file("config", &format!("GPU_CORE_PERCENT=30\n{line}\n")).display().to_string();
        let host = bench.host("refused", &[]).limited("512MiB").set("GPUSLICE_CONFIG", &file);
        let outcome = host.run();
        outcome.contains(&["init 800", "nvml 4"]);
        let said = |words: &str| outcome.err.contains(words);
        assert!(outcome.err.lines().count() == 1 && said("BENCH/config:2: ") && said(meant), "{outcome}");
    }
}

#[test]
fn a_misspelt_variable_is_told_once_and_limits_nothing() {
    for name in ["GPU_MEM_LIMT", "gpu_mem_limit", "GPU_MEMORY_LIMIT"] {
        let bench = Bench::simulated_without_contexts().with_quick_nvml();
        let outcome = ask(&bench, "0").loaded().set(name, "64MiB").set("GPU_DEVICE_ORDINAL", "0").run();
        shows(&outcome, GIB, 2 << 20);
        let line = format!(
            "gpuslice: {name}=\"64MiB\" is not a setting of gpuslice and limits nothing; if GPU_MEM_LIMIT is meant, rename \
             it, otherwise unset it.\n"
        );
        assert_eq!(outcome.err, line, "{outcome}");
        assert!(!bench.region().exists(), "a region was made although there is no limit");
        // The line is also printed beside another limit, but not beside the setting itself.
        let outcome = ask(&bench, "0").loaded().set(name, "64MiB").set("GPU_CORE_PERCENT", "30").run();
        assert_eq!(outcome.err, line, "{outcome}");
        ask(&bench, "0").limited("64MiB").set(name, "64MiB").run().quiet();
    }
}

#[test]
fn a_quota_in_powers_of_1000_is_told_at_info_and_a_setting_without_effect_as_a_warning() {
    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    ask(&bench, "0").limited("64MB").run().quiet();
    let told = ask(&bench, "0").limited("64MB").set("GPUSLICE_LOG", "info").run();
    assert_eq!(told.err, "gpuslice: GPU_MEM_LIMIT=\"64MB\": 64MB is 64000000 bytes, 5 % less than 64MiB.\n");
    let told = ask(&bench, "0").limited("64MB").set("GPU_CORE_WEIGHT", "300").run();
    let line = "gpuslice: GPU_CORE_WEIGHT=\"300\" has no effect under policy fixed; it has with GPU_CORE_POLICY=equal or \
                best-effort.\n";
    assert_eq!((told.err.as_str(), told.ended.as_str()), (line, "exit 0"));
}

#[test]
fn a_list_limits_each_device_by_itself() {
    let bench = Bench::simulated_without_contexts().with_quick_nvml().with("SIMGPU_DEVICES", "2");
    let limits = "0=64MiB,1=128MiB";
    shows(&ask(&bench, "0").limited(limits).run().quiet(), 64 << 20, 2 << 20);
    shows(&ask(&bench, "1").limited(limits).run().quiet(), 128 << 20, 0);
}

#[test]
fn a_device_without_a_limit_is_shown_as_it_is() {
    let bench = Bench::simulated_without_contexts().with_quick_nvml().with("SIMGPU_DEVICES", "2");
    shows(&ask(&bench, "1").limited("0=64MiB").run().quiet(), GIB, 0);
}

#[test]
fn a_number_is_cudas_and_finds_the_same_device_in_the_other_order() {
    let bench = Bench::simulated_without_contexts()
        .with_quick_nvml()
        .with("SIMGPU_DEVICES", "2")
        .with("CUDA_VISIBLE_DEVICES", "1");
    shows(&ask(&bench, "1").limited("0=64MiB").run().quiet(), 64 << 20, 2 << 20);
    shows(&ask(&bench, "0").limited("0=64MiB").run().quiet(), GIB, 0);
}

#[test]
fn a_limit_may_name_its_device() {
    let bench = Bench::simulated_without_contexts().with_quick_nvml().with("SIMGPU_DEVICES", "2");
    ask(&bench, "0").run().quiet();
    let report = bench.report();
    let names: Vec<_> =
        report.split("\"uuid\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let limit = format!("{}=64MiB", names[1]);
    shows(&ask(&bench, "1").limited(&limit).run().quiet(), 64 << 20, 0);
    shows(&ask(&bench, "0").limited(&limit).run().quiet(), GIB, 2 << 20);
}

/// Runs the host that asks, under `limit`, while another process holds `holds` bytes. If `its_limit` is `None`, the other process
/// runs without the library.
fn beside(bench: &Bench, holds: u64, its_limit: Option<&str>, limit: &str) -> Outcome {
    let [holder, asker] = ["holder", "management"].map(|name| compiler::plain(name).display().to_string());
    let setting =
        its_limit.map_or_else(|| "env -u LD_PRELOAD".to_owned(), |limit| format!("GPU_MEM_LIMIT={limit}"));
    let script = format!(
        "mkfifo fifo; exec 3<>fifo; {setting} \"$0\" {holds} 3 & read -r _ <&3; \
         GPU_MEM_LIMIT={limit} \"$1\" take 2097152; kill -9 $!"
    );
    bench.program(Path::new("/bin/sh"), &["-c", &script, &holder, &asker]).loaded().run()
}

#[test]
fn a_later_process_takes_the_slices_limit_and_says_once_that_it_asked_for_another() {
    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    let outcome = beside(&bench, 1 << 20, Some("64MiB"), "32MiB");
    shows(&outcome, 64 << 20, 4 << 20);
    assert!(outcome.err.lines().count() == 1 && outcome.err.contains("32MiB"), "{outcome}");
}

#[test]
fn free_memory_is_never_more_than_the_device_really_has_left() {
    // A process outside the slice holds all but 16 MiB of the device.
    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    let outcome = beside(&bench, GIB - (16 << 20), None, "64MiB").quiet();
    outcome.contains(&["started 1, take 0, info 0: total 67108864, free 14680064"]);
}

#[test]
fn limits_that_name_none_of_the_devices_are_said_to_limit_nothing() {
    for list in ["7=64MiB", "GPU-12345678-1234-1234-1234-123456789abc=64MiB,9=50%"] {
        let bench = Bench::simulated_without_contexts().with_quick_nvml();
        let outcome = ask(&bench, "0").limited(list).run();
        shows(&outcome, GIB, 2 << 20);
        let said = outcome.err.lines().filter(|line| line.contains("name none of the 1 devices")).count();
        assert_eq!(said, 1, "{outcome}");
    }
}

#[test]
fn a_device_of_a_list_that_is_not_there_is_named_once_and_the_others_are_limited() {
    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    let outcome = ask(&bench, "0").limited("0=64MiB,7=1GiB").set("GPU_CORE_PERCENT", "8=30").run();
    shows(&outcome, 64 << 20, 2 << 20);
    for words in [
        "gpuslice: GPU_MEM_LIMIT=\"0=64MiB,7=1GiB\" names device 7, which CUDA does not show this process.",
        "gpuslice: GPU_CORE_PERCENT=\"8=30\" names device 8, which CUDA does not show this process; of device 0, which \
         it shows, it says nothing.",
    ] {
        assert_eq!(outcome.err.lines().filter(|line| *line == words).count(), 1, "{words}: {outcome}");
    }
    assert_eq!(outcome.err.lines().count(), 2, "{outcome}");
}

#[test]
fn no_byte_more_than_the_quota_is_in_use_while_pools_and_contexts_come_and_go_in_many_threads() {
    const QUOTA: u64 = 150_000_000;
    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    let host = bench.host("storm", &["4", "4", "7", "3000", "4194304"]);
    let mut storm = host.limited(&QUOTA.to_string()).start();
    assert_eq!(storm.hear().as_deref(), Some("ready"));
    for _ in 0..3 {
        assert_eq!(storm.ask("1"), "0 4 0");
    }
    let peak = bench.truth(0).peak;
    assert!(peak <= QUOTA && peak > QUOTA / 10 * 9, "{peak} of {QUOTA}");
}
