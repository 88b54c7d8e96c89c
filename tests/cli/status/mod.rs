//! `gpuslice status` and `list`: all figures of a region in the documented form, and slices found by their names.
#![allow(clippy::indexing_slicing, reason = "a test")]

mod names;
mod nvml;
mod users;

use crate::support::artefacts;
use crate::support::command::{GIB, OwnSlice, ask, gpuslice, json};
use crate::support::terminal::Terminal;
use gpuslice_policy::compute::attribution::source::{Measured, Source, Why};
use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_policy::time::{GpuTime, WallTime};
use gpuslice_region::{Limits, Sharing};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Makes a slice in which every figure has a value.
fn busy(of: &str) -> OwnSlice {
    let slice = OwnSlice::join(of);
    let (device, member) = (slice.device(0x11), &slice.member);
    member.set_limits(
        device,
        Limits {
            memory: Some(8 * GIB),
            cores_permille: 125,
            burst: GpuTime::from_millis(200),
            sharing: Sharing { policy: CorePolicy::Equal, priority: Priority::High, weight: 300 },
            oversubscribe: true,
        },
    );
    member.reserve(device, 3 * GIB).expect("it fits");
    assert_eq!(member.refund(device, GIB), 0);
    (0..3).for_each(|_| member.count_quota_denial(device));
    (0..2).for_each(|_| member.count_device_denial(device));
    member.spill(device, 5 << 20);
    member.learn_context_bytes(device, 240 << 20);
    member.begin_context(device, 500 << 20);
    member.end_context(device, 20 << 20);
    member.count_used(device, GpuTime::from_millis(12_400));
    member.count_throttled(device, WallTime::from_millis(3_100));
    member.count_copied(device, GpuTime::from_nanos(7));
    member.count_launches(device, 42);
    member.set_queued(device, GpuTime::from_millis(12));
    member.set_measure_source(device, Measured { source: Source::Events, why: Some(Why::Mig) }.word());
    member.set_correction(device, 480_000);
    slice
}

#[test]
fn time_that_is_not_measured_is_a_dash() {
    let slice = OwnSlice::join("unmeasured");
    // The slice has been charged for launches at an earlier time, as before `gpuslice set --cores 100`.
    slice.member.count_launches(slice.device(0x11), 42);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let list = ask(&["list", &slice.name]).code(0).out;
    assert!(list.lines().any(|line| words(line).contains(" 8GiB - 100%")), "{list}");
    let status = ask(&["status", &slice.name, "--over", "0.1"]).code(0).out;
    let dashes = words("used 0 ns in all, - over 1 s, - over 10 s, - over 60 s");
    assert!(words(&status).contains(&dashes), "{status}");
    let report = json(&["status", &slice.name, "--over", "0.1", "--json"]);
    for pointer in ["/slices/0/devices/0/time", "/slices/0/devices/0/processes/0/time"] {
        let time = report.pointer(pointer).expect("there is a device");
        assert_eq!(time["used_permille"], Value::Null, "{time}");
    }
}

/// Replaces in `text` the parts that differ in each run.
fn settled(text: &str, slice: &OwnSlice, report: &Value) -> String {
    let process = report.pointer("/slices/0/devices/0/processes/0").expect("there is one");
    let field = |name: &str| process.get(name).expect("it is reported").to_string();
    text.replace(&slice.region.0.display().to_string(), "REGION")
        .replace(&slice.name, "NAME")
        .replace(&format!("pid\": {}", std::process::id()), "pid\": PID")
        .replace(&field("command"), "COMMAND")
        .replace(&format!("\"started\": {}", field("started")), "\"started\": STARTED")
        .replace(&owner(report.pointer("/slices/0").expect("there is one")), "OWNER")
}

/// Returns the two lines that name the region's owner.
fn owner(slice: &Value) -> String {
    format!("\"uid\": {},\n      \"user\": {}", slice["uid"], slice["user"])
}

/// Compares a text with a file of `tests/golden`. With `GPUSLICE_TEST_BLESS` set, writes the file first.
fn is_golden(file: &str, text: &str) {
    let path = artefacts::repository().join("tests/golden").join(file);
    if std::env::var_os("GPUSLICE_TEST_BLESS").is_some() {
        fs::write(&path, text).expect("it can be written");
    }
    let golden = fs::read_to_string(&path).expect("there is such a file");
    assert_eq!(
        text, golden,
        "{file}: if that is meant, count the version up or add to docs/reference/status-json.md"
    );
}

#[test]
fn status_as_json_is_as_it_was() {
    let slice = busy("golden");
    let ended = ask(&["status", &slice.name, "--json"]).code(0);
    let report: Value = serde_json::from_str(&ended.out).expect("this is JSON");
    is_golden("status.json", &settled(&ended.out, &slice, &report));
    // A second run prints the same fields in the same order.
    assert_eq!(ask(&["status", &slice.name, "--json"]).code(0).out, ended.out);
}

#[test]
fn list_as_json_is_as_it_was_and_a_part_of_status() {
    let slice = busy("listed");
    let listing = json(&["list", "--json"]);
    let slices = listing.pointer("/slices").and_then(Value::as_array).expect("there are slices");
    let own = slices.iter().find(|found| found.get("name") == Some(&slice.name.clone().into()));
    let own = own.expect("it is listed");
    let text = serde_json::to_string_pretty(own).expect("it can be written") + "\n";
    let region = slice.region.0.display().to_string();
    let text = text.replace(&region, "REGION").replace(&slice.name, "NAME");
    let text = ["uid", "user", "started"].into_iter().fold(text, |text, field| {
        text.replace(
            &format!("\"{field}\": {}", own[field]),
            &format!("\"{field}\": {}", field.to_uppercase()),
        )
    });
    is_golden("list.json", &text);
    let status = json(&["status", &slice.name, "--json"]);
    assert_eq!(listing.get("version"), status.get("version"));
    for pointer in
        ["/name", "/region", "/processes", "/devices/0/held", "/devices/0/limit", "/devices/0/total"]
    {
        assert_eq!(own.pointer(pointer), status.pointer(&format!("/slices/0{pointer}")), "{pointer}");
    }
}

/// Collects the names of all fields, at any depth.
fn fields(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            into.insert(name.clone());
            fields(value, into);
        }),
        Value::Array(values) => values.iter().for_each(|value| fields(value, into)),
        _ => {}
    }
}

#[test]
fn every_field_is_documented_and_no_other() {
    let slice = busy("documented");
    let mut told = BTreeSet::new();
    fields(&json(&["status", &slice.name, "--json"]), &mut told);
    let text = fs::read_to_string(artefacts::repository().join("docs/reference/status-json.md"))
        .expect("there is a page");
    // A row of a table begins with the field's name.
    let name = |line: &str| line.strip_prefix("| `")?.split_once("` |").map(|(name, _)| name.to_owned());
    let documented: BTreeSet<String> = text.lines().filter_map(name).collect();
    assert_eq!(told, documented);
}

#[test]
fn status_tells_people_the_same() {
    let slice = busy("people");
    let ended = ask(&["status", &slice.name]).code(0);
    for words in [
        "  0: GPU-11111111-1111-1111-1111-111111111111\n    memory  2.00 GiB used, limit 8GiB, the device has 16GiB, \
         peak 3.00 GiB\n            3 denied (quota), 2 denied (device full), unknown unaccounted,\n            \
         5.00 MiB in host memory\n            \
         contexts use 480.00 MiB of that, the largest so far 240.00 MiB\n",
        "    time    limit 12.5%, policy equal, weight 300, priority high, burst 200ms\n",
        "            used 12.40 s in all, 0% over 1 s, 0% over 10 s, 0% over 60 s\n",
        "            throttled 3.10 s in all, 0 ns over 1 s, 0 ns over 10 s,\n            0 ns over 60 s\n",
        "            12.00 ms queued, 0 ns debt,\n            measured by events (the device is a MIG instance): 48% of",
    ] {
        assert!(ended.out.contains(words), "{words} is missing in {}", ended.out);
    }
    // An age of two digits widens its column.
    let is_heading = |line: &str| line.split_whitespace().take(3).eq(["PID", "AGE", "USED"]);
    assert!(ended.out.lines().any(is_heading), "{}", ended.out);
    // A device without a limit and without use shows nothing else.
    let second = "memory  0 B used, no limit, the device has 16GiB, peak 0 B\n            0 denied (quota)";
    assert!(ended.out.contains(second), "{}", ended.out);
    // Paths, commands and the reason of a measurement have no bound.
    let is_free = |line: &str| ["/", "measured by", "cli-"].iter().any(|word| line.contains(word));
    assert!(ended.out.lines().all(|line| line.len() <= 80 || is_free(line)), "{}", ended.out);
    let list = ask(&["list"]).code(0).out;
    let row = list.lines().find(|line| line.contains(&slice.name)).expect("it is listed");
    // The widths of the columns depend on the other slices that are listed.
    let row: Vec<_> = row.split_whitespace().collect();
    assert!(row.join(" ").contains("2.00 GiB 8GiB 0% 12.5% equal 1 "), "{list}");
}

#[test]
fn when_a_process_started_is_told() {
    let slice = OwnSlice::join("started");
    let report = json(&["status", &slice.name, "--json"]);
    let started = report.pointer("/slices/0/devices/0/processes/0/started").and_then(Value::as_u64);
    let now = std::time::UNIX_EPOCH.elapsed().expect("it is after 1970").as_secs();
    let age = now.saturating_sub(started.expect("it is visible"));
    let own = fs::metadata("/proc/self/stat").and_then(|file| file.modified()).expect("it can be read");
    let about = own.elapsed().expect("it is past").as_secs();
    // The kernel reports the time of its boot in whole seconds.
    assert!(age.abs_diff(about) < 60 && age < 24 * 3600, "{age} s, {about} s");
}

#[test]
fn a_long_wait_is_reported_to_a_terminal_and_nowhere_else() {
    let slice = busy("progress");
    let mut terminal = Terminal::start(&mut gpuslice(&["status", &slice.name, "--over", "3"]));
    terminal.hears("measuring the use of GPU time: 3 s left");
    terminal.hears("over 3.");
    assert_eq!(terminal.end().code(), Some(0));
    let ended = ask(&["status", &slice.name, "--over", "2"]).code(0);
    assert_eq!(ended.err, "");
    let terminal = Terminal::start(&mut gpuslice(&["status", &slice.name, "--over", "1"]));
    terminal.hears("over 1.");
    assert!(!terminal.raw().contains("left"), "{}", terminal.raw());
}
