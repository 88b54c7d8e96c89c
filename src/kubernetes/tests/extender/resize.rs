//! Tests that running pods get other amounts, if their users want them and the GPUs have room.

use crate::apiserver::Mishap;
use crate::cluster::{Cluster, pod, until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const RESIZE: &str = "gpuslice.dev/resize";

/// Starts a cluster of one GPU of 16 GiB, with bound pods.
async fn cluster(pods: &[(&str, u32)]) -> Cluster {
    let cluster = Cluster::start(&[("n1", 1)]).await;
    for (name, memory) in pods {
        cluster.apiserver.put(&pod(name, 1, *memory, 30));
        assert_eq!(cluster.bind(name, "n1").await, "");
    }
    cluster
}

fn wish(memory: u32, core: u32) -> Value {
    json!({"v": 1, "c": {"main": {"memMiB": memory, "core": core}}})
}

/// Returns the memory, the time and the generation of a pod's annotation.
fn amounts(cluster: &Cluster, name: &str) -> (u64, u64, u64) {
    let alloc = cluster.alloc(name).unwrap();
    let part = &alloc["c"]["main"][0];
    (part["memMiB"].as_u64().unwrap(), part["core"].as_u64().unwrap(), alloc["gen"].as_u64().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_gets_the_amounts_of_its_user_and_others_get_the_rest() {
    let cluster = cluster(&[("a", 4096)]).await;
    cluster.apiserver.write_on("ns/a", RESIZE, &wish(12_000, 60));
    until("it is larger", || (amounts(&cluster, "a") == (12_000, 60, 2)).then_some(())).await;
    let answer = cluster.filter(&pod("b", 1, 4385, 0), &["n1"]).await;
    assert!(
        answer["FailedNodes"]["n1"].as_str().unwrap().contains("at most 4384 MiB and 40 percent"),
        "{answer}"
    );
    // The pod has become smaller, so other pods get the room.
    cluster.apiserver.write_on("ns/a", RESIZE, &wish(1000, 10));
    until("it is smaller", || (amounts(&cluster, "a") == (1000, 10, 3)).then_some(())).await;
    cluster.apiserver.put(&pod("b", 1, 15_384, 90));
    cluster.until_it_fits("b", "n1").await;
    assert_eq!(cluster.bind("b", "n1").await, "");
    assert_eq!(cluster.apiserver.events("ResizeRefused"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wish_without_room_is_reported_once_and_waits_for_room() {
    let cluster = cluster(&[("a", 4096), ("b", 8192)]).await;
    cluster.apiserver.write_on("ns/a", RESIZE, &wish(8193, 30));
    let refused = || cluster.apiserver.events("ResizeRefused");
    let told = until("its user has an event", || refused().first().cloned()).await;
    assert_eq!(told, "GPU-n1-0 has 8192 MiB and 70 % of time for it, and 8193 MiB and 30 % are wanted");
    // A change of another field of the pod is no new wish.
    cluster.apiserver.change("ns/a", |pod| pod["metadata"]["labels"] = json!({"a": "b"}));
    cluster.apiserver.put(&pod("c", 1, 16, 0));
    assert_eq!(cluster.bind("c", "n1").await, "");
    assert_eq!((amounts(&cluster, "a"), refused().len()), ((4096, 30, 1), 1));
    cluster.apiserver.change("ns/b", |pod| pod["status"]["phase"] = "Succeeded".into());
    until("it is larger", || (amounts(&cluster, "a") == (8193, 30, 2)).then_some(())).await;
    for (text, says) in [
        (json!({"v": 2, "c": {}}), "has the version 2"),
        (json!({"v": 1, "c": {"other": {"core": 1}}}), "the container other has no slices"),
        (wish(0, 30), "memMiB 0 is no amount"),
    ] {
        cluster.apiserver.write_on("ns/a", RESIZE, &text);
        until(says, || refused().last().filter(|told| told.contains(says)).cloned()).await;
    }
    assert_eq!(amounts(&cluster, "a"), (8193, 30, 2));
}

/// Returns the arguments of `kubectl` in each `CronJob` of the example. The jobs change the pods with these arguments.
fn commands() -> Vec<Vec<String>> {
    let text = include_str!("../../../../examples/kubernetes/day-night.yaml");
    let arguments = |rest: &str| {
        let items = rest.lines().map_while(|line| line.trim().strip_prefix("- "));
        items.map(|item| item.trim_matches('\'').to_owned()).collect()
    };
    text.split("args:\n").skip(1).map(arguments).collect()
}

/// Makes the changes that `kubectl annotate` would make with the arguments of the example.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_of_day_and_night_changes_the_amounts_of_its_pods() {
    let cluster = cluster(&[("a", 4096)]).await;
    let mut reached = Vec::new();
    for command in commands() {
        let [verb, kind, selector, overwrite, annotation] = command.as_slice() else { panic!("{command:?}") };
        assert_eq!(
            [verb, kind, selector, overwrite].map(String::as_str),
            ["annotate", "pods", "--selector=app=train", "--overwrite"]
        );
        let (name, text) = annotation.split_once('=').unwrap();
        assert_eq!(name, RESIZE);
        let before = amounts(&cluster, "a").2;
        cluster.apiserver.change("ns/a", |pod| pod["metadata"]["annotations"][name] = text.into());
        until("it has another size", || (amounts(&cluster, "a").2 > before).then_some(())).await;
        let (memory, core, _) = amounts(&cluster, "a");
        reached.push((memory, core));
    }
    assert_eq!(reached, [(4096, 20), (12_288, 80)], "the sizes that the example's comment names");
    assert_eq!(cluster.apiserver.events("ResizeRefused"), Vec::<String>::new());
}

/// Checks the room between the choice and the apiserver's answer. In that time, the larger of the old and the new parts count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_is_not_given_away_twice_while_a_pod_is_resized() {
    let cluster = cluster(&[("a", 4096)]).await;
    cluster.apiserver.hold(Some("ns/a"));
    cluster.apiserver.write_on("ns/a", RESIZE, &wish(12_000, 30));
    cluster.apiserver.put(&pod("b", 1, 4385, 0));
    let full = "at most 4384 MiB";
    let end = Instant::now() + crate::PATIENCE;
    while !cluster.filter(&pod("b", 1, 4385, 0), &["n1"]).await.to_string().contains(full) {
        assert!(Instant::now() < end, "the new size does not count");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The pod changes while it still has its old size.
    cluster.apiserver.change("ns/a", |pod| pod["status"]["phase"] = "Running".into());
    cluster.apiserver.put(&pod("mark", 1, 1, 0));
    assert_eq!(cluster.bind("mark", "n1").await, "");
    assert!(cluster.bind("b", "n1").await.contains("at most 4383 MiB"));
    cluster.apiserver.hold(None);
    until("it is larger", || (amounts(&cluster, "a").0 == 12_000).then_some(())).await;
    assert!(cluster.bind("b", "n1").await.contains("at most 4383 MiB"));
}

/// Starts a cluster in which the first write of a pod's new size meets a mishap. `memory` is that size in MiB. The apiserver
/// holds further patches of the pod, so later tries wait.
async fn cluster_with_mishap(mishap: Mishap, memory: u32) -> Cluster {
    let cluster = cluster(&[("a", 4096)]).await;
    cluster.apiserver.next_patch(mishap);
    cluster.apiserver.hold(Some("ns/a"));
    cluster.apiserver.write_on("ns/a", RESIZE, &wish(memory, 30));
    until("the extender writes it", || (!cluster.apiserver.awaits_mishap()).then_some(())).await;
    cluster
}

/// The apiserver answers the new size of a pod with 500 and applies it later, because its etcd is late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_may_be_resized_after_an_error_of_the_apiserver_keeps_its_room() {
    let cluster = cluster_with_mishap(Mishap::Unsure, 12_000).await;
    let is_full = async || {
        let answer = cluster.filter(&pod("b", 1, 4385, 0), &["n1"]).await;
        assert!(answer.to_string().contains("at most 4384 MiB"), "{answer}");
    };
    // In this time the extender reads the answer.
    for _ in 0..50 {
        is_full().await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cluster.apiserver.hold(None);
    until("it is larger", || (amounts(&cluster, "a").0 == 12_000).then_some(())).await;
    is_full().await;
}

/// The write of a pod's new size is lost. The new size counts while the write may still arrive, and no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_size_that_was_lost_and_is_taken_back_leaves_no_room_lost() {
    let cluster = cluster_with_mishap(Mishap::Lost, 8192).await;
    let answer = cluster.filter(&pod("b", 1, 12_288, 10), &["n1"]).await;
    assert!(answer.to_string().contains("at most 8192 MiB"), "{answer}");
    cluster.apiserver.change("ns/a", |pod| {
        pod["metadata"]["annotations"].as_object_mut().unwrap().remove(RESIZE);
    });
    cluster.apiserver.hold(None);
    cluster.apiserver.put(&pod("b", 1, 12_288, 10));
    cluster.until_it_fits("b", "n1").await;
    assert_eq!(amounts(&cluster, "a"), (4096, 30, 1));
    assert_eq!(cluster.bind("b", "n1").await, "");
}

/// Checks that only one extender resizes. The annotation of a pod that no extender has placed is no wish.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_extenders_resizes() {
    let cluster = Cluster::start(&[("n1", 1)]).await;
    let (first, _second) = (cluster.elected("first").await, cluster.elected("second").await);
    cluster.apiserver.put(&pod("a", 1, 4096, 30));
    assert_eq!(first.bind("a", "n1").await, "");
    drop(cluster.extender);
    cluster.apiserver.write_on("ns/a", RESIZE, &wish(8192, 40));
    let apiserver = cluster.apiserver.clone();
    let version = || {
        let pod = apiserver.pod("ns/a");
        let text = pod["metadata"]["annotations"]["gpuslice.dev/alloc"].as_str().unwrap().to_owned();
        serde_json::from_str::<Value>(&text).unwrap()["gen"].as_u64()
    };
    until("it is larger", || (version() == Some(2)).then_some(())).await;
    assert_eq!(apiserver.lease("extender")["holderIdentity"], "first");
    assert_eq!((version(), apiserver.events("ResizeRefused").len()), (Some(2), 0));
}
