//! Ways into the driver: each leads through the library, and each family of allocations is charged on it.

use crate::support::bench::{Bench, Host};
use crate::support::compiler;
use crate::support::families::FAMILIES;

const QUOTA: u64 = 64 << 20;

/// Returns the output of a host that found every function in the library and was held to the quota by each family.
fn expected() -> Vec<String> {
    let mut lines = vec!["start 0 0 0 0".to_owned()];
    lines.extend(FAMILIES.iter().map(|family| {
        format!("{family}: take 0, one more 2 (untouched), info 0 left 0, give 0, again 0, give 0")
    }));
    lines.push("sizes: 0 0 0 0".to_owned());
    lines.push(format!("device {QUOTA}, whole {QUOTA}, left {QUOTA}"));
    lines.push(format!("narrow device {QUOTA}, whole {QUOTA}, left {QUOTA}, neighbours untouched"));
    lines
}

/// Runs the host through a door and compares its output with [`expected`]. Returns the lines before that output.
#[track_caller]
fn enter(bench: &Bench, source: &str, door: &str) -> Vec<String> {
    let linked = source == "doors_linked";
    let program =
        if linked { compiler::linked("doors.c", source, &[]) } else { Some(compiler::plain("doors")) };
    let program = program.expect("doors.c links with the simulated driver");
    let path = bench.absolute(if door.contains("unversioned") { "libcuda.so" } else { "libcuda.so.1" });
    let quota = QUOTA.to_string();
    let outcome = bench.program(&program, &[door, &quota, &path]).limited("64MiB").run().quiet();
    let servers: Vec<_> = outcome.out.lines().filter(|line| line.contains(" by ")).collect();
    assert!(
        servers.len() >= 45 && servers.iter().all(|line| line.ends_with(" by libgpuslice.so")),
        "{outcome}"
    );
    let from = outcome.out.lines().position(|line| line.starts_with("start ")).unwrap_or(0);
    let lines: Vec<_> = outcome.out.lines().skip(from).collect();
    assert!(lines == expected(), "{outcome}\nexpected:\n{}", expected().join("\n"));
    let truth = bench.truth(0);
    assert_eq!((truth.peak, truth.held), (QUOTA, 0), "{outcome}");
    outcome.out.lines().take(from).filter(|line| !line.contains(" by ")).map(str::to_owned).collect()
}

macro_rules! doors {
    ($( $claim:ident: $source:literal $door:literal $(says $said:literal)?; )*) => { $(
        #[test]
        fn $claim() {
            let said = enter(&Bench::simulated_without_contexts(), $source, $door);
            let expected: &[&str] = &[$($said)?];
            assert_eq!(said, expected);
        }
    )* };
}

doors! {
    a_call_looked_up_in_the_opened_driver_is_charged: "doors" "plain";
    a_call_of_a_driver_opened_without_a_version_is_charged: "doors" "unversioned";
    a_call_of_a_driver_opened_by_its_path_is_charged: "doors" "absolute";
    a_call_of_a_driver_opened_by_its_path_without_a_version_is_charged: "doors" "absolute_unversioned";
    a_call_of_a_driver_opened_for_all_is_charged: "doors" "global";
    a_call_looked_up_in_the_global_scope_is_charged: "doors" "global_default";
    a_call_looked_up_next_is_charged: "doors" "global_next";
    a_call_looked_up_in_the_main_program_is_charged: "doors" "global_main";
    a_call_of_a_driver_opened_with_its_own_scope_first_is_charged: "doors" "deepbind";
    a_call_of_a_driver_opened_in_a_namespace_of_its_own_is_charged: "doors" "dlmopen";
    a_call_of_a_driver_opened_a_second_time_in_another_namespace_is_charged: "doors" "second";
    a_call_of_a_driver_only_asked_whether_it_is_loaded_is_charged: "doors" "noload" says "before loading: not found";
    the_four_argument_look_up_is_charged: "doors" "four";
    the_four_argument_look_up_found_by_itself_is_charged: "doors" "four_by_itself";
    the_five_argument_look_up_is_charged: "doors" "five";
    the_five_argument_look_up_found_by_itself_is_charged: "doors" "five_by_itself";
    the_five_argument_look_up_found_by_the_four_argument_one_is_charged: "doors" "five_by_four";
    a_linked_call_is_charged: "doors_linked" "linked";
    a_linked_and_looked_up_call_is_charged: "doors_linked" "linked_default";
    a_linked_call_looked_up_next_is_charged: "doors_linked" "linked_next";
    a_linked_call_looked_up_in_the_main_program_is_charged: "doors_linked" "linked_main";
    the_linked_four_argument_look_up_is_charged: "doors_linked" "linked_four";
    the_linked_five_argument_look_up_is_charged: "doors_linked" "linked_five";
}

#[test]
fn a_host_that_is_linked_has_the_driver_loaded_from_the_start() {
    let said = enter(&Bench::simulated_without_contexts(), "doors_linked", "noload");
    assert_eq!(said, ["before loading: found"]);
}

/// Ways in which a library with `RTLD_DEEPBIND`, which looks in its own scope first, reaches the driver. The second value is true
/// if the library is linked with the driver.
const DEEP_WAYS: &[(&str, bool)] = &[("linked", true), ("default", true), ("next", true), ("opens", false)];

/// Prepares a host that opens such a library, by the host's own `RUNPATH`.
fn deep<'bench>(bench: &'bench Bench, (way, linked): (&str, bool)) -> Host<'bench> {
    let shared = ["-shared", "-fPIC"];
    let library = if linked {
        compiler::linked("deep.c", "deep_linked.so", &shared)
    } else {
        compiler::compile("deep.c", "deep.so", &shared)
    };
    let library = library.expect("deep.c compiles");
    let program = compiler::compile("deepbind.c", "deepbind", &["-rdynamic", "-Wl,-rpath,$ORIGIN"]);
    let name = library.file_name().expect("it has a name").display().to_string();
    bench.program(&program.expect("deepbind.c compiles"), &[&name, way, &(2 * QUOTA).to_string()])
}

#[test]
fn a_library_that_looks_in_its_own_scope_first_is_held_to_the_quota() {
    for way in DEEP_WAYS {
        let bench = Bench::simulated_without_contexts();
        let outcome = deep(&bench, *way).limited("64MiB").run().quiet();
        outcome.contains(&["looks in the program first", "takes: 2", "takes within the quota: 0"]);
        let nowhere = ["default", "next", "default again", "next again"];
        outcome.contains(
            &nowhere.map(|line| format!("{line}: not found, an error")).each_ref().map(String::as_str),
        );
        assert_eq!(bench.truth(0).peak, QUOTA / 2, "{outcome}");
    }
}

#[test]
fn without_a_limit_a_library_looks_in_its_own_scope_first() {
    for way in DEEP_WAYS {
        let bench = Bench::simulated_without_contexts();
        let bare = deep(&bench, *way).run().quiet();
        bare.contains(&["looks in itself first", "takes: 0", "takes within the quota: 0"]);
        deep(&bench, *way).loaded().run().quiet().same_as(&bare);
    }
}

#[test]
fn the_flag_is_left_where_that_is_set_and_told_where_it_is_taken() {
    let bench = Bench::simulated_without_contexts();
    let limited = || deep(&bench, DEEP_WAYS[0]).limited("64MiB").set("GPUSLICE_LOG", "info");
    let taken = limited().run();
    let line = "gpuslice: deep_linked.so is opened without RTLD_DEEPBIND, with which it would pass the limits; \
                GPUSLICE_DEEPBIND=1 leaves the flag.";
    assert!(taken.err.lines().any(|said| said == line), "{taken}");
    let left = limited().set("GPUSLICE_DEEPBIND", "1").run();
    assert!(!left.err.contains("RTLD_DEEPBIND"), "{left}");
    left.contains(&["looks in itself first"]);
}

/// If a limit cannot be read, gpuslice refuses GPU work, also to a library that looks in its own scope first.
#[test]
fn a_library_that_looks_in_its_own_scope_first_is_refused_the_gpu_with_the_program() {
    for way in DEEP_WAYS {
        let bench = Bench::simulated_without_contexts();
        let outcome = deep(&bench, *way).limited("much").run();
        outcome.contains(&["takes: 800", "takes within the quota: 800"]);
        assert_eq!(outcome.ended, "exit 0", "{outcome}");
    }
}

/// Drivers have no symbol versions, so a look-up by version finds nothing in them, with or without the library.
#[test]
fn a_look_up_by_version_answers_as_without_the_library() {
    let bench = Bench::simulated_without_contexts();
    let program = compiler::plain("doors");
    let linked =
        compiler::linked("doors.c", "doors_linked", &[]).expect("doors.c links with the simulated driver");
    for (program, door) in [(program, "dlvsym"), (linked, "linked_default_versioned")] {
        let bare = bench.program(&program, &[door, "0"]).run().quiet();
        bench.program(&program, &[door, "0"]).loaded().run().quiet().same_as(&bare);
    }
}

#[test]
fn the_same_host_passes_the_quota_where_nothing_is_loaded() {
    let bench = Bench::simulated_without_contexts();
    let quota = QUOTA.to_string();
    let outcome = bench.host("doors", &["plain", &quota]).run().quiet();
    for family in FAMILIES {
        let line = outcome.out.lines().find(|line| line.starts_with(&format!("{family}: ")));
        assert!(line.is_some_and(|line| line.contains("take 0, one more 0 (written)")), "{outcome}");
    }
    assert!(bench.truth(0).peak > QUOTA, "{outcome}");
}

#[test]
fn the_management_library_shows_the_quota_as_the_size() {
    for take in [0_u64, 2 << 20, QUOTA] {
        let bench = Bench::simulated_without_contexts();
        let taken = take.to_string();
        let arguments: &[&str] = if take == 0 { &[] } else { &["take", &taken] };
        let outcome = bench.host("management", arguments).limited("64MiB").run().quiet();
        let left = QUOTA - take;
        outcome.contains(&[
            "nvmlDeviceGetMemoryInfo by libgpuslice.so",
            "before init 1",
            "init 0 0 0",
            "handle 0 0",
            &format!("memory 0: total {QUOTA}, free {left}, used {take}"),
            &format!("memory v2 0: total {QUOTA}, free {left}, used {take}, adds up yes"),
        ]);
    }
}

#[test]
fn nvml_is_initialised_where_the_program_has_done_it_and_nowhere_else() {
    let bench = Bench::simulated_without_contexts();
    let bare = bench.host("nvml_states", &[]).run().quiet();
    bare.contains(&[
        "without: count 1, text Uninitialized",
        "with: init 0 0, count 0: 1, handle 0, memory 0",
    ]);
    bench.host("nvml_states", &[]).limited("64MiB").run().quiet().same_as(&bare);
}
