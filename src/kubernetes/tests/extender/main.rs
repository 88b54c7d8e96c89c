//! Tests of the extender of the scheduler against an apiserver, over real HTTP, and of its placement on random clusters.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test"
)]

#[path = "../support/apiserver.rs"]
#[allow(dead_code, reason = "the device plugin's tests use the rest")]
mod apiserver;
mod cluster;
mod election;
mod latency;
mod ledger;
mod placement;
mod preemption;
mod resize;
mod wake;
mod watches;

use apiserver::Mishap;
use cluster::{Cluster, pod, said};
use gpuslice_kubernetes::placement::Order;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longest wait for an event. It is long, because the machine may be under other load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_without_room_have_a_reason_and_the_fullest_of_the_others_is_best() {
    let cluster = Cluster::start(&[("full", 1), ("half", 1), ("empty", 2), ("none", 0)]).await;
    for (name, node, memory) in [("x", "full", 12_000), ("y", "half", 6000)] {
        cluster.apiserver.put(&pod(name, 1, memory, 10));
        assert_eq!(cluster.bind(name, node).await, "");
    }
    cluster.apiserver.change_node("none", |node| node["metadata"]["annotations"] = serde_json::json!({}));
    let asked = pod("a", 1, 8000, 40);
    let answer = cluster.filter(&asked, &["full", "half", "empty", "lost"]).await;
    assert_eq!(answer["NodeNames"], serde_json::json!(["half", "empty"]));
    let failed = &answer["FailedNodes"];
    assert!(failed["full"].as_str().unwrap().contains("at most 4384 MiB and 90 percent"), "{failed}");
    // Evictions can help on a full node, but not on an unknown node.
    let lost = &answer["FailedAndUnresolvableNodes"]["lost"];
    assert!(lost.as_str().unwrap().contains("not known") && failed["lost"].is_null(), "{answer}");
    let answer = cluster.filter(&pod("large", 1, 20_000, 10), &["full", "empty"]).await;
    assert_eq!(answer["FailedAndUnresolvableNodes"].as_object().unwrap().len(), 2, "{answer}");
    let scores = cluster.prioritize(&asked, &["half", "empty"]).await;
    assert!(scores["half"] > scores["empty"], "{scores:?}");
    // Two slices of a pod are on two GPUs.
    let answer = cluster.filter(&pod("b", 2, 4000, 40), &["half", "empty"]).await;
    assert_eq!(answer["NodeNames"], serde_json::json!(["empty"]));
    let answer = cluster.filter(&pod("c", 2, 4001, 40), &["empty"]).await;
    let refused = &answer["FailedAndUnresolvableNodes"]["empty"];
    assert!(refused.as_str().unwrap().contains("4001 is not divisible"), "{answer}");
}

/// Checks both choices of the order `spread`: the emptiest node is the best, and a pod gets the emptiest GPU of its node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extender_that_spreads_prefers_the_emptiest_node_and_its_emptiest_gpu() {
    for order in [Order::Spread, Order::Binpack] {
        let cluster = Cluster::start_in_order(&[("half", 2), ("empty", 2)], order).await;
        for (name, memory) in [("a", 6000), ("b", 2000)] {
            cluster.apiserver.put(&pod(name, 1, memory, 10));
            assert_eq!(cluster.bind(name, "half").await, "");
        }
        let on = |name: &str| cluster.alloc(name).unwrap()["c"]["main"][0]["uuid"].clone();
        assert_eq!(on("a") == on("b"), order == Order::Binpack, "{order:?}");
        let scores = cluster.prioritize(&pod("c", 1, 1000, 10), &["half", "empty"]).await;
        assert_eq!(scores["empty"] > scores["half"], order == Order::Spread, "{order:?}: {scores:?}");
        cluster.apiserver.put(&pod("c", 1, 1000, 10));
        assert_eq!(cluster.bind("c", "half").await, "");
        let expected = if order == Order::Spread { on("b") } else { on("a") };
        assert_eq!(on("c"), expected, "{order:?}");
    }
}

/// The apiserver is killed after a binding, so its answer is lost. The scheduler asks again, because it does not know that the
/// pod is bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_binding_was_not_answered_keeps_its_parts_when_the_scheduler_asks_again() {
    for mishap in [Mishap::Unheard, Mishap::Late] {
        let cluster = Cluster::start(&[("n1", 2)]).await;
        cluster.apiserver.put(&pod("a", 1, 8000, 50));
        cluster.apiserver.next_binding(mishap);
        assert!(cluster.bind("a", "n1").await.contains("does not answer"), "{mishap:?}");
        let end = Instant::now() + PATIENCE;
        while cluster.apiserver.pod("ns/a")["spec"]["nodeName"].is_null() {
            assert!(Instant::now() < end, "it is bound late");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let alloc = cluster.alloc("a");
        assert!(alloc.is_some(), "{mishap:?}");
        let writes = cluster.apiserver.writes();
        assert_eq!(cluster.bind("a", "n1").await, "", "{mishap:?}");
        assert!(cluster.bind("a", "n2").await.contains("bound to the node n1"), "{mishap:?}");
        assert_eq!((cluster.alloc("a"), cluster.apiserver.writes()), (alloc, writes), "{mishap:?}");
    }
    // The extender leaves a pod alone that another client has bound.
    let cluster = Cluster::start(&[("n1", 1)]).await;
    let mut by_hand = pod("b", 1, 8000, 50);
    by_hand["spec"]["nodeName"] = "n1".into();
    cluster.apiserver.put(&by_hand);
    assert!(cluster.bind("b", "n1").await.contains("another client has bound the pod"));
    assert_eq!(cluster.alloc("b"), None);
}

/// Opens connections that begin a request and never finish it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_unfinished_requests_to_the_health_port_are_closed_in_time() {
    let cluster = Cluster::start(&[("n1", 1)]).await;
    let mut unfinished = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(cluster.extender.health).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n").await.unwrap();
        unfinished.push(stream);
    }
    assert!(said(cluster.extender.health, "GET", "/healthz", "").await.starts_with("HTTP/1.1 200"));
    for mut stream in unfinished {
        let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
        assert!(closed.is_ok(), "the connection stays open");
    }
}

/// The apiserver answers a binding with 500 and applies it later, because its etcd is late. In between, another pod wants the
/// same room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_may_be_bound_after_an_error_of_the_apiserver_keeps_its_room() {
    let cluster = Cluster::start(&[("n1", 1)]).await;
    for name in ["a", "b"] {
        cluster.apiserver.put(&pod(name, 1, 16_384, 100));
    }
    cluster.apiserver.next_binding(Mishap::Unsure);
    let why = cluster.bind("a", "n1").await;
    assert!(why.contains("(500)"), "{why}");
    let why = cluster.bind("b", "n1").await;
    assert!(why.contains("at most 0 MiB"), "{why}");
    let is_bound = || cluster.apiserver.pod("ns/a")["spec"]["nodeName"] == "n1";
    cluster::until("it is bound late", || is_bound().then_some(())).await;
    assert_eq!(cluster.alloc("a").unwrap()["node"], "n1");
    assert_eq!(cluster.bind("a", "n1").await, "");
}

/// The apiserver answers the annotation of a pod with 500. The extender then sends no binding, so the pod takes no room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_annotation_was_not_written_has_no_room() {
    for mishap in [Mishap::Unsure, Mishap::Lost] {
        let cluster = Cluster::start(&[("n1", 1)]).await;
        for name in ["a", "b"] {
            cluster.apiserver.put(&pod(name, 1, 16_384, 100));
        }
        cluster.apiserver.next_patch(mishap);
        assert_ne!(cluster.bind("a", "n1").await, "", "{mishap:?}");
        assert_eq!(cluster.bind("b", "n1").await, "", "{mishap:?}");
        assert!(cluster.apiserver.pod("ns/a")["spec"]["nodeName"].is_null(), "{mishap:?}");
    }
}

/// The answer to a binding to the first node is lost. The scheduler tries the second node. The apiserver applies the first
/// binding between the annotation and the binding of the second try.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_that_a_later_one_overtakes_does_not_bind_the_pod_beside_its_annotation() {
    let cluster = Cluster::start(&[("n1", 1), ("n2", 1)]).await;
    cluster.apiserver.put(&pod("a", 1, 8000, 50));
    cluster.apiserver.next_binding(Mishap::Overtaken);
    assert!(cluster.bind("a", "n1").await.contains("does not answer"));
    assert_eq!(cluster.bind("a", "n2").await, "");
    assert_eq!(cluster.apiserver.pod("ns/a")["spec"]["nodeName"], "n2");
    assert_eq!(cluster.alloc("a").unwrap()["node"], "n2");
    // The room of the first binding is free again.
    cluster.apiserver.put(&pod("b", 1, 16_384, 100));
    cluster.until_it_fits("b", "n1").await;
}

/// The answers to two bindings of a pod to different nodes are lost. The annotation of the second one makes the first
/// impossible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_binding_frees_the_room_of_the_first_though_it_is_not_answered_either() {
    let cluster = Cluster::start(&[("n1", 1), ("n2", 1)]).await;
    cluster.apiserver.put(&pod("a", 1, 16_384, 100));
    for node in ["n1", "n2"] {
        cluster.apiserver.next_binding(Mishap::Lost);
        assert!(cluster.bind("a", node).await.contains("does not answer"), "{node}");
    }
    let answer = cluster.filter(&pod("b", 1, 16_384, 100), &["n1", "n2"]).await;
    assert_eq!(answer["NodeNames"], serde_json::json!(["n1"]), "{answer}");
}

/// Binds ten pods at the same time. Only six of them have room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bindings_at_the_same_time_never_give_away_more_than_there_is() {
    let cluster = Cluster::start(&[("n1", 2)]).await;
    let names: Vec<String> = (0..10).map(|number| format!("p{number}")).collect();
    names.iter().for_each(|name| cluster.apiserver.put(&pod(name, 1, 5000, 30)));
    let bound = futures(names.iter().map(|name| cluster.bind(name, "n1"))).await;
    assert_eq!(bound.iter().filter(|error| error.is_empty()).count(), 6, "{bound:?}");
    assert!(bound.iter().all(|error| error.is_empty() || error.contains("5000 MiB")), "{bound:?}");
    for name in &names {
        let pod = cluster.apiserver.pod(&format!("ns/{name}"));
        let has_both = pod["spec"]["nodeName"] == "n1" && cluster.alloc(name).is_some();
        let has_none = pod["spec"]["nodeName"].is_null() && cluster.alloc(name).is_none();
        assert!(has_both || has_none, "{pod}");
    }
    // A pod ends, and its room is free again.
    let ended = names.iter().find(|name| cluster.alloc(name).is_some()).unwrap();
    let waiting = names.iter().find(|name| cluster.alloc(name).is_none()).unwrap();
    cluster.apiserver.change(&format!("ns/{ended}"), |pod| pod["status"]["phase"] = "Failed".into());
    cluster.until_it_fits(waiting, "n1").await;
    assert_eq!(cluster.bind(waiting, "n1").await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_binding_writes_and_takes_room() {
    let cluster = Cluster::start(&[("n1", 1), ("n2", 1)]).await;
    cluster.apiserver.put(&pod("victim", 1, 16_384, 100));
    assert_eq!(cluster.bind("victim", "n1").await, "");
    let writes = cluster.apiserver.writes();
    // Each pod needs the whole GPU that is free.
    for name in ["a", "b"] {
        let mut asked = pod(name, 1, 16_384, 100);
        asked["spec"]["priority"] = 9.into();
        cluster.apiserver.put(&asked);
        let answer = cluster.filter(&asked, &["n1", "n2"]).await;
        assert_eq!(answer["NodeNames"], serde_json::json!(["n2"]), "{answer}");
        assert_eq!(cluster.prioritize(&asked, &["n1", "n2"]).await.len(), 2);
        assert_eq!(cluster.preempt(&asked, &serde_json::json!({"n1": ["victim"]})).await.len(), 1);
    }
    assert_eq!(cluster.apiserver.writes(), writes);
    assert_eq!(cluster.bind("b", "n2").await, "");
    assert_eq!(cluster.apiserver.writes(), writes + 2, "the annotation, and the binding");
    assert!(cluster.bind("a", "n2").await.contains("at most 0 MiB"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_count_each_verb_and_its_failures() {
    let mut cluster = Cluster::start(&[("n1", 1)]).await;
    cluster.apiserver.put(&pod("a", 1, 16_384, 100));
    cluster.apiserver.put(&pod("b", 1, 1000, 10));
    let (a, b) = (pod("a", 1, 16_384, 100), pod("b", 1, 1000, 10));
    cluster.filter(&a, &["n1"]).await;
    cluster.prioritize(&a, &["n1"]).await;
    assert_eq!(cluster.bind("a", "n1").await, "");
    // *filter* answers for a node without room. A binding to such a node fails.
    cluster.filter(&b, &["n1"]).await;
    assert!(cluster.bind("b", "n1").await.contains("at most 0 MiB"));
    let count = |metrics: &[String], line: String| {
        assert!(metrics.contains(&line), "{line} is missing in {metrics:#?}");
    };
    let metrics = cluster.metrics().await;
    for (verb, requests, failures) in
        [("filter", 2, 0), ("prioritize", 1, 0), ("preempt", 0, 0), ("bind", 2, 1)]
    {
        count(
            &metrics,
            format!("gpuslice_extender_request_duration_seconds_count{{verb=\"{verb}\"}} {requests}"),
        );
        count(&metrics, format!("gpuslice_extender_request_failures_total{{verb=\"{verb}\"}} {failures}"));
    }
    count(&metrics, "gpuslice_extender_rejections_total{reason=\"full\"} 1".to_owned());
    let page = include_str!("../../../../docs/guide/kubernetes.md");
    for name in metrics.iter().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(page.contains(&format!("`{name}")), "the guide does not have {name}");
    }
    // Before the extender has listed the pods, requests fail.
    cluster.apiserver.fail_lists_of(Some("pods"));
    cluster.restart_unready().await;
    assert_ne!(cluster.answer_of_filter(&b, &["n1"]).await["Error"], "");
    assert!(cluster.preempt(&b, &serde_json::json!({"n1": ["a"]})).await.is_empty());
    let metrics = cluster.metrics().await;
    for verb in ["filter", "preempt"] {
        count(&metrics, format!("gpuslice_extender_request_failures_total{{verb=\"{verb}\"}} 1"));
    }
}

/// Checks that names of pods create no series, and that the ledger's memory is right after pods come, change and go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_count_rejected_nodes_by_the_reason_and_have_the_memory_of_each_node() {
    let cluster = Cluster::start(&[("n1", 1), ("n2", 2)]).await;
    for (name, memory) in [("a", 12_000), ("b", 4000)] {
        cluster.apiserver.put(&pod(name, 1, memory, 10));
        assert_eq!(cluster.bind(name, "n1").await, "");
    }
    let nodes = ["n1", "n2", "lost"];
    let wrong = pod("wrong", 2, 4001, 10);
    for (asked, fits) in
        [(pod("c", 1, 8000, 10), 1), (pod("d", 2, 8000, 10), 1), (pod("e", 1, 20_000, 10), 0), (wrong, 0)]
    {
        let answer = cluster.filter(&asked, &nodes).await;
        assert_eq!(answer["NodeNames"].as_array().unwrap().len(), fits, "{answer}");
    }
    let series = |metrics: &[String], name: &str| -> Vec<String> {
        let mut lines: Vec<String> =
            metrics.iter().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let metrics = cluster.metrics().await;
    // The node n1 is full for the first pod, and has too few GPUs for the second one.
    let counts = [("full", 1), ("node", 3), ("request", 3), ("unsuitable", 3)];
    let expected = counts.map(|(reason, count)| format!("{{reason=\"{reason}\"}} {count}"));
    assert_eq!(series(&metrics, "gpuslice_extender_rejections_total"), expected);
    let memory = |metrics: &[String]| series(metrics, "gpuslice_extender_memory_bytes");
    let on = |node, kind, mebibytes: u64| format!("{{node=\"{node}\",kind=\"{kind}\"}} {}", mebibytes << 20);
    let of = |on_first| {
        [
            on("n1", "allocated", on_first),
            on("n1", "capacity", 16_384),
            on("n2", "allocated", 0),
            on("n2", "capacity", 32_768),
        ]
    };
    assert_eq!(memory(&metrics), of(16_000));
    cluster.apiserver.change("ns/a", |pod| pod["status"]["phase"] = "Succeeded".into());
    cluster.apiserver.put(&pod("f", 1, 12_000, 10));
    cluster.until_it_fits("f", "n1").await;
    assert_eq!(memory(&cluster.metrics().await), of(4000));
}

/// The apiserver delays the annotation of one pod until another pod of the node is bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_that_hangs_does_not_delay_another_one_on_its_node() {
    let cluster = Cluster::start(&[("n1", 1)]).await;
    for (name, memory) in [("a", 10_000), ("b", 6000)] {
        cluster.apiserver.put(&pod(name, 1, memory, 30));
    }
    cluster.apiserver.hold(Some("ns/a"));
    let (hung, other) = tokio::join!(cluster.bind("a", "n1"), async {
        // The ledger counts the first pod as soon as another pod of its size has no room.
        let end = Instant::now() + PATIENCE;
        while cluster.filter(&pod("c", 1, 10_000, 0), &["n1"]).await["NodeNames"] != serde_json::json!([]) {
            assert!(Instant::now() < end, "the first pod does not count");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let error = cluster.bind("b", "n1").await;
        assert!(cluster.apiserver.pod("ns/a")["spec"]["nodeName"].is_null(), "it still hangs");
        cluster.apiserver.hold(None);
        error
    });
    assert_eq!((hung.as_str(), other.as_str()), ("", ""));
    assert!([("a", 10_000), ("b", 6000)].iter().all(|(name, memory)| {
        cluster.alloc(name).unwrap()["c"]["main"][0]["memMiB"].as_u64() == Some(*memory)
    }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_that_fails_anywhere_leaves_no_room_lost() {
    for mishap in [Mishap::Refused, Mishap::Deleted, Mishap::Unheard] {
        let cluster = Cluster::start(&[("n1", 1)]).await;
        cluster.apiserver.put(&pod("a", 1, 16_384, 100));
        cluster.apiserver.next_binding(mishap);
        let error = cluster.bind("a", "n1").await;
        assert!(!error.is_empty(), "{mishap:?}");
        if mishap == Mishap::Refused {
            assert_eq!(cluster.alloc("a"), None, "what was written is taken back");
        }
        cluster.apiserver.put(&pod("b", 1, 16_384, 100));
        if mishap == Mishap::Unheard {
            // The pod is bound, and keeps its parts.
            assert!(cluster.alloc("a").is_some());
            cluster.apiserver.end_watches();
            assert!(cluster.bind("b", "n1").await.contains("0 MiB"), "{mishap:?}");
            cluster.apiserver.delete("ns/a");
        }
        cluster.until_it_fits("b", "n1").await;
        assert_eq!(cluster.bind("b", "n1").await, "", "{mishap:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_and_a_second_extender_know_all_given_parts() {
    let mut cluster = Cluster::start(&[("n1", 1)]).await;
    cluster.apiserver.put(&pod("a", 1, 16_000, 100));
    assert_eq!(cluster.bind("a", "n1").await, "");
    // An annotation on a pod without a node comes from an extender that ended before the binding, or from a tenant.
    let mut claimed = pod("claimed", 1, 300, 0);
    claimed["metadata"]["annotations"] = cluster.apiserver.pod("ns/a")["metadata"]["annotations"].clone();
    cluster.apiserver.put(&claimed);
    // Another client has bound this pod to another node than that of its parts.
    let mut moved = pod("moved", 1, 300, 0);
    let given = serde_json::json!({"v": 1, "uid": "uid-moved", "node": "n2", "gen": 1, "at": "", "c": {"main": [{"uuid": "GPU-n1-0", "memMiB": 300, "core": 0}]}});
    moved["metadata"]["annotations"] = serde_json::json!({"gpuslice.dev/alloc": given.to_string()});
    moved["spec"]["nodeName"] = "n1".into();
    cluster.apiserver.put(&moved);
    for _ in 0..2 {
        cluster.restart().await;
        cluster.apiserver.put(&pod("b", 1, 385, 0));
        assert!(cluster.bind("b", "n1").await.contains("at most 384 MiB and 0 percent"));
        cluster.apiserver.put(&pod("c", 1, 384, 0));
        let answer = cluster.filter(&pod("c", 1, 384, 0), &["n1"]).await;
        assert_eq!(answer["NodeNames"], serde_json::json!(["n1"]), "{answer}");
    }
    // The request has the UID of an earlier pod of the same name.
    cluster.apiserver.change("ns/c", |pod| pod["metadata"]["uid"] = "other".into());
    assert!(cluster.bind("c", "n1").await.contains("is gone"));
}

/// Checks that the extender waits for both lists. Without the pods, GPUs look emptier than they are; without the nodes, nodes
/// are missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extender_decides_nothing_before_it_has_listed_nodes_and_pods() {
    for kind in ["nodes", "pods"] {
        let mut cluster = Cluster::start(&[("n1", 1)]).await;
        cluster.apiserver.put(&pod("a", 1, 16_384, 100));
        assert_eq!(cluster.bind("a", "n1").await, "");
        cluster.apiserver.put(&pod("b", 1, 16_384, 100));
        cluster.apiserver.fail_lists_of(Some(kind));
        cluster.restart_unready().await;
        assert!(cluster.bind("b", "n1").await.contains("not listed yet"), "{kind}");
        let answer = cluster.answer_of_filter(&pod("b", 1, 16_384, 100), &["n1"]).await;
        assert!(answer["Error"].as_str().unwrap().contains("not listed yet"), "{kind}: {answer}");
        cluster.apiserver.fail_lists_of(None);
        cluster.until_ready().await;
        assert!(cluster.bind("b", "n1").await.contains("at most 0 MiB"), "{kind}");
    }
}

async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.map(|one| Some(Box::pin(one))).collect();
    let mut done: Vec<Option<T>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (one, done) in all.iter_mut().zip(&mut done) {
            if let Some(future) = one
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                (*done, *one) = (Some(value), None);
            }
        }
        if all.iter().all(Option::is_none) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
