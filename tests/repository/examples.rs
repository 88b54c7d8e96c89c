//! Tests that the examples print their documented output, without the library and inside a quota.

use crate::support::bench::{Bench, Host};
use crate::support::{artefacts, executable, skip};
use gpuslice_region::{Member, Trust};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Returns the lines that the examples print on a device that seems to have `size` MiB, all of them free.
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

/// Runs an example without the library, with it and no limit, and inside a quota.
fn tells_its_story(program: &Path, arguments: &[&str]) {
    let says = |host: Host<'_>, size: u64| {
        let lines = story(size);
        host.run().quiet().says(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    };
    let bench = Bench::simulated_without_contexts().with("SIMGPU_MEMORY", "512MiB");
    says(bench.program(program, arguments), 512);
    says(bench.program(program, arguments).loaded(), 512);
    says(bench.program(program, arguments).limited("256MiB"), 256);
    assert_eq!(bench.truth_at_rest(0).held, 0, "an example leaves nothing behind");
}

fn example(path: &str) -> PathBuf {
    artefacts::repository().join("examples").join(path)
}

/// Lets one thread compile at a time, because several tests use the same program.
static COMPILER: Mutex<()> = Mutex::new(());

/// Compiles an example with the command that stands in it, unless the program is newer than its sources.
fn compiled(source: &str, name: &str, flags: &[String]) -> Option<PathBuf> {
    let _one = COMPILER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = artefacts::target().join("examples-in-c");
    std::fs::create_dir_all(&folder).unwrap();
    let (source, finished) = (example(source), folder.join(name));
    let modified = |path: &Path| path.metadata().and_then(|data| data.modified());
    // An archive becomes part of the program. A flag that names no file has no age.
    let archives = flags.iter().filter_map(|flag| modified(Path::new(flag)).ok());
    let newest = archives.chain([modified(&source).unwrap()]).max();
    if modified(&finished).ok() > newest {
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

/// Returns the monitor in C, linked with the library or with the archive.
fn slices_in_c(name: &str, link: &[String]) -> Option<PathBuf> {
    let include = format!("-I{}", artefacts::repository().join("include").display());
    let flags: Vec<String> = [include].into_iter().chain(link.iter().cloned()).collect();
    compiled("read/slices.c", name, &flags)
}

fn slices_with_library() -> Option<PathBuf> {
    let folder = artefacts::reader().parent().unwrap().display().to_string();
    slices_in_c(
        "slices",
        &[format!("-L{folder}"), "-lgpuslice_read".to_owned(), format!("-Wl,-rpath,{folder}")],
    )
}

fn slices_with_archive() -> Option<PathBuf> {
    let archive = artefacts::reader().with_extension("a").display().to_string();
    let system = ["-lgcc_s", "-lpthread", "-ldl", "-lm"].map(str::to_owned);
    slices_in_c("slices-static", &[&[archive], &system[..]].concat())
}

/// Returns the monitors as commands.
fn monitors() -> Vec<Vec<String>> {
    let in_c = [slices_with_library(), slices_with_archive()].into_iter().flatten();
    let mut commands: Vec<Vec<String>> = in_c.map(|program| vec![program.display().to_string()]).collect();
    if let Some(python) = python() {
        commands.push(vec![python.display().to_string(), example("read/slices.py").display().to_string()]);
    }
    commands
}

/// Prepares a monitor on a bench. `None` for the slice means all slices.
fn watch<'bench>(bench: &'bench Bench, monitor: &[String], slice: Option<&str>) -> Host<'bench> {
    let arguments: Vec<&str> = monitor.iter().skip(1).map(String::as_str).chain(slice).collect();
    bench
        .program(Path::new(monitor.first().map_or("", String::as_str)), &arguments)
        .set("GPUSLICE_READ_LIB", &artefacts::reader().display().to_string())
}

const HEADING: &str = "SIZES IN MIB         HELD    LIMIT     PEAK REFUSED SHARE %   USED MS";

/// Returns the interpreter itself, which needs no search path.
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
    tells_its_story(&artefacts::cudarc_example(), &[]);
}

#[test]
fn the_monitors_see_the_memory_of_a_process_and_the_rest_when_it_has_ended() {
    let Some(program) = in_c() else { return };
    let bench = Bench::simulated_without_contexts();
    let region = bench.region().display().to_string();
    for monitor in monitors() {
        let command =
            format!("GPUSLICE_READ_LIB={} {} {region}", artefacts::reader().display(), monitor.join(" "));
        let outcome = bench.program(&program, &[&command]).limited("256MiB").run().quiet();
        outcome.contains(&[
            HEADING,
            "region: 1 devices, 1 processes",
            "  device 0            256      256      256       1   100.0         0",
        ]);
        assert_eq!(bench.truth(0).peak, 256 << 20);
        let process = outcome.out.lines().find(|line| line.starts_with("    pid ")).unwrap_or_default();
        let words: Vec<&str> = process.split_whitespace().collect();
        assert_eq!((words.len(), words.get(2), words.get(3)), (5, Some(&"256"), Some(&"1")), "{outcome}");
        // Then no process lives in the slice and nothing is held, but the region still has the slice's figures.
        watch(&bench, &monitor, Some(&region)).run().quiet().says(&[
            HEADING,
            "region: 1 devices, 0 processes",
            "  device 0              0      256      256       1   100.0         0",
        ]);
        assert_eq!(bench.truth_at_rest(0).held, 0);
    }
}

#[test]
fn the_monitors_see_all_slices_of_the_machine_and_open_them_by_name() {
    let Some(program) = in_c() else { return };
    let name = format!("monitored-{}", std::process::id());
    let user = Command::new("id").arg("-u").output().unwrap();
    let region = format!("/dev/shm/gpuslice-{}-run-{name}", String::from_utf8_lossy(&user.stdout).trim());
    let bench = Bench::simulated_without_contexts();
    // Every command removes regions in which no process lives.
    let (_resident, _) = Member::join(region.as_ref(), Trust::OwnerOnly, &[]).expect("it can be made");
    bench.program(&program, &[]).limited("256MiB").set("GPUSLICE_REGION", &region).run().quiet();
    let seen: Vec<_> = monitors()
        .iter()
        .map(|monitor| (watch(&bench, monitor, None).run(), watch(&bench, monitor, Some(&name)).run()))
        .collect();
    std::fs::remove_file(&region).unwrap();
    for (all, one) in seen {
        all.contains(&[HEADING, &format!("{name}: 1 devices, 1 processes")]);
        assert_eq!(all.ended, "exit 0", "{all}");
        one.quiet().contains(&[&format!("{name}: 1 devices, 1 processes")]);
    }
}

#[test]
fn the_monitors_need_the_right_to_read_and_no_other() {
    let (Some(program), Some(monitor)) = (in_c(), slices_with_library()) else { return };
    let bench = Bench::simulated_without_contexts();
    bench.program(&program, &[]).limited("256MiB").run().quiet();
    let region = bench.region();
    let folder = region.parent().unwrap();
    // Another user has to reach the program and the libraries too.
    let copies = [(artefacts::reader(), "libgpuslice_read.so.1"), (monitor, "slices")].map(|(from, name)| {
        executable::copy(from, folder.join(name), 0o755);
        folder.join(name)
    });
    let rights =
        |path: &Path, mode: u32| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    rights(folder, 0o755);
    let watch = || {
        let [_, program] = &copies;
        let arguments = [
            "--reuid=65534",
            "--clear-groups",
            &program.display().to_string(),
            &region.display().to_string(),
        ];
        bench
            .program(Path::new("/usr/bin/setpriv"), &arguments)
            .set("LD_LIBRARY_PATH", &folder.display().to_string())
            .run()
    };
    let refused = watch();
    if refused.err.contains("setpriv:") || !Path::new("/usr/bin/setpriv").exists() {
        return skip(
            "reading another user's region: needs root and setpriv; to mend it: run the tests as root",
        );
    }
    assert_eq!(refused.ended, "exit 1", "{refused}");
    assert!(refused.err.contains("BENCH/region: this user may not read the region"), "{refused}");
    rights(&region, 0o444);
    watch().quiet().contains(&["  device 0              0      256      256       1   100.0         0"]);
}

/// Returns the seconds that the example for shares reports.
fn took(host: Host<'_>) -> f64 {
    let outcome = host.run().quiet();
    let seconds = outcome.out.strip_prefix("60 kernels took ").and_then(|rest| rest.strip_suffix(" s\n"));
    seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or_else(|| panic!("{outcome}"))
}

#[test]
fn at_a_quarter_of_the_time_the_example_takes_four_times_as_long_and_monitors_show_its_use() {
    let Some(python) = python() else { return };
    let bench = Bench::simulated_without_contexts();
    let share = example("python/share.py").display().to_string();
    let bare = took(bench.program(&python, &[&share]));
    let limited = took(bench.program(&python, &[&share]).loaded().set("GPU_CORE_PERCENT", "25"));
    assert!((3.5..4.8).contains(&(limited / bare)), "{limited} s instead of {bare} s");
    let region = bench.region().display().to_string();
    for monitor in monitors() {
        let told = watch(&bench, &monitor, Some(&region)).run().quiet();
        let device = told.out.lines().find(|line| line.starts_with("  device 0")).unwrap_or_default();
        let words: Vec<&str> = device.split_whitespace().skip(2).collect();
        let used: u64 = words.last().and_then(|word| word.parse().ok()).unwrap_or_default();
        assert_eq!(
            (words.first(), words.get(1), words.get(4)),
            (Some(&"0"), Some(&"-"), Some(&"25.0")),
            "{told}"
        );
        assert!((590..=650).contains(&used), "620 ms ran: {told}");
    }
}

#[test]
fn the_monitors_refuse_a_file_that_is_no_region_and_name_it() {
    let bench = Bench::simulated_without_contexts();
    let other = bench.file("other", &"gpuslice".repeat(13_905_920 / 8)).display().to_string();
    let notes = bench.file("notes", "notes").display().to_string();
    let missing = bench.region().display().to_string();
    for monitor in monitors() {
        for (path, reason) in [
            (&other, "BENCH/other: the region has another version than this library reads"),
            (&notes, "BENCH/notes: the file is not a region"),
            (&missing, "BENCH/region: there is no such slice"),
        ] {
            let outcome = watch(&bench, &monitor, Some(path)).run();
            assert_eq!((outcome.ended.as_str(), outcome.out.trim_end()), ("exit 1", HEADING), "{outcome}");
            assert!(outcome.err.starts_with(reason), "{outcome}");
        }
    }
}

/// Line of the example for day and night about a program, with the figures of the GPU.
#[derive(Debug, PartialEq)]
struct Shown {
    part: String,
    process: u32,
    gib: f64,
    percent: f64,
}

impl Shown {
    fn read(line: &str) -> Option<Self> {
        let [part, "process", process, "holds", gib, "GiB", "had", percent, "%", ..] =
            line.split_ascii_whitespace().collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let (process, gib, percent) = (process.parse().ok()?, gib.parse().ok()?, percent.parse().ok()?);
        Some(Self { part: part.to_owned(), process, gib, percent })
    }
}

#[test]
fn by_night_one_program_has_the_gpu_and_by_day_four_have_a_quarter_without_a_restart() {
    let Some(python) = python() else { return };
    let path = format!("{}:/usr/bin:/bin", python.parent().unwrap().display());
    let bench = Bench::simulated_without_contexts().with("PATH", &path);
    let demo = bench.program(Path::new("/bin/sh"), &[&example("day-night/demo.sh").display().to_string()]);
    let demo = demo
        .set("GPUSLICE", env!("CARGO_BIN_EXE_gpuslice"))
        .set("GPUSLICE_LIB", &artefacts::library().display().to_string())
        .set("GPUSLICE_SIMGPU", &artefacts::simulated_driver().display().to_string())
        .set("GPUSLICE_TRUTH", &artefacts::truth_reader().display().to_string());
    let outcome = demo.run();
    assert_eq!(outcome.ended, "exit 0", "{outcome}");
    let shown: Vec<Shown> = outcome.out.lines().filter_map(Shown::read).collect();
    let [day, night, again] =
        [0..4, 4..8, 8..12].map(|rows| shown.get(rows).expect("three parts of four programs"));
    for (rows, part) in [(day, "day"), (night, "night"), (again, "day")] {
        let same = rows.iter().zip(day).all(|(row, first)| row.process == first.process);
        assert!(same && rows.iter().all(|row| row.part == part), "not the same programs: {outcome}");
    }
    for row in day.iter().chain(again) {
        assert!((row.gib - 4.0).abs() < 0.01 && (row.percent - 25.0).abs() < 5.0, "{row:?} in {outcome}");
    }
    let (whole, little): (Vec<&Shown>, Vec<&Shown>) = night.iter().partition(|row| row.gib > 12.9);
    assert!(whole.len() == 1 && whole.iter().all(|row| row.percent > 90.0), "{outcome}");
    assert!(little.iter().all(|row| row.gib < 1.01 && row.percent < 6.0), "{outcome}");
}

#[test]
fn the_script_for_day_and_night_changes_the_slices_it_can_and_names_the_others() {
    let bench = Bench::simulated_without_contexts();
    let script = example("day-night/day-night").display().to_string();
    let asked = |words: &[&str]| {
        let words = [&[script.as_str()], words].concat();
        bench.program(Path::new("/bin/sh"), &words).set("GPUSLICE", env!("CARGO_BIN_EXE_gpuslice")).run()
    };
    let wrong = asked(&[]);
    assert!(wrong.ended == "exit 2" && wrong.err.contains("usage: day-night day|night"), "{wrong}");
    let no_slice = asked(&["day"]);
    assert_eq!(
        (no_slice.ended.as_str(), no_slice.err.matches("there is no slice").count()),
        ("exit 1", 4),
        "{no_slice}"
    );
}
