//! Checks the agent as the device plugin of a node: a program in a pod is held to what its container asked for.

#[path = "../../src/kubernetes/tests/support/apiserver.rs"]
#[allow(dead_code, reason = "the tests of the cluster's parts use the rest")]
mod apiserver;
#[path = "../../src/kubernetes/tests/plugin/kubelet.rs"]
#[allow(dead_code, reason = "the tests of the device plugin use the rest")]
mod kubelet;

use crate::node::{Node, may_have_containers};
use crate::{MIB, witness};
use apiserver::Apiserver;
use kubelet::Kubelet;
use std::fs;
use std::time::Duration;

/// An event that the test waits for comes within this time, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Memory of the agent at the most, in KiB.
const MOST_KIB: u64 = 32 << 10;

#[test]
fn a_program_in_a_pod_has_the_memory_that_its_container_asked_for() {
    if !may_have_containers() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("it can be made");
    let apiserver = Apiserver::default();
    apiserver.add_node("n1");
    let address = runtime.block_on(apiserver.serve());
    let mut node = Node::start(&format!(
        "discover = true\n[kubernetes]\nnode = \"n1\"\napiserver = \"http://{address}\"\nauto_alloc = true\n"
    ));
    let mut kubelet = Kubelet::new(&node.at("/var/lib/kubelet"));
    let limits = serde_json::json!({"gpuslice.dev/slice": "1", "gpuslice.dev/memory-mib": "256", "gpuslice.dev/core-percent": "30"});
    apiserver.put(&serde_json::json!({
        "metadata": {"namespace": "ns", "name": "a", "uid": "u"},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]},
    }));
    let pod = kubelet::container("a");
    runtime.block_on(async {
        kubelet.begin();
        kubelet.sees(16).await;
        kubelet.admit(&pod, 1).await.expect("it is never refused");
        kubelet.start(&pod).await;
    });
    let slot = kubelet.with(|state| state.named[&pod][0].clone());
    let slot = slot.strip_prefix("gpuslice.dev/slice=").expect("it is a slice");
    let mut program = witness(&node, slot, 64 * MIB);
    assert!(program.ask(&format!("take {}", 300 * MIB)).starts_with("2 "), "it is refused");
    assert!(program.ask(&format!("take {}", 100 * MIB)).starts_with("0 "), "it is granted");
    // The kubelet knows the pod, and so do the metrics and the JSON.
    let labels = [("namespace", "ns"), ("pod", "a"), ("container", "main")];
    let used = node.until("the metrics name the pod", |node| {
        node.scrape().get("gpuslice_slice_memory_used_bytes", &labels)
    });
    assert!(used >= 64.0 * 1_048_576.0, "{used}");
    let told = node.slice(|slice| slice["pod"]["name"] == "a").expect("the pod is told");
    let pod = serde_json::json!({"namespace": "ns", "name": "a", "uid": "u", "container": "main"});
    assert_eq!(told["pod"], pod, "{told}");
    let capacity = node.until("the node has the sums", |_| {
        let status = apiserver.node("n1")["status"]["capacity"].clone();
        status.is_object().then_some(status)
    });
    assert_eq!(capacity["gpuslice.dev/core-percent"], "100", "{capacity}");
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("the agent runs");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_ascii_whitespace().next());
    let most: u64 = most.expect("it has a line").parse().expect("it is a number");
    println!("the agent with a kubelet: {most} KiB");
    assert!(most < MOST_KIB, "{most} KiB");
}
