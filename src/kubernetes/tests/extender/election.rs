//! Tests several extenders, of which only the holder of the Lease binds pods.

use crate::cluster::{Cluster, Extender, pod};
use std::time::{Duration, Instant};

/// Returns the holder of the Lease; empty if nobody holds it.
fn holder(cluster: &Cluster) -> String {
    cluster.apiserver.lease("extender")["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// Binds a pod as soon as the extender may do so, and returns the time until then.
async fn bind_at_last(cluster: &Cluster, extender: &Extender, name: &str) -> Duration {
    let begun = Instant::now();
    loop {
        let why = extender.bind(name, "n1").await;
        if why.is_empty() {
            return begun.elapsed();
        }
        assert!(why.contains("has the lease"), "{why}, held by {:?}", holder(cluster));
        assert!(begun.elapsed() < crate::PATIENCE, "{why}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_of_the_lease_binds_and_another_extender_takes_over_when_it_runs_out() {
    let cluster = Cluster::start(&[("n1", 1)]).await;
    let (first, second) = (cluster.elected("first").await, cluster.elected("second").await);
    for name in ["a", "b", "c"] {
        cluster.apiserver.put(&pod(name, 1, 4096, 30));
    }
    assert_eq!(first.bind("a", "n1").await, "");
    let lease = cluster.apiserver.lease("extender");
    assert_eq!((&lease["holderIdentity"], &lease["leaseTransitions"]), (&"first".into(), &0.into()));
    assert_eq!(lease["leaseDurationSeconds"], 2);
    let why = second.bind("b", "n1").await;
    assert!(why.contains("first has the lease"), "{why}");
    // The extender renews the Lease while the scheduler asks it. Otherwise the Lease would expire twice in this time.
    let until = Instant::now() + Duration::from_secs(4);
    let mut number = 0;
    while Instant::now() < until {
        let name = format!("x{number}");
        number += 1;
        cluster.apiserver.put(&pod(&name, 1, 16, 0));
        assert_eq!(first.bind(&name, "n1").await, "");
        assert!(second.bind("b", "n1").await.contains("first has the lease"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // A killed extender does not give the Lease back, so the Lease stays until it expires.
    drop(first);
    let took = bind_at_last(&cluster, &second, "b").await;
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(5), "{took:?}");
    let lease = cluster.apiserver.lease("extender");
    assert_eq!((&lease["holderIdentity"], &lease["leaseTransitions"]), (&"second".into(), &1.into()));
    // An extender that ends in order gives the Lease back, so another one gets it at once.
    second.end().await;
    assert_eq!(holder(&cluster), "");
    let third = cluster.elected("third").await;
    assert_eq!(third.bind("c", "n1").await, "");
}

/// Checks that the Lease follows the leading scheduler, because only that scheduler asks its extender. The other extender runs
/// on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extender_without_requests_gives_the_lease_back() {
    let cluster = Cluster::start(&[("n1", 1)]).await;
    let (first, second) = (cluster.elected("first").await, cluster.elected("second").await);
    cluster.apiserver.put(&pod("a", 1, 4096, 30));
    cluster.apiserver.put(&pod("b", 1, 4096, 30));
    assert_eq!(first.bind("a", "n1").await, "");
    let took = bind_at_last(&cluster, &second, "b").await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(holder(&cluster), "second");
}

/// Stops the first extender after its choice, for longer than its Lease lasts. In that time the second extender gives the
/// chosen memory to another pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_extenders_that_both_believe_to_lead_do_not_give_away_the_same_memory() {
    let cluster = Cluster::start(&[("n1", 1)]).await;
    let (first, second) = (cluster.elected("first").await, cluster.elected("second").await);
    for (name, memory) in [("before", 384), ("a", 16_000), ("b", 16_000), ("c", 16_000)] {
        cluster.apiserver.put(&pod(name, 1, memory, 10));
    }
    assert_eq!(first.bind("before", "n1").await, "");
    cluster.apiserver.hold(Some("ns/a"));
    cluster.apiserver.hold_leases_of(Some("first"));
    let bound = tokio::join!(first.bind("a", "n1"), async {
        bind_at_last(&cluster, &second, "b").await;
        cluster.apiserver.hold(None);
    });
    assert!(bound.0.contains("is not held any more"), "{bound:?}");
    assert!(cluster.apiserver.pod("ns/a")["spec"]["nodeName"].is_null());
    assert_eq!(cluster.alloc("a"), None, "what was written is taken back");
    cluster.apiserver.hold_leases_of(None);
    assert!(first.bind("c", "n1").await.contains("second has the lease"));
    // The new holder knows the bindings of the former one.
    assert!(second.bind("a", "n1").await.contains("at most 0 MiB"));
}

/// Checks that the next extender has all bound pods in its ledger before it chooses, although its watch is late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_lists_the_pods_before_it_binds_one() {
    let cluster = Cluster::start(&[("n1", 1)]).await;
    let (first, second) = (cluster.elected("first").await, cluster.elected("second").await);
    cluster.apiserver.mute(true);
    cluster.apiserver.put(&pod("a", 1, 16_384, 100));
    cluster.apiserver.put(&pod("b", 1, 16_384, 100));
    assert_eq!(first.bind("a", "n1").await, "");
    first.end().await;
    let why = second.bind("b", "n1").await;
    assert!(why.contains("at most 0 MiB"), "{why}");
}
