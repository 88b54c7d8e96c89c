//! A node: the driver in a process of its own, a kubelet, an apiserver.

use crate::apiserver::Apiserver;
use crate::kubelet::until;
use crate::manager::Manager;
use gpuslice_kubernetes::api::Client;
use gpuslice_kubernetes::dra::{self, Config};
use gpuslice_kubernetes::grpc::dra::Claim;
use gpuslice_kubernetes::objects::{Gpu, Inventory};
use gpuslice_slices::slot::Places;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const NODE: &str = "n1";
/// Names the folder of the node to the process that is its driver.
const ROOT: &str = "GPUSLICE_TEST_DRA_NODE";

pub(crate) struct Node {
    root: TempDir,
    pub(crate) manager: Manager,
    pub(crate) apiserver: Apiserver,
    pub(crate) address: SocketAddr,
    driver: Mutex<Option<Child>>,
}

impl Node {
    /// Without a driver yet.
    pub(crate) async fn new(gpus: u32) -> Self {
        let root = TempDir::new_in("/dev/shm").unwrap();
        fs::write(root.path().join("libgpuslice.so"), "library").unwrap();
        let apiserver = Apiserver::default();
        apiserver.add_node(NODE);
        let address = apiserver.serve().await;
        let manager = Manager::new(&root.path().join("kubelet"));
        let node = Self { root, manager, apiserver, address, driver: Mutex::default() };
        node.has_gpus(gpus, gpus);
        node
    }

    /// With a driver that the kubelet knows.
    pub(crate) async fn start(gpus: u32) -> Self {
        let node = Self::new(gpus).await;
        node.begin();
        node.manager.registers().await;
        node
    }

    /// Has this many GPUs of 16 GiB, of which the last ones are lost.
    pub(crate) fn has_gpus(&self, gpus: u32, healthy: u32) {
        let gpu = |number| Gpu {
            uuid: uuid(number),
            model: "Test".to_owned(),
            mem_mib: 16_384,
            core: 100,
            healthy: number < healthy,
        };
        let inventory =
            Inventory { v: 1, driver: "580.65.06".to_owned(), gpus: (0..gpus).map(gpu).collect() };
        let path = self.root.path().join("inventory");
        fs::write(path.with_extension("new"), serde_json::to_vec(&inventory).unwrap()).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    }

    /// Starts the driver.
    pub(crate) fn begin(&self) {
        let log =
            fs::OpenOptions::new().create(true).append(true).open(self.root.path().join("log")).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "node::a_process_of_the_driver", "--nocapture"]).env(ROOT, self.root.path());
        command.env("APISERVER", format!("http://{}", self.address));
        command.stdout(Stdio::null()).stderr(log);
        *self.driver.lock().unwrap() = Some(command.spawn().unwrap());
    }

    /// Ends the driver by SIGKILL.
    pub(crate) fn kill(&self) {
        let mut driver = self.driver.lock().unwrap().take().expect("it was started");
        driver.kill().unwrap();
        driver.wait().unwrap();
    }

    /// Starts the driver anew, and waits until it answers.
    pub(crate) async fn restart(&self) {
        self.kill();
        self.begin();
        self.manager.registers().await;
    }

    /// The root of its files.
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn places(&self) -> Places {
        Places::usual(self.root.path())
    }

    /// A claim with a part of one GPU.
    pub(crate) fn claim(&self, name: &str, gpu: u32, memory: &str, cores: u32) -> Claim {
        self.allocated(name, &[result("main", gpu, Some((memory, cores)))])
    }

    /// A claim with these devices.
    pub(crate) fn allocated(&self, name: &str, results: &[Value]) -> Claim {
        let uid = format!("{name}-4f51-4f3d-9c0e-0d9a7f1c2b3a");
        self.apiserver.put_claim(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": "ns", "name": name, "uid": uid},
            "status": {"allocation": {"devices": {"results": results}}},
        }));
        Claim { namespace: "ns".to_owned(), name: name.to_owned(), uid }
    }

    /// The environment that the claim's device gives a container; none without its specification. All that it mounts is there.
    pub(crate) fn environment(&self, claim: &Claim) -> Option<Vec<String>> {
        let slice = format!("claim-{}", claim.uid);
        let spec = fs::read(self.places().cdi.join(format!("gpuslice-{slice}.json"))).ok()?;
        let spec: Value = serde_json::from_slice(&spec).unwrap();
        assert_eq!(
            (&spec["kind"], &spec["devices"][0]["name"]),
            (&json!("gpuslice.dev/slice"), &json!(slice))
        );
        let edits = &spec["devices"][0]["containerEdits"];
        for mount in edits["mounts"].as_array().unwrap() {
            assert!(Path::new(mount["hostPath"].as_str().unwrap()).exists(), "{mount}");
        }
        assert!(self.places().region(&slice.parse().unwrap()).exists());
        let limits = fs::read_to_string(self.places().config(&slice.parse().unwrap())).unwrap();
        let env: Vec<String> =
            edits["env"].as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect();
        let limit = env.iter().find(|item| item.starts_with("GPU_MEM_LIMIT=")).unwrap();
        assert!(limits.lines().any(|line| line == limit), "{limits}");
        Some(env)
    }

    /// Names of the slices that have a specification, a folder or a region, one for each.
    pub(crate) fn slices(&self) -> [BTreeSet<String>; 3] {
        let places = self.places();
        let names = |folder: &Path, prefix: &str, suffix: &str| {
            let entries = fs::read_dir(folder).into_iter().flatten();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let bare = |name: String| name.strip_prefix(prefix)?.strip_suffix(suffix).map(str::to_owned);
            names.filter_map(bare).collect()
        };
        [
            names(&places.cdi, "gpuslice-", ".json"),
            names(&places.slots(), "", ""),
            names(&places.regions, "", ""),
        ]
    }

    /// True if these claims have files, and nobody else.
    pub(crate) fn has_only(&self, claims: &[Claim]) -> bool {
        let names: BTreeSet<String> = claims.iter().map(|claim| format!("claim-{}", claim.uid)).collect();
        self.slices().iter().all(|found| *found == names)
    }

    /// The list of devices, once there is one that is as it should be.
    pub(crate) async fn devices(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let found = || self.apiserver.slices().into_iter().find(|slice| is_it(slice));
        until(what, || found().is_some()).await;
        found().unwrap()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.root.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut driver) = self.driver.lock().unwrap().take() {
            let _ended = driver.kill();
            let _waited_for = driver.wait();
        }
        if std::thread::panicking() {
            println!("the driver said: {}", self.log());
        }
    }
}

pub(crate) fn uuid(number: u32) -> String {
    format!("GPU-{number:08}-ABCD-0000-0000-000000000000")
}

pub(crate) fn device(number: u32) -> String {
    uuid(number).to_lowercase()
}

/// A device that a claim has for a request; without a part: as a whole.
pub(crate) fn result(request: &str, gpu: u32, part: Option<(&str, u32)>) -> Value {
    let mut result =
        json!({"request": request, "driver": "gpuslice.dev", "pool": NODE, "device": device(gpu)});
    if let Some((memory, cores)) = part {
        result["shareID"] = json!(format!("share-{request}"));
        result["consumedCapacity"] = json!({"memory": memory, "cores": cores.to_string()});
    }
    result
}

/// Not a check, but the driver's process where a node has started it.
#[test]
fn a_process_of_the_driver() {
    let Some(root) = std::env::var_os(ROOT).map(PathBuf::from) else { return };
    let address = std::env::var("APISERVER").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::new(&address, None, None).unwrap();
        let library = root.join("libgpuslice.so");
        let mut config = Config::usual(NODE.to_owned(), root.join("kubelet"), Places::usual(&root), library);
        (config.interval, config.poll) = (Duration::from_millis(200), Duration::from_millis(20));
        (config.sweep, config.patience) = (Duration::from_millis(200), Duration::from_secs(5));
        config.machine.clone_from(&root);
        let inventory = root.join("inventory");
        let gpus = move || serde_json::from_slice(&fs::read(&inventory).unwrap()).unwrap();
        let said = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).try_init();
        said.unwrap();
        dra::serve(config, client, Arc::new(gpus)).await.unwrap();
    });
}
