//! A real apiserver with its store, without nodes that run anything.

use super::tools::told;
use crate::support::{artefacts, skip};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time within which an expected event comes, on a machine that has other things to do.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// Variable that forbids to skip tests that need the programs of a cluster. `ci/kube.sh` reads it too.
const REQUIRED: &str = "GPUSLICE_REQUIRE_KUBE";

/// A user of the apiserver, as a kubeconfig names one.
#[derive(Clone, Copy)]
pub(crate) enum User {
    Administrator,
    /// May edit objects in namespaces.
    Tenant,
    /// A service account of gpuslice, in a pod on the node n1.
    Account(&'static str),
}

pub(crate) struct Cluster {
    folder: TempDir,
    programs: PathBuf,
    running: Vec<Child>,
    server: String,
}

/// Returns the folder of the programs that `ci/kube.sh` builds.
fn programs() -> Option<PathBuf> {
    let built = fs::read_dir(artefacts::repository().join("build/kube")).ok()?.flatten();
    let built = built.map(|entry| entry.path().join("bin"));
    built.into_iter().find(|folder| folder.join("kube-apiserver").exists() && folder.join("kubectl").exists())
}

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Cluster {
    /// Starts a cluster. If its programs are not there, skips `what` with the reason and returns `None`, or fails if
    /// `GPUSLICE_REQUIRE_KUBE` is 1.
    pub(crate) fn begin(what: &str) -> Option<Self> {
        let Some(programs) = programs() else {
            let is_required = std::env::var_os(REQUIRED).is_some_and(|value| value == "1");
            assert!(
                !is_required,
                "{what}: there is no apiserver, and {REQUIRED} is 1; ci/kube.sh builds one"
            );
            skip(&format!("{what}: there is no apiserver; to mend it: ci/kube.sh"));
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let (store, peer, api) = (port(), port(), port());
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::write(at("tokens"), "admin,admin,1,system:masters\ntenant,tenant,2\n").unwrap();
        let key = Command::new("openssl").args(["genrsa", "-out", &at("key"), "2048"]).output().unwrap();
        assert!(key.status.success(), "{}", told(&key));
        let server = format!("https://127.0.0.1:{api}");
        let mut cluster = Self { folder, programs, running: Vec::new(), server };
        let [client, peer] = [store, peer].map(|port| format!("http://127.0.0.1:{port}"));
        let data = cluster.at("etcd");
        cluster.spawn(
            "etcd",
            &[
                ("data-dir", &data),
                ("listen-client-urls", &client),
                ("advertise-client-urls", &client),
                ("listen-peer-urls", &peer),
                ("initial-advertise-peer-urls", &peer),
                ("initial-cluster", &format!("default={peer}")),
            ],
        );
        let [tokens, key, certificates] = ["tokens", "key", "certificates"].map(|name| cluster.at(name));
        cluster.spawn(
            "kube-apiserver",
            &[
                ("etcd-servers", &client),
                ("secure-port", &api.to_string()),
                ("bind-address", "127.0.0.1"),
                ("cert-dir", &certificates),
                ("token-auth-file", &tokens),
                ("authorization-mode", "RBAC"),
                ("service-account-key-file", &key),
                ("service-account-signing-key-file", &key),
                ("service-account-issuer", "https://kubernetes.default.svc"),
                ("service-cluster-ip-range", "10.99.0.0/24"),
                ("disable-admission-plugins", "ServiceAccount"),
                ("anonymous-auth", "false"),
                ("allow-privileged", "true"),
            ],
        );
        let end = Instant::now() + TIMEOUT;
        // The apiserver has its roles a little later than its port.
        while !cluster.kubectl(User::Administrator, &["get", "clusterrole", "edit"], "").0 {
            assert!(
                Instant::now() < end,
                "{}",
                fs::read_to_string(cluster.at("kube-apiserver.log")).unwrap()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
        Some(cluster)
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn spawn(&mut self, program: &str, flags: &[(&str, &str)]) {
        let log = File::create(self.at(&format!("{program}.log"))).unwrap();
        let flags = flags.iter().map(|(name, value)| format!("--{name}={value}"));
        let mut command = Command::new(self.programs.join(program));
        let child = command.args(flags).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.running.push(child);
    }

    /// Writes the kubeconfig of a user.
    pub(crate) fn kubeconfig(&self, user: User) -> PathBuf {
        let (name, who) = match user {
            User::Administrator => ("admin".to_owned(), json!({"token": "admin"})),
            User::Tenant => ("tenant".to_owned(), json!({"token": "tenant"})),
            User::Account(account) => {
                let extra = json!({"authentication.kubernetes.io/node-name": ["n1"]});
                let user = format!("system:serviceaccount:gpuslice:{account}");
                // The rights of system:authenticated are those of every account.
                let groups = ["system:serviceaccounts", "system:authenticated"];
                let who = json!({"token": "admin", "as": user, "as-groups": groups, "as-user-extra": extra});
                (account.to_owned(), who)
            }
        };
        let path = self.folder.path().join(format!("{name}.kubeconfig"));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": self.server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "a", "user": who}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        });
        fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Runs kubectl with a text on its standard input. Returns true if it succeeded, and its output.
    pub(crate) fn kubectl(&self, user: User, arguments: &[&str], input: &str) -> (bool, String) {
        let mut command = self.command(user);
        let command =
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        running.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = running.wait_with_output().unwrap();
        (output.status.success(), told(&output))
    }

    fn command(&self, user: User) -> Command {
        let mut command = Command::new(self.programs.join("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig(user)).env("HOME", self.folder.path());
        command
    }

    /// Starts a proxy without TLS that asks the apiserver as a user.
    pub(crate) fn proxy(&mut self, user: User) -> SocketAddr {
        let port = port();
        let mut command = self.command(user);
        let child =
            command.args(["proxy", "--port", &port.to_string()]).stdout(Stdio::null()).spawn().unwrap();
        self.running.push(child);
        let end = Instant::now() + TIMEOUT;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < end, "the proxy does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        address
    }

    /// Returns an object as the administrator sees it.
    pub(crate) fn object(&self, kind: &str, name: &str) -> Value {
        let (found, text) = self.kubectl(User::Administrator, &["get", kind, name, "-o", "json"], "");
        assert!(found, "{text}");
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for running in self.running.iter_mut().rev() {
            let _ended = running.kill();
            let _waited_for = running.wait();
        }
    }
}

/// Returns the argument that names a kubeconfig to helm.
pub(crate) fn kubeconfig_argument(path: &Path) -> String {
    format!("--kubeconfig={}", path.display())
}
