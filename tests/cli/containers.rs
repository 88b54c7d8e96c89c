//! Slices of containers with a private `/dev/shm`, seen and changed from the host without an agent.
#![allow(clippy::indexing_slicing, reason = "a test")]

use crate::support::bench::Bench;
use crate::support::command::{Ended, ask, end, gpuslice, json, name};
use crate::support::container::{self, first_process, may_have_containers};
use crate::support::living::Living;
use crate::support::other_user::OtherUser;
use crate::support::terminal::Terminal;
use crate::support::{artefacts, compiler, skip};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A container in which a program holds memory of a slice.
struct Tenant {
    program: Living,
    /// The program's number on the host.
    pid: u64,
    /// The word by which commands call the container.
    place: String,
}

impl Tenant {
    /// Starts a program that takes `bytes` in a slice of 256 MiB with the region `file`.
    fn start(bench: &Bench, file: &str, bytes: u64, mounts: &[String]) -> Self {
        Self::start_at(bench, &format!("/dev/shm/{file}"), bytes, mounts)
    }

    /// Starts a program like [`start`](Self::start), with a region at any path.
    fn start_at(bench: &Bench, region: &str, bytes: u64, mounts: &[String]) -> Self {
        let environment = [
            format!("LD_PRELOAD={}", artefacts::library().display()),
            format!("GPUSLICE_REGION={region}"),
            "GPU_MEM_LIMIT=256MiB".to_owned(),
        ];
        let witness = compiler::plain("witness");
        let program = container::start(bench, mounts, &environment, &witness, &[&bytes.to_string()]);
        assert_eq!(program.hear().as_deref(), Some("ready"));
        let pid = first_process(&program);
        let place = fs::metadata(format!("/proc/{pid}/ns/mnt")).unwrap().ino().to_string();
        Self { program, pid, place }
    }

    /// Returns the status of an allocation of `bytes`, which the program frees again.
    fn take(&mut self, bytes: u64) -> String {
        let answer = self.program.ask(&format!("take {bytes}"));
        answer.split(' ').next().unwrap_or_default().to_owned()
    }
}

/// Returns the line of the table that has both words.
fn row<'a>(table: &'a Ended, words: [&str; 2]) -> &'a str {
    let is_it = |line: &&str| words.iter().all(|word| line.contains(word));
    table.out.lines().find(is_it).unwrap_or_else(|| panic!("{words:?} is missing in {table:?}"))
}

/// Returns the slice with this name in an output of `--json`.
fn named(report: &Value, name: &str) -> Value {
    let slices = report["slices"].as_array().unwrap();
    let found = slices.iter().find(|slice| slice["name"] == name);
    found.cloned().unwrap_or_else(|| panic!("{name} is missing in {report}"))
}

#[test]
fn slices_of_two_containers_with_one_name_are_seen_and_changed_each() {
    if !may_have_containers() {
        return;
    }
    let (bench, name) = (Bench::simulated_without_contexts(), name("twin"));
    let file = format!("gpuslice-0-run-{name}");
    let [mut one, mut two] = [48 * MIB, 80 * MIB].map(|bytes| Tenant::start(&bench, &file, bytes, &[]));
    let [first, second] = [&one, &two].map(|tenant| format!("{}/{name}", tenant.place));
    let table = ask(&["list"]).code(0);
    assert!(row(&table, [&first, &one.place]).contains(" 48.00 MiB "), "{table:?}");
    assert!(row(&table, [&second, &two.place]).contains(" 80.00 MiB "), "{table:?}");
    assert!(table.out.lines().next().unwrap_or_default().contains(" CONTAINER "), "{table:?}");
    // The name alone fits both slices, so the commands refuse it and change nothing.
    for arguments in [&["status", &name][..], &["set", &name, "--mem", "64MiB"], &["remove", &name]] {
        ask(arguments)
            .code(1)
            .complains(" means several slices; give one as CONTAINER/NAME: ")
            .complains(&first)
            .complains(&second);
    }
    let told = json(&["status", &first, "--json"]);
    let slice = named(&told, &first);
    assert_eq!((&slice["container"], &slice["container_name"]), (&Value::Null, &Value::Null), "{slice}");
    assert_eq!(slice["region"], format!("/dev/shm/{file}"), "{slice}");
    let process = &slice["devices"][0]["processes"][0];
    let numbers = (process["pid"].as_u64(), process["host_pid"].as_u64(), process["held"].as_u64());
    assert_eq!(numbers, (Some(1), Some(one.pid), Some(48 * MIB)), "{slice}");
    assert!(process["command"].as_str().unwrap().contains("witness") && process["started"].is_u64());
    named(&json(&["list", "--json"]), &second);
    let path = format!("{}/dev/shm/{file}", two.place);
    let shown = ask(&["status", &path]).code(0).says(&format!("container {}", two.place));
    assert!(row(&shown, [&two.pid.to_string(), "witness"]).contains(" 80.00 MiB "), "{shown:?}");
    ask(&["status", &two.pid.to_string()]).code(0).says(&second);
    // The change applies to this slice alone.
    ask(&["set", &second, "--mem", "100MiB"]).code(0).says("256MiB -> 100MiB");
    assert_eq!((one.take(150 * MIB), two.take(150 * MIB)), ("0".to_owned(), "2".to_owned()));
    ask(&["remove", &first]).code(1).complains(&format!("1 process lives in {first} ({})", one.pid));
    let mut top = Terminal::sized(gpuslice(&["top"]).env("TERM", "xterm"), (160, 60));
    top.shows(&first);
    top.shows(&second);
    top.press(&format!("/{first}\r\r"));
    top.shows(&one.pid.to_string());
    top.press("m32MiB\r");
    top.shows("256MiB -> 32MiB");
    top.press("q");
    assert!(top.end().success());
    assert_eq!((one.take(MIB), two.take(MIB)), ("2".to_owned(), "0".to_owned()));
    // The name alone is enough for the only slice that is left.
    let left = two;
    let _ended = one.program.end();
    ask(&["status", &name]).code(0).says("80.00 MiB used, limit 100MiB");
    drop(left);
}

/// Returns the folder of a container's `/run/data`, which no usual path of this machine leads to.
fn volume() -> (TempDir, [String; 1]) {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mounts = [format!("{} /run/data", folder.path().display())];
    (folder, mounts)
}

#[test]
fn a_region_elsewhere_in_a_container_is_found_by_the_setting_that_names_it() {
    if !may_have_containers() {
        return;
    }
    let (bench, name, (folder, mounts)) = (Bench::simulated_without_contexts(), name("elsewhere"), volume());
    let mut tenant = Tenant::start_at(&bench, &format!("/run/data/{name}"), 48 * MIB, &mounts);
    let table = ask(&["list"]).code(0);
    assert!(row(&table, [&name, &tenant.place]).contains(" 48.00 MiB "), "{table:?}");
    ask(&["status", &name]).code(0).says(&format!("/run/data/{name}"));
    ask(&["set", &name, "--mem", "64MiB"]).code(0).says("256MiB -> 64MiB");
    assert_eq!(tenant.take(32 * MIB), "2");
    // The path on the host leads there as well.
    let path = folder.path().join(&name).display().to_string();
    ask(&["status", &path]).code(0).says("48.00 MiB used, limit 64MiB");
    drop(tenant);
    // The operator's file counts more than the environment.
    let (_region, mounts) = volume();
    let conf = tempfile::tempdir().unwrap();
    fs::write(conf.path().join("config"), format!("GPUSLICE_REGION=/run/data/{name}\n")).unwrap();
    let mounts = [mounts[0].clone(), format!("{} /run/gpuslice/conf", conf.path().display())];
    let tenant = Tenant::start_at(&bench, "/run/data/mine", 80 * MIB, &mounts);
    let table = ask(&["list"]).code(0);
    assert!(row(&table, [&name, &tenant.place]).contains(" 80.00 MiB "), "{table:?}");
}

#[test]
fn the_operators_file_of_a_container_bounds_limits_that_the_host_sets() {
    if !may_have_containers() {
        return;
    }
    let (bench, name) = (Bench::simulated_without_contexts(), name("bounded"));
    let folder = tempfile::tempdir().unwrap();
    let file = format!("gpuslice-0-run-{name}");
    let config = format!("GPU_MEM_LIMIT=128MiB\nGPUSLICE_REGION=/dev/shm/{file}\n");
    fs::write(folder.path().join("config"), config).unwrap();
    let mounts = [format!("{} /run/gpuslice/conf", folder.path().display())];
    let mut tenant = Tenant::start(&bench, &file, 48 * MIB, &mounts);
    ask(&["set", &name, "--mem", "200MiB"])
        .code(1)
        .complains("above the limits of /run/gpuslice/conf/config: 128MiB, ");
    ask(&["set", &name, "--mem", "100MiB"]).code(0);
    assert_eq!(tenant.take(80 * MIB), "2");
}

#[test]
fn links_pipes_and_other_files_of_a_container_lead_nowhere() {
    if !may_have_containers() {
        return;
    }
    let (bench, target) = (Bench::simulated_without_contexts(), name("target"));
    // The region of this slice is in a folder that no search covers. The folders of a container have links to it.
    let own = crate::support::command::OwnSlice::join("target");
    let region = own.region.0.display().to_string();
    let script = format!(
        "ln -s /proc/1/root{region} /dev/shm/gpuslice-0-run-{target}-link; \
         mkfifo /dev/shm/gpuslice-0-run-{target}-pipe; \
         truncate -s 1T /dev/shm/gpuslice-0-run-{target}-huge; \
         mkdir /dev/shm/gpuslice-0-run-{target}-folder; echo ready; exec sleep 300"
    );
    let container = container::start(&bench, &[], &[], Path::new("/bin/sh"), &["-c", &script]);
    assert_eq!(container.hear().as_deref(), Some("ready"));
    let pid = first_process(&container);
    let place = fs::metadata(format!("/proc/{pid}/ns/mnt")).unwrap().ino();
    let listed =
        ask(&["list", "--all"]).code(0).complains(&format!("{place}/dev/shm/gpuslice-0-run-{target}-huge"));
    assert!(!listed.err.contains("/proc/self/fd"), "{listed:?}");
    for kind in ["link", "pipe", "folder", "huge"] {
        let slice = format!("{place}/{target}-{kind}");
        assert!(!listed.out.contains(&slice), "{listed:?}");
        for arguments in
            [&["status", &slice][..], &["set", &slice, "--mem", "1MiB"], &["rm", "--force", &slice]]
        {
            ask(arguments).code(1).complains(&place.to_string());
        }
    }
    assert_eq!(own.limit(0x11), Some(8 << 30), "it was changed through the link");
}

/// A control group that is called like that of a container of Docker.
struct ControlGroup {
    folder: PathBuf,
    id: String,
}

impl ControlGroup {
    /// Makes a group, and puts a process into it. Returns none where there are no groups to be made.
    fn of(pid: u64) -> Option<Self> {
        let id = format!("{:0<64}", format!("{pid:x}"));
        let places =
            ["/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/pids"];
        let group = places.iter().find_map(|place| {
            let folder = Path::new(place).join(format!("docker-{id}.scope"));
            fs::create_dir(&folder).ok()?;
            let group = Self { folder, id: id.clone() };
            fs::write(group.folder.join("cgroup.procs"), pid.to_string()).ok()?;
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
            groups.contains(&id).then_some(group)
        });
        if group.is_none() {
            skip(
                "containers with the number of an engine: no control group can be made; elsewhere: on a host, as root",
            );
        }
        group
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _in_use_or_gone = fs::remove_dir(&self.folder);
    }
}

#[test]
fn a_container_is_called_by_its_engines_number_and_a_user_without_rights_is_told_of_it() {
    if !may_have_containers() {
        return;
    }
    let (bench, name) = (Bench::simulated_without_contexts(), name("numbered"));
    let tenant = Tenant::start(&bench, &format!("gpuslice-0-run-{name}"), 48 * MIB, &[]);
    let Some(group) = ControlGroup::of(tenant.pid) else { return };
    let slice = named(&json(&["list", "--json"]), &name);
    assert_eq!(slice["container"], group.id.as_str(), "{slice}");
    let short = &group.id[..12];
    let table = ask(&["list"]).code(0);
    row(&table, [&name, &format!(" {short}")]);
    ask(&["status", &format!("{}/{name}", group.id)]).code(0).says(&format!("container {short}"));
    let Some(other) = OtherUser::new("slices that other users do not see") else { return };
    let words = "containers of other users are not looked into (";
    let listed = end(&mut other.gpuslice(&["list"])).code(0).complains(words);
    assert!(!listed.out.contains(&name), "{listed:?}");
    end(&mut other.gpuslice(&["set", &name, "--mem", "1MiB"])).code(1).complains(words);
    assert!(!table.err.contains("not looked into"), "root sees it: {table:?}");
    drop(tenant);
    drop(group);
}
