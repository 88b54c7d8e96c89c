//! Tests refusals before a container starts, and refusals whose reason goes away by itself.

use super::node::{NODE, Node, alloc};
use crate::kubelet::until;
use serde_json::json;

/// Tries to start a container that the plugin must refuse, and returns the reason. The container must have no file after that.
async fn refused(node: &Node, pod: &(String, String, String)) -> String {
    let why = node.kubelet.pre_start(pod).await.unwrap_err().message().to_owned();
    assert_eq!(node.environment(pod), None, "{why}");
    why
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_without_a_placement_waits_and_starts_once_it_is_placed() {
    let node = Node::start(1, false).await;
    let pod = node.pod("a", 1, 1000, 10);
    node.kubelet.admit(&pod, 1).await.unwrap();
    let why = refused(&node, &pod).await;
    assert!(why.contains("ns/a has no annotation gpuslice.dev/alloc"), "{why}");
    node.apiserver.annotate("ns/a", &alloc("uid-a", NODE, &[0], 1000, 10));
    node.kubelet.pre_start(&pod).await.unwrap();
    assert_eq!(node.limit(&pod), Some(1000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_annotation_that_is_not_the_pods_or_does_not_fit_is_refused_with_the_reason() {
    let node = Node::start(1, false).await;
    let other = node.placed("other", &[0], 10_000, 60);
    node.kubelet.run(&other, 1).await;
    let pod = node.pod("a", 1, 7000, 30);
    node.kubelet.admit(&pod, 1).await.unwrap();
    let mut without = alloc("uid-a", NODE, &[0], 7000, 30);
    without["c"] = json!({});
    let mut later = alloc("uid-a", NODE, &[0], 7000, 30);
    later["v"] = json!(2);
    let mut resized = alloc("uid-a", NODE, &[0], 100, 30);
    resized["gen"] = json!(2);
    for (said, has) in [
        (alloc("uid-b", NODE, &[0], 7000, 30), "is of the uid \"uid-b\""),
        (alloc("uid-a", "n2", &[0], 7000, 30), "is of the node \"n2\""),
        (without, "does not have the container main"),
        (later, "has the version 2"),
        (alloc("uid-a", NODE, &[0, 0], 7000, 30), "has 2 parts on 1 GPUs"),
        (alloc("uid-a", NODE, &[7], 7000, 30), "is no GPU of this node"),
        // The pod's owner has written this annotation.
        (alloc("uid-a", NODE, &[0], 100, 30), "which asks for 7000 MiB and 30 %"),
        (resized, "which asks for 7000 MiB and 30 %; kubernetes.resize is off on this node"),
        (alloc("uid-a", NODE, &[0], 7000, 30), "6384 MiB and 40 % are left"),
    ] {
        node.apiserver.annotate("ns/a", &said);
        let why = refused(&node, &pod).await;
        assert!(why.contains(has), "{why}");
    }
    node.apiserver.change("ns/a", |pod| pod["spec"]["nodeName"] = json!("n2"));
    assert!(refused(&node, &pod).await.contains("is on the node \"n2\""));
    // The other pod has ended. The kubelet still lists it, as old kubelets do.
    node.apiserver.change("ns/a", |pod| pod["spec"]["nodeName"] = json!(NODE));
    node.apiserver.change("ns/other", |pod| pod["status"]["phase"] = json!("Succeeded"));
    node.kubelet.start(&pod).await;
    assert_eq!(node.limit(&pod), Some(7000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_apiserver_a_container_starts_again_and_no_other_one_starts() {
    let node = Node::start(1, false).await;
    let [running, new] = ["a", "b"].map(|name| node.placed(name, &[0], 1000, 10));
    node.kubelet.run(&running, 1).await;
    node.apiserver.fail(true);
    node.kubelet.pre_start(&running).await.unwrap();
    // After a restart of the machine, /run is empty: specifications and regions are gone.
    let places = node.places();
    let folders = [&places.cdi, &places.regions];
    assert!(folders.iter().all(|folder| std::fs::read_dir(folder).unwrap().count() > 0), "{folders:?}");
    for folder in folders {
        std::fs::remove_dir_all(folder).unwrap();
    }
    node.kubelet.pre_start(&running).await.unwrap();
    assert_eq!(node.limit(&running), Some(1000));
    node.kubelet.admit(&new, 1).await.unwrap();
    let why = refused(&node, &new).await;
    assert!(why.contains("apiserver"), "{why}");
    // The kubelet gives the slot to another container before the first one has released it.
    let slot = node.kubelet.with(|state| state.allocated[&running].clone());
    node.kubelet.forget(&running);
    let next = node.placed("next", &[0], 500, 5);
    node.kubelet.admit_with(&next, slot).await.unwrap();
    refused(&node, &next).await;
    node.apiserver.fail(false);
    node.kubelet.pre_start(&next).await.unwrap();
    assert_eq!(node.limit(&next), Some(500));
}

/// `Allocate` must never fail, because the kubelet would end the pod and never try again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocate_succeeds_on_a_node_with_any_fault() {
    let node = Node::start(1, false).await;
    let pod = node.placed("a", &[0], 1000, 10);
    // Files are in the place of the folders.
    for folder in [node.places().cdi, node.places().slots(), node.places().regions] {
        std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
        let _there = std::fs::remove_dir_all(&folder);
        std::fs::write(&folder, "").unwrap();
    }
    node.apiserver.fail(true);
    node.kubelet.admit(&pod, 1).await.unwrap();
    let strange = ["../../etc", "", "slot-x", "slot-99999999999"].map(str::to_owned).to_vec();
    node.kubelet.admit_with(&pod, strange).await.unwrap();
    assert_eq!(node.kubelet.with(|state| state.named[&pod].len()), 0, "no name leads out of the folder");
    node.kubelet.admit(&pod, 1).await.unwrap();
    node.apiserver.fail(false);
    let why = node.kubelet.pre_start(&pod).await.unwrap_err();
    assert!(why.message().contains("cannot make this folder"), "{why}");
    for folder in [node.places().cdi, node.places().slots(), node.places().regions] {
        std::fs::remove_file(folder).unwrap();
    }
    node.kubelet.pre_start(&pod).await.unwrap();
    assert_eq!(node.limit(&pod), Some(1000));
}

/// A stateful set makes its pod again under the same name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pods_of_one_name_after_each_other_do_not_share_a_slice() {
    let node = Node::start(1, false).await;
    let pod = node.placed("a", &[0], 1000, 10);
    node.kubelet.run(&pod, 1).await;
    let slot = node.kubelet.with(|state| state.allocated[&pod].clone());
    let name: gpuslice_slices::slot::Name = slot[0].parse().unwrap();
    let mark = node.places().region(&name).with_file_name("mark");
    std::fs::write(&mark, "").unwrap();
    node.kubelet.forget(&pod);
    let again = node.pod("a", 1, 2000, 20);
    node.apiserver.change("ns/a", |pod| pod["metadata"]["uid"] = json!("second"));
    node.kubelet.admit_with(&again, slot).await.unwrap();
    node.apiserver.annotate("ns/a", &alloc("uid-a", NODE, &[0], 1000, 10));
    assert!(refused(&node, &again).await.contains("is of the uid"));
    node.apiserver.annotate("ns/a", &alloc("second", NODE, &[0], 2000, 20));
    node.kubelet.pre_start(&again).await.unwrap();
    assert_eq!(node.limit(&again), Some(2000));
    assert!(!mark.exists(), "the region is that of the pod before");
    until("one slot", || node.files().len() == 3).await;
}
