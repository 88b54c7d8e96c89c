//! A program does not notice the library without a limit, without a driver, or beside other preloads.

use crate::support::bench::{Bench, Host};
use crate::support::outcome::Outcome;
use crate::support::{artefacts, compiler, executable, skip};
use std::path::{Path, PathBuf};

const QUOTA: &str = "67108864";

/// Returns the files that slices make in the default folder.
fn default_regions() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("gpuslice")))
        .collect();
    files.sort();
    files
}

#[test]
fn a_program_notices_nothing_of_the_library_where_no_limit_is_set() {
    let before = default_regions();
    let bench = Bench::simulated_without_contexts();
    // The first run makes the simulated GPU's state and leaves another `errno`.
    let _state = bench.host("passive", &[]).run().quiet();
    let bare = bench.host("passive", &[]).run().quiet();
    assert!(bare.out.contains("step 11: "), "{bare}");
    bench.host("passive", &[]).loaded().run().quiet().same_as(&bare);
    assert!(!bench.region().exists(), "a region was made without a limit");
    assert_eq!(default_regions(), before);
}

#[test]
fn a_program_that_never_touches_the_driver_leaves_no_region_behind_under_a_quota() {
    let before = default_regions();
    let bench = Bench::simulated_without_contexts();
    for program in ["/bin/true", "/bin/ls", "/bin/sh"] {
        let arguments: &[&str] = if program == "/bin/sh" { &["-c", "echo said; exit 0"] } else { &[] };
        let bare = bench.program(Path::new(program), arguments).run().quiet();
        let limited = bench.program(Path::new(program), arguments).limited("64MiB").run().quiet();
        limited.same_as(&bare);
    }
    assert!(!bench.region().exists(), "a region was made for nothing");
    assert_eq!(default_regions(), before);
}

#[test]
fn without_a_driver_look_ups_find_nothing() {
    let bench = Bench::without_driver();
    let bare = bench.host("absent", &[]).run().quiet();
    bare.contains(&["default cuInit by nobody, an error", "loaded before: no"]);
    bench.host("absent", &[]).loaded().run().quiet().same_as(&bare);
    bench.host("absent", &[]).limited("64MiB").run().quiet().same_as(&bare);
    assert!(!bench.region().exists(), "a region was made without a driver");
}

#[test]
fn calls_without_a_driver_answer_that_there_is_none() {
    let bench = Bench::without_driver();
    for limit in [None, Some("64MiB")] {
        let host = bench.host("absent", &["call"]);
        let outcome =
            limit.map_or_else(|| bench.host("absent", &["call"]).loaded(), |limit| host.limited(limit));
        let outcome = outcome.run().quiet();
        outcome.contains(&["cuInit: 100", "cuDriverGetVersion: 3", "cuMemAlloc_v2: 3", "cuMemCreate: 3"]);
        outcome.contains(&[
            "cuMemFree_v2: 3",
            "cuGetProcAddress: 3",
            "cuGetProcAddress_v2: 3",
            "cuMemGetInfo_v2: 3",
        ]);
        outcome.contains(&["nvmlInit_v2: 12", "nvmlInit: 12", "nvmlShutdown: 12", "nvmlErrorString: a text"]);
        outcome.contains(&["outputs untouched", "loaded after: no"]);
        assert!(!bench.region().exists(), "a region was made without a driver");
    }
}

/// Compiles a host that is linked with the driver and uses files and memory.
fn chain(flags: &[&str], name: &str) -> Option<PathBuf> {
    compiler::linked("chain.c", name, flags)
}

/// Runs the host with other objects before and after the library, and without the library. Asserts that the quota holds exactly
/// if the library is there.
#[track_caller]
fn beside(program: &Path, others: &[PathBuf], setting: (&str, &str)) -> [Outcome; 3] {
    let run = |order: &[&Path], limit: bool| {
        let bench = Bench::simulated_without_contexts();
        let mut host: Host<'_> = bench.program(program, &[QUOTA]).set(setting.0, setting.1);
        for object in order {
            host = host.preload(object);
        }
        let outcome = if limit { host.set("GPU_MEM_LIMIT", "64MiB").run() } else { host.run() }.quiet();
        let more = if limit { 2 } else { 0 };
        outcome.contains(&["file open", "start 0 0 0", &format!("take 0, one more {more}"), "give 0"]);
        outcome.contains(&[&format!("looked up: take 0, one more {more}")]);
        outcome
    };
    let library = artefacts::library();
    let others: Vec<&Path> = others.iter().map(PathBuf::as_path).collect();
    let first: Vec<&Path> = [library.as_path()].into_iter().chain(others.iter().copied()).collect();
    let last: Vec<&Path> = others.iter().copied().chain([library.as_path()]).collect();
    let outcomes = [run(&others, false), run(&first, true), run(&last, true)];
    for order in [&first, &last] {
        run(order, false).same_as(&outcomes[0]);
    }
    outcomes
}

#[test]
fn another_preload_of_files_and_memory_works_before_and_after_us() {
    let program = chain(&[], "chain").expect("chain.c links with the simulated driver");
    for outcome in beside(&program, &[compiler::wrapper("wrap_files")], ("LANG", "C")) {
        outcome.contains(&["wrapped_opens: some", "wrapped_takes: some"]);
    }
}

#[test]
fn another_preload_of_the_driver_is_charged_before_and_after_us() {
    let program = chain(&[], "chain").expect("chain.c links with the simulated driver");
    let bench = Bench::simulated_without_contexts();
    let wrapper = compiler::wrapper("wrap_driver");
    for order in [[wrapper.clone(), artefacts::library()], [artefacts::library(), wrapper.clone()]] {
        let host = order.iter().fold(bench.program(&program, &[QUOTA]), |host, object| host.preload(object));
        let outcome = host.set("GPU_MEM_LIMIT", "64MiB").run().quiet();
        outcome.contains(&["take 0, one more 2", "give 0", "looked up: take 0, one more 2"]);
    }
    let host = bench.program(&program, &[QUOTA]).preload(&wrapper).limited("64MiB");
    host.run().quiet().contains(&["wrapped_allocations: some"]);
}

#[test]
fn both_other_preloads_work_with_us_in_between() {
    let program = chain(&[], "chain").expect("chain.c links with the simulated driver");
    let bench = Bench::simulated_without_contexts();
    let host = bench.program(&program, &[QUOTA]).preload(&compiler::wrapper("wrap_files"));
    let outcome = host.limited("64MiB").preload(&compiler::wrapper("wrap_driver")).run().quiet();
    outcome.contains(&["take 0, one more 2", "looked up: take 0, one more 2", "wrapped_opens: some"]);
}

#[test]
fn of_two_copies_of_the_library_the_first_charges_and_the_other_says_so() {
    let program = chain(&[], "chain").expect("chain.c links with the simulated driver");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (library, copy) = (artefacts::library(), folder.path().join("libgpuslice.so"));
    executable::copy(&library, &copy, 0o755);
    for order in [[&library, &copy], [&copy, &library]] {
        let bench = Bench::simulated_without_contexts();
        let host = order.iter().fold(bench.program(&program, &[QUOTA]), |host, object| host.preload(object));
        let outcome = host.set("GPU_MEM_LIMIT", "64MiB").run();
        outcome.contains(&["take 0, one more 2", "give 0", "looked up: take 0, one more 2"]);
        let [first, second] = order.map(|path| path.display().to_string());
        let told = format!(
            "gpuslice: {first} limits, and {second} does nothing, because it is a second copy; preload one of them.\n"
        );
        assert!(
            outcome.err.starts_with(&told) && outcome.err.matches("a second copy").count() == 1,
            "{outcome}"
        );
    }
}

#[test]
fn other_allocators_work_before_and_after_us() {
    let program = chain(&[], "chain").expect("chain.c links with the simulated driver");
    let mut found = Vec::new();
    for (name, package) in
        [("libjemalloc.so.2", "libjemalloc2"), ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4")]
    {
        match artefacts::system_object(name) {
            Some(object) => found.push(object),
            None => {
                skip(&format!(
                    "{name} beside us: it is not installed; to mend it: apt-get install {package}"
                ));
            }
        }
    }
    for object in &found {
        beside(&program, std::slice::from_ref(object), ("MALLOC_CONF", "background_thread:true"));
    }
    if found.len() > 1 {
        beside(&program, &found, ("MALLOC_CONF", "background_thread:true"));
    }
}

#[test]
fn a_host_under_a_sanitizer_works() {
    let sanitizers = [
        ("address", "ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0"),
        ("thread", "TSAN_OPTIONS", "exitcode=66:ignore_noninstrumented_modules=1"),
    ];
    for (name, variable, options) in sanitizers {
        let flag = format!("-fsanitize={name}");
        match chain(&[&flag], &format!("chain_{name}")) {
            Some(program) => drop(beside(&program, &[], (variable, options))),
            None => skip(&format!(
                "a host under the {name} sanitizer: cc has none; to mend it: apt-get install gcc"
            )),
        }
    }
}

/// Output of a program whose limit cannot be enforced.
const REFUSED: &[&str] = &["init 800", "init again 800", "nvml 4", "nvml with flags 4"];

#[test]
fn a_limit_that_cannot_be_enforced_refuses_to_start_and_says_why_in_one_line() {
    let refused = [
        ("GPU_MEM_LIMIT", "0"),
        ("GPU_MEM_LIMIT", "lots"),
        ("GPU_MEM_LIMIT", "-1GiB"),
        ("GPU_MEM_LIMIT", "4GiBs"),
        ("GPU_MEM_LIMIT", "0%"),
        ("GPU_MEM_LIMIT", "4 4 GiB"),
        ("GPU_MEM_LIMIT", "0x1000"),
        ("GPU_MEM_LIMIT", "0=4GiB,1="),
        ("GPU_MEM_LIMIT", "99999999999999999999g"),
        ("GPU_CORE_PERCENT", "half"),
        ("GPU_CORE_PERCENT", "0"),
        ("GPU_CORE_PERCENT", "101"),
        ("GPU_CORE_BURST", "20"),
        ("GPU_CORE_METER", "guess"),
        ("GPU_CORE_POLICY", "fair"),
        ("GPU_CORE_WEIGHT", "0"),
        ("GPU_PRIORITY", "urgent"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "plenty"),
    ];
    for (variable, value) in refused {
        let bench = Bench::simulated_without_contexts();
        let outcome = bench.host("refused", &[]).loaded().set(variable, value).run();
        assert_eq!(outcome.ended, "exit 0", "{variable}={value}: {outcome}");
        outcome.contains(REFUSED);
        assert!(outcome.out.contains(", nothing"), "{outcome}");
        assert_eq!(outcome.err.lines().count(), 1, "{variable}={value}: {outcome}");
        assert!(
            outcome.err.contains(variable) && outcome.err.contains(value),
            "{variable}={value}: {outcome}"
        );
    }
}

#[test]
fn a_foreign_region_refuses_to_start_and_is_named() {
    let bench = Bench::simulated_without_contexts();
    bench.file("region", "this was somebody's file\n");
    let outcome = bench.host("refused", &[]).limited("64MiB").run();
    assert_eq!(outcome.ended, "exit 0", "{outcome}");
    outcome.contains(REFUSED);
    assert!(outcome.err.lines().count() == 1 && outcome.err.contains("BENCH/region"), "{outcome}");
    let left = std::fs::read_to_string(bench.region()).unwrap();
    assert_eq!(left, "this was somebody's file\n");
}

#[test]
fn a_refusal_that_cannot_be_printed_harms_no_program() {
    let bench = Bench::simulated_without_contexts();
    let program = compiler::plain("refused").display().to_string();
    for line in ["\"$0\" 2>/dev/full", "\"$0\" 2>&-", "{ \"$0\" 2>&1 >&3 | :; } 3>&1"] {
        let host = bench.program(Path::new("/bin/sh"), &["-c", line, &program]);
        let outcome = host.limited("lots").run().quiet();
        outcome.contains(REFUSED);
    }
}

#[test]
fn a_log_whose_reader_has_ended_or_never_came_harms_no_program() {
    let bench = Bench::simulated_without_contexts();
    let program = compiler::plain("refused").display().to_string();
    let pipe = bench.region().with_file_name("pipe").display().to_string();
    let into_a_pipe = "mkfifo \"$1\" && exec \"$0\"";
    for (log, line) in [("/dev/fd/9", "{ \"$0\" 9>&1 >&3 | :; } 3>&1"), (&*pipe, into_a_pipe)] {
        let host = bench.program(Path::new("/bin/sh"), &["-c", line, &program, &pipe]);
        let outcome = host.limited("lots").set("GPUSLICE_LOG", &format!("warn:{log}")).run().quiet();
        outcome.contains(REFUSED);
    }
}

#[test]
fn a_limit_beyond_the_device_is_said_and_the_devices_size_is_used() {
    let bench = Bench::simulated_without_contexts();
    let outcome = bench.host("management", &["take", "2097152"]).limited("2GiB").run();
    assert_eq!(outcome.ended, "exit 0", "{outcome}");
    outcome.contains(&["memory 0: total 1073741824, free 1071644672, used 2097152"]);
    assert!(outcome.err.lines().count() == 1 && outcome.err.contains("GPU_MEM_LIMIT"), "{outcome}");
}

#[test]
fn logging_that_is_off_says_nothing() {
    let bench = Bench::simulated_without_contexts();
    let outcome = bench.host("refused", &[]).limited("lots").set("GPUSLICE_LOG", "off").run().quiet();
    outcome.contains(REFUSED);
}
