//! `gpuslice status` and `list`: all figures of a region in the documented form, and slices found by their names.
#![allow(clippy::indexing_slicing, reason = "a test")]

use crate::support::command::{GIB, OwnSlice, PROGRAM, RegionFile, Running, ask, end, gpuslice, json, name};
use crate::support::living::send;
use crate::support::other_user::{OtherUser, is_root};
use crate::support::terminal::Terminal;
use crate::support::timed::within;
use crate::support::{artefacts, skip};
use gpuslice_policy::arbiter::MOST_SLICES;
use gpuslice_policy::compute::attribution::source::{Measured, Source, Why};
use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_policy::time::{GpuTime, WallTime};
use gpuslice_region::{DeviceRequest, Limits, Member, Reader, Sharing, Trust, Uuid};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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
    // As after `gpuslice set --cores 100`: launches were paid for once.
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

#[test]
fn a_slice_is_meant_by_its_name_its_file_and_its_path() {
    let slice = OwnSlice::join("meant");
    let path = slice.region.0.clone();
    let file = path.file_name().expect("it has a name").to_string_lossy().into_owned();
    for meant in [&slice.name, &file, &path.display().to_string()] {
        ask(&["status", meant]).code(0).says(&slice.name);
        ask(&["set", meant, "--weight", "7"]).code(0);
    }
    let mut here = gpuslice(&["status", &format!("./{file}")]);
    end(here.current_dir("/dev/shm")).code(0).says(&slice.name);
}

#[test]
fn a_name_that_nothing_has_is_answered_with_those_there_are() {
    let slice = OwnSlice::join("there");
    for command in [&["status", "nothing-like-it"][..], &["set", "nothing-like-it", "--mem", "1g"]] {
        let ended = ask(command).code(1).complains("there is no slice \"nothing-like-it\"; there are: ");
        assert!(ended.err.contains(&slice.name) || ended.err.contains(" more, see "), "{ended:?}");
    }
    ask(&["status", "/dev/shm/no/region"]).code(1).complains("there is no region at /dev/shm/no/region");
    let folder = tempfile::tempdir().expect("a folder can be made");
    fs::write(folder.path().join("here"), "").expect("it can be written");
    end(gpuslice(&["status", "here"]).current_dir(folder.path())).code(1).complains("write ./here");
}

#[test]
fn a_name_that_several_have_is_answered_with_their_paths_and_listed_so_that_it_can_be_typed() {
    let slice = OwnSlice::join("twice");
    // The region of a container with the same name.
    let other = slice.region.0.display().to_string().replace("-run-", "-");
    let other = RegionFile(other.into());
    let (_member, _) = Member::join(&other.0, Trust::OwnerOnly, &[]).expect("it can be made");
    let [first, second] = [&slice.region.0, &other.0].map(|path| path.display().to_string());
    let ended = ask(&["status", &slice.name]).code(1).complains("means several slices");
    assert!(ended.err.contains(&first) && ended.err.contains(&second), "{ended:?}");
    let listing = json(&["list", "--json"]);
    let slices = listing.pointer("/slices").and_then(Value::as_array).expect("there are slices");
    for path in [first, second] {
        let own = slices.iter().find(|found| found.get("region") == Some(&path.clone().into()));
        let name = own.and_then(|own| own.get("name")).and_then(Value::as_str).expect("it is listed");
        let status = json(&["status", name, "--json"]);
        assert_eq!(status.pointer("/slices/0/region"), Some(&path.into()), "{name}");
    }
}

#[test]
fn inside_a_slice_its_own_region_is_listed_wherever_it_is() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let region = folder.path().join(name("own"));
    let wanted = DeviceRequest { uuid: Uuid([0x33; 16]), total: GIB, limits: Limits::NONE };
    let (_member, _) = Member::join(&region, Trust::OwnerOnly, &[wanted]).expect("it can be made");
    for arguments in [&["list"][..], &["status"], &["status", &name("own")]] {
        end(gpuslice(arguments).env("GPUSLICE_REGION", &region)).code(0).says(&name("own"));
    }
    let listed = ask(&["list"]).code(0).out;
    assert!(!listed.contains(&name("own")), "outside it is meant by its path: {listed}");
}

#[test]
fn names_that_others_chose_steer_no_terminal() {
    let region = RegionFile(format!("/dev/shm/gpuslice-x-\u{1b}[31m{}", name("red")).into());
    let (_member, _) = Member::join(&region.0, Trust::OwnerOnly, &[]).expect("it can be made");
    let ended = ask(&["list"]).code(0);
    assert!(ended.out.contains("?[31m") && !ended.out.contains('\u{1b}'), "{ended:?}");
}

#[test]
fn an_unfinished_region_is_removed_by_the_command_that_lists_it() {
    let region = RegionFile::of(&name("unready"));
    let (maker, _) = Member::join(&region.0, Trust::OwnerOnly, &[]).expect("it can be made");
    let file = fs::OpenOptions::new().write(true).open(&region.0).expect("it is ours");
    maker.leave();
    let ready = gpuslice_region::layout::FIGURES.iter().find(|(name, _)| *name == "header.ready");
    let offset = ready.expect("there is such a word").1 as u64;
    // This holds even if another test has listed the region meanwhile.
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4], offset).expect("it can be written");
    ask(&["list"]).code(0);
    assert!(!region.0.exists());
}

/// A user who may read regions and write none. For root that is another user; otherwise it is this user, with a read-only region.
enum Reading {
    Other(OtherUser),
    Own,
}

impl Reading {
    fn new(what: &str) -> Option<Self> {
        if is_root() { OtherUser::new(what).map(Self::Other) } else { Some(Self::Own) }
    }

    fn gpuslice(&self, arguments: &[&str]) -> Command {
        match self {
            Self::Other(user) => user.gpuslice(arguments),
            Self::Own => gpuslice(arguments),
        }
    }
}

/// Kills a program of the slice while it holds memory, which stays charged. Returns the charged bytes.
fn dead_in(slice: &OwnSlice) -> u64 {
    let mut running = Running::start(&["run", "--mem", "64MiB", "--region", &slice.name]);
    let own = std::process::id();
    let other = || {
        let report = json(&["status", &slice.name, "--json"]);
        let device = |number| report.pointer(&format!("/slices/0/devices/{number}"));
        let processes = device(2)?.pointer("/processes")?.as_array()?;
        let process = processes.iter().find(|process| process["pid"].as_u64() != Some(own.into()))?;
        Some((u32::try_from(process["pid"].as_u64()?).ok()?, process["held"].as_u64()?))
    };
    let (pid, _) = other().expect("it runs");
    // `run` is killed first, because it would clear the charge of its program. A wait would close the program's input.
    let _open = running.child.stdin.take();
    running.child.kill().expect("it runs");
    running.child.wait().expect("it is our child");
    let end = Instant::now() + Duration::from_secs(60);
    let held = loop {
        send(pid, libc::SIGSTOP);
        match other().expect("it lives").1 {
            0 => send(pid, libc::SIGCONT),
            held => break held,
        }
        assert!(Instant::now() < end, "it never holds anything");
    };
    let reader = Reader::open(&slice.region.0, Trust::OwnerOnly).unwrap().expect("it is there");
    send(pid, libc::SIGKILL);
    while !reader.any_dead().expect("it can be asked") {
        assert!(Instant::now() < end, "it does not die");
        std::thread::yield_now();
    }
    held
}

#[test]
fn a_user_that_may_only_read_a_region_sees_the_dead_apart_from_the_living() {
    let Some(reading) = Reading::new("a region that may only be read") else { return };
    // A `list` of another test would clear the dead of a region that it finds.
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let slice = OwnSlice::join_in(folder.path());
    let path = slice.name.clone();
    let mode =
        |mode| fs::set_permissions(&slice.region.0, fs::Permissions::from_mode(mode)).expect("it is ours");
    let held = dead_in(&slice);
    mode(if is_root() { 0o644 } else { 0o444 });
    let report = |command: &mut Command| -> Value {
        serde_json::from_str(&end(command).code(0).out).expect("this is JSON")
    };
    for _ in 0..2 {
        let status = report(&mut reading.gpuslice(&["status", &path, "--json"]));
        let figures = ["held", "held_by_dead"].map(|name| status["slices"][0]["devices"][2][name].as_u64());
        assert_eq!(
            (figures, status["slices"][0]["processes"].as_u64()),
            ([Some(0), Some(held)], Some(1)),
            "{status}"
        );
    }
    end(&mut reading.gpuslice(&["status", &path]))
        .code(0)
        .says(" held by exited processes, freed when the slice needs room");
    let list = report(reading.gpuslice(&["list", "--json"]).env("GPUSLICE_REGION", &path));
    let listed =
        list["slices"].as_array().into_iter().flatten().find(|found| found["region"] == path.as_str());
    // Only root is shown regions of other users.
    assert!(is_root() || listed.is_some_and(|own| own["processes"] == 1), "{list}");
    end(&mut reading.gpuslice(&["set", &path, "--mem", "1GiB"])).code(1).complains(&path);
    assert_eq!(slice.limit(0x11), Some(8 * GIB));
    // A reader with the right to write clears the charge of the dead process.
    mode(0o600);
    let status = json(&["status", &path, "--json"]);
    assert_eq!(status["slices"][0]["devices"][2]["held_by_dead"].as_u64(), Some(0), "{status}");
}

#[test]
fn more_slices_than_gpus_are_divided_among_are_said_to_be() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let live_in = |number: usize| {
        let path = folder.path().join(format!("region-{number}"));
        let wanted = [DeviceRequest { uuid: Uuid([0x11; 16]), total: 16 * GIB, limits: Limits::NONE }];
        Member::join(&path, Trust::OwnerOnly, &wanted).expect("it can be made").0
    };
    let mut members: Vec<Member> = (0..MOST_SLICES).map(live_in).collect();
    // No process lives in this slice.
    live_in(MOST_SLICES).leave();
    let region = members[0].path().display().to_string();
    let says_nothing = || assert_eq!(ask(&["status", &region]).code(0).err, "");
    let divide = |member: &Member, policy| {
        let device = member.device(&Uuid([0x11; 16])).expect("the slice has the device");
        member.set_limits(device, Limits { sharing: Sharing { policy, ..Sharing::FIXED }, ..Limits::NONE });
    };
    divide(&members[1], CorePolicy::Equal);
    says_nothing();
    members.extend([live_in(MOST_SLICES + 1), live_in(MOST_SLICES + 2)]);
    let words =
        format!("have their regions in {}: GPUs are divided among 48 of them", folder.path().display());
    ask(&["status", &region]).code(0).complains("gpuslice: 50 slices of user ").complains(&words);
    end(gpuslice(&["list"]).env("GPUSLICE_REGION", &region)).code(0).complains(&words);
    // There is no message if no slice divides the GPU.
    divide(&members[1], CorePolicy::Fixed);
    says_nothing();
    divide(&members[1], CorePolicy::Equal);
    // The slices of another user are not counted.
    let give_away = |member: &Member| chown(member.path(), Some(4242), None).is_ok();
    if !members.iter().rev().take(2).all(give_away) {
        return skip(
            "more slices than GPUs are divided among, of two users: needs root; to mend it: run the tests as root",
        );
    }
    says_nothing();
    let others = members.last().expect("there are some").path().display().to_string();
    divide(members.last().expect("there are some"), CorePolicy::Equal);
    assert_eq!(ask(&["status", &others]).code(0).err, "");
}

#[test]
fn roots_list_prefers_its_own_slice_and_shows_others_by_their_files() {
    let slice = OwnSlice::join("prefers");
    let other = RegionFile(format!("/dev/shm/gpuslice-4242-run-{}", slice.name).into());
    let (_member, _) = Member::join(&other.0, Trust::OwnerOnly, &[]).expect("it can be made");
    if chown(&other.0, Some(4242), None).is_err() {
        return skip("root's list of slices: needs root; to mend it: run the tests as root");
    }
    let own = json(&["status", &slice.name, "--json"]);
    let region = slice.region.0.display().to_string();
    assert_eq!(own.pointer("/slices/0/region"), Some(&region.into()));
    ask(&["list"]).code(0).says(&format!("gpuslice-4242-run-{}", slice.name));
}

#[test]
fn a_driver_that_hangs_does_not_hide_the_figures_of_the_region() {
    let slice = OwnSlice::join("hung");
    let status = |faults: &str| {
        let mut command = gpuslice(&["status", &slice.name, "--json"]);
        command.env("LD_LIBRARY_PATH", artefacts::simulated_driver()).env("SIMGPU_FAULTS", faults);
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
        end(command.env("SIMGPU_STATE", folder.path().join("state"))).code(0)
    };
    assert_eq!(status("").err, "");
    for call in ["nvmlInit_v2", "nvmlDeviceGetHandleByIndex_v2"] {
        let told = status(&format!("{call}=delay:600s")).complains("NVML does not answer");
        let report: Value = serde_json::from_str(&told.out).expect("this is JSON");
        assert_eq!(report.pointer("/slices/0/devices/0/limit"), Some(&(8 * GIB).into()));
        assert_eq!(report.pointer("/slices/0/devices/0/unaccounted"), Some(&Value::Null));
    }
}

/// `gpuslice` on a machine with its own simulated GPUs.
struct Machine(tempfile::TempDir, &'static [(&'static str, &'static str)]);

impl Machine {
    fn with(settings: &'static [(&str, &str)]) -> Self {
        Self(tempfile::tempdir_in("/dev/shm").expect("a folder can be made"), settings)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = gpuslice(arguments);
        command.env("LD_LIBRARY_PATH", artefacts::simulated_driver());
        command.env("SIMGPU_STATE", self.0.path().join("state")).envs(self.1.iter().copied());
        command
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&end(&mut self.command(arguments)).code(0).out).expect("this is JSON")
    }
}

#[test]
fn gpus_have_the_numbers_that_nvidia_smi_shows_and_their_products_names() {
    for (settings, numbers) in [
        (&[("SIMGPU_DEVICES", "2")][..], [(0, None), (1, None)]),
        // A process sees one instance and no other device.
        (&[("SIMGPU_DEVICES", "2"), ("SIMGPU_MIG", "0,2")], [(1, Some(0)), (1, None)]),
    ] {
        let machine = Machine::with(settings);
        let name = name(&format!("numbered-{}", settings.len()));
        let mut run =
            machine.command(&["run", "--mem", "1GiB", "--name", &name, "--", PROGRAM, "demo-worker"]);
        let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it can be started");
        let mut line = String::new();
        let mut out = BufReader::new(run.stdout.take().expect("it is piped"));
        out.read_line(&mut line).expect("it is text");
        let status = machine.json(&["status", &name, "--json"]);
        let devices = status["slices"][0]["devices"].as_array().expect("there are devices");
        let number = |device: &Value| (device["index"].as_u64(), device["instance"].as_u64());
        assert!(!devices.is_empty(), "{status}");
        for (device, (index, instance)) in devices.iter().zip(numbers) {
            assert_eq!(number(device), (Some(index), instance), "{status}");
            assert!(device["product"].as_str().is_some_and(|name| name.contains("Simulated")), "{status}");
        }
        let gpu = &status["gpus"][0];
        assert_eq!((number(gpu), &gpu["uuid"]), (number(&devices[0]), &devices[0]["uuid"]), "{status}");
        assert!(gpu["used"].as_u64() >= devices[0]["held"].as_u64() && gpu["used"].is_u64(), "{status}");
        let listing = machine.json(&["list", "--json"]);
        let own = listing["slices"].as_array().into_iter().flatten().find(|own| own["name"] == name.as_str());
        let own = own.expect("it is listed");
        for field in ["uuid", "index", "instance", "product"] {
            assert_eq!(own["devices"][0][field], devices[0][field], "{field}: {listing}");
        }
        let text = end(&mut machine.command(&["list"])).code(0).out;
        let row = text.lines().find(|line| line.contains(&name)).expect("it is listed");
        let shown = if settings.len() == 2 { " 1:0 " } else { " 0 " };
        let short: String = devices[0]["uuid"].as_str().expect("it is reported").chars().take(12).collect();
        assert!(
            row.contains(shown) && row.contains(&format!(" {short} ")) && row.contains("Simulated"),
            "{row}"
        );
        drop(run.stdin.take());
        assert!(run.wait().expect("it is our child").success());
    }
}

/// Example: the driver is loaded anew, and NVML is not there meanwhile.
#[test]
fn status_that_goes_on_asks_nvml_again() {
    let machine = Machine::with(&[]);
    let name = name("silence");
    let mut run = machine.command(&["run", "--mem", "1GiB", "--name", &name, "--", PROGRAM, "demo-worker"]);
    let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it can be started");
    let mut ready = BufReader::new(run.stdout.take().expect("it is piped"));
    ready.read_line(&mut String::new()).expect("it is text");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder can be made");
    let mut watching = machine.command(&["status", &name, "--watch", "1", "--json"]);
    let watching = watching.env("LD_LIBRARY_PATH", folder.path()).stdout(Stdio::piped());
    let mut watching = watching.spawn().expect("it can be started");
    let out = BufReader::new(watching.stdout.take().expect("it is piped"));
    let mut reports = serde_json::Deserializer::from_reader(out).into_iter::<Value>();
    let mut index = || {
        let report = reports.next().expect("it goes on").expect("this is JSON");
        report["slices"][0]["devices"][0]["index"].clone()
    };
    assert_eq!(index(), Value::Null);
    let library = "libnvidia-ml.so.1";
    fs::copy(artefacts::simulated_driver().join(library), folder.path().join(library)).expect("it is built");
    assert!((0..90).any(|_| index() == 0), "it does not ask NVML again");
    drop(reports);
    assert!(watching.wait().expect("it is our child").success());
    drop(run.stdin.take());
    assert!(run.wait().expect("it is our child").success());
}

#[test]
fn list_waits_a_second_at_most_for_nvml_and_shows_uuids_without_it() {
    let slice = OwnSlice::join("quick");
    let machine = Machine::with(&[("SIMGPU_FAULTS", "nvmlInit_v2=delay:600s")]);
    let list = || end(&mut machine.command(&["list"])).code(0).complains("NVML does not answer");
    let told = within(Duration::from_secs(4), Duration::from_secs(1), list);
    let row = told.out.lines().find(|line| line.contains(&slice.name)).expect("it is listed");
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[1..3], ["-", "GPU-11111111"], "{row}");
}

#[test]
fn a_name_leads_to_nothing_that_another_user_has_planted() {
    const SOMEBODY: u32 = 4242;
    let slice = OwnSlice::join("planted");
    let region = &slice.region.0;
    let own = region.metadata().expect("it is there").uid();
    fs::set_permissions(region, fs::Permissions::from_mode(0o666)).expect("it is ours");
    if chown(region, Some(SOMEBODY), Some(SOMEBODY)).is_err() {
        return skip(
            "a name of another user's slice: needs root, to give a file away; to mend it: run the tests as root",
        );
    }
    let Some(reading) = Reading::new("a name of another user's slice") else { return };
    let mut command = reading.gpuslice(&["status", &slice.name]);
    end(&mut command).code(1).complains("there is no slice");
    end(&mut reading.gpuslice(&["status", &region.display().to_string()])).code(0).says(&slice.name);
    // This process is root, and root may name the regions of all users.
    ask(&["status", &slice.name]).code(0).says(&slice.name);
    chown(region, Some(own), Some(own)).expect("this is root");
    end(&mut reading.gpuslice(&["status", &slice.name])).code(0).says(&slice.name);
}
