//! `run` without privileges, and as the first process of a container.

use super::{FOR_EVER, around, children_of, kill, line, start, works};
use crate::support::command::{OwnSlice, PROGRAM, ask, end, json, name};
use crate::support::other_user::{NOBODY, OtherUser};
use crate::support::{artefacts, skip_without_rights};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

#[test]
fn everything_works_without_privileges_and_others_slices_are_not_touched() {
    let Some(public) = OtherUser::new("everything_works_without_privileges") else { return };
    let name = name("plain");
    let roots = OwnSlice::join("of-root");
    let worker = public.path("gpuslice");
    let mut run = public.command(&["run", "--mem", "64MiB", "--name", &name, "--", &worker, "demo-worker"]);
    let (mut child, mut out) = start({
        run.args(["--seed", "1"]).stdin(Stdio::piped());
        run
    });
    assert!(line(&mut out).contains(' '), "the program does not work");
    let list = public.ask(&["list"]).code(0).complains("regions of other users are not shown");
    assert!(list.out.contains(&name) && !list.out.contains(&roots.name), "{list:?}");
    public.ask(&["status", &name]).code(0).says("demo-worker --seed 1").says("limit 64MiB");
    public.ask(&["set", &name, "--mem", "32MiB"]).code(0).says("64MiB -> 32MiB");
    let path = roots.region.0.display().to_string();
    for slice in [&roots.name, &path] {
        public
            .ask(&["set", slice, "--mem", "1GiB"])
            .code(1)
            .complains("give this user the right to read and write it");
    }
    public
        .ask(&["status", &path])
        .code(1)
        .complains("give this user the right to read it, which root can, or");
    assert_eq!(roots.limit(0x11), Some(8 << 30));
    // Root sees the slices of all users, and names one by its name if no other slice has that name.
    ask(&["list"]).code(0).says(&name);
    ask(&["set", &name, "--mem", "48MiB"]).code(0).says("32MiB -> 48MiB");
    let region = format!("/dev/shm/gpuslice-{NOBODY}-run-{name}");
    assert!(Path::new(&region).exists());
    drop(child.stdin.take());
    out.read_to_string(&mut String::new()).expect("it is text");
    assert_eq!(child.wait().expect("it is our child").code(), Some(0));
    assert!(!Path::new(&region).exists());
}

#[test]
fn run_can_be_the_first_process_of_a_container() {
    let container = ["unshare", "--pid", "--fork", "--mount", "--mount-proc"];
    if !works(&[&container[..], &["true"]].concat()) {
        return skip_without_rights("run as the first process of a container");
    }
    let inside = |name: &str, program: &str| {
        let run = [PROGRAM, "run", "--mem", "1g", "--name", name, "--", "bash", "-c", program];
        let mut command = around(&[&container[..], &run].concat());
        command.env("GPUSLICE_LIB", artefacts::library());
        command
    };
    let name = name("container");
    end(&mut inside(&name, "exit 7")).code(7);
    // The first process of a container cannot die by a signal.
    end(&mut inside(&name, "kill -9 $$")).code(137);
    // `run` waits for orphans.
    let program = "[ $PPID = 1 ] || exit 8; for i in 1 2 3; do (sleep 0 & ); done; for i in $(seq 1000); do \
                   grep -qs '^State:.Z' /proc/[0-9]*/status || exit 0; sleep 0.02; done; exit 9";
    end(&mut inside(&name, program)).code(0);
    // The program gets each signal that the container's runtime sends.
    let program = format!("trap 'echo terminated; exit 5' TERM; {FOR_EVER}");
    let (mut child, mut out) = start(inside(&name, &program));
    assert_eq!(line(&mut out), "ready");
    kill("TERM", children_of(child.id())[0]);
    assert_eq!(line(&mut out), "terminated");
    assert_eq!(child.wait().expect("it is our child").code(), Some(5));
}

#[test]
fn a_slice_in_a_container_is_seen_from_outside() {
    let container = ["unshare", "--pid", "--fork", "--mount", "--mount-proc"];
    if !works(&[&container[..], &["true"]].concat()) {
        return skip_without_rights("a slice in a container, seen from outside");
    }
    let name = name("inside");
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let run =
        [PROGRAM, "run", "--mem", "64MiB", "--name", &name, "--", PROGRAM, "demo-worker", "--seed", "1"];
    let mut command = around(&[&container[..], &run].concat());
    command.env("GPUSLICE_LIB", artefacts::library()).env("LD_LIBRARY_PATH", artefacts::simulated_driver());
    command.env("SIMGPU_STATE", folder.path().join("state")).env("SIMGPU_CONTEXT_BYTES", "0");
    let (mut child, mut out) = start({
        command.stdin(Stdio::piped());
        command
    });
    assert!(line(&mut out).contains(' '), "the program does not work");
    let report = json(&["status", &name, "--json"]);
    let process = report.pointer("/slices/0/devices/0/processes/0").expect("it is seen").clone();
    // The number is that of the container. On the host, any other process may have it.
    let number = process.get("host_pid").and_then(serde_json::Value::as_u64).expect("it is seen from here");
    let command = process.get("command").and_then(serde_json::Value::as_str).unwrap_or_default();
    assert!(command.ends_with(" demo-worker --seed 1"), "{process}");
    let words = fs::read_to_string(format!("/proc/{number}/cmdline")).expect("it lives");
    assert_eq!(words.trim_end_matches('\0').replace('\0', " "), command);
    ask(&["set", &name, "--mem", "32MiB"]).code(0).says("64MiB -> 32MiB");
    drop(child.stdin.take());
    out.read_to_string(&mut String::new()).expect("it is text");
    assert_eq!(child.wait().expect("it is our child").code(), Some(0));
}
