//! Tests that no files of a removed pod stay, even if the plugin and the kubelet end at any time.

use super::node::{GRACE, NODE, Node, alloc};
use crate::kubelet::until;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubelet_that_starts_again_gets_its_plugin_back_and_containers_keep_their_slots() {
    let mut node = Node::start(1, false).await;
    let pod = node.placed("a", &[0], 1000, 10);
    node.kubelet.admit(&pod, 1).await.unwrap();
    for times in 2..5 {
        node.kubelet.end();
        node.kubelet.begin();
        node.kubelet.sees(16).await;
        assert_eq!(node.kubelet.with(|state| state.registrations), times);
        node.kubelet.start(&pod).await;
        assert_eq!(node.limit(&pod), Some(1000));
    }
    // The stream of devices breaks, and the plugin does not restart.
    node.kubelet.with(|state| state.healthy = None);
    node.kubelet.end();
    assert!(node.kubelet.pre_start(&pod).await.is_err());
    node.kubelet.begin();
    node.kubelet.start(&pod).await;
}

/// A restarted kubelet answers with an empty list until it has read its pods.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_container_that_the_kubelet_does_not_list_keeps_its_files_until_its_pod_is_gone() {
    for is_down in [false, true] {
        let mut node = Node::start(1, false).await;
        let pod = node.placed("a", &[0], 1000, 10);
        node.kubelet.run(&pod, 1).await;
        node.looks_beyond_the_grace().await;
        node.kubelet.end();
        node.kubelet.with(|state| state.hidden.insert(pod.clone()));
        node.apiserver.fail(is_down);
        node.kubelet.begin();
        node.kubelet.sees(16).await;
        node.looks_beyond_the_grace().await;
        assert_eq!(node.limit(&pod), Some(1000), "is_down: {is_down}");
        node.apiserver.fail(false);
        // If the apiserver fails to list the pods, the plugin must not treat this as an empty list.
        node.apiserver.fail_lists_of(Some("pods"));
        node.looks_beyond_the_grace().await;
        assert_eq!(node.limit(&pod), Some(1000), "is_down: {is_down}");
        node.apiserver.delete("ns/a");
        node.looks_beyond_the_grace().await;
        assert_eq!(node.limit(&pod), Some(1000), "is_down: {is_down}");
        node.apiserver.fail_lists_of(None);
        until("nothing is left", || node.files().is_empty()).await;
    }
}

/// A client deletes a pod by force. Its container may run on for a moment, although no list has the pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_of_a_deleted_pod_stay_for_the_grace_however_old_the_pod_is() {
    let node = Node::start(1, false).await;
    let pod = node.placed("a", &[0], 1000, 10);
    node.kubelet.run(&pod, 1).await;
    node.looks_beyond_the_grace().await;
    let gone = Instant::now();
    node.kubelet.forget(&pod);
    node.apiserver.delete("ns/a");
    until("nothing is left", || node.files().is_empty()).await;
    assert!(gone.elapsed() >= GRACE, "{:?}", gone.elapsed());
}

/// A kubelet restarts without its checkpoint. It assigns other slots to the running containers. A container gets its new slot
/// when it starts again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubelet_that_has_lost_its_checkpoint_takes_no_files_from_running_containers() {
    let mut node = Node::start(1, false).await;
    let pods = ["a", "b"].map(|name| node.placed(name, &[0], 8192, 50));
    for pod in &pods {
        node.kubelet.run(pod, 1).await;
    }
    let before = files(&node);
    let slots: Vec<String> = node.kubelet.with(|state| {
        let slots = state.allocated.values().flatten().cloned().collect();
        state.allocated.clear();
        state.named.clear();
        slots
    });
    node.kubelet.end();
    node.kubelet.begin();
    node.kubelet.sees(16).await;
    let mut others = node.kubelet.with(|state| state.healthy.clone()).unwrap();
    others.retain(|slot| !slots.contains(slot));
    for (pod, slot) in pods.iter().zip(others) {
        node.kubelet.admit_with(pod, vec![slot]).await.unwrap();
    }
    node.looks_beyond_the_grace().await;
    assert_eq!(files(&node), before);
    for pod in &pods {
        node.kubelet.start(pod).await;
        assert_eq!(node.limit(pod), Some(8192));
        assert_eq!(node.files().len(), 6, "the slot before is released: {:?}", node.files());
    }
    for (name, pod) in ["ns/a", "ns/b"].into_iter().zip(&pods) {
        node.kubelet.forget(pod);
        node.apiserver.delete(name);
    }
    until("nothing is left", || node.files().is_empty()).await;
}

fn files(node: &Node) -> BTreeSet<PathBuf> {
    node.files().into_iter().collect()
}

/// While the kubelet does not know the plugin, the extender must not place a pod there: it would fail permanently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_placed_on_a_node_whose_kubelet_does_not_know_the_plugin() {
    let mut node = Node::new(1).await;
    node.kubelet.end();
    node.begin();
    until("the sums", || node.apiserver.node(NODE)["status"]["capacity"].is_object()).await;
    assert!(!node.has_inventory(), "the kubelet does not run yet");
    for _ in 0..3 {
        node.kubelet.begin();
        until("the list of GPUs", || node.has_inventory()).await;
        assert!(node.kubelet.with(|state| state.registrations) > 0);
        node.kubelet.end();
        until("the list is taken away", || !node.has_inventory()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_ends_takes_its_list_of_gpus_along_and_admits_pods_that_were_bound_before() {
    let node = Node::start(1, false).await;
    until("the list of GPUs", || node.has_inventory()).await;
    let pod = node.placed("a", &[0], 1000, 10);
    node.terminate();
    until("the list is taken away", || !node.has_inventory()).await;
    node.kubelet.admit(&pod, 1).await.expect("it was bound before");
    node.kubelet.pre_start(&pod).await.unwrap();
    until("it ends", || node.has_ended()).await;
    assert!(!node.has_inventory());
    node.begin();
    until("its successor has the list", || node.has_inventory()).await;
    assert_eq!(node.limit(&pod), Some(1000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_waits_for_its_kubelet_and_keeps_its_slots_over_a_restart() {
    let mut node = Node::new(1).await;
    node.kubelet.end();
    std::fs::remove_dir_all(node.places().state).ok();
    node.begin();
    node.kubelet.begin();
    node.kubelet.sees(16).await;
    let [first, second] = ["a", "b"].map(|name| node.placed(name, &[0], 10_000, 10));
    node.kubelet.run(&first, 1).await;
    node.kill();
    assert!(node.kubelet.pre_start(&first).await.is_err(), "the container waits");
    node.begin();
    node.kubelet.start(&first).await;
    assert_eq!(node.limit(&first), Some(10_000));
    node.kubelet.admit(&second, 1).await.unwrap();
    let why = node.kubelet.pre_start(&second).await.unwrap_err();
    assert!(why.message().contains("6384 MiB"), "the first one still has its part: {why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_a_killed_plugin_left_are_removed_and_those_of_others_stay() {
    let node = Node::new(1).await;
    let places = node.places();
    let [spec, conf, region, foreign] = [
        places.cdi.join("gpuslice-slot-3.json"),
        places.slots().join("slot-4/conf/config"),
        places.regions.join("slot-5/region"),
        places.slots().join("train/slice.json"),
    ];
    for file in [&spec, &conf, &region, &foreign] {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "{}").unwrap();
    }
    node.begin();
    node.kubelet.sees(16).await;
    assert_eq!(node.files(), [places.slots().join("train")]);
}

/// Kills the plugin at many moments of `Allocate` and `PreStartContainer`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_is_killed_at_any_step_leaks_nothing() {
    let node = Arc::new(Node::start(1, false).await);
    let mut cut_off = 0;
    for round in 0..30_u64 {
        let name = format!("p{round}");
        let pod = node.placed(&name, &[0], 10_000, 60);
        let (running, task) = (Arc::clone(&node), pod.clone());
        let started = tokio::spawn(async move {
            running.kubelet.admit(&task, 1).await?;
            running.kubelet.pre_start(&task).await
        });
        tokio::time::sleep(Duration::from_micros(round * 400)).await;
        node.replace().await;
        let was_done = started.await.unwrap().is_ok();
        cut_off += u32::from(!was_done);
        node.kubelet.sees(16).await;
        // A pod whose `Allocate` failed is gone permanently. Another pod starts after it.
        if node.kubelet.with(|state| state.allocated.contains_key(&pod)) {
            node.kubelet.start(&pod).await;
            assert_eq!(node.limit(&pod), Some(10_000));
        }
        node.kubelet.forget(&pod);
        node.apiserver.delete(&format!("ns/{name}"));
    }
    println!("{cut_off} of 30 starts were cut off");
    assert!(cut_off > 3, "{cut_off}");
    until("nothing is left", || node.files().is_empty()).await;
    let last = node.pod("last", 1, 16_384, 100);
    node.apiserver.annotate("ns/last", &alloc("uid-last", NODE, &[0], 16_384, 100));
    node.kubelet.admit(&last, 1).await.unwrap();
    node.kubelet.start(&last).await;
    node.apiserver.change("ns/last", |pod| pod["status"] = json!({"phase": "Failed"}));
    until("nothing is left of a pod that has ended", || node.files().is_empty()).await;
}
