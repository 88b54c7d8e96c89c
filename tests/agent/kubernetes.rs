//! Checks the agent as the device plugin of a node and as its driver of claims. A program in a pod is held to the limits that its
//! container asked for.

#[path = "../../src/kubernetes/tests/support/apiserver.rs"]
#[allow(dead_code, reason = "the tests of the cluster's parts use the rest")]
mod apiserver;
#[path = "../../src/kubernetes/tests/support/kubelet.rs"]
#[allow(dead_code, reason = "the tests of the device plugin use the rest")]
mod kubelet;

use crate::node::Node;
use crate::support::bench::Bench;
use crate::support::container::may_have_containers;
use crate::{MIB, witness};
use apiserver::Apiserver;
use gpuslice_kubernetes::grpc::dra::dra_plugin_client::DraPluginClient;
use gpuslice_kubernetes::grpc::dra::{Claim, NodePrepareResourcesRequest};
use kubelet::Kubelet;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Time within which an expected event comes, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most memory of the agent, in KiB.
const MOST_KIB: u64 = 32 << 10;

/// Returns the objects of a folder of manifests, or `None` if they cannot be rendered.
fn rendered(folder: &str) -> Option<String> {
    let folder = crate::support::artefacts::repository().join("examples/kubernetes").join(folder);
    let Ok(rendered) = Command::new("kubectl").arg("kustomize").arg(folder).output() else {
        crate::support::skip(
            "manifests of Kubernetes: there is no kubectl; to mend it: apt-get install kubernetes-client",
        );
        return None;
    };
    assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
    Some(String::from_utf8(rendered.stdout).expect("it is text"))
}

/// Returns the words of a role's rules.
fn rights<'a>(text: &'a str, role: &str) -> BTreeSet<&'a str> {
    let is_it = |document: &&str| {
        document.contains("kind: ClusterRole\n") && document.contains(&format!("  name: {role}\n"))
    };
    let document = text.split("---\n").find(is_it).expect("it has the role");
    let words = document.lines().filter_map(|line| line.trim().strip_prefix("- "));
    words.filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || "/*".contains(c))).collect()
}

/// The manifests for claims run the same agent, with its mode for claims. They need no scheduler of gpuslice.
#[test]
fn manifests_of_claims_have_the_same_agent_with_other_rights() {
    let Some(text) = rendered("dra") else { return };
    assert_eq!(
        rights(&text, "gpuslice-agent"),
        BTreeSet::from([
            "create",
            "delete",
            "get",
            "list",
            "nodes",
            "nodes/status",
            "patch",
            "resourceclaims",
            "resourceslices"
        ])
    );
    assert!(text.contains("kind: DaemonSet\n") && text.contains("mode = \"dra\""), "{text}");
    assert!(!text.contains("scheduler"), "{text}");
}

/// A node with an agent, a kubelet and an apiserver.
struct Cluster {
    kubelet: Kubelet,
    node: Node,
    apiserver: Apiserver,
    // The runtime runs the kubelet and the apiserver. It is the last field, so it is dropped last.
    runtime: Runtime,
}

impl Cluster {
    /// Starts the agent, the kubelet and the apiserver. `more`: further lines of the configuration.
    fn start_on(bench: Bench, more: &str) -> Self {
        let (runtime, apiserver, address) = serve();
        let node = Node::start_on(
            bench,
            &format!("kubernetes.node = \"n1\"\nkubernetes.apiserver = \"http://{address}\"\n{more}"),
        );
        let mut kubelet = Kubelet::new(&node.at("/var/lib/kubelet"));
        runtime.block_on(async { kubelet.begin() });
        Self { kubelet, node, apiserver, runtime }
    }

    /// Waits until the kubelet has this many healthy slots.
    fn sees(&self, slots: usize) {
        self.runtime.block_on(self.kubelet.sees(slots));
    }

    /// Returns the GPUs that the node reports to the extender.
    fn inventory(&mut self) -> Vec<Value> {
        self.node.until("the node has the GPUs", |_| {
            let text = self.apiserver.node("n1")["metadata"]["annotations"]["gpuslice.dev/inventory"].clone();
            let inventory: Value = serde_json::from_str(text.as_str()?).expect("it is JSON");
            inventory["gpus"].as_array().cloned()
        })
    }

    /// Returns the sums that the node reports to the scheduler.
    fn capacity(&mut self) -> Value {
        self.node.until("the node has the sums", |_| {
            let status = self.apiserver.node("n1")["status"]["capacity"].clone();
            status.is_object().then_some(status)
        })
    }
}

/// Starts an apiserver that has the node, and returns its address too.
fn serve() -> (Runtime, Apiserver, SocketAddr) {
    let runtime = Runtime::new().expect("it can be made");
    let apiserver = Apiserver::default();
    apiserver.add_node("n1");
    let address = runtime.block_on(apiserver.serve());
    (runtime, apiserver, address)
}

#[test]
fn a_program_in_a_pod_has_the_memory_that_its_container_asked_for() {
    if !may_have_containers() {
        return;
    }
    let mut cluster = Cluster::start_on(
        Bench::simulated_without_contexts(),
        "kubernetes.auto_alloc = true\ndiscover = true\n",
    );
    cluster.sees(16);
    let pod = kubelet::container("a");
    cluster.runtime.block_on(async {
        cluster.kubelet.admit(&pod, 1).await.expect("it is never refused");
        // The apiserver does not know the pod yet.
        cluster.kubelet.pre_start(&pod).await.expect_err("it waits");
    });
    let limits = json!({"gpuslice.dev/slice": "1", "gpuslice.dev/memory-mib": "256", "gpuslice.dev/core-percent": "30"});
    cluster.apiserver.put(&json!({
        "metadata": {"namespace": "ns", "name": "a", "uid": "u"},
        "spec": {"nodeName": "n1", "containers": [
            {"name": "main", "resources": {"limits": limits}},
            {"name": "side", "resources": {"limits": {"gpuslice.dev/slice": "1", "gpuslice.dev/memory-mib": "128"}}},
        ]},
    }));
    cluster.runtime.block_on(cluster.kubelet.start(&pod));
    let side = (pod.0.clone(), pod.1.clone(), "side".to_owned());
    cluster.runtime.block_on(cluster.kubelet.run(&side, 1));
    let slot = cluster.kubelet.with(|state| state.named[&pod][0].clone());
    let slot = slot.strip_prefix("gpuslice.dev/slice=").expect("it is a slice");
    // The pod has series before its first GPU process.
    let labels = [("namespace", "ns"), ("pod", "a"), ("container", "main"), ("slot", slot)];
    let node = &mut cluster.node;
    let limit = node
        .until("the pod has series", |node| node.scrape().get("gpuslice_slice_memory_limit_bytes", &labels));
    let metrics = node.scrape();
    assert_eq!(limit, 256.0 * 1_048_576.0);
    for (name, value) in [
        ("gpuslice_slice_core_limit_ratio", 0.3),
        ("gpuslice_slice_memory_used_bytes", 0.0),
        ("gpuslice_slice_processes", 0.0),
        ("gpuslice_slice_gpu_time_seconds_total", 0.0),
    ] {
        assert_eq!(metrics.get(name, &labels), Some(value), "{name}");
    }
    for (state, slots) in [("allocated", 2.0), ("free", 14.0), ("stale", 0.0)] {
        assert_eq!(metrics.get("gpuslice_agent_slots", &[("state", state)]), Some(slots), "{state}");
    }
    let starts = metrics.get("gpuslice_agent_prestart_duration_seconds_count", &[]).expect("it is counted");
    assert!(starts >= 2.0, "{starts}");
    for (reason, failures) in
        [("kubelet", 1.0), ("apiserver", 0.0), ("unplaced", 0.0), ("refused", 0.0), ("files", 0.0)]
    {
        let counted = metrics.get("gpuslice_agent_prestart_failures_total", &[("reason", reason)]);
        assert_eq!(counted, Some(failures), "{reason}");
    }
    let mut program = witness(node, slot, 64 * MIB);
    assert!(program.ask(&format!("take {}", 300 * MIB)).starts_with("2 "), "it is refused");
    assert!(program.ask(&format!("take {}", 100 * MIB)).starts_with("0 "), "it is granted");
    // The kubelet knows the pod, and so do the metrics and the JSON.
    node.until("the metrics have the program's memory", |node| {
        let used = node.scrape().get("gpuslice_slice_memory_used_bytes", &labels)?;
        (used >= 64.0 * 1_048_576.0).then_some(())
    });
    // The other container of the pod has series of its own.
    let slot_of_side = cluster.kubelet.with(|state| state.named[&side][0].clone());
    let slot_of_side = slot_of_side.strip_prefix("gpuslice.dev/slice=").expect("it is a slice");
    let metrics = node.scrape();
    let of_side = [("namespace", "ns"), ("pod", "a"), ("container", "side"), ("slot", slot_of_side)];
    for (name, value) in [("limit", 128.0 * 1_048_576.0), ("used", 0.0)] {
        assert_eq!(
            metrics.get(&format!("gpuslice_slice_memory_{name}_bytes"), &of_side),
            Some(value),
            "{name}"
        );
    }
    let told = node.slice(|slice| slice["pod"]["container"] == "main").expect("the pod is reported");
    let named = json!({"namespace": "ns", "name": "a", "uid": "u", "container": "main"});
    assert_eq!(told["pod"], named, "{told}");
    let capacity = cluster.capacity();
    assert_eq!(capacity["gpuslice.dev/core-percent"], "100", "{capacity}");
    let node = &mut cluster.node;
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("the agent runs");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_ascii_whitespace().next());
    let most: u64 = most.expect("it has a line").parse().expect("it is a number");
    println!("the agent with a kubelet: {most} KiB");
    assert!(most < MOST_KIB, "{most} KiB");
    // A pod that is gone has no series.
    program.kill();
    cluster.kubelet.forget(&pod);
    cluster.kubelet.forget(&side);
    cluster.apiserver.delete("ns/a");
    node.until("the pod has no series", |node| {
        let metrics = node.scrape();
        let limit = |labels| metrics.get("gpuslice_slice_memory_limit_bytes", labels);
        (limit(&labels).is_none() && limit(&of_side).is_none()).then_some(())
    });
}

/// The extender needs these links for pods whose slices must be on connected GPUs.
#[test]
fn the_node_names_the_gpus_that_nvlink_connects() {
    let bench = Bench::simulated().with("SIMGPU_DEVICES", "5").with("SIMGPU_NVLINK", "2");
    let mut cluster = Cluster::start_on(bench, "");
    let gpus = cluster.inventory();
    let linked: Vec<_> = gpus.iter().map(|gpu| gpu["nvlink"].clone()).collect();
    assert_eq!(linked, [json!([1]), json!([0]), json!([3]), json!([2]), json!(null)]);
}

/// The limit of a slice names a whole GPU, so it would not hold on an instance of one.
#[test]
fn a_gpu_that_mig_divides_is_offered_to_no_pod() {
    let bench = Bench::simulated().with("SIMGPU_DEVICES", "2").with("SIMGPU_MIG", "0,2");
    let mut cluster = Cluster::start_on(bench, "");
    cluster.sees(16);
    let gpus = cluster.inventory();
    let healthy: Vec<_> = gpus.iter().map(|gpu| gpu["healthy"].clone()).collect();
    assert_eq!(healthy, [json!(true), json!(false)]);
    assert!(gpus[1]["why"].as_str().expect("it has a reason").starts_with("MIG is enabled"), "{gpus:?}");
    let capacity = cluster.capacity();
    assert_eq!(capacity["gpuslice.dev/core-percent"], "100", "{capacity}");
    let node = &cluster.node;
    assert_eq!(node.log().matches("no slice is placed on it: MIG is enabled").count(), 1, "{}", node.log());
}

#[test]
fn a_gpu_that_one_process_may_use_is_offered_to_no_pod() {
    let bench = Bench::simulated().with("SIMGPU_NVML_COMPUTE_MODE", "3");
    let mut cluster = Cluster::start_on(bench, "");
    cluster.sees(0);
    let gpus = cluster.inventory();
    assert_eq!(gpus[0]["healthy"], false);
    assert!(gpus[0]["why"].as_str().expect("it has a reason").starts_with("only one process"), "{gpus:?}");
}

#[test]
fn a_program_of_a_claim_has_the_memory_that_the_scheduler_gave_it() {
    if !may_have_containers() {
        return;
    }
    let (runtime, apiserver, address) = serve();
    let mut node = Node::start("");
    let mut kubelet = Kubelet::new(&node.at("/var/lib/kubelet"));
    runtime.block_on(async { kubelet.begin() });
    node.configure(&format!(
        "[kubernetes]\nnode = \"n1\"\nmode = \"dra\"\napiserver = \"http://{address}\"\n"
    ));
    node.end(libc::SIGTERM);
    node.begin();
    let device = node.until("a device", |_| {
        let name = apiserver.slices().first()?["spec"]["devices"][0]["name"].clone();
        name.is_string().then_some(name)
    });
    let result = json!({"request": "gpu", "driver": "gpuslice.dev", "pool": "n1", "device": device,
        "shareID": "s", "consumedCapacity": {"memory": "256Mi", "cores": "30"}});
    apiserver.put_claim(&json!({
        "metadata": {"namespace": "ns", "name": "a", "uid": "u"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }));
    let claim = Claim { namespace: "ns".to_owned(), name: "a".to_owned(), uid: "u".to_owned() };
    let socket = node.at("/var/lib/kubelet/plugins/gpuslice.dev/dra.sock");
    let answer = runtime.block_on(async {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("unix://{}", socket.display()));
        let mut client =
            DraPluginClient::new(endpoint.expect("a path").connect().await.expect("it is served"));
        let asked = client.node_prepare_resources(NodePrepareResourcesRequest { claims: vec![claim] }).await;
        asked.expect("it answers").into_inner()
    });
    assert_eq!(answer.claims["u"].error, "");
    assert_eq!(answer.claims["u"].devices[0].cdi_device_ids, ["gpuslice.dev/slice=claim-u"]);
    let mut program = witness(&node, "claim-u", 64 * MIB);
    assert!(program.ask(&format!("take {}", 300 * MIB)).starts_with("2 "), "it is refused");
    assert!(program.ask(&format!("take {}", 100 * MIB)).starts_with("0 "), "it is granted");
}
