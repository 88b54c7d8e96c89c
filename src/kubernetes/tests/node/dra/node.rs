//! A node: a driver in a process of its own, a kubelet, and an apiserver.

use super::manager::Manager;
use crate::kubelet::until;
pub(crate) use crate::machine::NODE;
use crate::machine::{Inside, Machine, inside};
use gpuslice_kubernetes::dra::{self, DriverConfig};
use gpuslice_kubernetes::grpc::dra::Claim;
use gpuslice_slices::slot::Places;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

pub(crate) struct Node {
    machine: Machine,
    pub(crate) manager: Manager,
}

impl Deref for Node {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl Node {
    /// Makes a node without a driver.
    pub(crate) async fn new(gpus: u32) -> Self {
        let machine = Machine::new().await;
        let manager = Manager::new(&machine.root().join("kubelet"));
        let node = Self { machine, manager };
        node.has_gpus(gpus, gpus);
        node
    }

    /// Starts a node with a driver that the kubelet knows.
    pub(crate) async fn start(gpus: u32) -> Self {
        let node = Self::new(gpus).await;
        node.begin();
        node.manager.registers().await;
        node
    }

    /// Gives the node `gpus` GPUs. The first `healthy` of them work.
    pub(crate) fn has_gpus(&self, gpus: u32, healthy: u32) {
        self.has("580.65.06", (0..gpus).map(uuid), healthy);
    }

    /// Starts the driver.
    pub(crate) fn begin(&self) {
        self.run("dra::node::a_process_of_the_driver", &[]);
    }

    /// Kills the driver, starts it again, and waits until it answers.
    pub(crate) async fn restart(&self) {
        self.kill();
        self.begin();
        self.manager.registers().await;
    }

    /// Makes a claim with a part of one GPU.
    pub(crate) fn claim(&self, name: &str, gpu: u32, memory: &str, cores: u32) -> Claim {
        self.allocated(name, &[result("main", gpu, Some((memory, cores)))])
    }

    /// Makes a claim with these devices.
    pub(crate) fn allocated(&self, name: &str, results: &[Value]) -> Claim {
        let uid = format!("{name}-4f51-4f3d-9c0e-0d9a7f1c2b3a");
        self.apiserver.put_claim(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": "ns", "name": name, "uid": uid},
            "status": {"allocation": {"devices": {"results": results}}},
        }));
        Claim { namespace: "ns".to_owned(), name: name.to_owned(), uid }
    }

    /// Returns the environment that the claim's device gives a container, or none if the claim has no specification. Checks
    /// that all mounted files exist.
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

    /// Returns three sets of names: the slices with a specification, with a folder, and with a region.
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

    /// Returns true if exactly these claims have files.
    pub(crate) fn has_only(&self, claims: &[Claim]) -> bool {
        let names: BTreeSet<String> = claims.iter().map(|claim| format!("claim-{}", claim.uid)).collect();
        self.slices().iter().all(|found| *found == names)
    }

    /// Waits for a list of devices that `is_it` accepts, and returns it.
    pub(crate) async fn devices(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let found = || self.apiserver.slices().into_iter().find(|slice| is_it(slice));
        until(what, || found().is_some()).await;
        found().unwrap()
    }
}

pub(crate) fn uuid(number: u32) -> String {
    format!("GPU-{number:08}-ABCD-0000-0000-000000000000")
}

pub(crate) fn device(number: u32) -> String {
    uuid(number).to_lowercase()
}

/// Returns the result of an allocation for a request. If `part` is none, the claim has the whole device.
pub(crate) fn result(request: &str, gpu: u32, part: Option<(&str, u32)>) -> Value {
    let mut result =
        json!({"request": request, "driver": "gpuslice.dev", "pool": NODE, "device": device(gpu)});
    if let Some((memory, cores)) = part {
        result["shareID"] = json!(format!("share-{request}"));
        result["consumedCapacity"] = json!({"memory": memory, "cores": cores.to_string()});
    }
    result
}

/// The driver's process, if a node has started this test as one. It checks nothing.
#[test]
fn a_process_of_the_driver() {
    let Some(Inside { root, client, gpus, library }) = inside() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut config =
        DriverConfig::usual(NODE.to_owned(), root.join("kubelet"), Places::usual(&root), library);
    (config.interval, config.poll) = (Duration::from_millis(200), Duration::from_millis(20));
    (config.sweep, config.patience) = (Duration::from_millis(200), Duration::from_secs(5));
    config.machine = root;
    runtime.block_on(dra::serve(config, client, gpus)).unwrap();
}
