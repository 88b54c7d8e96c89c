//! Messages of denials: the user learns that the quota is reached, from one line, at the default log level.

use crate::support::bench::Bench;
use crate::support::quotas::{Ground, MIB};

const QUOTA: u64 = 64 * MIB;

fn ground() -> Ground {
    Ground {
        bench: Bench::simulated_without_contexts()
            .with("SIMGPU_MEMORY", "8GiB")
            .with("SIMGPU_CONTEXT_BYTES", "0"),
    }
}

#[test]
fn every_family_of_allocations_reports_its_refusal_once() {
    let families = ["alloc", "alloc1", "pitch", "pitch1", "managed", "async", "from", "create", "array"];
    for family in families.map(|how| format!("take_{how} 1")).iter().map(String::as_str).chain(["graph 1"]) {
        let ground = ground();
        let mut actor = ground.actor("a", "64MiB", &[]);
        actor.does(&format!("take_alloc 0 {QUOTA}"));
        for _ in 0..5 {
            actor.answers(&format!("{family} {}", 4 * MIB), 2);
        }
        let pid = actor.0.pid();
        let lines = actor.refusals();
        let [line] = lines.as_slice() else { panic!("{family}: {lines:?}") };
        // The message names the size that the driver rounds up to.
        let expected =
            "MiB is refused: the slice holds 64MiB of its quota of 64MiB, most of it (64MiB) in process";
        assert!(
            line.starts_with("gpuslice: GPU-") && line.contains(": an allocation of "),
            "{family}: {line}"
        );
        assert!(line.ends_with(&format!("{expected} {pid} (spill).")), "{family}: {line}");
    }
}

#[test]
fn a_refusal_beyond_the_whole_quota_says_how_to_raise_it() {
    let ground = ground();
    let mut actor = ground.actor("a", "64MiB", &[]);
    actor.answers(&format!("take_alloc 0 {}", 65 * MIB), 2);
    let lines = actor.refusals();
    assert!(
        lines.len() == 1
            && lines[0].ends_with(
                ": an allocation of 65MiB (66MiB of the device) is refused: the slice holds 0 bytes of its quota of 64MiB. Raise GPU_MEM_LIMIT."
            ),
        "{lines:?}"
    );
}

#[test]
fn the_process_that_holds_most_is_named_whichever_it_is() {
    let ground = ground();
    let (mut first, mut second) = (ground.actor("a", "64MiB", &[]), ground.actor("a", "64MiB", &[]));
    first.does(&format!("take_alloc 0 {}", 40 * MIB));
    second.does(&format!("take_alloc 0 {}", 10 * MIB));
    second.answers(&format!("take_alloc 1 {}", 20 * MIB), 2);
    let pid = first.0.pid();
    let lines = second.refusals();
    let end =
        format!("the slice holds 50MiB of its quota of 64MiB, most of it (40MiB) in process {pid} (spill).");
    assert!(lines.len() == 1 && lines[0].ends_with(&end), "{lines:?}");
}

#[test]
fn the_log_level_says_how_many_refusals_are_told() {
    for (level, expected) in [("debug", 5), ("info", 1), ("warn", 1), ("error", 0), ("off", 0)] {
        let ground = ground();
        let mut actor = ground.actor("a", "64MiB", &[("GPUSLICE_LOG", level)]);
        (0..5).for_each(|_| actor.answers(&format!("take_alloc 0 {}", 80 * MIB), 2));
        let lines = actor.refusals();
        assert_eq!(lines.len(), expected, "{level}: {lines:?}");
    }
}

/// Runs a program that needs a context of 300 MiB on a GPU of 8 GiB, with one setting. Returns the end of the denial's line.
fn without_room_for_a_context(setting: &str, value: &str) -> String {
    let bench = Bench::simulated_without_contexts()
        .with("SIMGPU_MEMORY", "8GiB")
        .with("SIMGPU_CONTEXT_BYTES", "300MiB");
    let host = bench.host("contexts", &["many"]).loaded();
    let outcome = if setting == "file" {
        let file = bench.file("operator", &format!("# of the cluster\nGPU_MEM_LIMIT={value}\n"));
        host.set("GPUSLICE_CONFIG", &file.display().to_string()).run()
    } else {
        host.set(setting, value).run()
    };
    outcome.contains(&["made 0, then 2, output untouched, left 9999"]);
    let lines: Vec<&str> = outcome.err.lines().collect();
    let [line] = lines.as_slice() else { panic!("{setting}={value}: {outcome}") };
    let takes = ": a context on this device takes about 300MiB and is refused: the slice holds 0 bytes of its quota of ";
    let (start, rest) = line.split_once(takes).unwrap_or_else(|| panic!("{line}"));
    assert!(start.starts_with("gpuslice: GPU-"), "{line}");
    rest.to_owned()
}

#[test]
fn a_refusal_by_a_quota_below_a_context_names_the_setting_and_its_likely_meaning() {
    for (setting, value, expected) in [
        ("GPU_MEM_LIMIT", "4096", "4096 bytes. Raise GPU_MEM_LIMIT; did you mean 4096MiB?"),
        ("GPU_MEM_LIMIT", "4", "4 bytes. Raise GPU_MEM_LIMIT; did you mean 4GiB?"),
        ("GPU_MEM_LIMIT", "0=7000", "7000 bytes. Raise GPU_MEM_LIMIT; did you mean 7000MiB?"),
        ("GPU_MEM_LIMIT", "4MiB", "4MiB. Raise GPU_MEM_LIMIT."),
        ("GPU_MEM_LIMIT", "1%", "81MiB. Raise GPU_MEM_LIMIT."),
        (
            "CUDA_DEVICE_MEMORY_LIMIT",
            "2000",
            "2000 bytes. Raise CUDA_DEVICE_MEMORY_LIMIT; did you mean 2000MiB?",
        ),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "100m", "100MiB. Raise CUDA_DEVICE_MEMORY_LIMIT_0."),
        (
            "file",
            "4096",
            "4096 bytes. The operator's file sets it: BENCH/operator:2: GPU_MEM_LIMIT=\"4096\"; did you mean 4096MiB?",
        ),
    ] {
        assert_eq!(without_room_for_a_context(setting, value), expected, "{setting}={value}");
    }
}

#[test]
fn a_quota_of_the_command_line_is_told_as_its_option() {
    let bench = Bench::simulated_without_contexts()
        .with("SIMGPU_MEMORY", "8GiB")
        .with("SIMGPU_CONTEXT_BYTES", "300MiB");
    // The region has the name that `gpuslice run` gives it.
    let region = bench.region().with_file_name("gpuslice-0-run-train");
    let host = bench.host("contexts", &["many"]).limited("4096");
    let outcome = host.set("GPUSLICE_REGION", &region.display().to_string()).run();
    assert!(outcome.err.ends_with("quota of 4096 bytes. Raise --mem; did you mean 4096MiB?\n"), "{outcome}");
}
