//! Checks a slice in a container that a container engine makes from its specification.

use crate::engines::{IMAGE, Kind, Session};
use crate::node::{Node, text};
use crate::support::cdi::{checked, inject};
use crate::support::{artefacts, compiler};
use crate::{MIB, TWO};
use std::fs;
use std::path::Path;

#[test]
fn a_public_implementation_takes_the_specifications_and_gives_each_container_its_own_slice() {
    let node = Node::start(TWO);
    let folder = node.at("/var/run/cdi");
    let [a, b] = ["a", "b"].map(|slice| {
        let device = format!("gpuslice.dev/slice={slice}");
        assert_eq!(checked(&folder.join(format!("gpuslice-{slice}.json"))), [device.as_str()]);
        inject(&folder, &device, &[]).unwrap()
    });
    assert!(a.variables()["GPU_CORE_PERCENT"].ends_with("=30"), "{a:?}");
    assert!(b.variables()["GPU_CORE_PERCENT"].ends_with("=70"), "{b:?}");
    for (container, slice) in [(&a, "a"), (&b, "b")] {
        let mounts = container.mounts();
        let source = |path: &str| mounts[path].0.to_owned();
        assert_eq!(source("/run/gpuslice/region").join("region"), node.region(slice));
        assert_eq!(
            source("/run/gpuslice/conf").join("config"),
            node.at(&format!("/var/lib/gpuslice/slots/{slice}/conf/config"))
        );
        assert_eq!(
            fs::read(source("/etc/ld.so.preload")).unwrap(),
            b"/usr/local/lib/gpuslice/libgpuslice.so\n"
        );
    }
}

#[test]
fn podman_takes_the_specification_and_its_container_is_the_slice() {
    takes_the_specification(Kind::Podman);
}

#[test]
fn docker_takes_the_specification_and_its_container_is_the_slice() {
    takes_the_specification(Kind::Docker);
}

/// Runs a program in a container that has a slice of the node by its specification.
fn takes_the_specification(kind: Kind) {
    let mut node = Node::start(TWO);
    let Some(session) = Session::start(kind, &node.at("/var/run/cdi"), "a slice") else { return };
    let program = compiler::plain("witness");
    let driver = artefacts::simulated_driver();
    let mut words: Vec<String> = ["run", "--rm", "-i", "--network=none"].map(str::to_owned).to_vec();
    let bind = |from: &Path, to: &str, how: &str| format!("{}:{to}:{how}", from.display());
    let usual = |path: &str| bind(Path::new(path), path, "ro");
    for mount in [
        usual("/usr/bin"),
        usual("/usr/lib"),
        usual("/usr/lib64"),
        bind(&driver, "/driver", "ro"),
        bind(program.parent().unwrap(), "/programs", "ro"),
        bind(&node.bench_folder(), "/bench", "rw"),
    ] {
        words.extend(["-v".to_owned(), mount]);
    }
    for variable in [
        "LD_LIBRARY_PATH=/driver",
        "SIMGPU_STATE=/bench/state",
        "SIMGPU_MEMORY=1GiB",
        "SIMGPU_CONTEXT_BYTES=0",
        // The engine's device wins over the command line.
        "GPU_MEM_LIMIT=1GiB",
    ] {
        words.extend(["-e".to_owned(), variable.to_owned()]);
    }
    let name = program.file_name().unwrap().to_str().unwrap();
    let bytes = (16 * MIB).to_string();
    words.extend(["--device", "gpuslice.dev/slice=a"].map(str::to_owned));
    words.extend([IMAGE.to_owned(), format!("/programs/{name}"), bytes]);
    words.splice(1..1, ["--name".to_owned(), "train-1".to_owned()]);
    let mut container = session.command(&words).start();
    assert_eq!(container.hear().as_deref(), Some("ready"));
    assert!(container.ask(&format!("keep {}", 512 * MIB)).starts_with("2 "), "it passes the quota");
    assert!(container.ask(&format!("keep {}", 32 * MIB)).starts_with("0 "));
    let used = node.scrape().get("gpuslice_slice_memory_used_bytes", &[("slot", "a")]);
    assert_eq!(used, Some((48 * MIB) as f64));
    let told = node.until("the container is known", |node| {
        node.slice(|slice| slice["name"] == "a" && slice["container"].is_string())
    });
    let id = text(&told["container"]);
    assert!(id.len() == 64 && id.bytes().all(|digit| digit.is_ascii_hexdigit()), "{told}");
    // The files of Docker's daemon lie in a folder of the test, where the agent looks for no names.
    let name = if kind == Kind::Podman { Some("train-1") } else { None };
    assert_eq!(told["container_name"].as_str(), name, "{told}");
    // `gpuslice` shows the container too while no agent runs.
    node.end(libc::SIGKILL);
    let short = &id[..12];
    let words = name.map_or_else(|| short.to_owned(), |name| format!("{short} {name}"));
    node.gpuslice(&["status", "a"]).code(0).says(&format!("container {words}")).says("48.00 MiB used");
    // The engine removes the container and its control groups.
    let (status, said) = container.end();
    assert!(status.success(), "{said}");
}
