//! Tests the device plugin with a kubelet and an apiserver that answer like real ones, over real sockets.

mod authority;
mod foreign;
mod kills;
mod node;
mod refusals;
mod resize;

use crate::kubelet::{container, until};
use node::{Node, uuid};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_starts_in_its_slice_and_its_slot_is_free_once_it_is_gone() {
    let node = Node::start(2, false).await;
    let pod = node.placed("a", &[1], 4096, 30);
    node.kubelet.admit(&pod, 1).await.unwrap();
    assert_eq!(node.environment(&pod), None, "its slice is not chosen yet");
    node.kubelet.pre_start(&pod).await.unwrap();
    let environment = node.environment(&pod).unwrap();
    for item in [
        format!("GPU_MEM_LIMIT={}={}", uuid(1), 4096_u64 << 20),
        format!("GPU_CORE_PERCENT={}=30", uuid(1)),
        format!("NVIDIA_VISIBLE_DEVICES={}", uuid(1)),
    ] {
        assert!(environment.contains(&item), "{environment:?}");
    }
    node.kubelet.forget(&pod);
    node.apiserver.delete("ns/a");
    until("nothing is left", || node.files().is_empty()).await;
}

/// The plugin offers no advice on slots, because a slot stands for no GPU. It must still answer a kubelet that asks, with no
/// preference. An error could fail the pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugin_prefers_no_slot_and_says_so() {
    let node = Node::start(1, false).await;
    assert_eq!(node.kubelet.preferred(2).await.unwrap(), Vec::<String>::new());
}

/// Starts pods at the same time. The extender has bound them in another order than that in which the kubelet admits them. Three
/// pods each have the same amounts, on different GPUs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_six_pods_that_start_together_have_their_own_slices() {
    let node = std::sync::Arc::new(Node::start(3, false).await);
    let place = |at: u32| node.placed(&format!("p{at}"), &[at % 3], u64::from(at / 3) + 100, 5);
    let pods: Vec<_> = (0..36).map(place).collect();
    for pod in pods.iter().rev() {
        node.kubelet.admit(pod, 1).await.unwrap();
    }
    let mut starts = JoinSet::new();
    for pod in &pods {
        let (node, pod) = (std::sync::Arc::clone(&node), pod.clone());
        starts.spawn(async move { node.kubelet.start(&pod).await });
    }
    starts.join_all().await;
    let mismatches = pods.iter().filter(|pod| !node.has_its_slice(pod)).count();
    assert_eq!(mismatches, 0);
    let slots: BTreeSet<_> = node.kubelet.with(|state| state.named.values().flatten().cloned().collect());
    assert_eq!(slots.len(), 36);
    println!("36 pods at once: {mismatches} mismatches");
}

/// Starts the containers of a pod in another order than that of their admission.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_container_of_a_pod_has_its_own_slice_in_any_order() {
    let node = Node::start(2, false).await;
    let [first, second] = node.placed_two("a", [(0, 1000), (1, 3000)]);
    node.kubelet.admit(&first, 1).await.unwrap();
    node.kubelet.run(&second, 1).await;
    assert_eq!(node.environment(&first), None, "it has not started");
    node.kubelet.pre_start(&first).await.unwrap();
    assert_eq!([&first, &second].map(|container| node.limit(container)), [Some(1000), Some(3000)]);
    assert!([&first, &second].into_iter().all(|container| node.has_its_slice(container)));
}

/// Starts a container after others that ask for no slice, such as those that a service mesh injects. So its place in the pod
/// differs from its place among the slices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_behind_others_without_slices_has_its_own_amounts() {
    let node = Node::start(2, false).await;
    let [first, second] = node.placed_two("a", [(0, 1000), (1, 3000)]);
    node.apiserver.change("ns/a", |pod| {
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.insert(0, json!({"name": "proxy", "resources": {"limits": {"cpu": "1"}}}));
        containers.insert(2, json!({"name": "logs"}));
        let init = json!({"name": "init"});
        let sidecar = json!({"name": "sidecar", "restartPolicy": "Always"});
        pod["spec"]["initContainers"] = json!([init, sidecar]);
    });
    for container in [&second, &first] {
        node.kubelet.run(container, 1).await;
        assert!(node.has_its_slice(container), "{container:?}");
    }
    assert_eq!([&first, &second].map(|container| node.limit(container)), [Some(1000), Some(3000)]);
}

/// Checks the mounts of two pods. Files that both pods can see must be read-only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pods_have_no_folder_of_the_host_in_common() {
    let node = Node::start(1, false).await;
    let pods = ["a", "b"].map(|name| node.placed(name, &[0], 1000, 10));
    for pod in &pods {
        node.kubelet.run(pod, 1).await;
    }
    let library = node.places().state.join("lib");
    let preload = node.places().state.join("ld.so.preload");
    let [first, second] = pods.each_ref().map(|pod| {
        let (shared, own): (Vec<_>, Vec<_>) = node
            .mounts(pod)
            .into_iter()
            .partition(|(host, _)| host.starts_with(&library) || *host == preload);
        assert!(shared.iter().all(|(_, is_writable)| !is_writable), "{shared:?}");
        own.into_iter().map(|(host, _)| host).collect::<Vec<_>>()
    });
    assert_eq!((first.len(), second.len()), (2, 2), "{first:?} {second:?}");
    for one in &first {
        let meets = |other: &&std::path::PathBuf| one.starts_with(other) || other.starts_with(one);
        assert_eq!(second.iter().find(meets), None, "{one:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_with_several_slices_is_one_slice_of_several_gpus_in_both_forms_of_the_list() {
    let node = Node::start(2, false).await;
    for (name, is_grouped) in [("a", false), ("b", true)] {
        node.kubelet.with(|state| state.is_grouped = is_grouped);
        let pod = node.placed(name, &[0, 1], 2048, 10);
        node.kubelet.run(&pod, 2).await;
        let environment = node.environment(&pod).unwrap();
        let limit = format!("GPU_MEM_LIMIT={}={2},{}={2}", uuid(0), uuid(1), 2048_u64 << 20);
        assert!(environment.contains(&limit), "{environment:?}");
    }
}

/// The kubelet lists the devices of all resources. Another plugin may have one device for each MiB of a GPU.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_more_than_four_mib_is_read() {
    let node = Node::start(1, false).await;
    node.kubelet.with(|state| state.others = 400_000);
    let pod = node.placed("a", &[0], 2048, 10);
    node.kubelet.run(&pod, 1).await;
    assert_eq!(node.limit(&pod), Some(2048));
}

/// Starts an init container. The kubelet does not list it, and gives its slot to a later container.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_init_container_runs_in_the_slice_of_the_container_that_has_its_slot_next() {
    let node = Node::start(1, false).await;
    let app = node.placed("a", &[0], 2048, 10);
    let init = ("ns".to_owned(), "a".to_owned(), "init".to_owned());
    node.kubelet.with(|state| state.hidden.insert(init.clone()));
    node.kubelet.admit(&init, 1).await.unwrap();
    let slot = node.kubelet.with(|state| state.allocated[&init].clone());
    node.kubelet.admit_with(&app, slot).await.unwrap();
    node.kubelet.pre_start(&init).await.unwrap();
    assert_eq!(node.limit(&init), Some(2048));
    node.kubelet.pre_start(&app).await.unwrap();
    assert_eq!(node.limit(&app), Some(2048));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_of_gpus_has_their_numa_nodes() {
    let node = Node::new(2).await;
    let make = |path: &str, content: &str| {
        let path = node.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    make("proc/driver/nvidia/gpus/0000:01:00.0/information", &format!("GPU UUID: \t {}\n", uuid(1)));
    make("sys/bus/pci/devices/0000:01:00.0/numa_node", "1\n");
    node.begin();
    let numa = || {
        let annotations = node.apiserver.node(node::NODE)["metadata"]["annotations"].clone();
        let inventory: serde_json::Value =
            serde_json::from_str(annotations["gpuslice.dev/inventory"].as_str()?).unwrap();
        Some([0, 1].map(|gpu: usize| inventory["gpus"][gpu]["numa"].as_u64()))
    };
    until("the numbers", || numa() == Some([None, Some(1)])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_has_the_sums_of_its_gpus_and_gets_them_again_after_a_removal() {
    let node = Node::start(2, false).await;
    let sums = || {
        let capacity = node.apiserver.node(node::NODE)["status"]["capacity"].clone();
        (capacity["gpuslice.dev/memory-mib"].clone(), capacity["gpuslice.dev/core-percent"].clone())
    };
    until("the sums", || sums() == ("32768".into(), "200".into())).await;
    node.apiserver.change_node(node::NODE, |node| {
        node["status"]["capacity"] = serde_json::json!({"gpuslice.dev/memory-mib": "32768"});
    });
    until("the sums again", || sums() == ("32768".into(), "200".into())).await;
    node.has_gpus(2, 1);
    until("those of one GPU", || sums() == ("16384".into(), "100".into())).await;
    // Containers keep their slots.
    node.kubelet.sees(16).await;
    node.has_gpus(2, 2);
    node.kubelet.sees(32).await;
    until("both", || sums() == ("32768".into(), "200".into())).await;
    // The plugin writes nothing while nothing changes.
    let writes = node.apiserver.node_writes();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(node.apiserver.node_writes(), writes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gpu_needs_no_extender() {
    let node = Node::start(1, true).await;
    let first = node.pod("a", 1, 12_000, 50);
    node.kubelet.run(&first, 1).await;
    assert_eq!(node.limit(&first), Some(12_000));
    let second = node.pod("b", 1, 12_000, 50);
    node.kubelet.admit(&second, 1).await.unwrap();
    let why = node.kubelet.pre_start(&second).await.unwrap_err();
    assert!(why.message().contains("12000 MiB") && why.message().contains("at most 4384 MiB"), "{why}");
    // A container that starts again gets its former parts.
    node.kubelet.pre_start(&first).await.unwrap();
    node.kubelet.forget(&first);
    node.apiserver.delete("ns/a");
    node.kubelet.pre_start(&second).await.unwrap();
    assert_eq!(node.limit(&second), Some(12_000));
    assert_eq!(container("b"), second);
}
