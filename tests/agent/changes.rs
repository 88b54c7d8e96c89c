//! Tests changes of the configuration and of limits, the agent's reaction to them, and that one agent runs at most.

use crate::node::{Node, text};
use crate::support::bench::Bench;
use crate::support::container::may_have_containers;
use crate::{MIB, TWO, join, witness};
use serde_json::Value;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

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
    // SIGKILL ends the agent, so it can write nothing at its end.
    node.end(libc::SIGKILL);
    assert!(a.ask(&format!("take {}", 300 * MIB)).starts_with("0 "), "the slice goes on without the agent");
    node.begin();
    assert_eq!(limits(&node), [Some((512 * MIB) as f64), Some(0.4)]);
    assert!(a.ask(&format!("take {}", 300 * MIB)).starts_with("0 "));
    for (line, has) in [
        ("{\"op\":\"set\",\"slice\":\"z\",\"core\":40}", "there are: a, b"),
        ("{\"op\":\"set\",\"slice\":\"a\",\"core\":0}", "core = 0"),
        ("{\"op\":\"set\",\"slice\":\"a\",\"memMiB\":819200}", "memMiB = 819200 is more than the GPU has: "),
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

/// Returns a group of this machine that no user of the tests belongs to: its name and its number.
fn some_group() -> (String, String) {
    let groups = fs::read_to_string("/etc/group").unwrap();
    let mut fields = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = fields.find(|fields| !["0", "65534"].contains(&fields[2]));
    found.map(|fields| (fields[0].to_owned(), fields[2].to_owned())).expect("there is a group")
}

#[test]
fn members_of_the_group_change_limits_and_other_users_do_not() {
    if !may_have_containers() {
        return;
    }
    let (name, number) = some_group();
    let mut node = Node::start(&format!("{TWO}[control]\ngroup = \"{name}\"\n"));
    let socket = fs::symlink_metadata(node.at("/run/gpuslice/agent.sock")).unwrap();
    assert_eq!((socket.permissions().mode() & 0o7777, socket.gid().to_string()), (0o660, number.clone()));
    let set = |core| format!("{{\"op\":\"set\",\"slice\":\"a\",\"core\":{core}}}");
    let limit = |node: &Node| node.scrape().get("gpuslice_slice_core_limit_ratio", &[("slot", "a")]);
    assert_eq!(node.control_as("", &set(90)).code(13).err, "Permission denied\n");
    assert_eq!(limit(&node), Some(0.3));
    node.control_as(&number, &set(40)).code(0).says("{\"ok\":true,\"gen\":2}");
    assert_eq!(limit(&node), Some(0.4));
    assert_eq!(node.control(&set(50))["ok"], true, "root may always");
    // Without the key the group has no right.
    node.end(libc::SIGTERM);
    node.configure(TWO);
    node.begin();
    assert_eq!(node.control_as(&number, &set(90)).code(13).err, "Permission denied\n");
    assert_eq!(limit(&node), Some(0.5));
}

#[test]
fn the_socket_has_sixteen_connections_at_a_time_and_ends_silent_ones() {
    let node = Node::start(TWO);
    let begun = Instant::now();
    let socket = node.at("/run/gpuslice/agent.sock");
    let silent: [UnixStream; 16] = std::array::from_fn(|_| UnixStream::connect(&socket).unwrap());
    let answer = node.control("{\"op\":\"set\",\"slice\":\"a\",\"core\":40}");
    let waited = begun.elapsed();
    assert_eq!(answer["ok"], true, "{answer}");
    assert!(waited >= Duration::from_secs(30), "the seventeenth connection is served after {waited:?}");
    for mut stream in silent {
        let mut text = String::new();
        assert_eq!(stream.read_to_string(&mut text).unwrap(), 0, "{text}");
    }
}

#[test]
fn a_group_that_does_not_exist_ends_the_agent_with_the_way_to_make_it() {
    let mut node = Node::start("");
    node.end(libc::SIGTERM);
    node.configure("[control]\ngroup = \"no-such-group\"\n");
    let ended = node.command(&["run"]).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("is no group of /etc/group; make it with groupadd"), "{said}");
}

#[test]
fn the_agent_may_have_as_many_open_files_as_its_hard_limit_allows() {
    let few = ["/usr/bin/prlimit", "--nofile=256:4096"];
    let node = Node::start_under(&few, Bench::simulated_without_contexts(), "");
    let limits = fs::read_to_string(format!("/proc/{}/limits", node.pid())).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().take(2).collect::<Vec<_>>(), ["4096", "4096"]);
}

#[test]
fn a_sighup_while_nvml_starts_is_obeyed_afterwards() {
    let mut node = Node::start("");
    assert_eq!(node.end(libc::SIGTERM).code(), Some(0));
    node.bench = Bench::simulated_without_contexts().with("SIMGPU_NVML_INIT_MS", "2000");
    node.launch();
    node.until("its socket is there", |node| node.at("/run/gpuslice/agent.sock").exists().then_some(()));
    assert!(!node.log().contains("serving"), "{}", node.log());
    node.signal(libc::SIGHUP);
    node.serves();
    node.until("the configuration is read", |node| {
        node.log().contains("read the configuration again").then_some(())
    });
}

#[test]
fn the_configuration_is_read_again_at_sighup_and_absent_slices_are_cleared_away() {
    let mut node = Node::start(TWO);
    let member = join(&node, "b");
    node.configure("[[slices]]\nname = \"a\"\ngpu = 0\nmemory = \"oops\"\n");
    node.signal(libc::SIGHUP);
    node.until("the mistake is reported", |node| {
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
fn a_specification_follows_the_standard() {
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
fn a_second_agent_and_one_without_its_port_end_before_they_make_anything() {
    let node = Node::start(TWO);
    let run = |node: &Node| {
        let output = node.command(&["run"]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    fs::remove_file(node.at("/var/run/cdi/gpuslice-a.json")).unwrap();
    let (code, said) = run(&node);
    assert!(code == Some(1) && said.contains("agent.lock: another agent has it"), "{said}");
    // The lock is also found if the socket is gone or does not answer.
    fs::remove_file(node.at("/run/gpuslice/agent.sock")).unwrap();
    let (code, said) = run(&node);
    assert!(code == Some(1) && said.contains("agent.lock: another agent has it"), "{said}");
    assert!(
        !node.at("/run/gpuslice/agent.sock").exists() && !node.at("/var/run/cdi/gpuslice-a.json").exists()
    );
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
