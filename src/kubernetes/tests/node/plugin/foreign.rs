//! Tests a node on which another device plugin gives away the same GPUs.

use super::node::{NODE, Node};
use crate::kubelet::until;
use serde_json::json;

/// Gives the node a resource of another plugin.
fn offer(node: &Node, resource: &str, count: &str) {
    node.apiserver.change_node(NODE, |node| node["status"]["capacity"][resource] = json!(count));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_has_no_list_of_gpus_while_another_plugin_gives_them_away() {
    let node = Node::start(2, false).await;
    until("the list of GPUs", || node.has_inventory()).await;
    for resource in ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"] {
        offer(&node, resource, "2");
        until("the list is taken away", || !node.has_inventory()).await;
        node.looks_twice().await;
        assert!(!node.has_inventory());
        let reason = format!("the node n1 is offered to no pod: it has {resource}, by which another plugin");
        assert_eq!(node.log().matches(&reason).count(), 1, "{}", node.log());
        // The kubelet keeps the resource of a removed plugin, with the amount 0.
        offer(&node, resource, "0");
        until("the list of GPUs again", || node.has_inventory()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_places_no_container_itself_beside_another_plugin_and_those_that_run_start_again() {
    let node = Node::start(1, true).await;
    let [running, new] = ["a", "b"].map(|name| node.pod(name, 1, 1000, 10));
    node.kubelet.run(&running, 1).await;
    until("the list of GPUs", || node.has_inventory()).await;
    offer(&node, "nvidia.com/gpu", "1");
    until("the list is taken away", || !node.has_inventory()).await;
    node.kubelet.admit(&new, 1).await.unwrap();
    let why = node.kubelet.pre_start(&new).await.unwrap_err();
    assert!(why.message().contains("this node gives no slice away: it has nvidia.com/gpu"), "{why}");
    assert_eq!(node.environment(&new), None);
    node.kubelet.pre_start(&running).await.unwrap();
    offer(&node, "nvidia.com/gpu", "0");
    node.kubelet.start(&new).await;
    assert_eq!(node.limit(&new), Some(1000));
}
