//! Does `gpuslice-agent` make slices, tell what they use as regions and the simulated GPU have it, and stay unharmed by what
//! tenants write?
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::float_arithmetic,
    reason = "a test"
)]

mod cost;
mod monitoring;
mod node;
mod openmetrics;
mod schema;
#[path = "../support/mod.rs"]
mod support;

use gpuslice_region::{DeviceRequest, Limits, Member, Trust, Uuid};
use node::{Node, may_have_containers, text};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use support::bench::Bench;
use support::living::Living;
use support::{artefacts, compiler};

const MIB: u64 = 1 << 20;
pub(crate) const TWO: &str = "[[slices]]\nname = \"a\"\ngpu = 0\nmemory = \"256MiB\"\ncores = 30\npriority = \"high\"\n\
    [[slices]]\nname = \"b\"\ngpu = 0\nmemory = \"25%\"\ncores = 70\n";

/// A program that takes memory as it is told, in a slice.
fn witness(node: &Node, slice: &str, bytes: u64) -> Living {
    let program = node.in_slice(slice, &compiler::plain("witness"), &[&bytes.to_string()]);
    assert_eq!(program.hear().as_deref(), Some("ready"));
    program
}

/// The process that a container's first one is, by its number here.
fn first_process(container: &Living) -> u64 {
    let pid = container.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it has a child");
    children.trim().parse().expect("it has one")
}

/// Waits until the kernel has killed the first process of a container whose parent was ended.
fn dies(node: &mut Node, pid: u64) {
    node.until("it is dead", |_| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
}

/// This process, in a slice that the agent made.
pub(crate) fn join(node: &Node, slice: &str) -> Member {
    let uuid = node
        .scrape()
        .0
        .keys()
        .find_map(|(name, labels)| (name == "gpuslice_gpu_info").then(|| labels["uuid"].clone()));
    let digits = uuid.expect("there is a GPU").trim_start_matches("GPU-").replace('-', "");
    let bytes: Vec<u8> =
        (0..16).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect();
    let limits = Limits { memory: Some(256 * MIB), cores_permille: 300, ..Limits::NONE };
    let wanted = [DeviceRequest { uuid: Uuid(bytes.try_into().unwrap()), total: 1 << 30, limits }];
    Member::join(&node.region(slice), Trust::AnyOwner, &wanted).expect("it can be joined").0
}

#[test]
fn slices_are_told_before_their_first_process_and_with_what_they_use_afterwards() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start(TWO);
    assert_eq!(node.get("/healthz").body, "ok\n");
    assert_eq!(node.get("/readyz").status, 200);
    let metrics = node.scrape();
    let of = |slot: &'static str| [("slot", slot), ("container", "")];
    for (slot, limit, share) in [("a", 256 * MIB, 0.3), ("b", 256 * MIB, 0.7)] {
        assert_eq!(metrics.get("gpuslice_slice_memory_limit_bytes", &of(slot)), Some(limit as f64));
        assert_eq!(metrics.get("gpuslice_slice_core_limit_ratio", &of(slot)), Some(share));
        for name in ["memory_used_bytes", "processes", "memory_denied_total", "gpu_time_seconds_total"] {
            assert_eq!(metrics.get(&format!("gpuslice_slice_{name}"), &of(slot)), Some(0.0), "{name}");
        }
    }
    assert_eq!(
        metrics.get("gpuslice_slice_info", &[("slot", "a"), ("policy", "fixed"), ("priority", "high")]),
        Some(1.0)
    );
    assert_eq!(metrics.get("gpuslice_agent_slots", &[("state", "free")]), Some(2.0));
    assert_eq!(metrics.get("gpuslice_gpu_memory_bytes", &[("kind", "total")]), Some((1_u64 << 30) as f64));

    let mut a = witness(&node, "a", 64 * MIB);
    let b = witness(&node, "b", 32 * MIB);
    assert!(a.ask(&format!("keep {}", 512 * MIB)).starts_with("2 "), "it passes the quota");
    assert!(a.ask(&format!("keep {}", 16 * MIB)).starts_with("0 "));
    let metrics = node.scrape();
    let used = |slot| metrics.get("gpuslice_slice_memory_used_bytes", &of(slot)).unwrap();
    assert_eq!([used("a"), used("b")], [80.0, 32.0].map(|mib| mib * MIB as f64));
    assert_eq!(used("a") + used("b"), node.bench.truth(0).held as f64);
    assert_eq!(metrics.get("gpuslice_slice_memory_denied_total", &of("a")), Some(1.0));
    assert_eq!(metrics.get("gpuslice_slice_processes", &of("a")), Some(1.0));
    node.until("NVML's figure is the GPU's", |node| {
        let used = node.scrape().get("gpuslice_gpu_memory_bytes", &[("kind", "used")])?;
        (used == node.bench.truth(0).held as f64).then_some(())
    });
    let told = node.until("its process is seen", |node| {
        node.slice(|slice| slice["name"] == "a" && !slice["processes"][0]["host_pid"].is_null())
    });
    assert_eq!(node.scrape().get("gpuslice_agent_slots", &[("state", "allocated")]), Some(2.0));
    assert_eq!(told["processes"][0]["host_pid"].as_u64(), Some(first_process(&a)), "{told}");
    assert_eq!(told["processes"][0]["pid"].as_u64(), Some(1), "{told}");
    assert!(text(&told["processes"][0]["command"]).contains("witness"), "{told}");
    let last = [first_process(&a), first_process(&b)];
    drop((a, b));
    last.iter().for_each(|pid| dies(&mut node, *pid));
    let used = node.scrape().get("gpuslice_slice_memory_used_bytes", &of("a"));
    assert_eq!(used, Some(0.0), "the slice stays when its processes have ended");
}

#[test]
fn gpu_time_is_the_simulated_gpus() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start(TWO);
    let mut load = node.in_slice("b", &compiler::plain("load"), &support::neighbours::BUSY);
    assert_eq!(load.hear().as_deref(), Some("ready"));
    load.order("");
    let seconds =
        |node: &Node| node.scrape().get("gpuslice_slice_gpu_time_seconds_total", &[("slot", "b")]).unwrap();
    let busy = |node: &Node| {
        let truth: Value = serde_json::from_str(&node.bench.report()).expect("this is JSON");
        truth["devices"][0]["busy_ns"].as_u64().expect("there is a device") as f64 / 1e9
    };
    node.until("a second of GPU time", |node| (seconds(node) > 1.0).then_some(()));
    let (before, told, after) = (busy(&node), seconds(&node), busy(&node));
    // What is under way was not charged yet.
    assert!(told > before * 0.9 - 0.1 && told < after * 1.1 + 0.1, "{before} {told} {after}");
    node.until("it is throttled", |node| {
        let metrics = node.scrape();
        let used = metrics.get("gpuslice_slice_core_used_ratio", &[("slot", "b")])?;
        let throttled = metrics.get("gpuslice_slice_throttled_seconds_total", &[("slot", "b")])?;
        (used > 0.05 && used <= 0.9 && throttled > 0.0).then_some(())
    });
}

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

/// Puts whatever is no region under a region's name into a folder.
fn plant(folder: &Path) {
    let at = |name: &str| folder.join(format!("gpuslice-0-{name}"));
    fs::write(at("empty"), "").unwrap();
    fs::write(at("foreign"), vec![b'x'; 1 << 20]).unwrap();
    fs::write(at("short"), b"gpuslice\x0c\0\0\0").unwrap();
    File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
    symlink("/etc/passwd", at("link")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("name\"\n\\ {}"), "").unwrap();
    let made = Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
}

#[test]
fn what_is_no_region_harms_neither_the_agent_nor_other_slices() {
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
}

#[test]
fn a_region_that_is_shortened_or_overwritten_while_it_is_read_is_told_and_harms_no_other() {
    let mut node = Node::start(TWO);
    let (a, _b) = (join(&node, "a"), join(&node, "b"));
    node.until("both are told", |node| {
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
fn a_field_that_nvml_does_not_tell_costs_one_series() {
    let mut node = Node::start(TWO);
    let utilization = |node: &Node| node.scrape().get("gpuslice_gpu_utilization_ratio", &[]);
    node.until("it is told", |node| utilization(node));
    node.bench.goes_wrong("nvmlDeviceGetUtilizationRates=3");
    node.until("it is not told any more", |node| utilization(node).is_none().then_some(()));
    let metrics = node.scrape();
    assert_eq!(metrics.get("gpuslice_gpu_healthy", &[]), Some(1.0));
    assert!(metrics.get("gpuslice_gpu_memory_bytes", &[("kind", "used")]).is_some());
    assert!(metrics.get("gpuslice_slice_memory_limit_bytes", &[("slot", "a")]).is_some());
    node.bench.goes_wrong("nvmlDeviceGetHandleByUUID=15");
    node.until("the GPU is lost", |node| {
        (node.scrape().get("gpuslice_gpu_healthy", &[]) == Some(0.0)).then_some(())
    });
    node.bench.goes_wrong("");
    node.until("all is well", |node| utilization(node));
}

#[test]
fn limits_are_changed_by_the_socket_while_a_program_runs_and_hold_after_a_restart() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start(TWO);
    let mut a = witness(&node, "a", 64 * MIB);
    assert!(a.ask(&format!("take {}", 300 * MIB)).starts_with("2 "));
    let answer = node.control("{\"op\":\"set\",\"slice\":\"a\",\"memMiB\":512,\"core\":40}");
    assert_eq!(answer, serde_json::json!({"ok": true, "gen": 2}));
    assert!(a.ask(&format!("take {}", 300 * MIB)).starts_with("0 "), "the program has the new limit");
    let limits = |node: &Node| {
        let metrics = node.scrape();
        ["memory_limit_bytes", "core_limit_ratio"]
            .map(|name| metrics.get(&format!("gpuslice_slice_{name}"), &[("slot", "a")]))
    };
    assert_eq!(limits(&node), [Some((512 * MIB) as f64), Some(0.4)]);
    let config = fs::read_to_string(node.at("/var/lib/gpuslice/slots/a/conf/config")).unwrap();
    assert!(config.contains(&format!("={}\n", 512 * MIB)) && config.contains("=40\n"), "{config}");
    // Killed, so that nothing can be written at the end.
    node.end(libc::SIGKILL);
    assert!(a.ask(&format!("take {}", 300 * MIB)).starts_with("0 "), "the slice goes on without the agent");
    node.begin();
    assert_eq!(limits(&node), [Some((512 * MIB) as f64), Some(0.4)]);
    assert!(a.ask(&format!("take {}", 300 * MIB)).starts_with("0 "));
    for (line, has) in [
        ("{\"op\":\"set\",\"slice\":\"z\",\"core\":40}", "there are: a, b"),
        ("{\"op\":\"set\",\"slice\":\"a\",\"core\":0}", "core = 0"),
        ("set a", "write it like"),
    ] {
        let answer = node.control(line);
        assert!(answer["ok"] == false && text(&answer["error"]).contains(has), "{answer}");
    }
    let answer = node.control(&"x".repeat(20_000));
    assert!(text(&answer["error"]).contains("16384 bytes"), "{answer}");
    let socket = fs::symlink_metadata(node.at("/run/gpuslice/agent.sock")).unwrap();
    assert!(socket.file_type().is_socket() && socket.permissions().mode() & 0o7777 == 0o600);
}

#[test]
fn a_tenant_who_raises_its_limits_is_set_back() {
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

#[test]
fn the_configuration_is_read_again_at_sighup_and_what_is_not_in_it_is_cleared_away() {
    let mut node = Node::start(TWO);
    let member = join(&node, "b");
    node.configure("[[slices]]\nname = \"a\"\ngpu = 0\nmemory = \"oops\"\n");
    node.signal(libc::SIGHUP);
    node.until("the mistake is told", |node| {
        node.log().contains("agent.toml:5: slices[0].memory = \"oops\"").then_some(())
    });
    assert!(node.scrape().get("gpuslice_slice_processes", &[("slot", "b")]).is_some());
    node.configure("[[slices]]\nname = \"a\"\ngpu = 0\nmemory = \"512MiB\"\n");
    node.signal(libc::SIGHUP);
    node.until("the limit is the new one", |node| {
        let limit = node.scrape().get("gpuslice_slice_memory_limit_bytes", &[("slot", "a")]);
        (limit == Some((512 * MIB) as f64)).then_some(())
    });
    assert!(!node.at("/var/run/cdi/gpuslice-b.json").exists(), "a new container would get it");
    assert!(node.region("b").exists(), "a process lives in it");
    assert_eq!(node.scrape().get("gpuslice_agent_slots", &[("state", "stale")]), Some(1.0));
    member.leave();
    node.until("it is cleared away", |node| {
        node.scrape();
        (!node.at("/var/lib/gpuslice/slots/b").exists() && !node.region("b").exists()).then_some(())
    });
    assert!(node.region("a").exists());
    assert_eq!(node.end(libc::SIGTERM).code(), Some(0));
    assert!(!node.at("/run/gpuslice/agent.sock").exists());
    assert!(node.region("a").exists(), "slices go on");
}

#[test]
fn a_specification_is_what_the_standard_says() {
    let node = Node::start(TWO);
    for name in ["a", "b"] {
        let spec = node.spec(name);
        let keys: Vec<_> = spec.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["cdiVersion", "devices", "kind"]);
        assert_eq!((text(&spec["cdiVersion"]), text(&spec["kind"])), ("0.5.0", "gpuslice.dev/slice"));
        assert_eq!(spec["devices"].as_array().unwrap().len(), 1);
        assert_eq!(spec["devices"][0]["name"], name);
        let edits = &spec["devices"][0]["containerEdits"];
        for item in edits["env"].as_array().unwrap() {
            assert!(text(item).split_once('=').is_some_and(|(key, _)| !key.is_empty()), "{item}");
        }
        for mount in edits["mounts"].as_array().unwrap() {
            let [from, to] = ["hostPath", "containerPath"].map(|key| Path::new(text(&mount[key])));
            assert!(from.is_absolute() && from.exists() && to.is_absolute(), "{mount}");
            assert!(mount["options"].as_array().unwrap().iter().all(Value::is_string));
        }
        let mode = fs::metadata(node.at(&format!("/var/run/cdi/gpuslice-{name}.json")))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o644);
    }
    let names: Vec<_> =
        fs::read_dir(node.at("/var/run/cdi")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn documents_are_what_their_schemas_say() {
    let mut node = Node::start(TWO);
    let member = join(&node, "a");
    node.until("there is a history", |node| {
        node.json("/api/v1/history")["lines"].as_array().is_some_and(|lines| !lines.is_empty()).then_some(())
    });
    for name in ["gpus", "slices", "history"] {
        let schema = artefacts::repository().join(format!("docs/reference/{name}.schema.json"));
        let schema: Value = serde_json::from_slice(&fs::read(schema).unwrap()).unwrap();
        let document = node.json(&format!("/api/v1/{name}"));
        assert_eq!(schema::faults(&document, &schema), Vec::<String>::new());
        let list = if name == "history" { "lines" } else { name };
        let mut other = document.clone();
        other[list][0]["surprise"] = 1.into();
        assert!(!schema::faults(&other, &schema).is_empty(), "{name}: a field that is not in the schema");
        let mut other = document;
        other[list][0]["uuid"] = 1.into();
        other[list][0].as_object_mut().unwrap().remove("name");
        assert!(!schema::faults(&other, &schema).is_empty(), "{name}: another kind, or a field less");
    }
    drop(member);
}

#[test]
fn the_page_tells_what_there_is_and_loads_nothing_from_elsewhere() {
    let node = Node::start(
        "[[slices]]\nname = \"a\"\ngpu = 0\nmemory = \"768MiB\"\ncores = 60\n[[slices]]\nname = \"b\"\ngpu = 0\nmemory = \"768MiB\"\ncores = 60\n",
    );
    let answer = node.get("/");
    assert!(answer.head.contains("content-type: text/html; charset=utf-8"), "{}", answer.head);
    assert!(answer.head.contains("default-src 'none'"), "{}", answer.head);
    for words in [
        "data-slice=\"a\"",
        "limit 768MiB",
        "limit 60% fixed",
        "memory limits of 2 slices sum to 1536MiB of 1GiB",
        "shares of 2 slices sum to 120%",
    ] {
        assert!(answer.body.contains(words), "{words} is missing in\n{}", answer.body);
    }
    assert!(!answer.body.contains("://"), "{}", answer.body);
    for (path, kind) in [("/page.css", "text/css"), ("/page.js", "text/javascript")] {
        assert!(answer.body.contains(path));
        let part = node.get(path);
        assert!(part.status == 200 && part.head.contains(kind), "{part:?}");
    }
}

#[test]
fn clients_cannot_ask_for_more_than_is_allowed() {
    let limits = "[web]\nlisten = \"127.0.0.1:0\"\nrequests_per_second = 5\nconnections = 2\n";
    let node = Node::start(limits);
    assert_eq!(
        node.request(
            "POST /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
        .status,
        405
    );
    assert_eq!(node.get("/nowhere").status, 404);
    let long =
        format!("GET / HTTP/1.1\r\nHost: node\r\nX: {}\r\nConnection: close\r\n\r\n", "x".repeat(64 << 10));
    assert_eq!(node.request(&long).status, 431);
    let answers: Vec<u16> = (0..40).map(|_| node.get("/healthz").status).collect();
    assert!(answers.contains(&429) && answers.contains(&200), "{answers:?}");
    // Those who say nothing keep others waiting for a while, and not for ever.
    let silent = [node.connect(), node.connect(), node.connect()];
    assert!([200, 429].contains(&node.get("/healthz").status));
    drop(silent);
}

#[test]
fn a_second_agent_and_one_without_its_port_end_before_they_make_anything() {
    let node = Node::start(TWO);
    let run = |node: &Node| {
        let output = node.command(&["run"]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    fs::remove_file(node.at("/var/run/cdi/gpuslice-a.json")).unwrap();
    let (code, said) = run(&node);
    assert!(code == Some(1) && said.contains("agent.sock: another agent answers there"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let web = format!("{TWO}[web]\nlisten = \"{}\"\n", taken.local_addr().unwrap());
    let mut other = Node::start(TWO);
    other.end(libc::SIGTERM);
    fs::remove_file(other.at("/var/run/cdi/gpuslice-a.json")).unwrap();
    other.configure(&web);
    let (code, said) = run(&other);
    assert!(code == Some(1) && said.contains("choose another address or port"), "{said}");
    assert!(
        !other.at("/var/run/cdi/gpuslice-a.json").exists() && !other.at("/run/gpuslice/agent.sock").exists()
    );
}

#[test]
fn check_tells_each_mistake_and_a_right_file_is_told_so() {
    let node = Node::start(TWO);
    let check = || {
        let output = node.command(&["check"]).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, out, err) = check();
    assert!(code == Some(0) && out.contains("agent.toml: right, 2 slices") && err.is_empty(), "{out}{err}");
    node.configure("[[slices]]\nname = \"a\"\ngpu = 0\nmemory = \"4Gigs\"\ncores = 101\n");
    let (code, out, err) = check();
    assert!(code == Some(3) && out.is_empty() && err.lines().count() == 2, "{out}{err}");
    assert!(
        err.contains("agent.toml:5: slices[0].memory = \"4Gigs\": ")
            && err.contains("agent.toml:6: slices[0].cores"),
        "{err}"
    );
    fs::remove_file(node.at("/etc/gpuslice/agent.toml")).unwrap();
    let (code, _, err) = check();
    assert!(code == Some(3) && err.contains("cannot be read") && err.contains("--config"), "{err}");
}

#[test]
fn a_slice_whose_gpu_is_not_there_is_told_and_the_others_are_made() {
    let node = Node::start_on(Bench::simulated(), &format!("{TWO}[[slices]]\nname = \"c\"\ngpu = 7\n"));
    let ready = node.get("/readyz");
    assert!(ready.status == 503 && ready.body.contains("c: gpu = 7 is no GPU of this node"), "{ready:?}");
    assert!(
        node.at("/var/run/cdi/gpuslice-a.json").exists() && !node.at("/var/run/cdi/gpuslice-c.json").exists()
    );
    assert_eq!(node.scrape().get("gpuslice_slice_processes", &[("slot", "a")]), Some(0.0));
}
