//! Checks that the agent names programs in containers that use a GPU without the library.

use crate::MIB;
use crate::node::Node;
use crate::support::container::{may_have_containers, start_with_host_numbers};
use crate::support::living::Living;
use crate::support::{artefacts, compiler};
use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// Starts a program that takes memory of the GPU, in a container of the node.
fn user(node: &Node, environment: &[String]) -> (Living, String) {
    let bytes = (16 * MIB).to_string();
    let program = start_with_host_numbers(&node.bench, environment, &compiler::plain("witness"), &[&bytes]);
    assert_eq!(program.hear().as_deref(), Some("ready"));
    let container = fs::metadata(format!("/proc/{}/ns/mnt", program.pid())).unwrap().ino().to_string();
    (program, container)
}

#[test]
fn a_program_in_a_container_without_the_library_is_named_until_it_ends() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start("");
    let gauge = "gpuslice_gpu_unlimited_processes";
    assert_eq!(node.scrape().get(gauge, &[("container", "")]), Some(0.0));
    let limited =
        [format!("LD_PRELOAD={}", artefacts::library().display()), "GPU_MEM_LIMIT=128MiB".to_owned()];
    let (_limited, other) = user(&node, &limited);
    let (program, container) = user(&node, &[]);
    let here = [("container", container.as_str())];
    node.until("it is counted", |node| (node.scrape().get(gauge, &here) == Some(1.0)).then_some(()));
    assert_eq!(node.scrape().get(gauge, &[("container", &other)]), None, "it has the library");
    let words = format!("container {container}: 1 process uses GPU 0 without libgpuslice.so");
    assert!(node.get("/").body.contains(&words), "{}", node.get("/").body);
    assert!(node.get("/api/v1/gpus").body.contains(&words));
    // The agent logs each program once, however often it finds the program.
    let pid = format!("pid={}", program.pid());
    let lines = |log: &str| log.lines().filter(|line| line.contains(&pid)).count();
    let log = node.log();
    assert!(log.contains("without libgpuslice.so") && log.contains(" program=\"witness"), "{log}");
    drop(program);
    node.until("it is gone", |node| node.scrape().get(gauge, &here).is_none().then_some(()));
    assert_eq!(lines(&node.log()), 1, "{}", node.log());
}
