//! Tests that a node in one mode accepts no pods of the other mode. Both modes would give away the same GPU.

use super::node::{NODE, Node};
use crate::kubelet::{Kubelet, container};
use gpuslice_kubernetes::api::Client;
use gpuslice_kubernetes::{dra, plugin};
use serde_json::json;
use std::fs;
use std::slice::from_ref;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_claims_is_refused_to_the_device_plugin() {
    let node = Node::start(1).await;
    let client = Client::new(&format!("http://{}", node.address), None, None).unwrap();
    let claim = node.claim("a", 0, "1Gi", 10);
    node.manager.prepare(from_ref(&claim)).await.unwrap();
    node.kill();
    let places = node.places();
    let clear = || dra::sweep::clear(&places, &client, NODE, Duration::from_secs(5));
    let why = clear().await.unwrap_err();
    assert!(why.contains("this node has the claims ns/a of the mode \"dra\""), "{why}");
    node.apiserver.fail(true);
    assert!(clear().await.unwrap_err().contains("503"), "no answer is no reason to go on");
    assert!(node.has_only(from_ref(&claim)));
    node.apiserver.fail(false);
    node.apiserver.delete_claim("ns/a");
    clear().await.unwrap();
    assert!(node.has_only(&[]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_slots_is_refused_to_claims_and_its_sums_go() {
    let node = Node::new(1).await;
    let client = Client::new(&format!("http://{}", node.address), None, None).unwrap();
    let folder = node.manager.socket().ancestors().nth(3).unwrap().to_owned();
    let places = node.places();
    let clear = || plugin::clear(&places, &folder, &client, NODE);
    assert!(clear().await.unwrap_err().contains("the kubelet's list"), "no answer is no reason to go on");
    let mut kubelet = Kubelet::new(&folder);
    kubelet.begin();
    kubelet.with(|state| state.allocated.insert(container("a"), vec!["slot-3".to_owned()]));
    node.apiserver.change_node(NODE, |node| {
        node["metadata"]["annotations"] = json!({"gpuslice.dev/inventory": "x", "other": "y"});
        let sums =
            json!({"gpuslice.dev/memory-mib": "16384", "gpuslice.dev/core-percent": "100", "cpu": "8"});
        node["status"] = json!({"capacity": sums, "allocatable": sums});
    });
    let [slot, foreign] = ["slot-3", "train"].map(|name| places.slots().join(name));
    for folder in [&slot, &foreign] {
        fs::create_dir_all(folder).unwrap();
    }
    let why = clear().await.unwrap_err();
    assert!(why.contains("this node has the pods ns/a with slots of the mode \"device-plugin\""), "{why}");
    assert!(slot.exists());
    kubelet.forget(&container("a"));
    // A kubelet that has just started lists no pod. The apiserver tells which owners of slots still live.
    let owner = json!({"namespace": "ns", "pod": "a", "uid": "uid-a", "container": "main", "slots": ["slot-3"], "parts": []});
    fs::write(slot.join("pod.json"), owner.to_string()).unwrap();
    let metadata = json!({"namespace": "ns", "name": "a", "uid": "uid-a"});
    node.apiserver
        .put(&json!({"metadata": metadata, "spec": {"nodeName": NODE}, "status": {"phase": "Running"}}));
    let why = clear().await.unwrap_err();
    assert!(why.contains("this node has the pods ns/a with slots of the mode \"device-plugin\""), "{why}");
    node.apiserver.fail(true);
    assert!(clear().await.unwrap_err().contains("503"), "no answer is no reason to go on");
    assert!(slot.exists());
    node.apiserver.fail(false);
    node.apiserver.change("ns/a", |pod| pod["status"]["phase"] = json!("Succeeded"));
    clear().await.unwrap();
    assert!(!slot.exists() && foreign.exists());
    let found = node.apiserver.node(NODE);
    assert_eq!(found["metadata"]["annotations"], json!({"other": "y"}));
    assert_eq!(found["status"], json!({"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}}));
}
