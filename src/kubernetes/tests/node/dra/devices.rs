//! Tests the node's devices in the apiserver, and their health in the kubelet.

use super::node::{NODE, Node, device, uuid};
use crate::kubelet::until;
use gpuslice_kubernetes::grpc::dra_health::v1alpha1::{HealthStatus, NodeWatchResourcesResponse};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;
use tonic::Streaming;

fn of(slice: &Value) -> &Vec<Value> {
    slice["spec"]["devices"].as_array().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_gpu_is_a_device_in_one_list_that_goes_with_the_node() {
    let node = Node::new(2).await;
    let information = node.root().join("proc/driver/nvidia/gpus/0000:41:00.0/information");
    fs::create_dir_all(information.parent().unwrap()).unwrap();
    fs::write(information, format!("GPU UUID: \t {}\n", uuid(1))).unwrap();
    node.begin();
    let slice = node.devices("two devices", |slice| of(slice).len() == 2).await;
    let spec = &slice["spec"];
    assert_eq!((&spec["driver"], &spec["nodeName"]), (&json!("gpuslice.dev"), &json!(NODE)));
    assert_eq!(spec["pool"], json!({"name": NODE, "generation": 1, "resourceSliceCount": 1}));
    let owner = &slice["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Node"), &json!("uid-n1")));
    let second = &of(&slice)[1];
    assert_eq!(second["name"], device(1));
    assert_eq!(second["allowMultipleAllocations"], true);
    assert_eq!(second["attributes"]["uuid"]["string"], uuid(1));
    assert_eq!(second["attributes"]["resource.kubernetes.io/pciBusID"]["string"], "0000:41:00.0");
    assert_eq!(second["capacity"]["memory"]["value"], "16Gi");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_follows_the_gpus_and_comes_again_and_nothing_is_written_for_nothing() {
    let node = Node::start(2).await;
    node.devices("two devices", |slice| of(slice).len() == 2).await;
    node.has_gpus(2, 1);
    let slice = node.devices("a taint", |slice| of(slice)[1].get("taints").is_some()).await;
    assert_eq!(slice["spec"]["pool"]["generation"], 2);
    assert_eq!(of(&slice)[1]["taints"][0]["effect"], "NoSchedule");
    assert_eq!(of(&slice)[0].get("taints"), None);
    // The apiserver adds the time of the taint. That is no reason for the driver to write.
    let writes = node.apiserver.slice_writes();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(node.apiserver.slice_writes(), writes);
    node.has_gpus(2, 2);
    let slice = node.devices("no taint", |slice| of(slice)[1].get("taints").is_none()).await;
    assert_eq!(slice["spec"]["pool"]["generation"], 3);
    // A restarted driver finds the list unchanged.
    let writes = node.apiserver.slice_writes();
    node.restart().await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(node.apiserver.slice_writes(), writes);
    // A starting kubelet removes the lists of its node.
    node.apiserver.wipe_slices();
    node.manager.registers().await;
    node.devices("it again", |slice| of(slice).len() == 2).await;
    // Another client changes the list.
    let mut changed = node.apiserver.slices().remove(0);
    changed["spec"]["devices"] = json!([]);
    node.apiserver.put_slice(&changed);
    node.devices("both devices again", |slice| of(slice).len() == 2).await;
    assert_eq!(node.apiserver.slices().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_are_not_the_drivers_are_removed_and_those_of_others_stay() {
    let node = Node::new(1).await;
    let list = |name: &str, driver: &str, on: &str, pool: &str, generation: i64| {
        let pool = json!({"name": pool, "generation": generation, "resourceSliceCount": 1});
        node.apiserver.put_slice(&json!({
            "metadata": {"name": name},
            "spec": {"driver": driver, "nodeName": on, "pool": pool, "devices": []},
        }));
    };
    list("older", "gpuslice.dev", NODE, NODE, 6);
    list("newest", "gpuslice.dev", NODE, NODE, 7);
    list("other-pool", "gpuslice.dev", NODE, "gpus", 1);
    list("other-node", "gpuslice.dev", "n2", "n2", 1);
    list("other-driver", "gpu.example.com", NODE, NODE, 1);
    node.begin();
    let names = || {
        let slices = node.apiserver.slices();
        let names = slices.iter().map(|slice| slice["metadata"]["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    until("three are left", || names() == ["newest", "other-driver", "other-node"]).await;
    let ours = node.devices("the device", |slice| !of(slice).is_empty()).await;
    assert_eq!(
        (&ours["metadata"]["name"], &ours["spec"]["pool"]["generation"]),
        (&json!("newest"), &json!(8))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apiserver_that_keeps_no_taints_has_no_device_that_does_not_work() {
    let node = Node::new(2).await;
    node.apiserver.drop_fields(&["taints", "allowMultipleAllocations"]);
    node.has_gpus(2, 1);
    node.begin();
    let slice = node.devices("one device", |slice| of(slice).len() == 1).await;
    assert_eq!(of(&slice)[0]["name"], device(0));
    until("a hint", || node.log().contains("each GPU goes to one claim as a whole")).await;
    let writes = node.apiserver.slice_writes();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(node.apiserver.slice_writes(), writes);
    node.has_gpus(2, 2);
    node.devices("both", |slice| of(slice).len() == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_gpus_another_plugin_gives_away_has_no_device() {
    let node = Node::start(2).await;
    node.devices("two devices", |slice| of(slice).len() == 2).await;
    let offer = |count: &str| {
        node.apiserver.change_node(NODE, |node| node["status"]["capacity"]["nvidia.com/gpu"] = json!(count));
    };
    offer("2");
    node.devices("no device", |slice| of(slice).is_empty()).await;
    assert!(
        node.log().contains("the node n1 is offered to no claim: it has nvidia.com/gpu"),
        "{}",
        node.log()
    );
    offer("0");
    node.devices("two devices again", |slice| of(slice).len() == 2).await;
}

/// NVIDIA's driver publishes whole GPUs on this node. A list of another node, and an empty list, have no effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_gpus_another_driver_gives_away_has_no_device() {
    let node = Node::new(2).await;
    let publish = |on: &str, devices: Value| {
        node.apiserver.put_slice(&json!({
            "metadata": {"name": format!("{on}-gpu.nvidia.com-abcde")},
            "spec": {"driver": "gpu.nvidia.com", "nodeName": on, "pool": {"name": on, "generation": 1}, "devices": devices},
        }));
    };
    let is_ours = |slice: &Value| slice["spec"]["driver"] == "gpuslice.dev";
    let has_two = |slice: &Value| is_ours(slice) && of(slice).len() == 2;
    let gpu = json!([{"name": "gpu-0", "attributes": {}, "capacity": {}}]);
    publish("n2", gpu.clone());
    publish(NODE, json!([]));
    // The driver reads the lists of other drivers before it writes its own.
    node.begin();
    node.devices("two devices", has_two).await;
    publish(NODE, gpu);
    node.devices("no device", |slice| is_ours(slice) && of(slice).is_empty()).await;
    let reason = "the node n1 is offered to no claim: it has devices of the driver gpu.nvidia.com, by which";
    assert_eq!(node.log().matches(reason).count(), 1, "{}", node.log());
    publish(NODE, json!([]));
    node.devices("two devices again", has_two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apiserver_without_the_api_is_logged_and_asked_again() {
    let node = Node::new(1).await;
    node.apiserver.is_old(true);
    node.begin();
    until("the reason", || node.log().contains("Kubernetes 1.34 and newer")).await;
    node.apiserver.is_old(false);
    node.devices("a device", |slice| of(slice).len() == 1).await;
}

/// Waits until the health of both devices is `expected`.
async fn says(stream: &mut Streaming<NodeWatchResourcesResponse>, expected: [HealthStatus; 2]) -> i64 {
    let asked = tokio::time::timeout(crate::PATIENCE, async {
        loop {
            let devices = stream.message().await.unwrap().expect("it does not end").devices;
            let found: Vec<HealthStatus> = devices.iter().map(|device| device.health()).collect();
            if found == expected {
                let names = devices.iter().map(|device| device.device.clone().unwrap());
                assert!(names.eq((0..2).map(|number| {
                    use gpuslice_kubernetes::grpc::dra_health::v1alpha1::DeviceIdentifier;
                    DeviceIdentifier { pool_name: NODE.to_owned(), device_name: device(number) }
                })));
                assert!(devices.iter().all(|device| device.health_check_timeout_seconds == 30));
                return devices[0].last_updated_time;
            }
        }
    });
    asked.await.expect("the health comes in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubelet_gets_the_health_of_devices_repeatedly() {
    let node = Node::start(2).await;
    let (well, lost) = (HealthStatus::Healthy, HealthStatus::Unhealthy);
    for mut stream in [node.manager.watch_v1alpha1().await, node.manager.watch_v1().await] {
        let first = says(&mut stream, [well, well]).await;
        node.has_gpus(2, 1);
        says(&mut stream, [well, lost]).await;
        node.has_gpus(2, 2);
        // The driver repeats the health with a later time, because the kubelet treats an old health as unknown.
        while says(&mut stream, [well, well]).await <= first {}
    }
}
