//! NVML's lists of processes, reduced to the slice of the program that asks.
//!
//! On one GPU: `a1` and `a2` in a slice, `b1` in another slice, `o1` without the library. Watchers hold no memory. No process of
//! the slice `c` has used the GPU.

use crate::support::bench::Bench;
use crate::support::outcome::Outcome;
use crate::support::{artefacts, compiler, skip};
use std::collections::BTreeMap;

const FORMS: [&str; 3] = ["", "_v2", "_v3"];
const A1: &str = "a1 67108864";
const A2: &str = "a2 33554432";
const B1: &str = "b1 16777216";
const O1: &str = "o1 8388608";

/// Makes a bench on which contexts take no memory, so that a process holds only the memory that it took.
fn stage() -> Bench {
    without_quota().with("QUOTA", "256MiB")
}

fn without_quota() -> Bench {
    Bench::simulated_without_contexts().with_quick_nvml().with("SIMGPU_CONTEXT_BYTES", "0")
}

#[track_caller]
fn scene(bench: &Bench, words: &[&str]) -> Outcome {
    play(bench, &artefacts::library().display().to_string(), words)
}

/// Runs a scene under an NVML library that is not the simulated one.
#[track_caller]
fn strange(bench: &Bench, words: &[&str]) -> Outcome {
    let wrapper = compiler::wrapper("strange_nvml");
    play(bench, &format!("{}:{}", artefacts::library().display(), wrapper.display()), words)
}

#[track_caller]
fn play(bench: &Bench, libraries: &str, words: &[&str]) -> Outcome {
    let all: Vec<_> = [libraries].into_iter().chain(words.iter().copied()).collect();
    bench.host("processes", &all).run().quiet()
}

/// Returns the line that a host prints of a list of compute processes.
fn compute(viewer: &str, form: &str, shown: &[&str]) -> String {
    let named: String = shown.iter().map(|entry| format!(", {entry}")).collect();
    format!("{viewer} nvmlDeviceGetComputeRunningProcesses{form} room 16: 0, {}{named}", shown.len())
}

/// Fails unless a viewer was shown these processes in each form of the list.
#[track_caller]
fn names(outcome: &Outcome, viewer: &str, shown: &[&str]) {
    for form in FORMS {
        outcome.contains(&[&compute(viewer, form, shown)]);
    }
}

#[test]
fn each_slice_is_shown_its_own_processes_in_every_list() {
    let outcome = scene(&stage(), &["lists"]);
    let views: [(&str, &[&str]); 5] = [
        ("a1", &[A1, A2]),
        ("b1", &[B1]),
        ("o1", &[A1, A2, B1, O1]),
        ("watcher-of-a", &[A1, A2]),
        ("watcher-of-c", &[]),
    ];
    for (viewer, shown) in views {
        names(&outcome, viewer, shown);
        let details: String = shown.iter().map(|entry| format!(", {entry} protected 0")).collect();
        outcome.contains(&[&format!("{viewer} details mode 0 room 16: 0, {}{details}", shown.len())]);
        for sort in ["Graphics", "MPSCompute"] {
            for form in FORMS {
                outcome.contains(&[&format!(
                    "{viewer} nvmlDeviceGet{sort}RunningProcesses{form} room 16: 0, 0"
                )]);
            }
        }
        outcome.contains(
            &[1, 2]
                .map(|mode| format!("{viewer} details mode {mode} room 16: 0, 0"))
                .each_ref()
                .map(String::as_str),
        );
    }
}

#[test]
fn too_little_room_is_told_with_the_number_of_the_slices_own() {
    let outcome = scene(&stage(), &["edges"]);
    for form in FORMS {
        let list = |viewer: &str, room: u32| {
            format!("{viewer} nvmlDeviceGetComputeRunningProcesses{form} room {room}")
        };
        for viewer in ["a1", "watcher-of-a"] {
            let enough = format!("{}: 0, 2, {A1}, {A2}", list(viewer, 2));
            let none = [format!("{}: 7, 2", list(viewer, 0)), format!("{}: 7, 2", list(viewer, 1)), enough];
            none.iter().for_each(|line| outcome.contains(&[line]));
            // The program says that it has room for 16 entries, and passes no buffer.
            outcome.contains(&[&format!("{}: 2, 2", list(viewer, 16))]);
        }
        outcome.contains(&[&format!("{}: 7, 1", list("b1", 0)), &format!("{}: 0, 1, {B1}", list("b1", 1))]);
        outcome.contains(&[&format!("{}: 0, 0", list("watcher-of-c", 0))]);
    }
    outcome.contains(&["a1 details mode 0 room 0: 7, 2", "a1 details mode 0 room 1: 7, 2"]);
    outcome.contains(&["watcher-of-c details mode 0 room 0: 0, 0", "a1 details mode 0 room 16: 25, 16"]);
    // The answer to wrong arguments is the driver's own.
    for viewer in ["a1", "o1", "watcher-of-c"] {
        let wrong = [1, 2, 3].map(|form| format!("{viewer} form {form} no device 2, no count 2"));
        wrong.iter().for_each(|line| outcome.contains(&[line]));
        outcome.contains(&[&format!("{viewer} no list 2")]);
    }
}

#[test]
fn a_killed_member_is_gone_from_the_list() {
    let outcome = scene(&stage(), &["killed"]);
    names(&outcome, "before", &[A1, A2]);
    names(&outcome, "a1", &[A1]);
    names(&outcome, "watcher-of-a", &[A1]);
    // The list must be right also if only the region names the processes.
    let outcome = strange(&stage().with("STRANGE_EMPTY", "1"), &["killed"]);
    outcome.contains(&[&compute("before", "_v3", &[A1, A2]), &compute("a1", "_v3", &[A1])]);
}

#[test]
fn a_member_that_holds_nothing_is_not_listed_from_the_region() {
    let outcome = strange(&stage().with("STRANGE_EMPTY", "1"), &["idle"]);
    outcome.contains(&[&compute("a1", "_v3", &[A1, A2])]);
}

#[test]
fn a_member_of_another_namespace_is_not_taken_for_a_stranger_with_its_number() {
    let outcome = scene(&stage(), &["far"]);
    // The number is also the number of `b1`. The figure must be that of `a2`.
    names(&outcome, "a1", &[A1, "b1 33554432"]);
    names(&outcome, "watcher-of-a", &[A1, "b1 33554432"]);
    names(&outcome, "b1", &[B1]);
}

#[test]
fn members_are_shown_from_the_region_where_the_driver_names_no_process() {
    let outcome = scene(&stage().with("BLIND", "1"), &["lists"]);
    names(&outcome, "watcher-of-a", &[A1, A2]);
    names(&outcome, "watcher-of-c", &[]);
    for sort in ["Graphics", "MPSCompute"] {
        for form in FORMS {
            let line = format!("watcher-of-a nvmlDeviceGet{sort}RunningProcesses{form} room 16: 0, 0");
            outcome.contains(&[&line]);
        }
    }
    let details = format!("watcher-of-a details mode 0 room 16: 0, 2, {A1} protected 0, {A2} protected 0");
    outcome.contains(&[&details, "watcher-of-a details mode 1 room 16: 0, 0"]);
}

#[test]
fn host_pids_of_other_processes_do_not_hide_members() {
    let outcome = strange(&stage().with("STRANGE_SHIFT", "1000000"), &["compute"]);
    outcome.contains(&[&compute("a1", "_v3", &[A1, A2]), &compute("b1", "_v3", &[B1])]);
}

#[test]
fn entries_of_the_third_form_have_the_size_that_the_driver_writes() {
    let cases: [(&str, [&str; 3]); 3] = [
        ("16", ["a1 1000", "a2 1001", "b1 1002"]),
        ("24", ["a1 1000 in 3.4", "a2 1001 in 3.5", "b1 1002 in 3.6"]),
        ("32", ["a1 1000 in 3.4", "a2 1001 in 3.5", "b1 1002 in 3.6"]),
    ];
    for (size, [first, second, other]) in cases {
        let bench = stage().with("STRANGE_STRIDE", size).with("THIRD_FORM", size);
        let outcome = strange(&bench, &["compute"]);
        outcome.contains(&[&compute("a1", "_v3", &[first, second]), &compute("b1", "_v3", &[other])]);
        outcome.contains(&[&compute("watcher-of-c", "_v3", &[])]);
    }
}

#[test]
fn the_slices_own_processes_are_found_among_many() {
    let many = stage().with("STRANGE_CROWD", "300");
    let shown = compute("a1", "_v3", &["a1 1300 in 3.304", "a2 1301 in 3.305"]);
    strange(&many, &["compute"]).contains(&[&shown]);
    strange(&many, &["use"]).contains(&["a1 use 0, 2, a1 310, a2 311"]);
    strange(&many, &["accounting"]).contains(&["a1 accounting 0, 2, a1, a2; question 7, 2"]);
}

#[test]
fn the_drivers_version_tells_the_size_where_it_wrote_nothing() {
    let versions = [
        ("535.43.02", "32"),
        ("535.86.10", "32"),
        ("535.98", "24"),
        ("535.42.01", "24"),
        ("565.57.01", "24"),
        ("470.82.01", "24"),
        ("unknown", "24"),
    ];
    for (version, size) in versions {
        let bench =
            stage().with("STRANGE_EMPTY", "1").with("STRANGE_VERSION", version).with("THIRD_FORM", size);
        let outcome = strange(&bench, &["compute"]);
        outcome.contains(&[&compute("a1", "_v3", &[A1, A2]), &compute("b1", "_v3", &[B1])]);
    }
}

#[test]
fn use_by_process_is_shown_of_the_slices_own() {
    let outcome = strange(&stage(), &["use"]);
    let listed = |viewer: &str, found: u32, first: &str, second: &str| {
        outcome.contains(&[&format!("{viewer} use: question 7, room some")]);
        outcome.contains(&[&format!("{viewer} use 0, {found}{first}")]);
        let list = format!("{viewer} use list: question 7, then 0, {found}{second}, wrong version 25");
        outcome.contains(&[&list]);
    };
    listed("a1", 2, ", a1 10, a2 11", ", a1 20, a2 21");
    listed("watcher-of-a", 2, ", a1 10, a2 11", ", a1 20, a2 21");
    listed("b1", 1, ", b1 12", ", b1 22");
    outcome.contains(&["watcher-of-c use: question 7, room some", "watcher-of-c use 6, 0"]);
    outcome.contains(&["watcher-of-c use list: question 7, then 6, 0, wrong version 25"]);
}

#[test]
fn a_device_is_as_busy_as_the_slice_makes_it() {
    let outcome = strange(&stage(), &["use"]);
    outcome.contains(&["a1 busy 0: 21 3", "watcher-of-a busy 0: 21 3", "b1 busy 0: 12 3"]);
    outcome.contains(&["watcher-of-c busy 0: 0 0"]);
    // The slice is never shown busier than the device.
    strange(&stage().with("STRANGE_BUSY", "15"), &["use"]).contains(&["a1 busy 0: 15 3", "b1 busy 0: 12 3"]);
    // If NVML cannot tell the processes apart, the slice is shown the device's use.
    strange(&stage().with("STRANGE_SILENT", "1"), &["use"])
        .contains(&["a1 busy 0: 90 80", "b1 busy 0: 90 80"]);
    // If a driver has only the newer function, the library calls that one.
    strange(&stage().with("STRANGE_NEW", "1"), &["use"]).contains(&["a1 busy 0: 41 10", "b1 busy 0: 22 5"]);
}

#[test]
fn a_slice_that_divides_the_gpu_with_others_is_shown_its_own_use_whatever_it_may_use_now() {
    // The ledger says that the slice has done nothing, and NVML's figures of its processes do not count.
    let outcome = strange(&without_quota().with("GPU_CORE_POLICY", "equal"), &["use"]);
    outcome.contains(&["a1 busy 0: 0 0", "watcher-of-a busy 0: 0 0", "b1 busy 0: 0 0"]);
    outcome.contains(&["a1 use 0, 2, a1 10, a2 11", "watcher-of-c busy 0: 0 0"]);
    strange(&without_quota().with("GPU_CORE_POLICY", "equal").with("STRANGE_SILENT", "1"), &["use"])
        .contains(&["a1 busy 0: 0 0", "b1 busy 0: 0 0", "a1 past of 1 0, 2: 0 0"]);
    // A slice that has the whole GPU and no neighbour is shown the device's use.
    strange(&without_quota(), &["use"]).contains(&["a1 busy 0: 90 80", "watcher-of-c busy 0: 90 80"]);
}

#[test]
fn the_domains_of_a_device_are_as_busy_as_the_slice_makes_them() {
    let outcome = strange(&stage(), &["use"]);
    outcome.contains(&["a1 domains 0: 21 3, present 1", "b1 domains 0: 12 3, present 1"]);
    outcome.contains(&["watcher-of-c domains 0: 0 0, present 1"]);
    strange(&stage().with("STRANGE_SILENT", "1"), &["use"]).contains(&["a1 domains 0: 90 80, present 1"]);
}

#[test]
fn samples_of_a_device_average_to_the_use_of_the_slice() {
    let outcome = strange(&stage(), &["use"]);
    // The samples are 80 and 100 percent of the GPU and 70 and 90 of its memory. The slices use 21 and 3, and 12 and 3, of 90 and
    // 80.
    outcome.contains(&["a1 past of 1 0, 2: 18 23", "a1 past of 2 0, 2: 2 3"]);
    outcome.contains(&["b1 past of 1 0, 2: 10 13", "watcher-of-c past of 1 0, 2: 0 0"]);
    // The idle time is the device's.
    outcome.contains(&["a1 past of 0 0, 2: 80 100"]);
    strange(&stage().with("STRANGE_SILENT", "1"), &["use"]).contains(&["a1 past of 1 0, 2: 80 100"]);
}

#[test]
fn accounting_is_shown_of_the_slices_own() {
    let outcome = strange(&stage(), &["accounting"]);
    outcome.contains(&[
        "a1 accounting 0, 2, a1, a2; question 7, 2",
        "a1 stats of a2: 0 0",
        "a1 stats of b1: 6 6",
        "a1 stats of o1: 6 6",
        "b1 accounting 0, 1, b1; question 7, 1",
        "watcher-of-a accounting 0, 2, a1, a2; question 7, 2",
        "watcher-of-c accounting 0, 0; question 0, 0",
        "watcher-of-c stats of a1: 6 6",
    ]);
}

#[test]
fn protected_memory_is_shown_within_the_quota() {
    let outcome = strange(&stage(), &["protected"]);
    let (total, left) = (256 << 20, 160 << 20);
    outcome.contains(&[&format!("a1 protected 0: total {total}, free {left}, used {}", total - left)]);
    outcome.contains(&[&format!("watcher-of-c protected 0: total {total}, free {total}, used 0")]);
}

#[test]
fn without_a_quota_on_the_device_everybody_is_shown() {
    let two = stage().with("SIMGPU_DEVICES", "2").with("QUOTA", "1=64MiB");
    for bench in [two, without_quota()] {
        let outcome = scene(&bench, &["compute"]);
        for viewer in ["a1", "b1", "o1", "watcher-of-a"] {
            names(&outcome, viewer, &[A1, A2, B1, O1]);
        }
    }
}

/// For later series the simulated library names no process, with or without gpuslice.
#[test]
fn the_monitor_of_the_470_series_shows_the_slices_own_processes() {
    let monitors = artefacts::real_drivers().into_iter().filter(|(series, _)| series == "470");
    let Some(monitor) = monitors.map(|(_, folder)| folder.join("nvidia-smi")).find(|path| path.exists())
    else {
        return skip("nvidia-smi 470: not in build/drivers; to mend it: ci/drivers.sh");
    };
    let query = ["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"];
    let words: Vec<_> =
        ["run", monitor.to_str().expect("a path in UTF-8")].into_iter().chain(query).collect();
    let outcome = scene(&stage(), &words);
    let numbers: BTreeMap<_, _> = outcome.out.lines().filter_map(|line| line.split_once(" is ")).collect();
    let shown: Vec<_> = outcome.out.lines().filter(|line| line.contains(", ")).collect();
    let own = [format!("{}, 64", numbers["a1"]), format!("{}, 32", numbers["a2"])];
    assert_eq!(shown, own, "{outcome}");
}
