//! Container engines with folders and daemons of their own.

use crate::support::bench::{Bench, Host};
use crate::support::container::first_process;
use crate::support::living::Living;
use crate::support::outcome::Outcome;
use crate::support::{artefacts, skip};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A container engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Podman,
    /// Docker with a daemon of its own, from `ci/docker.sh`.
    Docker,
}

/// Gives Podman folders of its own until the input ends. It reads specifications in `/run/cdi` only, and others may have some
/// there.
const PODMAN: &str = "set -e
mount -t tmpfs tmpfs /run
mkdir /run/cdi
mount --bind \"$CDI\" /run/cdi
echo ready
cat >/dev/null
true";

/// Runs Docker's daemon with an image of the file system until the input ends.
const DOCKER: &str = "set -e
mount -t tmpfs tmpfs /run
PATH=$DOCKER/usr/sbin:$DOCKER/usr/bin:$PATH
export DOCKER_HOST=unix:///run/docker.sock
echo {} >/run/daemon.json
dockerd --data-root \"$ENGINE/storage\" --exec-root /run/engine -H $DOCKER_HOST --pidfile /run/engine.pid \
    --config-file /run/daemon.json --cdi-spec-dir \"$CDI\" --storage-driver vfs --exec-opt native.cgroupdriver=cgroupfs \
    --bridge=none --iptables=false --ip6tables=false >\"$ENGINE/log\" 2>&1 </dev/null &
daemon=$!
until docker version >/dev/null 2>&1; do
    kill -0 $daemon 2>/dev/null || { cat \"$ENGINE/log\" >&2; exit 125; }
    sleep 0.1
done
tar -C \"$ENGINE/root\" -c . | docker import - base:1 >/dev/null
echo ready
cat >/dev/null
kill $daemon
wait $daemon";

/// Settings of podman in a container, which may not have the limits that podman sets by itself.
const SETTINGS: &str =
    "[containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=1024:1024\"]\n[engine]\nruntime=\"runc\"\n";

/// An engine that runs, and an empty file system into which containers mount programs.
pub(crate) struct Session {
    pub(crate) kind: Kind,
    folder: TempDir,
    /// Runs the engine's commands. They have no driver.
    bench: Bench,
    /// The first process of the engine's namespaces.
    first: Option<Living>,
    /// Names of the containers that run in the background.
    names: Vec<String>,
}

impl Session {
    /// Starts an engine that reads the specifications in the folder `cdi`. If it runs no container, skips `what` with the reason
    /// and returns `None`.
    pub(crate) fn start(kind: Kind, cdi: &Path, what: &str) -> Option<Self> {
        if let Some((program, how)) = lacks(kind) {
            skip(&format!("{what} by {kind:?}: there is no {program}; to mend it: {how}"));
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        make_root(&folder.path().join("root"));
        fs::write(folder.path().join("containers.conf"), SETTINGS).unwrap();
        let mut session =
            Self { kind, folder, bench: Bench::without_driver(), first: None, names: Vec::new() };
        // All processes of the engine end with the first one of the namespace.
        let namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
        let script = if kind == Kind::Podman { PODMAN } else { DOCKER };
        let words = [&namespaces[..], &["sh", "-c", script, "engine"]].concat();
        let at = |name: &str| session.at(name);
        let docker = docker().display().to_string();
        let cdi = cdi.display().to_string();
        let engine = [("DOCKER", docker.as_str()), ("CDI", &cdi), ("ENGINE", &at("")), ("HOME", &at("home"))];
        let first = session.bench.program(Path::new("/usr/bin/unshare"), &words).set_all(&engine).start();
        let left_out = |why: &str| {
            let why = why.trim().replace('\n', " ");
            skip(&format!("{what} by {kind:?}: it runs no container: {why}; elsewhere: as root"));
        };
        if first.hear().as_deref() != Some("ready") {
            left_out(&first.end().1);
            return None;
        }
        session.first = Some(first);
        let tried = session.run_true();
        if tried.ended != "exit 0" {
            left_out(&tried.err);
            return None;
        }
        Some(session)
    }

    /// Runs a container that ends at once.
    fn run_true(&self) -> Outcome {
        let words = ["run", "--rm", "--network=none"].map(str::to_owned).into_iter();
        let usual = ["/usr/bin", "/usr/lib", "/usr/lib64"].map(|folder| format!("{folder}:{folder}:ro"));
        let words = words.chain(usual.into_iter().flat_map(|mount| ["-v".to_owned(), mount]));
        let words: Vec<String> = words.chain(self.image()).chain(["true".to_owned()]).collect();
        self.command(&words).run()
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Prepares a command of the engine.
    pub(crate) fn command(&self, words: &[String]) -> Host<'_> {
        let first = self.first.as_ref().expect("it runs");
        let mut all = vec!["--target".to_owned(), first_process(first).to_string()];
        all.extend(["--mount", "--pid", "env"].map(str::to_owned));
        all.push(format!("HOME={}", self.at("home")));
        match self.kind {
            Kind::Podman => {
                all.push(format!("CONTAINERS_CONF={}", self.at("containers.conf")));
                all.extend(
                    ["podman", "--root", &self.at("storage"), "--runroot", "/run/engine"].map(str::to_owned),
                );
                all.extend(["--cgroup-manager", "cgroupfs"].map(str::to_owned));
            }
            Kind::Docker => {
                all.push("DOCKER_HOST=unix:///run/docker.sock".to_owned());
                all.push(docker().join("usr/bin/docker").display().to_string());
            }
        }
        all.extend_from_slice(words);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        self.bench.program(Path::new("/usr/bin/nsenter"), &all)
    }

    /// Returns the words that name the file system of a container.
    pub(crate) fn image(&self) -> Vec<String> {
        match self.kind {
            Kind::Podman => vec!["--rootfs".to_owned(), self.at("root")],
            Kind::Docker => vec!["base:1".to_owned()],
        }
    }

    /// Starts a container in the background, which does nothing. `words` are options of the engine.
    #[track_caller]
    pub(crate) fn keep(&mut self, name: &str, words: &[String]) {
        let all = ["run", "-d", "--network=none", "--stop-signal=KILL", "--name", name]
            .map(str::to_owned)
            .into_iter();
        let idle = ["sleep", "600"].map(str::to_owned);
        let all: Vec<String> = all.chain(words.iter().cloned()).chain(self.image()).chain(idle).collect();
        self.names.push(name.to_owned());
        let started = self.command(&all).run();
        assert_eq!(started.ended, "exit 0", "{started}");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.names.is_empty() {
            // Their control groups go with them.
            let words: Vec<String> =
                ["rm", "--force"].map(str::to_owned).into_iter().chain(self.names.clone()).collect();
            let _all_end_with_the_namespace = self.command(&words).run();
        }
        let _ended = self.first.take().map(Living::end);
    }
}

/// Makes a root file system whose folders of programs are empty.
fn make_root(root: &Path) {
    for name in ["etc", "proc", "sys", "dev", "tmp", "run", "usr/local/lib"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    for name in ["bin", "lib", "lib64", "sbin"] {
        fs::create_dir_all(root.join("usr").join(name)).unwrap();
        symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
}

/// Returns a program that an engine needs and that is missing, with the way to get it.
fn lacks(kind: Kind) -> Option<(&'static str, &'static str)> {
    let runs = |program| Command::new(program).arg("--version").output().is_ok();
    let own = match kind {
        Kind::Podman => (runs("podman"), "podman", "apt-get install podman"),
        Kind::Docker => (docker().join("usr/sbin/dockerd").exists(), "dockerd", "ci/docker.sh"),
    };
    let needs = [own, (runs("runc"), "runc", "apt-get install runc")];
    needs.into_iter().find(|(is_here, ..)| !is_here).map(|(_, program, how)| (program, how))
}

/// Returns the folder with Docker's programs.
fn docker() -> PathBuf {
    artefacts::repository().join("build/docker")
}
