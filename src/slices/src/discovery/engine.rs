//! Finds the number and the name that a container engine gave to a container.

use crate::process::{parent_of, read, words_of};
use serde_json::Value;
use std::fs;

/// Returns the number of a process's container, from the names of its control groups.
#[must_use]
pub(super) fn container_of(pid: u32) -> Option<String> {
    read(&format!("/proc/{pid}/cgroup"))?.lines().find_map(container_in)
}

/// Returns the container's number in a line of `/proc/PID/cgroup`. For nested containers this is the innermost one's number.
///
/// Examples of lines: `0::/system.slice/docker-<64 digits>.scope`, `4:memory:/docker/<64 digits>`,
/// `0::/kubepods.slice/…/cri-containerd-<64 digits>.scope`.
fn container_in(line: &str) -> Option<String> {
    let is_id = |word: &&str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Podman's monitor has a control group of its own beside the container's group.
    let parts = line.rsplit('/').filter(|part| !part.contains("conmon"));
    parts
        .flat_map(|part| part.split(|letter: char| !letter.is_ascii_alphanumeric()))
        .find(is_id)
        .map(str::to_owned)
}

/// Returns the name that the engine gave to a container, if a file of the engine or the container's monitor has it. `pid` is a
/// process of the container.
///
/// The tenant cannot write any of these sources. A monitor lives outside of the container, and only root writes the files.
pub(super) fn name_of(id: &str, pid: u32) -> Option<String> {
    let name = of_monitor(id, pid).or_else(|| of_docker(id)).or_else(|| of_containerd(id))?;
    is_name(&name).then_some(name)
}

/// Returns true if engines allow this name. A name with a `/` would look like a path.
fn is_name(name: &str) -> bool {
    /// Most letters of a name. A name of CRI-O contains those of the pod and the namespace.
    const MOST: usize = 512;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    !name.is_empty() && name.len() <= MOST && name.bytes().all(is_letter)
}

/// Returns the name that Podman and CRI-O give to the container's monitor: `conmon -c <id> … -n <name> …`. The monitor
/// is an ancestor of all processes of the container.
fn of_monitor(id: &str, pid: u32) -> Option<String> {
    /// Most ancestors at which the search looks.
    const MOST: usize = 64;
    let ancestors = std::iter::successors(Some(pid), |pid| parent_of(*pid)).take(MOST);
    let mut outside = ancestors.filter(|pid| container_of(*pid).as_deref() != Some(id)).filter_map(words_of);
    outside.find_map(|words| name_in(id, &words))
}

/// Returns the name among the arguments of a monitor, if it is the monitor of the container `id`.
fn name_in(id: &str, words: &[String]) -> Option<String> {
    let behind = |option: &str| words.iter().skip_while(|word| *word != option).nth(1);
    let is_monitor = words.first()?.rsplit('/').next() == Some("conmon");
    (is_monitor && behind("-c").map(String::as_str) == Some(id)).then(|| behind("-n").cloned())?
}

/// Returns the name in Docker's description of the container.
fn of_docker(id: &str) -> Option<String> {
    name_in_docker(&read(&format!("/var/lib/docker/containers/{id}/config.v2.json"))?)
}

fn name_in_docker(text: &str) -> Option<String> {
    let name = serde_json::from_str::<Value>(text).ok()?.get("Name")?.as_str()?.to_owned();
    Some(name.trim_start_matches('/').to_owned())
}

/// Returns the name in containerd's description of the container, which Kubernetes or nerdctl has written.
fn of_containerd(id: &str) -> Option<String> {
    let namespaces = fs::read_dir("/run/containerd/io.containerd.runtime.v2.task").ok()?.flatten();
    let mut texts =
        namespaces.filter_map(|space| read(&format!("{}/{id}/config.json", space.path().display())));
    texts.find_map(|text| name_in_containerd(&text))
}

fn name_in_containerd(text: &str) -> Option<String> {
    let spec = serde_json::from_str::<Value>(text).ok()?;
    let annotation = |key: &str| Some(spec.get("annotations")?.get(key)?.as_str()?.to_owned());
    annotation("io.kubernetes.cri.container-name").or_else(|| annotation("nerdctl/name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monitor_of_a_container_names_it() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let monitor = format!("/usr/bin/conmon --api-version 1 -c {ID} -u {ID} -r runc -n train -s");
        assert_eq!(name_in(ID, &words(&monitor)).as_deref(), Some("train"));
        for other in [
            monitor.replace("conmon", "sh"),
            monitor.replace(ID, "6bf7"),
            monitor.replace("-n train -s", "-n"),
            String::new(),
        ] {
            assert_eq!(name_in(ID, &words(&other)), None, "{other}");
        }
        assert!(is_name("k8s_main_pod.a-b") && !is_name("a/b") && !is_name("") && !is_name("a b"));
    }

    const ID: &str = "6bf76cd5ca6d81d9b8cb36b9b7f1f4ba5f3fb6b6e8c1b0a1a6b1f2f3a4b5c6d7";

    #[test]
    fn descriptions_of_engines_have_the_name() {
        let docker = r#"{"State":{"Running":true},"ID":"6bf7","Name":"/train","Driver":"overlay2"}"#;
        assert_eq!(name_in_docker(docker).as_deref(), Some("train"));
        for annotation in ["io.kubernetes.cri.container-name", "nerdctl/name"] {
            let spec = format!("{{\"hostname\":\"h\",\"annotations\":{{\"{annotation}\":\"main\"}}}}");
            assert_eq!(name_in_containerd(&spec).as_deref(), Some("main"));
        }
        for text in ["", "{}", "{\"annotations\":{}}", "[1]", "{\"Name\":7}"] {
            assert_eq!((name_in_docker(text), name_in_containerd(text)), (None, None), "{text}");
        }
    }

    #[test]
    fn a_container_is_found_in_the_names_of_its_control_groups() {
        for line in [
            format!("0::/system.slice/docker-{ID}.scope"),
            format!("12:memory:/docker/{ID}"),
            format!("0::/machine.slice/libpod-{ID}.scope/container"),
            format!("0::/../crio-{ID}"),
            format!("0::/kubepods.slice/kubepods-pod1f.slice/cri-containerd-{ID}.scope"),
            format!("3:cpu:/kubepods/burstable/pod44/{ID}"),
            format!("0::/docker/{}/docker/{ID}", "a".repeat(64)),
        ] {
            assert_eq!(container_in(&line).as_deref(), Some(ID), "{line}");
        }
        for line in [
            "0::/user.slice/user-0.slice",
            "",
            &format!("0::/x/libpod-conmon-{ID}.scope"),
            &format!("0::/{ID}0"),
        ] {
            assert_eq!(container_in(line), None, "{line}");
        }
    }
}
