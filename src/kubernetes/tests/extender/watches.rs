//! Tests of the extender's watches of the apiserver.

use crate::cluster::{Cluster, pod};
use std::collections::HashMap;
use std::time::{Duration, Instant};

fn is_watch(query: &HashMap<String, String>) -> bool {
    query.contains_key("watch")
}

/// Waits until the extender watches pods, and returns the queries up to then. They include the lists before the watch.
async fn next(cluster: &Cluster) -> Vec<HashMap<String, String>> {
    let end = Instant::now() + crate::PATIENCE;
    let mut queries = Vec::new();
    loop {
        queries.extend(cluster.apiserver.queries());
        if queries.iter().any(is_watch) {
            return queries;
        }
        assert!(Instant::now() < end, "it does not ask");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_ends_goes_on_where_it_was_and_pods_are_not_listed_again() {
    let cluster = Cluster::start(&[("n1", 1)]).await;
    let begun = next(&cluster).await;
    assert_eq!(begun.iter().filter(|query| !is_watch(query)).count(), 1, "{begun:?}");
    assert!(begun.iter().any(|query| query.get("allowWatchBookmarks").is_some_and(|value| value == "true")));
    cluster.apiserver.put(&pod("a", 1, 16_384, 100));
    let version = cluster.apiserver.version();
    cluster.apiserver.end_watches();
    // A change between two watches reaches the extender.
    assert_eq!(cluster.bind("a", "n1").await, "");
    cluster.apiserver.put(&pod("b", 1, 16_384, 100));
    cluster.apiserver.delete("ns/a");
    cluster.until_it_fits("b", "n1").await;
    let queries = next(&cluster).await;
    assert!(queries.iter().all(is_watch), "{queries:?}");
    assert_eq!(queries[0]["resourceVersion"], version);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bookmark_moves_the_version_from_which_a_watch_goes_on() {
    let cluster = Cluster::start(&[("n1", 1)]).await;
    next(&cluster).await;
    // Other objects change, so the version grows, while no pod changes. The apiserver then forgets older changes.
    cluster.apiserver.put(&pod("a", 1, 4096, 30));
    cluster.apiserver.bookmark();
    cluster.apiserver.forget();
    cluster.apiserver.end_watches();
    let queries = next(&cluster).await;
    assert!(queries.iter().all(is_watch), "{queries:?}");
    assert_eq!(queries[0]["resourceVersion"], cluster.apiserver.version());
    // Without a bookmark, the extender's version is too old. So it lists once, and follows the changes after that.
    cluster.apiserver.mute(true);
    cluster.apiserver.put(&pod("b", 1, 4096, 30));
    cluster.apiserver.forget();
    cluster.apiserver.mute(false);
    cluster.apiserver.end_watches();
    let mut queries = next(&cluster).await;
    while queries.iter().all(is_watch) {
        queries.extend(next(&cluster).await);
    }
    assert_eq!(queries.iter().filter(|query| !is_watch(query)).count(), 1, "{queries:?}");
    assert_eq!(cluster.bind("b", "n1").await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_comes_page_by_page() {
    let mut cluster = Cluster::start(&[("n1", 1)]).await;
    for number in 0..7 {
        let name = format!("p{number}");
        cluster.apiserver.put(&pod(&name, 1, 1024, 10));
        assert_eq!(cluster.bind(&name, "n1").await, "");
    }
    cluster.apiserver.page(3);
    cluster.apiserver.queries();
    cluster.restart().await;
    let pages = cluster.apiserver.queries();
    assert_eq!(pages.iter().filter(|query| !is_watch(query)).count(), 3, "{pages:?}");
    // Seven pods together have 7 GiB and 70 %.
    let answer = cluster.filter(&pod("b", 1, 9217, 10), &["n1"]).await;
    assert!(
        answer["FailedNodes"]["n1"].as_str().unwrap().contains("at most 9216 MiB and 30 percent"),
        "{answer}"
    );
}

/// The extender sees nodes that come, change and go, both by its watch and between two watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_come_change_and_go_are_followed() {
    let cluster = Cluster::start(&[("n1", 1)]).await;
    let asked = pod("a", 1, 1024, 10);
    cluster.apiserver.put(&asked);
    let inventory = cluster.apiserver.node("n1")["metadata"]["annotations"].clone();
    for is_between in [false, true] {
        let end = || {
            if is_between {
                cluster.apiserver.end_watches();
            }
        };
        end();
        cluster.apiserver.add_node("n2");
        until_refused(&cluster, "n2", "it has no annotation gpuslice.dev/inventory").await;
        end();
        cluster.apiserver.change_node("n2", |node| node["metadata"]["annotations"] = inventory.clone());
        cluster.until_it_fits("a", "n2").await;
        end();
        cluster.apiserver.delete_node("n2");
        until_refused(&cluster, "n2", "the node is not known").await;
    }
}

/// Waits until the extender refuses a node for this reason.
async fn until_refused(cluster: &Cluster, node: &str, why: &str) {
    let end = Instant::now() + crate::PATIENCE;
    loop {
        let answer = cluster.filter(&pod("b", 1, 1024, 10), &[node]).await;
        let refused = &answer["FailedAndUnresolvableNodes"][node];
        if refused.as_str().is_some_and(|refused| refused.contains(why)) {
            return;
        }
        assert!(Instant::now() < end, "{node}: {answer}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
