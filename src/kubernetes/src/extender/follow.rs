//! Keeps the ledger as the apiserver's objects are.

use super::Extender;
use crate::api::{Change, Failure, List, Node, Pod};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::{Duration, Instant};
use tracing::warn;

/// Time after which a list is asked for again that could not be followed.
const AGAIN: Duration = Duration::from_secs(1);

/// Objects of a kind, and what the ledger does with them.
struct Kind<T> {
    path: &'static str,
    begin: fn(&Extender, Vec<T>, Instant),
    put: fn(&Extender, &T),
    gone: fn(&Extender, &T),
}

const NODES: Kind<Node> = Kind {
    path: "/api/v1/nodes",
    begin: |extender, nodes, _| {
        extender.with(|state| {
            state.ledger.keep_nodes(&nodes);
            nodes.iter().for_each(|node| state.ledger.node(node));
            state.has_nodes = true;
        });
    },
    put: |extender, node| extender.with(|state| state.ledger.node(node)),
    gone: |extender, node| extender.with(|state| state.ledger.node_gone(&node.metadata.name)),
};

const PODS: Kind<Pod> = Kind {
    path: "/api/v1/pods",
    begin: |extender, pods, asked| {
        extender.with(|state| {
            state.ledger.keep_only(&pods, asked);
            pods.iter().for_each(|pod| state.ledger.pod(pod));
            state.has_pods = true;
        });
    },
    put: |extender, pod| extender.with(|state| state.ledger.pod(pod)),
    gone: |extender, pod| extender.with(|state| state.ledger.pod_gone(&pod.metadata.uid)),
};

/// Goes on until it is dropped.
pub(super) async fn follow(extender: &Extender) {
    tokio::join!(kind(extender, NODES), kind(extender, PODS));
}

async fn kind<T: DeserializeOwned>(extender: &Extender, kind: Kind<T>) {
    loop {
        if let Err(failure) = once(extender, &kind).await {
            warn!("{}: {failure}", kind.path);
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Lists all, and follows the changes until the watch ends.
async fn once<T: DeserializeOwned>(extender: &Extender, kind: &Kind<T>) -> Result<(), Failure> {
    let asked = Instant::now();
    let listed = extender.client.get::<List<T>>(kind.path).await?;
    let List { metadata, items } = listed.ok_or_else(|| Failure::Silent("there is no list".to_owned()))?;
    (kind.begin)(extender, items, asked);
    let path = format!("{}?watch=true&resourceVersion={}", kind.path, metadata.resource_version);
    let mut changes = extender.client.changes(&path).await?;
    while let Some(Change { kind: change, object }) = changes.next::<Value>().await? {
        let read =
            |object| serde_json::from_value::<T>(object).map_err(|error| Failure::Silent(error.to_string()));
        match change.as_str() {
            "ADDED" | "MODIFIED" => (kind.put)(extender, &read(object)?),
            "DELETED" => (kind.gone)(extender, &read(object)?),
            "BOOKMARK" => {}
            _ => return Err(Failure::Silent(format!("the watch ends with {object}"))),
        }
    }
    Ok(())
}
