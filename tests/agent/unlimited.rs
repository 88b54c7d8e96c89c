//! Checks that the agent names programs in containers that use a GPU without the library.

use crate::MIB;
use crate::node::Node;
use crate::support::bench::Bench;
use crate::support::container::{OWN_ETC, may_have_containers, start_with_host_numbers};
use crate::support::living::Living;
use crate::support::{artefacts, compiler, skip, skip_without_rights};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const GAUGE: &str = "gpuslice_gpu_unlimited_processes";

/// Script of a shell that is number 1 of a process-number namespace. It makes the next process have a number there, and runs a
/// command as that process.
const WITH_NUMBER: &str = "echo $(($0 - 1)) >/proc/sys/kernel/ns_last_pid; \"$@\"; exit $?";

/// Starts a program that takes memory of the GPU, in a container of the node.
fn user(node: &Node, environment: &[String]) -> (Living, String) {
    let bytes = (16 * MIB).to_string();
    let program = start_with_host_numbers(&node.bench, environment, &compiler::plain("witness"), &[&bytes]);
    assert_eq!(program.hear().as_deref(), Some("ready"));
    let container = container_of(&program);
    (program, container)
}

/// Returns the number that the agent shows for the container of a program.
fn container_of(program: &Living) -> String {
    fs::metadata(format!("/proc/{}/ns/mnt", program.pid())).unwrap().ino().to_string()
}

/// Starts a program in a container whose file `/etc/ld.so.preload` names the library, as a slice's mount does. Returns `None` if
/// this process may not make such a file.
fn with_preload_file(node: &Node, program: &Path) -> Option<Living> {
    let library = artefacts::library().display().to_string();
    let line = format!("{OWN_ETC} && echo {library} >/etc/ld.so.preload && exec \"$0\"");
    let program = program.display().to_string();
    let started = start_with_host_numbers(&node.bench, &[], Path::new("/bin/sh"), &["-c", &line, &program]);
    (started.hear()? == "ready").then_some(started)
}

/// Makes NVML name a program as one that uses the GPU.
///
/// A static program and one with musl cannot open the simulated driver. So another process holds memory in the program's place.
/// It has the program's number in a namespace of its own, and NVML of the node names it by that number.
fn use_gpu_for(node: &Node, program: &Living) -> Living {
    let (number, bytes) = (program.pid().to_string(), (16 * MIB).to_string());
    let witness = compiler::plain("witness").display().to_string();
    let words = ["--pid", "--fork", "--kill-child", "sh", "-c", WITH_NUMBER, &number, &witness, &bytes];
    let holder = node.bench.program(Path::new("/usr/bin/unshare"), &words).start();
    assert_eq!(holder.hear().as_deref(), Some("ready"));
    holder
}

#[test]
fn a_program_in_a_container_without_the_library_is_named_until_it_ends() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start("");
    assert_eq!(node.scrape().get(GAUGE, &[("container", "")]), Some(0.0));
    let limited =
        [format!("LD_PRELOAD={}", artefacts::library().display()), "GPU_MEM_LIMIT=128MiB".to_owned()];
    let (_limited, other) = user(&node, &limited);
    let (program, container) = user(&node, &[]);
    let here = [("container", container.as_str())];
    node.until("it is counted", |node| (node.scrape().get(GAUGE, &here) == Some(1.0)).then_some(()));
    assert_eq!(node.scrape().get(GAUGE, &[("container", &other)]), None, "it has the library");
    let words = format!("container {container}: 1 process uses GPU 0 without libgpuslice.so");
    assert!(node.get("/").body.contains(&words), "{}", node.get("/").body);
    assert!(node.get("/api/v1/gpus").body.contains(&words));
    // The agent logs each program once, however often it finds the program.
    let pid = format!("pid={}", program.pid());
    let lines = |log: &str| log.lines().filter(|line| line.contains(&pid)).count();
    let log = node.log();
    assert!(log.contains("without libgpuslice.so") && log.contains(" program=\"witness"), "{log}");
    drop(program);
    node.until("it is gone", |node| node.scrape().get(GAUGE, &here).is_none().then_some(()));
    assert_eq!(lines(&node.log()), 1, "{}", node.log());
}

#[test]
fn static_programs_and_those_with_musl_are_named_although_the_preload_file_has_the_library() {
    const WHAT: &str = "programs that a preload file does not reach";
    if !may_have_containers() {
        return;
    }
    let static_one = compiler::compile("idle.c", "idle_static", &["-static"]);
    if static_one.is_none() {
        skip(&format!("{WHAT}: cc -static does not work; to mend it: apt-get install libc6-dev"));
    }
    let musl = compiler::for_musl(WHAT, "idle.c", "idle_musl", &[]);
    let bench = Bench::simulated_without_contexts().with("SIMGPU_NVML_PIDS", "own");
    let mut node = Node::start_on(bench, "");
    let Some(dynamic) = with_preload_file(&node, &compiler::plain("idle")) else {
        return skip_without_rights(WHAT);
    };
    let others: Vec<Living> = [static_one, musl]
        .into_iter()
        .flatten()
        .map(|program| with_preload_file(&node, &program).expect("the first one has started"))
        .collect();
    let _users: Vec<Living> =
        [&dynamic].into_iter().chain(&others).map(|program| use_gpu_for(&node, program)).collect();
    for program in &others {
        let here = [("container", &*container_of(program))];
        node.until("it is counted", |node| (node.scrape().get(GAUGE, &here) == Some(1.0)).then_some(()));
        assert!(node.log().contains(&format!("pid={} ", program.pid())), "{}", node.log());
    }
    assert_eq!(
        node.scrape().get(GAUGE, &[("container", &container_of(&dynamic))]),
        None,
        "it has the library"
    );
}
