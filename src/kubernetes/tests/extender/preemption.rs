//! Tests evictions that make room for pods of higher priority.

use crate::cluster::{Cluster, pod};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::{Duration, Instant};

fn prior(name: &str, priority: i32, memory: u32) -> Value {
    let mut pod = pod(name, 1, memory, 10);
    pod["spec"]["priority"] = priority.into();
    pod
}

/// Starts a node with two GPUs. Two small pods are on the first GPU, and a large pod is on the second.
async fn two_gpus() -> Cluster {
    let cluster = Cluster::start(&[("n1", 2)]).await;
    for (name, priority, memory) in [("small-1", 1, 8000), ("small-2", 2, 8000), ("large", 3, 16_000)] {
        cluster.apiserver.put(&prior(name, priority, memory));
        assert_eq!(cluster.bind(name, "n1").await, "");
    }
    // The extender can choose a pod for eviction once the apiserver has told it that the pod is bound.
    let end = Instant::now() + crate::PATIENCE;
    let asked = prior("new", 9, 16_000);
    while cluster.preempt(&asked, &json!({"n1": []})).await != on_n1(&["small-2", "small-1"]) {
        assert!(Instant::now() < end, "the extender does not see its own bindings");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cluster
}

fn on_n1(uids: &[&str]) -> HashMap<String, Vec<String>> {
    HashMap::from([("n1".to_owned(), uids.iter().map(|name| format!("uid-{name}")).collect())])
}

/// After the eviction of one small pod, the sum of the node has room, and no single GPU has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_pods_are_evicted_where_those_of_the_scheduler_free_no_gpu() {
    let cluster = two_gpus().await;
    let victims = json!({"n1": ["small-1"]});
    // One small pod is enough.
    assert_eq!(cluster.preempt(&prior("new", 9, 8000), &victims).await, on_n1(&["small-1"]));
    // The two pods of low priority on one GPU go, and not the one pod of higher priority on the other GPU.
    assert_eq!(cluster.preempt(&prior("new", 9, 16_000), &victims).await, on_n1(&["small-1", "small-2"]));
    // Pods of the same priority stay, so nothing helps. The extender keeps a choice of the scheduler that it does not know.
    assert_eq!(cluster.preempt(&prior("new", 2, 16_000), &victims).await, HashMap::new());
    assert_eq!(
        cluster.preempt(&prior("new", 2, 8000), &json!({"n1": ["other"]})).await,
        on_n1(&["other", "small-1"])
    );
    assert_eq!(cluster.preempt(&prior("new", 9, 8000), &json!({"lost": ["x"]})).await, HashMap::new());
}

fn budget(allowed: u32) -> Value {
    json!({"metadata": {"namespace": "ns", "name": "b"}, "spec": {"selector": {"matchLabels": {"app": "a"}}},
        "status": {"disruptionsAllowed": allowed}})
}

/// Waits until the extender evicts these pods. The scheduler's choice is one more pod, which is elsewhere and violates a
/// budget.
async fn until_evicted(cluster: &Cluster, asked: &Value, pods: &[&str], violations: i64) {
    let end = Instant::now() + crate::PATIENCE;
    let uids = on_n1(&[&["other"], pods].concat()).remove("n1").unwrap();
    let expected = HashMap::from([("n1".to_owned(), (uids, 1 + violations))]);
    loop {
        let evicted = cluster.evict(asked, &json!({"n1": ["other"]})).await;
        if evicted == expected {
            return;
        }
        assert!(Instant::now() < end, "{evicted:?} are evicted, and not {expected:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_whose_budget_allows_no_eviction_stay_where_others_are_enough_and_are_counted_otherwise() {
    let cluster = two_gpus().await;
    for name in ["small-1", "small-2"] {
        cluster
            .apiserver
            .change(&format!("ns/{name}"), |pod| pod["metadata"]["labels"] = json!({"app": "a"}));
    }
    let (small, whole, two) = (prior("new", 9, 8000), prior("new", 9, 16_000), {
        let mut pod = pod("new", 2, 32_000, 10);
        pod["spec"]["priority"] = 9.into();
        pod
    });
    until_evicted(&cluster, &small, &["small-1"], 0).await;
    // The budget forbids the eviction of the small pods. So the large pod goes, although it is more important.
    cluster.apiserver.put_budget(&budget(0));
    until_evicted(&cluster, &small, &["large"], 0).await;
    until_evicted(&cluster, &two, &["small-2", "small-1", "large"], 2).await;
    // The budget allows the eviction of one small pod. The more important one, `small-2`, counts first, so it may go.
    cluster.apiserver.put_budget(&budget(1));
    until_evicted(&cluster, &small, &["small-2"], 0).await;
    until_evicted(&cluster, &two, &["small-1", "large", "small-2"], 1).await;
    // The scheduler's own choice has used up the budget.
    let evicted = cluster.evict(&whole, &json!({"n1": ["small-2"]})).await;
    assert_eq!(evicted["n1"], (vec!["uid-small-2".to_owned(), "uid-large".to_owned()], 1));
    cluster.apiserver.delete_budget("ns/b");
    until_evicted(&cluster, &small, &["small-1"], 0).await;
}

/// A pod waits until another pod has ended. In that time, a pod of low priority must not take the room that is already free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_is_kept_for_a_pod_for_which_others_are_evicted() {
    let cluster = two_gpus().await;
    cluster.apiserver.delete("ns/small-1");
    let mut waiting = prior("waiting", 9, 16_000);
    cluster.apiserver.put(&waiting);
    waiting["status"]["nominatedNodeName"] = "n1".into();
    cluster.apiserver.put(&waiting);
    cluster
        .apiserver
        .change("ns/small-2", |pod| pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    // The pod `above` fits once the extender has seen that the first pod is gone. After that, only the kept room can refuse the
    // others.
    for (name, priority, fits) in [("above", 10, true), ("below", 8, false), ("same", 9, false)] {
        cluster.apiserver.put(&prior(name, priority, 8000));
        if fits {
            cluster.until_it_fits(name, "n1").await;
        } else {
            until_refused(&cluster, name).await;
            let error = cluster.bind(name, "n1").await;
            assert!(error.contains("8000 MiB"), "{error}");
        }
    }
    assert!(cluster.bind("waiting", "n1").await.contains("16000 MiB"));
    cluster.apiserver.delete("ns/small-2");
    cluster.until_it_fits("waiting", "n1").await;
    assert_eq!(cluster.bind("waiting", "n1").await, "");
}

/// Waits until the extender refuses the pod, because it keeps the room for another one.
async fn until_refused(cluster: &Cluster, name: &str) {
    let (pod, end) = (cluster.apiserver.pod(&format!("ns/{name}")), Instant::now() + crate::PATIENCE);
    while cluster.filter(&pod, &["n1"]).await["NodeNames"] == json!(["n1"]) {
        assert!(Instant::now() < end, "{name} has room");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
