//! A node: a plugin in a process of its own, a kubelet, and an apiserver.

use crate::kubelet::{Container, Kubelet, container, until};
pub(crate) use crate::machine::NODE;
use crate::machine::{Inside, Machine, inside};
use gpuslice_kubernetes::metrics::PreStartMetrics;
use gpuslice_kubernetes::objects::{CORE_PERCENT, MEMORY_MIB, SLICE};
use gpuslice_kubernetes::plugin::{self, PluginConfig};
use gpuslice_slices::slot::Places;
use serde_json::{Value, json};
use std::fs;
use std::io::Read as _;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Time for which both lists must lack a pod before the plugin releases its slots.
pub(crate) const GRACE: Duration = Duration::from_millis(400);

pub(crate) struct Node {
    machine: Machine,
    pub(crate) kubelet: Kubelet,
    auto_alloc: bool,
    resize: bool,
}

impl Deref for Node {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl Node {
    /// Makes a node without a plugin.
    pub(crate) async fn new(gpus: u32) -> Self {
        let machine = Machine::new().await;
        let mut kubelet = Kubelet::new(&machine.root().join("kubelet"));
        kubelet.begin();
        let node = Self { machine, kubelet, auto_alloc: false, resize: false };
        node.has_gpus(gpus, gpus);
        node
    }

    /// Starts a node with a plugin that the kubelet knows.
    pub(crate) async fn start(gpus: u32, auto_alloc: bool) -> Self {
        let mut node = Self::new(gpus).await;
        node.auto_alloc = auto_alloc;
        node.begin_with(gpus).await;
        node
    }

    /// Starts a node whose plugin trusts later generations of annotations.
    pub(crate) async fn start_resizing(gpus: u32) -> Self {
        let mut node = Self::new(gpus).await;
        node.resize = true;
        node.begin_with(gpus).await;
        node
    }

    /// Starts the plugin, and waits until the kubelet knows the slots of all GPUs.
    async fn begin_with(&self, gpus: u32) {
        self.begin();
        self.kubelet.sees(16 * usize::try_from(gpus).unwrap()).await;
    }

    /// Gives the node `gpus` GPUs. The first `healthy` of them work.
    pub(crate) fn has_gpus(&self, gpus: u32, healthy: u32) {
        self.has("1", (0..gpus).map(uuid), healthy);
    }

    /// Starts the plugin.
    pub(crate) fn begin(&self) {
        let settings = [("AUTO_ALLOC", self.auto_alloc), ("RESIZE", self.resize)];
        let variables = settings.map(|(name, is_set)| (name, is_set.to_string()));
        self.run("plugin::node::a_process_of_the_plugin", &variables);
    }

    /// Kills the plugin, starts the next one, and waits until it has registered. The kubelet keeps the devices of the old
    /// plugin until it sees its end.
    pub(crate) async fn replace(&self) {
        let registrations = || self.kubelet.with(|state| state.registrations);
        let before = registrations();
        self.kill();
        self.begin();
        until("the next plugin registers", || registrations() > before).await;
    }

    /// Asks the plugin to end, by closing its input.
    pub(crate) fn terminate(&self) {
        self.close_input();
    }

    /// Returns true once the plugin has ended without an error.
    pub(crate) fn has_ended(&self) -> bool {
        let ended = self.ended();
        assert!(ended.is_none_or(|status| status.success()), "{ended:?}");
        ended.is_some()
    }

    /// Waits until the agent has read the list of pods twice. The second time, it has processed everything that was true at the
    /// call.
    pub(crate) async fn looks_twice(&self) {
        let looks = self.apiserver.looks();
        until("the agent has looked twice", || self.apiserver.looks() >= looks + 2).await;
    }

    /// Waits for the agent's looks at the list of pods, until more than the grace has passed between two of them.
    pub(crate) async fn looks_beyond_the_grace(&self) {
        let begun = Instant::now();
        while begun.elapsed() < 2 * GRACE {
            self.looks_twice().await;
        }
    }

    /// Returns true if the extender can place pods on this node.
    pub(crate) fn has_inventory(&self) -> bool {
        self.apiserver.node(NODE)["metadata"]["annotations"]["gpuslice.dev/inventory"].is_string()
    }

    /// Returns the path of the plugin's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.root().join("kubelet/device-plugins/gpuslice.sock")
    }

    /// Makes a pod with one container that asks for slices. `core` is its percent of time, or 0 for no limit.
    pub(crate) fn pod(&self, name: &str, slices: u64, mem_mib: u64, core: u64) -> Container {
        let mut limits = json!({SLICE: slices.to_string(), MEMORY_MIB: mem_mib.to_string()});
        if core > 0 {
            limits[CORE_PERCENT] = json!(core.to_string());
        }
        self.apiserver.put(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")},
            "spec": {"nodeName": NODE, "containers": [{"name": "main", "resources": {"limits": limits}}]},
            "status": {"phase": "Pending"},
        }));
        container(name)
    }

    /// Makes a pod with one container that asks for slices and has parts of these GPUs.
    pub(crate) fn placed(&self, name: &str, gpus: &[u32], mem_mib: u64, core: u64) -> Container {
        let slices = u64::try_from(gpus.len()).unwrap();
        let made = self.pod(name, slices, mem_mib * slices, core * slices);
        let alloc = alloc(&format!("uid-{name}"), NODE, gpus, mem_mib, core);
        self.apiserver.annotate(&format!("ns/{name}"), &alloc);
        made
    }

    /// Makes a pod with the containers `first` and `second`. Each has a part of one GPU: the GPU's number, and mebibytes.
    pub(crate) fn placed_two(&self, name: &str, parts: [(u32, u64); 2]) -> [Container; 2] {
        let names = ["first", "second"];
        let spec = |(container, (_, mib)): (&str, (u32, u64))| {
            let limits = json!({SLICE: "1", MEMORY_MIB: mib.to_string()});
            json!({"name": container, "resources": {"limits": limits}})
        };
        let containers: Vec<Value> = names.into_iter().zip(parts).map(spec).collect();
        let uid = format!("uid-{name}");
        self.apiserver.put(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "ns", "name": name, "uid": uid},
            "spec": {"nodeName": NODE, "containers": containers},
            "status": {"phase": "Pending"},
        }));
        let mut given = alloc(&uid, NODE, &[], 0, 0);
        let part = |(gpu, mib): (u32, u64)| json!([{"uuid": uuid(gpu), "memMiB": mib, "core": 0}]);
        given["c"] =
            names.into_iter().zip(parts).map(|(name, given)| (name.to_owned(), part(given))).collect();
        self.apiserver.annotate(&format!("ns/{name}"), &given);
        names.map(|container| ("ns".to_owned(), name.to_owned(), container.to_owned()))
    }

    /// Returns true if a container with one slice has the GPU and the memory in its pod's annotation.
    pub(crate) fn has_its_slice(&self, container: &Container) -> bool {
        let pod = self.apiserver.pod(&format!("{}/{}", container.0, container.1));
        let text = pod["metadata"]["annotations"]["gpuslice.dev/alloc"].as_str().unwrap();
        let alloc: Value = serde_json::from_str(text).unwrap();
        let part = &alloc["c"][&container.2][0];
        let (uuid, mib) = (part["uuid"].as_str().unwrap(), part["memMiB"].as_u64().unwrap());
        let environment = self.environment(container).unwrap();
        let says = |item: String| environment.contains(&item);
        says(format!("NVIDIA_VISIBLE_DEVICES={uuid}")) && says(format!("GPU_MEM_LIMIT={uuid}={}", mib << 20))
    }

    /// Returns the host's paths that a container gets. The flag of a path is true if the container may write it.
    pub(crate) fn mounts(&self, container: &Container) -> Vec<(PathBuf, bool)> {
        let spec = self.spec(container).unwrap();
        let mounts = spec["devices"][0]["containerEdits"]["mounts"].as_array().unwrap().iter();
        let mount = |mount: &Value| {
            let is_read_only = mount["options"].as_array().unwrap().contains(&json!("ro"));
            (mount["hostPath"].as_str().unwrap().into(), !is_read_only)
        };
        mounts.map(mount).collect()
    }

    /// Returns the environment of a container, by the name that the plugin returned. Returns none if a file is missing.
    pub(crate) fn environment(&self, container: &Container) -> Option<Vec<String>> {
        let spec = self.spec(container)?;
        for mount in spec["devices"][0]["containerEdits"]["mounts"].as_array().unwrap() {
            assert!(Path::new(mount["hostPath"].as_str().unwrap()).exists(), "{mount}");
        }
        let items = spec["devices"][0]["containerEdits"]["env"].as_array().unwrap().iter();
        Some(items.map(|item| item.as_str().unwrap().to_owned()).collect())
    }

    /// Returns the specification of a container, by the name that the plugin returned.
    fn spec(&self, container: &Container) -> Option<Value> {
        let named = self.kubelet.with(|state| state.named[container].clone());
        assert_eq!(named.len(), 1, "an engine merges the files of all names");
        let slot = named[0].strip_prefix("gpuslice.dev/slice=").unwrap();
        let spec = fs::read(self.places().cdi.join(format!("gpuslice-{slot}.json"))).ok()?;
        let spec: Value = serde_json::from_slice(&spec).unwrap();
        assert_eq!(spec["devices"][0]["name"], slot);
        Some(spec)
    }

    /// Returns the container's memory limit on its first GPU, in MiB.
    pub(crate) fn limit(&self, container: &Container) -> Option<u64> {
        let environment = self.environment(container)?;
        let limit = environment.iter().find_map(|item| item.strip_prefix("GPU_MEM_LIMIT="))?;
        Some(limit.split(',').next()?.split_once('=')?.1.parse::<u64>().unwrap() >> 20)
    }

    /// Lists all files and folders of slots.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let places = self.places();
        let folders = [places.slots(), places.regions.clone(), places.cdi.clone()];
        let entries = folders.into_iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

pub(crate) fn uuid(number: u32) -> String {
    format!("GPU-{number:08}-0000-0000-0000-000000000000")
}

/// Returns the annotation of a pod with the container `main`.
pub(crate) fn alloc(uid: &str, node: &str, gpus: &[u32], mem_mib: u64, core: u64) -> Value {
    let part = |gpu: &u32| json!({"uuid": uuid(*gpu), "memMiB": mem_mib, "core": core});
    let parts: Vec<Value> = gpus.iter().map(part).collect();
    json!({"v": 1, "uid": uid, "node": node, "gen": 1, "at": "2026-01-01T00:00:00Z", "c": {"main": parts}})
}

/// The plugin's process, if a node has started this test as one. It checks nothing.
#[test]
fn a_process_of_the_plugin() {
    let Some(Inside { root, client, gpus, library }) = inside() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut config =
        PluginConfig::usual(NODE.to_owned(), root.join("kubelet"), Places::usual(&root), library);
    config.machine = root;
    let is_set = |name| std::env::var(name).unwrap() == "true";
    (config.auto_alloc, config.resize) = (is_set("AUTO_ALLOC"), is_set("RESIZE"));
    (config.interval, config.poll) = (Duration::from_millis(200), Duration::from_millis(20));
    (config.grace, config.patience) = (GRACE, Duration::from_secs(1));
    let (ended, ends) = oneshot::channel();
    std::thread::spawn(move || {
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        ended.send(())
    });
    let ends = async { ends.await.unwrap() };
    runtime.block_on(plugin::serve(config, client, gpus, PreStartMetrics::default(), ends)).unwrap();
}
