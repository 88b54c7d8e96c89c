//! Tests that the extender wakes a pod whose room became free just after its refusal.

use crate::cluster::{Cluster, pod, until};
use serde_json::json;

/// Returns true if the extender has changed the pod, so that the scheduler asks again.
fn is_woken(cluster: &Cluster, name: &str) -> bool {
    cluster.apiserver.pod(&format!("ns/{name}"))["metadata"]["annotations"]["gpuslice.dev/retry"].is_string()
}

async fn until_woken(cluster: &Cluster, name: &str) {
    until(&format!("{name} is woken"), || is_woken(cluster, name).then_some(())).await;
}

/// The extender refuses pods just before another pod goes. It behaves like an extender that learns of the end later than the
/// scheduler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_was_refused_just_before_it_had_room_is_woken_and_no_other() {
    let cluster = Cluster::start(&[("n1", 1), ("n2", 1), ("n3", 1)]).await;
    for (name, memory, node) in [("a", 15_384, "n1"), ("little", 1000, "n1"), ("b", 16_384, "n2")] {
        cluster.apiserver.put(&pod(name, 1, memory, 10));
        assert_eq!(cluster.bind(name, node).await, "");
    }
    for (name, memory, nodes, fits) in [
        ("unsuitable", 20_000, &["n1", "n2"][..], 0),
        ("elsewhere", 1000, &["n1", "n3"], 1),
        ("large", 8000, &["n1", "n2"], 0),
        ("small", 1000, &["n1", "n2"], 0),
    ] {
        let asked = pod(name, 1, memory, 10);
        cluster.apiserver.put(&asked);
        let answer = cluster.filter(&asked, nodes).await;
        assert_eq!(answer["NodeNames"].as_array().unwrap().len(), fits, "{name}: {answer}");
    }
    cluster.apiserver.change("ns/little", |pod| pod["status"]["phase"] = "Succeeded".into());
    until_woken(&cluster, "small").await;
    for name in ["unsuitable", "elsewhere", "large"] {
        assert!(!is_woken(&cluster, name), "{name} has no room, or was not refused");
    }
    // The scheduler asks again, and another pod goes just after the refusal.
    let large = cluster.apiserver.pod("ns/large");
    assert_eq!(cluster.filter(&large, &["n1", "n2"]).await["NodeNames"], json!([]));
    cluster.apiserver.delete("ns/b");
    until_woken(&cluster, "large").await;
}
