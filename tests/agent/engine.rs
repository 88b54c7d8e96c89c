//! Checks a slice in a container that a container engine makes from its specification.

use crate::node::{Node, text};
use crate::support::{artefacts, compiler, skip};
use crate::{MIB, TWO};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Gives the engine folders of its own. It reads specifications in `/run/cdi` only, and others may have some there.
const ENGINE: &str = "set -e
mount -t tmpfs tmpfs /run
mkdir /run/cdi
mount --bind \"$CDI\" /run/cdi
exec podman --root \"$ENGINE/storage\" --runroot /run/engine --cgroup-manager cgroupfs \"$@\"";

/// Settings of podman in a container, which may not have the limits that podman sets by itself.
const SETTINGS: &str =
    "[containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=1024:1024\"]\n[engine]\nruntime=\"runc\"\n";

/// Folders of the engine, and a file system that has the host's programs.
struct Engine(TempDir);

impl Engine {
    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for name in ["etc", "proc", "sys", "dev", "tmp", "run", "usr/local/lib"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in ["bin", "lib", "lib64", "sbin"] {
            fs::create_dir_all(root.join("usr").join(name)).unwrap();
            symlink(format!("usr/{name}"), root.join(name)).unwrap();
        }
        fs::write(folder.path().join("containers.conf"), SETTINGS).unwrap();
        Self(folder)
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Returns a command of the engine as arguments of `unshare`.
    fn words(&self, node: &Node, words: &[String]) -> Vec<String> {
        let mut all: Vec<String> = ["--mount", "env"].map(str::to_owned).to_vec();
        all.push(format!("CDI={}", node.at("/var/run/cdi").display()));
        all.push(format!("ENGINE={}", self.at("")));
        all.push(format!("CONTAINERS_CONF={}", self.at("containers.conf")));
        all.extend(["sh", "-c", ENGINE, "engine"].map(str::to_owned));
        all.extend_from_slice(words);
        all
    }
}

/// Tells whether the engine can run a container at all.
fn can_run(engine: &Engine, node: &Node) -> bool {
    for (program, package) in [("podman", "podman"), ("runc", "runc")] {
        if Command::new(program).arg("--version").output().is_err() {
            skip(&format!(
                "a slice by a container engine: there is no {program}; to mend it: apt-get install {package}"
            ));
            return false;
        }
    }
    let root = engine.at("root");
    let usr = [
        "-v",
        "/usr/bin:/usr/bin:ro",
        "-v",
        "/usr/lib:/usr/lib:ro",
        "-v",
        "/usr/lib64:/usr/lib64:ro",
        "--rootfs",
        &root,
        "true",
    ];
    let words: Vec<String> =
        ["run", "--rm", "--network=none"].into_iter().chain(usr).map(str::to_owned).collect();
    let tried = Command::new("unshare").args(engine.words(node, &words)).output();
    match tried {
        Ok(output) if output.status.success() => true,
        other => {
            skip(&format!(
                "a slice by a container engine: podman runs no container: {other:?}; elsewhere: as root"
            ));
            false
        }
    }
}

#[test]
fn a_container_engine_takes_the_specification_and_its_container_is_the_slice() {
    let mut node = Node::start(TWO);
    let engine = Engine::make();
    if !can_run(&engine, &node) {
        return;
    }
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
    let rest = ["--device", "gpuslice.dev/slice=a", "--rootfs", &engine.at("root")].map(str::to_owned);
    words.extend(rest.into_iter().chain([format!("/programs/{name}"), bytes]));
    let words = engine.words(&node, &words);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut container = node.bench.program(Path::new("/usr/bin/unshare"), &words).start();
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
}
