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
    /// Podman of Debian 13, from `ci/bases.sh`: the first one whose `kube play` reads names of devices.
    Podman5,
    /// Docker with a daemon of its own, from `ci/docker.sh`.
    Docker,
}

/// The image of all containers, which the scripts below make.
pub(crate) const IMAGE: &str = "base:1";

/// Gives Podman folders of its own until the input ends, and an image of the file system. Podman reads specifications in
/// `/run/cdi` only, so a mount hides specifications of other programs there. Podman of another release has a `/usr` of its own.
const PODMAN: &str = "set -e
[ -z \"$USR\" ] || mount --bind \"$USR\" /usr
mount -t tmpfs tmpfs /run
mkdir /run/cdi /run/cni
mount --bind \"$CDI\" /run/cdi
podman import --quiet --change ENV=PATH=/usr/local/bin:/usr/bin \"$ENGINE/root.tar\" base:1 >/dev/null
echo ready
cat >/dev/null
true";

/// Runs Docker's daemon with an image of the file system until the input ends.
const DOCKER: &str = "set -e
mount -t tmpfs tmpfs /run
echo {} >/run/daemon.json
dockerd --data-root \"$ENGINE/storage\" --exec-root /run/engine -H $DOCKER_HOST --pidfile /run/engine.pid \
    --config-file /run/daemon.json --cdi-spec-dir \"$CDI\" --storage-driver vfs --exec-opt native.cgroupdriver=cgroupfs \
    --bridge=none --iptables=false --ip6tables=false >\"$ENGINE/log\" 2>&1 </dev/null &
daemon=$!
until docker version >/dev/null 2>&1; do
    kill -0 $daemon 2>/dev/null || { cat \"$ENGINE/log\" >&2; exit 125; }
    sleep 0.1
done
docker import \"$ENGINE/root.tar\" base:1 >/dev/null
echo ready
cat >/dev/null
kill $daemon
wait $daemon";

/// Settings of a podman that runs in a container. It may lack the right to set the limits that are podman's default.
const SETTINGS: &str = "[containers]
default_ulimits=[\"nofile=1024:1024\",\"nproc=1024:1024\"]
[engine]
cgroup_manager=\"cgroupfs\"
runtime=\"runc\"
[network]
network_config_dir=\"/run/cni\"
";

/// An engine that runs, and an empty file system into which containers mount programs.
pub(crate) struct Session {
    pub(crate) kind: Kind,
    folder: TempDir,
    /// Runs the engine's commands. They have no driver.
    bench: Bench,
    /// The first process of the engine's namespaces.
    first: Option<Living>,
    /// Commands of the engine that remove the containers in the background. Their control groups go with them.
    removals: Vec<Vec<String>>,
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
        let mut session =
            Self { kind, folder, bench: Bench::without_driver(), first: None, removals: Vec::new() };
        session.pack_root();
        fs::write(session.at("containers.conf"), SETTINGS).unwrap();
        let storage = session.at("storage");
        let storage =
            format!("[storage]\ndriver=\"vfs\"\ngraphroot=\"{storage}\"\nrunroot=\"/run/engine\"\n");
        fs::write(session.at("storage.conf"), storage).unwrap();
        // All processes of the engine end with the first one of the namespace.
        let namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
        let script = if kind == Kind::Docker { DOCKER } else { PODMAN };
        let words = [&namespaces[..], &["sh", "-c", script, "engine"]].concat();
        let variables = session.variables();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let cdi = [("CDI", &*cdi.display().to_string())];
        let first = session.bench.program(Path::new("/usr/bin/unshare"), &words);
        let first = first.set_all(&variables).set_all(&cdi).start();
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

    /// Packs the file system of containers, of which the engine makes an image.
    fn pack_root(&self) {
        let mut tar = Command::new("tar");
        tar.args(["-C", &self.at("root"), "-cf", &self.at("root.tar"), "."]);
        assert!(tar.status().is_ok_and(|status| status.success()), "{tar:?}");
    }

    /// Returns the variables by which the engine's programs find its folders and settings.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let docker = docker();
        let path = |folder: &Path| format!("{0}/usr/sbin:{0}/usr/bin:/usr/sbin:/usr/bin", folder.display());
        let usr = base(self.kind).map_or_else(String::new, |base| base.join("usr").display().to_string());
        vec![
            ("ENGINE", self.at("")),
            ("HOME", self.at("home")),
            ("USR", usr),
            (
                "PATH",
                if self.kind == Kind::Docker {
                    path(&docker)
                } else {
                    "/usr/local/bin:/usr/sbin:/usr/bin".to_owned()
                },
            ),
            ("DOCKER_HOST", "unix:///run/docker.sock".to_owned()),
            ("CONTAINERS_CONF", self.at("containers.conf")),
            ("CONTAINERS_STORAGE_CONF", self.at("storage.conf")),
        ]
    }

    /// Runs a container that ends at once.
    fn run_true(&self) -> Outcome {
        let words = ["run", "--rm", "--network=none"].map(str::to_owned).into_iter();
        let usual = ["/usr/bin", "/usr/lib", "/usr/lib64"].map(|folder| format!("{folder}:{folder}:ro"));
        let words = words.chain(usual.into_iter().flat_map(|mount| ["-v".to_owned(), mount]));
        let words: Vec<String> = words.chain([IMAGE, "true"].map(str::to_owned)).collect();
        self.command(&words).run()
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Prepares a command of the engine.
    pub(crate) fn command(&self, words: &[String]) -> Host<'_> {
        let engine = if self.kind == Kind::Docker { "docker" } else { "podman" };
        let words: Vec<&str> = [engine].into_iter().chain(words.iter().map(String::as_str)).collect();
        self.program(&words)
    }

    /// Prepares a program in the engine's namespaces, with its variables.
    pub(crate) fn program(&self, words: &[&str]) -> Host<'_> {
        let first = self.first.as_ref().expect("it runs");
        let first = first_process(first).to_string();
        let enter = ["--target", &first, "--net", "--mount", "--pid", "env"];
        let variables: Vec<String> =
            self.variables().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let variables = variables.iter().map(String::as_str);
        let all: Vec<&str> = enter.into_iter().chain(variables).chain(words.iter().copied()).collect();
        self.bench.program(Path::new("/usr/bin/nsenter"), &all)
    }

    /// Starts a container in the background, which does nothing. `words` are options of the engine.
    #[track_caller]
    pub(crate) fn keep(&mut self, name: &str, words: &[String]) {
        let all = ["run", "-d", "--network=none", "--stop-signal=KILL", "--name", name]
            .map(str::to_owned)
            .into_iter();
        let idle = [IMAGE, "sleep", "600"].map(str::to_owned);
        let all: Vec<String> = all.chain(words.iter().cloned()).chain(idle).collect();
        self.removes(&["rm", "--force", name]);
        let started = self.command(&all).run();
        assert_eq!(started.ended, "exit 0", "{started}");
    }

    /// Runs a command of the engine at the end.
    pub(crate) fn removes(&mut self, words: &[&str]) {
        self.removals.push(words.iter().map(|word| (*word).to_owned()).collect());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for words in std::mem::take(&mut self.removals) {
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
        Kind::Podman5 => (base(kind).is_some_and(|base| base.exists()), "Podman of Debian 13", "ci/bases.sh"),
        Kind::Docker => (docker().join("usr/sbin/dockerd").exists(), "dockerd", "ci/docker.sh"),
    };
    let runc = (kind == Kind::Podman5 || runs("runc"), "runc", "apt-get install runc");
    [own, runc].into_iter().find(|(is_here, ..)| !is_here).map(|(_, program, how)| (program, how))
}

/// Returns the folder with all programs of an engine of another release.
fn base(kind: Kind) -> Option<PathBuf> {
    (kind == Kind::Podman5).then(|| artefacts::repository().join("build/bases/podman"))
}

/// Returns the folder with Docker's programs.
fn docker() -> PathBuf {
    artefacts::repository().join("build/docker")
}
