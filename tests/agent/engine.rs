//! Checks a slice in a container that a container engine makes from its specification.

use crate::node::{Node, text};
use crate::support::cdi::{checked, inject};
use crate::support::{artefacts, compiler, skip};
use crate::{MIB, TWO};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A container engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Podman,
    /// Docker with a daemon of its own, from `ci/docker.sh`.
    Docker,
}

/// Gives Podman folders of its own. It reads specifications in `/run/cdi` only, and others may have some there.
const PODMAN: &str = "set -e
mount -t tmpfs tmpfs /run
mkdir /run/cdi
mount --bind \"$CDI\" /run/cdi
exec podman --root \"$ENGINE/storage\" --runroot /run/engine --cgroup-manager cgroupfs \"$@\"";

/// Starts Docker's daemon, makes an image of the file system, and ends the daemon behind the command.
const DOCKER: &str = "set -e
mount -t tmpfs tmpfs /run
PATH=$DOCKER/usr/sbin:$DOCKER/usr/bin:$PATH
export DOCKER_HOST=unix:///run/docker.sock
echo {} >/run/daemon.json
dockerd --data-root \"$ENGINE/storage\" --exec-root /run/engine -H $DOCKER_HOST --pidfile /run/engine.pid \
    --config-file /run/daemon.json --cdi-spec-dir \"$CDI\" --storage-driver vfs --exec-opt native.cgroupdriver=cgroupfs \
    --bridge=none --iptables=false --ip6tables=false >\"$ENGINE/log\" 2>&1 &
daemon=$!
until docker version >/dev/null 2>&1; do
    kill -0 $daemon 2>/dev/null || { cat \"$ENGINE/log\"; exit 125; }
    sleep 0.1
done
tar -C \"$ENGINE/root\" -c . | docker import - base:1 >/dev/null
code=0
docker \"$@\" || code=$?
kill $daemon
wait $daemon || true
exit $code";

/// Settings of podman in a container, which may not have the limits that podman sets by itself.
const SETTINGS: &str =
    "[containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=1024:1024\"]\n[engine]\nruntime=\"runc\"\n";

/// Folders of the engine, and a file system that has the host's programs.
struct Engine {
    kind: Kind,
    folder: TempDir,
}

impl Engine {
    fn make(kind: Kind) -> Self {
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
        Self { kind, folder }
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Returns a command of the engine as arguments of `unshare`.
    fn words(&self, node: &Node, words: &[String]) -> Vec<String> {
        // Docker's daemon and its children end with their process-number namespace.
        let namespaces: &[&str] = match self.kind {
            Kind::Podman => &["--mount"],
            Kind::Docker => &["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"],
        };
        let mut all: Vec<String> = namespaces.iter().map(|word| (*word).to_owned()).collect();
        all.push("env".to_owned());
        all.push(format!("DOCKER={}", docker().display()));
        all.push(format!("CDI={}", node.at("/var/run/cdi").display()));
        all.push(format!("ENGINE={}", self.at("")));
        all.push(format!("CONTAINERS_CONF={}", self.at("containers.conf")));
        let script = if self.kind == Kind::Podman { PODMAN } else { DOCKER };
        all.extend(["sh", "-c", script, "engine"].map(str::to_owned));
        all.extend_from_slice(words);
        all
    }

    /// Returns the words that name the file system of a container.
    fn image(&self) -> Vec<String> {
        match self.kind {
            Kind::Podman => vec!["--rootfs".to_owned(), self.at("root")],
            Kind::Docker => vec!["base:1".to_owned()],
        }
    }

    /// Returns a program that the engine needs and that is missing, with the way to get it.
    fn lacks(&self) -> Option<(&'static str, &'static str)> {
        let runs = |program| Command::new(program).arg("--version").output().is_ok();
        let own = match self.kind {
            Kind::Podman => (runs("podman"), "podman", "apt-get install podman"),
            Kind::Docker => (docker().join("usr/sbin/dockerd").exists(), "dockerd", "ci/docker.sh"),
        };
        let needs = [own, (runs("runc"), "runc", "apt-get install runc")];
        needs.into_iter().find(|(is_here, ..)| !is_here).map(|(_, program, how)| (program, how))
    }
}

/// Returns the folder with Docker's programs.
fn docker() -> PathBuf {
    artefacts::repository().join("build/docker")
}

/// Tells whether the engine can run a container at all.
fn can_run(engine: &Engine, node: &Node) -> bool {
    let kind = engine.kind;
    if let Some((program, how)) = engine.lacks() {
        skip(&format!("a slice by {kind:?}: there is no {program}; to mend it: {how}"));
        return false;
    }
    let programs = ["/usr/bin", "/usr/lib", "/usr/lib64"].map(|folder| format!("{folder}:{folder}:ro"));
    let mounts = programs.iter().flat_map(|mount| ["-v", mount]);
    let words = ["run", "--rm", "--network=none"].into_iter().chain(mounts).map(str::to_owned);
    let words: Vec<String> = words.chain(engine.image()).chain(["true".to_owned()]).collect();
    let tried = Command::new("unshare").args(engine.words(node, &words)).output();
    match tried {
        Ok(output) if output.status.success() => true,
        other => {
            skip(&format!("a slice by {kind:?}: it runs no container: {other:?}; elsewhere: as root"));
            false
        }
    }
}

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
    let engine = Engine::make(kind);
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
    words.extend(["--device", "gpuslice.dev/slice=a"].map(str::to_owned));
    words.extend(engine.image().into_iter().chain([format!("/programs/{name}"), bytes]));
    words.splice(1..1, ["--name".to_owned(), "train-1".to_owned()]);
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
    // Docker's daemon has its files in a folder of the test.
    let name = if kind == Kind::Podman { Some("train-1") } else { None };
    assert_eq!(told["container_name"].as_str(), name, "{told}");
    // The command sees the container too, without the agent.
    node.end(libc::SIGKILL);
    let short = &id[..12];
    let words = name.map_or_else(|| short.to_owned(), |name| format!("{short} {name}"));
    node.gpuslice(&["status", "a"]).code(0).says(&format!("container {words}")).says("48.00 MiB used");
}
