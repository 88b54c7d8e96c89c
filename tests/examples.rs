//! Do the examples do what they say, bare and inside a quota?
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;
use support::bench::{Bench, Host};
use support::{artefacts, skip};

/// What the examples print on a device that seems to have this many MiB, all of them free.
fn story(size: u64) -> Vec<String> {
    let piece = size / 8;
    vec![
        format!("device 0: {size} MiB, {size} MiB free"),
        "1024 numbers there and back: the same".to_owned(),
        format!("8 pieces of {piece} MiB granted, then CUDA_ERROR_OUT_OF_MEMORY"),
        "0 MiB free".to_owned(),
        format!("one piece freed: {piece} MiB free"),
        "one more piece granted: 0 MiB free".to_owned(),
        format!("all freed: {size} MiB free"),
    ]
}

/// Runs an example bare, under the library without a limit, and inside a quota.
fn tells_its_story(program: &Path, arguments: &[&str]) {
    let says = |host: Host<'_>, size: u64| {
        let lines = story(size);
        host.run().quiet().says(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    };
    let bench = Bench::simulated().with("SIMGPU_MEMORY", "512MiB");
    says(bench.program(program, arguments), 512);
    says(bench.program(program, arguments).loaded(), 512);
    says(bench.program(program, arguments).limited("256MiB"), 256);
    assert_eq!(bench.truth(0).held, 0, "an example leaves nothing behind");
}

fn example(path: &str) -> PathBuf {
    artefacts::repository().join("examples").join(path)
}

/// One at a time: several tests use the same program.
static COMPILER: Mutex<()> = Mutex::new(());

/// Compiles an example as the command says that stands in it, unless that has been done.
fn compiled(source: &str, name: &str, flags: &[String]) -> Option<PathBuf> {
    let _one = COMPILER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = artefacts::target().join("examples-in-c");
    std::fs::create_dir_all(&folder).unwrap();
    let (source, finished) = (example(source), folder.join(name));
    let modified = |path: &Path| path.metadata().and_then(|data| data.modified());
    if modified(&finished).unwrap_or(SystemTime::UNIX_EPOCH) > modified(&source).unwrap() {
        return Some(finished);
    }
    let part = folder.join(format!("{name}.{}", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).args([&part, &source]).args(flags);
    let Ok(output) = compiler.output() else {
        skip(&format!("example {name}: no C compiler; to mend it: apt-get install gcc libc6-dev"));
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&part, &finished).unwrap();
    Some(finished)
}

fn in_c() -> Option<PathBuf> {
    let folder = format!("-L{}", artefacts::simulated_driver().display());
    compiled("c/quota.c", "quota", &[folder, "-l:libcuda.so.1".to_owned()])
}

fn reader_in_c() -> Option<PathBuf> {
    let include = format!("-I{}", artefacts::repository().join("include").display());
    compiled("region/read.c", "read", &[include])
}

/// The interpreter itself, which needs no search path.
fn python() -> Option<PathBuf> {
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let found = asked.ok().filter(|output| output.status.success());
    if found.is_none() {
        skip("the examples in Python: no python3; to mend it: apt-get install python3");
    }
    Some(PathBuf::from(String::from_utf8_lossy(&found?.stdout).trim()))
}

#[test]
fn the_example_in_c_sees_its_quota() {
    if let Some(program) = in_c() {
        tells_its_story(&program, &[]);
    }
}

#[test]
fn the_example_in_python_sees_its_quota() {
    if let Some(python) = python() {
        tells_its_story(&python, &[&example("python/quota.py").display().to_string()]);
    }
}

#[test]
fn the_example_with_cudarc_sees_its_quota() {
    let program = artefacts::target().join("release/example-cudarc");
    assert!(program.exists(), "{} does not exist; run ci/stage.sh", program.display());
    tells_its_story(&program, &[]);
}

#[test]
fn the_readers_of_a_region_see_what_a_process_holds() {
    let (Some(program), Some(reader)) = (in_c(), reader_in_c()) else { return };
    let bench = Bench::simulated();
    let region = bench.region().display().to_string();
    let mut commands = vec![format!("{} {region}", reader.display())];
    if let Some(python) = python() {
        commands.push(format!("{} {} {region}", python.display(), example("region/read.py").display()));
    }
    for command in commands {
        let outcome = bench.program(&program, &[&command]).limited("256MiB").run().quiet();
        let line = "device 0: quota 256 MiB, held 256 MiB, processes 1, refusals 1, share 100.0 %, used 0 ms";
        outcome.contains(&[line]);
    }
    // Afterwards nobody lives and nothing is held.
    let outcome = bench.program(&reader, &[&region]).run().quiet();
    outcome.says(&["device 0: quota 256 MiB, held 0 MiB, processes 0, refusals 0, share 100.0 %, used 0 ms"]);
}

/// What the example for shares says, in seconds.
fn took(host: Host<'_>) -> f64 {
    let outcome = host.run().quiet();
    let seconds = outcome.out.strip_prefix("60 kernels took ").and_then(|rest| rest.strip_suffix(" s\n"));
    seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or_else(|| panic!("{outcome}"))
}

#[test]
fn a_quarter_of_the_time_makes_the_example_take_four_times_as_long_and_the_readers_tell_what_it_used() {
    let (Some(python), Some(reader)) = (python(), reader_in_c()) else { return };
    let bench = Bench::simulated();
    let share = example("python/share.py").display().to_string();
    let bare = took(bench.program(&python, &[&share]));
    let limited = took(bench.program(&python, &[&share]).loaded().set("GPU_CORE_PERCENT", "25"));
    assert!((3.5..4.8).contains(&(limited / bare)), "{limited} s instead of {bare} s");
    let region = bench.region().display().to_string();
    let told = bench.program(&reader, &[&region]).run().quiet();
    let used = told
        .out
        .trim_end()
        .strip_prefix("device 0: no quota, held 0 MiB, processes 0, refusals 0, share 25.0 %, used ");
    let used: u64 =
        used.and_then(|rest| rest.strip_suffix(" ms")?.parse().ok()).unwrap_or_else(|| panic!("{told}"));
    assert!((590..=650).contains(&used), "620 ms ran: {told}");
    let in_python = bench.program(&python, &[&example("region/read.py").display().to_string(), &region]);
    assert_eq!(in_python.run().quiet().out, told.out);
}

#[test]
fn the_readers_refuse_what_is_no_region() {
    let Some(reader) = reader_in_c() else { return };
    let bench = Bench::simulated();
    let other = bench.file("other", &"gpuslice".repeat(11_808_768 / 8)).display().to_string();
    let mut readers = vec![bench.program(&reader, &[&other])];
    if let Some(python) = python() {
        readers.push(bench.program(&python, &[&example("region/read.py").display().to_string(), &other]));
    }
    for reader in readers {
        let outcome = reader.run();
        assert_eq!((outcome.ended.as_str(), outcome.out.as_str()), ("exit 1", ""), "{outcome}");
        assert!(outcome.err.contains("BENCH/other: not a region of version 4"), "{outcome}");
    }
}
