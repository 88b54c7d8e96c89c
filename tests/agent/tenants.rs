//! Checks that files and limits that tenants write harm neither the agent nor other slices.

use crate::cotenants::busy;
use crate::node::{Node, text};
use crate::support::command::ask;
use crate::support::container::{first_process, may_have_containers};
use crate::support::living::Living;
use crate::support::other_user::OtherUser;
use crate::support::{artefacts, compiler};
use crate::{MIB, TWO, dies, join, witness};
use gpuslice_region::layout::VERSION;
use gpuslice_region::{DeviceRequest, Limits, Member, Monitor, Trust, Uuid};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

#[test]
fn a_slice_in_a_private_folder_is_found_with_its_numbers_and_gone_with_its_container() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start("discover = true\n");
    let library = artefacts::library().display().to_string();
    let environment = [format!("LD_PRELOAD={library}"), "GPU_MEM_LIMIT=128MiB".to_owned()];
    let program = node.contained(&[], &environment, &compiler::plain("witness"), &[&(48 * MIB).to_string()]);
    assert_eq!(program.hear().as_deref(), Some("ready"));
    let pid = first_process(&program);
    let is_it = move |slice: &Value| slice["processes"][0]["host_pid"].as_u64() == Some(pid);
    let told = node.until("it is found", |node| node.slice(is_it));
    assert_eq!(
        (&told["made"], told["devices"][0]["memory_limit"].as_u64()),
        (&Value::Bool(false), Some(128 * MIB)),
        "{told}"
    );
    assert_eq!(told["devices"][0]["memory_used"].as_u64(), Some(48 * MIB), "{told}");
    assert!(text(&told["region"]).starts_with("/dev/shm/gpuslice-0-"), "{told}");
    let slot = text(&told["name"]).to_owned();
    let labels = [("slot", slot.as_str())];
    assert_eq!(node.scrape().get("gpuslice_slice_memory_used_bytes", &labels), Some((48 * MIB) as f64));
    drop(program);
    dies(&mut node, pid);
    let series = node.scrape().0;
    let stale: Vec<_> = series.keys().filter(|(_, found)| found.get("slot") == Some(&slot)).collect();
    assert!(stale.is_empty(), "{stale:?}");
}

/// Puts files that are no regions into a folder, under names of regions.
fn plant(folder: &Path) {
    let at = |name: &str| folder.join(format!("gpuslice-0-{name}"));
    fs::write(at("empty"), "").unwrap();
    fs::write(at("foreign"), vec![b'x'; 1 << 20]).unwrap();
    fs::write(at("short"), [b"gpuslice".as_slice(), &VERSION.to_ne_bytes()].concat()).unwrap();
    File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
    symlink("/etc/passwd", at("link")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("name\"\n\\ {}"), "").unwrap();
    let made = Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
}

#[test]
fn files_that_are_no_regions_harm_neither_the_agent_nor_other_slices() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start(&format!("discover = true\n{TWO}"));
    let planted = tempfile::tempdir_in("/dev/shm").unwrap();
    plant(planted.path());
    let mounts = [format!("{} /tmp/planted", planted.path().display())];
    let go = "cp -a --sparse=always /tmp/planted/. /dev/shm/ && echo ready && exec sleep 300";
    let container = node.contained(&mounts, &[], Path::new("/bin/sh"), &["-c", go]);
    assert_eq!(container.hear().as_deref(), Some("ready"));
    let told = ["begins with", "size "];
    node.until("all of them were looked at", |node| {
        node.scrape();
        let log = node.log();
        (told.iter().all(|words| log.contains(words)) && log.contains("gpuslice-0-huge")).then_some(())
    });
    let _a = witness(&node, "a", 16 * MIB);
    let metrics = node.scrape();
    assert_eq!(metrics.get("gpuslice_slice_memory_used_bytes", &[("slot", "a")]), Some((16 * MIB) as f64));
    let planted = metrics
        .0
        .keys()
        .filter(|(_, labels)| labels.get("slot").is_some_and(|slot| slot.contains("huge")))
        .count();
    assert_eq!(planted, 0);
    let log = node.log();
    assert!(!log.contains("/proc/self/fd"), "the path is the container's: {log}");
    assert_eq!(log.matches("gpuslice-0-huge").count(), 1, "it is said once: {log}");
}

#[test]
fn a_region_that_is_shortened_or_overwritten_while_it_is_read_is_told_and_harms_no_other() {
    let mut node = Node::start(TWO);
    let (a, _b) = (join(&node, "a"), join(&node, "b"));
    node.until("both are reported", |node| {
        let metrics = node.scrape();
        let living = |slot| metrics.get("gpuslice_slice_processes", &[("slot", slot)]) == Some(1.0);
        (living("a") && living("b")).then_some(())
    });
    let region = File::options().write(true).open(node.region("a")).unwrap();
    for size in [4096, 0] {
        region.set_len(size).unwrap();
        let metrics = node.scrape();
        assert_eq!(metrics.get("gpuslice_slice_processes", &[("slot", "a")]), Some(0.0));
        assert_eq!(
            metrics.get("gpuslice_slice_memory_limit_bytes", &[("slot", "a")]),
            Some((256 * MIB) as f64)
        );
        assert_eq!(metrics.get("gpuslice_slice_processes", &[("slot", "b")]), Some(1.0));
        let told = node.slice(|slice| slice["name"] == "a").unwrap();
        assert!(told["problem"].is_string(), "{told}");
    }
    assert!(node.get("/").body.contains(node.region("a").display().to_string().as_str()));
    drop(a);
}

#[test]
fn a_tenant_that_raises_its_limits_is_set_back() {
    let mut node = Node::start(TWO);
    let member = join(&node, "a");
    let device = member.devices()[0].device;
    member.set_limits(device, Limits::NONE);
    node.until("the limits are those of the configuration", |_| {
        let limits = member.limits(device);
        (limits.memory == Some(256 * MIB) && limits.cores_permille == 300).then_some(())
    });
    assert!(node.log().contains("was set back"), "{}", node.log());
}

/// Returns the status of an allocation of `bytes`, which the program frees again.
pub(crate) fn take(program: &mut Living, bytes: u64) -> String {
    program.ask(&format!("take {bytes}")).split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn processes_keep_to_the_operators_file_themselves() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start(TWO);
    let (mut program, busy) = (witness(&node, "a", 48 * MIB), busy(&node, "a"));
    let region = Monitor::open(&node.region("a"), Trust::AnyOwner).unwrap().unwrap();
    let device = region.devices()[0].device;
    let limits = region.limits(device);
    assert_eq!((limits.memory, limits.cores_permille), (Some(256 * MIB), 300));
    node.end(libc::SIGKILL);
    region.set_limits(device, Limits { cores_permille: 1000, ..limits });
    node.until("the share is that of the file", |_| (region.limits(device) == limits).then_some(()));
    // The busy program ends. Only an allocation of the other program can then restore the limits.
    drop(busy);
    region.set_limits(device, Limits { memory: None, ..limits });
    assert_eq!(take(&mut program, 300 * MIB), "2");
    assert_eq!(region.limits(device), limits);
    assert_eq!(take(&mut program, 100 * MIB), "0");
    // The program keeps limits below those of the file. It also keeps raised limits if the operator has raised the file's first.
    let lowered = Limits { memory: Some(64 * MIB), cores_permille: 100, ..limits };
    region.set_limits(device, lowered);
    assert_eq!(take(&mut program, 100 * MIB), "2");
    let config = node.at("/var/lib/gpuslice/slots/a/conf/config");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace(&(256 * MIB).to_string(), &(512 * MIB).to_string())).unwrap();
    let raised = Limits { memory: Some(512 * MIB), ..limits };
    region.set_limits(device, raised);
    assert_eq!(take(&mut program, 300 * MIB), "0");
    assert_eq!(region.limits(device), raised);
    let (_, said) = program.end();
    assert_eq!(said.matches("were set back").count(), 1, "{said}");
}

#[test]
fn the_command_refuses_limits_above_the_operators_file() {
    if !may_have_containers() {
        return;
    }
    let node = Node::start(TWO);
    let _program = witness(&node, "a", 48 * MIB);
    let region = "/run/gpuslice/region/region";
    let set = |limits: &[&str]| {
        let words = [&["set", region], limits].concat();
        node.in_slice("a", Path::new(env!("CARGO_BIN_EXE_gpuslice")), &words).end()
    };
    for above in [["--mem", "1GiB"], ["--cores", "50"], ["--policy", "equal"]] {
        let (status, said) = set(&above);
        assert!(!status.success(), "{above:?}");
        assert!(said.contains("is above the limits of /run/gpuslice/conf/config: "), "{above:?}: {said}");
    }
    let (status, said) = set(&["--mem", "100MiB", "--cores", "20", "--priority", "low"]);
    assert!(status.success(), "{said}");
}

/// Makes the slice `c` on the node by `gpuslice cdi`, or makes it again with other limits.
fn make_slice(node: &Node, limits: &[&str]) {
    // The specification names files as this machine sees them.
    let root = node.at("/").display().to_string();
    ask(&[&["cdi", "c", "--root", &root], limits].concat()).code(0);
}

#[test]
fn limits_that_root_raises_on_the_host_hold_in_running_programs() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start(TWO);
    make_slice(&node, &["--mem", "256MiB", "--cores", "30"]);
    let (mut program, busy) = (witness(&node, "c", 48 * MIB), busy(&node, "c"));
    assert_eq!(take(&mut program, 300 * MIB), "2");
    let config = node.at("/var/lib/gpuslice/slots/c/conf/config");
    let text = || fs::read_to_string(&config).unwrap();
    let set = |node: &Node, limits: &[&str]| node.gpuslice(&[&["set", "c"], limits].concat());
    set(&node, &["--mem", "768MiB", "--cores", "60"]).code(0).says("256MiB -> 768MiB").says("30% -> 60%");
    assert_eq!(take(&mut program, 300 * MIB), "0");
    let region = Monitor::open(&node.region("c"), Trust::AnyOwner).unwrap().unwrap();
    let device = region.devices()[0].device;
    let limits = region.limits(device);
    assert_eq!((limits.memory, limits.cores_permille), (Some(768 * MIB), 600));
    assert!(
        text().contains("GPU_MEM_LIMIT=768MiB\n") && text().contains("GPU_CORE_PERCENT=60\n"),
        "{}",
        text()
    );
    let environment = node.spec("c")["devices"][0]["containerEdits"]["env"].to_string();
    assert!(environment.contains("GPU_CORE_PERCENT=60"), "{environment}");
    // The programs have the new limits as their ceiling.
    region.set_limits(device, Limits { memory: None, cores_permille: 1000, ..limits });
    assert_eq!(take(&mut program, 900 * MIB), "2");
    node.until("the share is that of the file", |_| (region.limits(device) == limits).then_some(()));
    drop(busy);
    // A tenant has raised the limits, and no process has set them back yet. Root can still change the share.
    region.set_limits(device, Limits { memory: None, ..limits });
    set(&node, &["--cores", "50"]).code(0);
    // `gpuslice set` keeps settings that it does not get, and writes policies to the file too.
    set(&node, &["--policy", "equal"]).code(0);
    assert!(
        text().contains("GPU_CORE_POLICY=equal\n") && text().contains("GPU_MEM_LIMIT=768MiB\n"),
        "{}",
        text()
    );
    // `0=1GiB` limits one device only. Such a list changes the region alone, and cannot exceed the limits of the file.
    let before = text();
    set(&node, &["--mem", "0=1GiB"])
        .code(1)
        .complains("above the limits of /var/lib/gpuslice/slots/c/conf/config: 768MiB")
        .complains("`gpuslice cdi c` raises limits");
    set(&node, &["--mem", "0=300MiB"]).code(0);
    assert_eq!((text(), region.limits(device).memory), (before, Some(300 * MIB)));
}

#[test]
fn limits_that_root_lowers_on_the_host_hold_in_running_programs_whatever_the_tenant_writes() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start(TWO);
    make_slice(&node, &["--mem", "512MiB", "--cores", "60"]);
    let (mut program, busy) = (witness(&node, "c", 48 * MIB), busy(&node, "c"));
    assert_eq!(take(&mut program, 300 * MIB), "0");
    let region = Monitor::open(&node.region("c"), Trust::AnyOwner).unwrap().unwrap();
    let device = region.devices()[0].device;
    let old = region.limits(device);
    node.gpuslice(&["set", "c", "--mem", "256MiB", "--cores", "30"]).code(0);
    let lowered = Limits { memory: Some(256 * MIB), cores_permille: 300, ..old };
    assert_eq!(region.limits(device), lowered);
    region.set_limits(device, old);
    assert_eq!(take(&mut program, 300 * MIB), "2", "the tenant has the old limits back");
    assert_eq!(region.limits(device), lowered);
    region.set_limits(device, old);
    node.until("the busy program sets them back", |_| (region.limits(device) == lowered).then_some(()));
    // `gpuslice cdi` changes the file alone. The running programs lower the region's limits to those of the file.
    make_slice(&node, &["--mem", "128MiB", "--cores", "20"]);
    let lowered = Limits { memory: Some(128 * MIB), cores_permille: 200, ..old };
    node.until("the limits are those of the file", |_| (region.limits(device) == lowered).then_some(()));
    // Without a busy program, the next allocation lowers them.
    drop(busy);
    make_slice(&node, &["--mem", "64MiB"]);
    assert_eq!(take(&mut program, 100 * MIB), "2");
    let lowered = Limits { memory: Some(64 * MIB), ..lowered };
    assert_eq!(region.limits(device), lowered);
    // If the file allows more again, only `gpuslice set` raises the limits of the region.
    make_slice(&node, &["--mem", "512MiB"]);
    assert_eq!(take(&mut program, 100 * MIB), "2");
    node.gpuslice(&["set", "c", "--mem", "512MiB"]).code(0);
    assert_eq!(take(&mut program, 100 * MIB), "0");
}

#[test]
fn a_slice_of_the_agent_is_raised_through_the_agent() {
    if !may_have_containers() {
        return;
    }
    let node = Node::start(TWO);
    let mut program = witness(&node, "a", 48 * MIB);
    let config = node.at("/var/lib/gpuslice/slots/a/conf/config");
    let before = fs::read_to_string(&config).unwrap();
    assert_eq!(take(&mut program, 300 * MIB), "2");
    node.gpuslice(&["set", "a", "--mem", "512MiB", "--cores", "70"]).code(0).says("256MiB -> 512MiB");
    assert_ne!(fs::read_to_string(&config).unwrap(), before, "the limits outlive the program");
    assert_eq!(take(&mut program, 300 * MIB), "0");
    // A request to the agent cannot contain a weight.
    let refused = node.gpuslice(&["set", "a", "--mem", "1GiB", "--weight", "200"]).code(1);
    refused
        .complains("above the limits of /var/lib/gpuslice/slots/a/conf/config")
        .complains("gpuslice-agent's");
    node.gpuslice(&["set", "a", "--mem", "100MiB"]).code(0);
    assert_eq!(take(&mut program, 100 * MIB), "2");
}

#[test]
fn an_operator_raises_limits_although_a_tenant_has_added_a_device() {
    if !may_have_containers() {
        return;
    }
    let node = Node::start(TWO);
    let member = join(&node, "a");
    let added = DeviceRequest { uuid: Uuid([9; 16]), total: 1 << 30, limits: Limits::NONE };
    let _another = Member::join(&node.region("a"), Trust::AnyOwner, &[added]).unwrap();
    node.gpuslice(&["set", "a", "--mem", "512MiB"]).code(0).says("256MiB -> 512MiB");
    let config = fs::read_to_string(node.at("/var/lib/gpuslice/slots/a/conf/config")).unwrap();
    assert!(config.contains(&format!("={}\n", 512 * MIB)), "{config}");
    assert_eq!(member.limits(member.devices()[0].device).memory, Some(512 * MIB));
}

#[test]
fn other_users_of_the_host_raise_no_limits() {
    let Some(other) = OtherUser::new("limits of a slice that other users of the host set") else { return };
    if !may_have_containers() {
        return;
    }
    let node = Node::start(TWO);
    let root = node.at("/").display().to_string();
    ask(&["cdi", "c", "--mem", "256MiB", "--cores", "30", "--root", &root]).code(0);
    let unused = |node: &Node| {
        let refused = node.gpuslice(&["set", "c", "--cores", "50"]).code(1);
        refused.complains("`gpuslice cdi c` changes the limits of its next start");
    };
    unused(&node);
    let mut program = witness(&node, "c", 48 * MIB);
    let config = node.at("/var/lib/gpuslice/slots/c/conf/config");
    let before = fs::read_to_string(&config).unwrap();
    let raised = node.gpuslice_as(&other, &["set", "c", "--mem", "512MiB"]).code(1);
    raised
        .complains("above the limits of /var/lib/gpuslice/slots/c/conf/config")
        .complains("root raises them");
    node.gpuslice_as(&other, &["set", "c", "--mem", "100MiB"]).code(0);
    assert_eq!(take(&mut program, 100 * MIB), "2");
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
    let _ended = program.end();
    unused(&node);
}
